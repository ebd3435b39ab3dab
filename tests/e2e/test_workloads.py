"""The manifests of docs/workloads on a real API server: kinds of Kubernetes itself, and pods with a PodGroup."""

from typing import Any

import pytest

from tests.controlplane.fixtures import Namespace, eventually
from tests.docs.test_workloads import manifests, shown_spec
from tests.e2e.owners import reference
from tests.e2e.running import bound, never

pytestmark = pytest.mark.usefixtures("scheduler")

OWN_GROUP = "scheduling.batchsched.dev/v1alpha1"
STRICT = "?fieldValidation=Strict"
"""Lets the API server refuse unknown fields instead of dropping them."""


def create(namespace: Namespace, manifest: dict[str, Any]) -> dict[str, Any]:
    group = "" if manifest["apiVersion"] == "v1" else manifest["apiVersion"]
    collection = namespace.path(f"{manifest['kind'].lower()}s", group=group)
    return namespace.api.create(collection + STRICT, manifest)


def create_pod_of(namespace: Namespace, owner: dict[str, Any], number: int) -> None:
    """Create a pod as the controller of its owner would."""
    template = owner["spec"]["template"]
    metadata = {
        "name": f"{owner['metadata']['name']}-{number}",
        "labels": template["metadata"].get("labels") or {},
        "ownerReferences": [reference(owner)],
    }
    create(namespace, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})


@pytest.mark.parametrize("name", ["job", "statefulset"])
def test_pods_of_the_owner_are_bound_together_with_the_pod_group_that_its_page_shows(namespace, name):
    namespace.nodes(2)
    (manifest,) = manifests(name)
    owner = create(namespace, manifest)
    spec = shown_spec(name)
    for number in range(spec["minMember"] - 1):
        create_pod_of(namespace, owner, number)
    never(lambda: bound(namespace), 1.5)
    create_pod_of(namespace, owner, spec["minMember"] - 1)
    eventually(lambda: len(bound(namespace)) == spec["minMember"])
    groups = namespace.path("podgroups", group=OWN_GROUP)
    (group,) = eventually(lambda: namespace.api.get(groups)["items"])
    assert {name: group["spec"][name] for name in spec} == spec
    assert group["metadata"]["name"].startswith(f"{name}-{manifest['metadata']['name']}-")


def test_pods_with_a_pod_group_are_bound_together(namespace):
    namespace.nodes(2)
    *first, last = manifests("pods")
    for manifest in first:
        create(namespace, manifest)
    never(lambda: bound(namespace), 1.5)
    create(namespace, last)
    eventually(lambda: len(bound(namespace)) == 2)
