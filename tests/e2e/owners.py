"""Owners of pods as users make them, and their pods as a controller would; kinds that are not Kubernetes' own."""

from collections.abc import Iterable
from typing import Any

from batchsched.kube.connection import plural_of_kind
from tests.controlplane.fixtures import Namespace
from tests.controlplane.objects import Manifest, pod
from tests.controlplane.plane import Api, install_definitions

TEMPLATE = {
    "spec": {
        "schedulerName": "batchsched",
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "none"}],
    }
}


def install(api: Api, group: str, version: str, kind: str) -> None:
    """Make a CRD that takes anything, and wait until it is served."""
    name = plural_of_kind(kind)
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {"kind": kind, "plural": name, "singular": kind.lower(), "listKind": f"{kind}List"}
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{name}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": group,
            "names": names,
            "scope": "Namespaced",
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": anything},
                }
            ],
        },
    }
    install_definitions(api, [crd])


def make(
    namespace: Namespace, api_version: str, kind: str, name: str, owner: Manifest | None = None, **spec: Any
) -> Manifest:
    """Create an object, with an owner if one is given."""
    meta = {"name": name, **({"ownerReferences": [reference(owner)]} if owner else {})}
    body = {"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": spec}
    return namespace.api.create(namespace.path(kind.lower() + "s", group=api_version), body)


def reference(owner: Manifest) -> Manifest:
    """An ownerReference."""
    meta = owner["metadata"]
    ref = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
    return {**ref, "name": meta["name"], "uid": meta["uid"]}


def job(
    namespace: Namespace, name: str, parallelism: int, owner: Manifest | None = None, **spec: Any
) -> Manifest:
    """Create a Job; no controller creates its pods."""
    spec = {"completionMode": "Indexed", "completions": parallelism, "template": TEMPLATE, **spec}
    return make(namespace, "batch/v1", "Job", name, owner, parallelism=parallelism, **spec)


def members(
    namespace: Namespace, owner: Manifest, numbers: Iterable[int | str], labels: dict[str, str] | None = None
) -> None:
    """Make pods as an owner's controller would."""
    for number in numbers:
        one = pod(f"{owner['metadata']['name']}-{number}", labels=labels)
        one["metadata"]["ownerReferences"] = [reference(owner)]
        namespace.api.create(namespace.path("pods"), one)
