"""What happens to a gang of which some pods are bound and others are about to be."""

import pytest

from tests.controlplane.fixtures import Namespace, eventually
from tests.controlplane.plane import ApiFault
from tests.e2e.running import all_bound, bound, group, make, pods

SIZE = 150
pytestmark = pytest.mark.usefixtures("scheduler")


@pytest.fixture
def half_bound(namespace: Namespace) -> Namespace:
    """A namespace in which a large gang is being bound, to two nodes."""
    namespace.nodes(2, pods=SIZE, cpu=SIZE)
    make(namespace, "bert", SIZE - 1)
    group(namespace, "bert", SIZE)
    namespace.pod(f"bert-{SIZE - 1}", gang="bert")
    eventually(lambda: bound(namespace, "bert"))
    return namespace


def test_gang_of_which_a_pod_is_deleted_is_whole_when_the_pod_is_made_anew(half_bound):
    print(f"{len(bound(half_bound))} of {SIZE} bound")
    delete(half_bound, f"bert-{SIZE - 1}")
    eventually(lambda: made_anew(half_bound))


def test_gang_whose_pod_group_is_deleted_is_bound_as_it_was_decided(half_bound):
    path = half_bound.path("podgroups", "bert", group="scheduling.batchsched.dev/v1alpha1")
    half_bound.api.delete(path)
    all_bound(half_bound, "bert", SIZE, 60)


def test_gang_of_which_a_node_is_lost_is_whole_when_its_pods_are_made_anew(half_bound):
    lost = next(iter(bound(half_bound).values()))
    half_bound.api.delete(f"/api/v1/nodes/{lost}")
    half_bound.nodes(1, prefix="more", pods=SIZE, cpu=SIZE)

    eventually(lambda: made_anew(half_bound, lost))


def made_anew(namespace: Namespace, lost: str = "") -> bool:
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
