"""batchsched's rights as `deploy/` installs them: tests run it as its own ServiceAccount, and no more."""

import functools
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from tests.controlplane.build import program
from tests.controlplane.plane import ApiFault, ControlPlane

BASE: Final = Path(__file__).parents[2] / "deploy" / "kustomize" / "base"
POLICIES: Final = BASE.parent / "policies"
NAMESPACE: Final = "batchsched-system"
_PLURALS: Final = {
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
}
_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
_ADMISSION_PLURALS: Final = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}


@functools.cache
def service_account(plane: ControlPlane) -> str:
    """Install the ServiceAccount with its roles, where they are not there yet, and return a token of it for a day."""
    _make(plane, "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    for manifest in manifests():
        if manifest["kind"] in _PLURALS:
            namespace = manifest["metadata"].get("namespace", "")
            _make(plane, _PLURALS[manifest["kind"]].format(namespace=namespace), manifest)
    return plane.token_of(NAMESPACE, "batchsched", 86_400)


def manifests() -> Iterator[dict[str, Any]]:
    """Yield what `deploy/` installs."""
    yield from rendered(BASE)


def rendered(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a folder with a kustomization."""
    result = subprocess.run([program("kubectl"), "kustomize", str(folder)], capture_output=True, check=True)
    yield from yaml.safe_load_all(result.stdout)


def policies() -> list[dict[str, Any]]:
    """Return the admission policies with their bindings, which are installed only on demand."""
    return list(yaml.safe_load_all((POLICIES / "policies.yaml").read_text()))


def install_policies(plane: ControlPlane) -> None:
    """Install the admission policies; the API server enforces them a little later."""
    for manifest in policies():
        path = f"{_ADMISSION}/{_ADMISSION_PLURALS[manifest['kind']]}?fieldValidation=Strict"
        plane.admin.create(path, manifest)


def cluster_role() -> dict[str, Any]:
    """Return the role that batchsched has in the whole cluster."""
    return next(
        one for one in manifests() if one["kind"] == "ClusterRole" and one["metadata"]["name"] == "batchsched"
    )


def _make(plane: ControlPlane, path: str, manifest: dict[str, object]) -> None:
    try:
        plane.admin.create(path, manifest)
    except ApiFault as fault:
        if fault.status != 409:
            raise
