"""What happens to a gang of which some pods are bound and others are about to be."""

import pytest

from tests.controlplane.fixtures import Namespace, eventually
from tests.controlplane.plane import ApiFault
from tests.e2e.running import all_bound, bound, group, make, pods

SIZE = 150
pytestmark = pytest.mark.usefixtures("scheduler")


@pytest.fixture
def partially_bound(namespace: Namespace) -> Namespace:
    """A namespace in which a large gang is being bound, to two nodes."""
    namespace.nodes(2, pods=SIZE, cpu=SIZE)
    make(namespace, "bert", SIZE - 1)
    group(namespace, "bert", SIZE)
    namespace.pod(f"bert-{SIZE - 1}", gang="bert")
    eventually(lambda: bound(namespace, "bert"))
    return namespace


def test_gang_with_a_deleted_pod_is_complete_after_the_pod_is_recreated(partially_bound):
    print(f"{len(bound(partially_bound))} of {SIZE} bound")
    delete(partially_bound, f"bert-{SIZE - 1}")
    eventually(lambda: recreated(partially_bound))


def test_gang_with_a_deleted_pod_group_is_bound_as_decided(partially_bound):
    path = partially_bound.path("podgroups", "bert", group="scheduling.batchsched.dev/v1alpha1")
    partially_bound.api.delete(path)
    all_bound(partially_bound, "bert", SIZE, 60)


def test_gang_on_a_lost_node_is_complete_after_its_pods_are_recreated(partially_bound):
    lost = next(iter(bound(partially_bound).values()))
    partially_bound.api.delete(f"/api/v1/nodes/{lost}")
    partially_bound.nodes(1, prefix="more", pods=SIZE, cpu=SIZE)

    eventually(lambda: recreated(partially_bound, lost))


def recreated(namespace: Namespace, lost: str = "") -> bool:
    """Make what is missing, as a Job's controller would, and say whether the gang is whole.

    kwok deletes by name: a pod that took the name of one which was just deleted may go the same way.
    """
    there = pods(namespace, "bert")
    for name in (f"bert-{number}" for number in range(SIZE)):
        if lost and name in there and there[name]["spec"].get("nodeName") == lost:
            delete(namespace, name)
            del there[name]
        if name not in there:
            namespace.pod(name, gang="bert")
    places = bound(namespace, "bert")
    return len(places) == SIZE and lost not in places.values()


def delete(namespace: Namespace, name: str) -> None:
    """Delete a pod that may be gone already."""
    try:
        namespace.api.delete(namespace.path("pods", name))
    except ApiFault as fault:
        if fault.status != 404:
            raise
