"""The manifests of `batchsched install`: the CRDs and the kustomize base, in one namespace, by server-side apply.

The kustomize base in `deploy/` is the only source of these objects; a wheel contains a copy of it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from batchsched.errors import CommandError
from batchsched.kube.connection import ApiResource, Connection, plural_of_kind

Manifest = dict[str, Any]
NAMESPACE: Final = "batchsched-system"
APPLY: Final = "application/apply-patch+yaml"
LABELS: Final = {"app.kubernetes.io/name": "batchsched"}
_PACKAGE: Final = Path(__file__).parents[1]
_CLUSTER_SCOPED: Final = frozenset({"Namespace", "ClusterRole", "ClusterRoleBinding"})


@dataclass(frozen=True, slots=True)
class Installation:
    """The objects that `batchsched install` creates: CustomResourceDefinitions, RBAC rules and the Deployment.

    Args:
      namespace: The namespace of batchsched.
      image: The container image; None keeps the image of the manifests.
      replicas: The number of replicas, of which one leads; None keeps the number of the manifests.
    """

    namespace: str = NAMESPACE
    image: str | None = None
    replicas: int | None = None

    def manifests(self) -> Iterator[Manifest]:
        """Yield the manifests of the installation in the order in which they must be applied.

        Raises:
          CommandError: This installation of batchsched contains no manifests.
        """
        crds, base = packaged_folder("crds"), packaged_folder("deploy/kustomize/base")
        for file in sorted(crds.glob("*.yaml")):
            yield yaml.safe_load(file.read_text())
        listed = yaml.safe_load((base / "kustomization.yaml").read_text())["resources"]
        for name in listed:
            if name.endswith(".yaml"):
                for manifest in yaml.safe_load_all((base / name).read_text()):
                    yield self._in_namespace(manifest)

    def _in_namespace(self, manifest: Manifest) -> Manifest:
        metadata = manifest["metadata"]
        metadata["labels"] = LABELS | metadata.get("labels", {})
        if manifest["kind"] == "Namespace":
            metadata["name"] = self.namespace
        elif manifest["kind"] not in _CLUSTER_SCOPED:
            metadata.setdefault("namespace", self.namespace)
        for subject in manifest.get("subjects", ()):
            subject["namespace"] = self.namespace
        if manifest["kind"] == "Deployment":
            self._tune(manifest["spec"])
        return manifest

    def _tune(self, spec: Manifest) -> None:
        if self.replicas is not None:
            spec["replicas"] = self.replicas
        if self.image is not None:
            spec["template"]["spec"]["containers"][0]["image"] = self.image


async def apply_manifest(connection: Connection, manifest: Manifest) -> None:
    """Create or update an object by server-side apply. Fields of other managers are kept.

    Raises:
      ApiError: The API server refused the request.
      Unreachable: The API server did not answer.
    """
    metadata = manifest["metadata"]
    namespace = metadata.get("namespace", "")
    kind = manifest["kind"]
    resource = ApiResource(manifest["apiVersion"], plural_of_kind(kind), kind, namespaced=bool(namespace))
    await connection.request(
        "PATCH",
        resource.path(namespace, metadata["name"]),
        query={"fieldManager": "batchsched-install", "force": "true"},
        body=msgspec.json.encode(manifest),
        content_type=APPLY,
        deadline=30.0,
    )


def packaged_folder(name: str) -> Path:
    """Return the path of a folder of the repository, or of its copy in an installed wheel.

    Raises:
      CommandError: this installation of batchsched has no such folder.
    """
    for folder in (_PACKAGE / "installed" / name, _PACKAGE.parent / name):
        if folder.is_dir():
            return folder
    raise CommandError(f"this batchsched came without {name}/; install it from its wheel or its repository")
