"""Gangs on a real API server: whole or not at all, whatever happens meanwhile."""

import pytest

from tests.controlplane.fixtures import eventually
from tests.e2e.running import all_bound, bound, condition, group, never, pods

pytestmark = pytest.mark.usefixtures("scheduler")


def test_gang_of_twenty_pods_is_bound_completely(namespace):
    namespace.nodes(3)
    namespace.gang("bert", 20)
    assert len(all_bound(namespace, "bert", 20)) == 20


def test_no_pod_of_a_gang_is_bound_if_one_does_not_fit(namespace):
    namespace.nodes(3, cpu=4)
    namespace.gang("bert", 4, cpu=3)
    namespace.pod("lone", cpu=1)
    eventually(lambda: bound(namespace) == {"lone": bound(namespace).get("lone")})
    never(lambda: bound(namespace, "bert"))
    namespace.nodes(1, prefix="more", cpu=4)
    all_bound(namespace, "bert", 4)


def test_elastic_surplus_is_bound_when_nodes_have_room(namespace):
    namespace.nodes(1, cpu=3)
    namespace.gang("bert", 5, min_member=2, cpu=1)
    all_bound(namespace, "bert", 3)
    never(lambda: len(bound(namespace, "bert")) > 3, 1.0)
    namespace.nodes(1, prefix="more", cpu=3)
    all_bound(namespace, "bert", 5)


def test_pods_of_a_gang_that_are_created_one_by_one_wait_for_the_last(namespace):
    namespace.nodes(2)
    group(namespace, "bert", 3)
    namespace.pods(2, prefix="early", gang="bert")
    never(lambda: bound(namespace, "bert"), 1.0)
    namespace.pod("late", gang="bert")
    all_bound(namespace, "bert", 3)


def test_gang_stays_in_one_domain_of_its_required_level(namespace):
    namespace.topology(namespace.name, rack="example.com/rack")
    for rack in ("r0", "r1"):
        namespace.nodes(2, prefix=rack, labels={"example.com/rack": rack}, cpu=4)
    group(namespace, "wide", 3, topology={"name": namespace.name, "required": "rack"})
    namespace.pods(3, prefix="wide", gang="wide", cpu=3)
    never(lambda: bound(namespace), 1.0)
    group(namespace, "bert", 4, topology={"name": namespace.name, "required": "rack"})
    namespace.pods(4, prefix="bert", gang="bert", cpu=2)
    racks = {node.partition("-")[0] for node in all_bound(namespace, "bert", 4).values()}
    assert len(racks) == 1


def test_gang_is_bound_when_its_pod_group_is_created_after_its_pods(namespace):
    namespace.nodes(1)
    namespace.pods(3, prefix="bert", gang="bert")
    never(lambda: bound(namespace), 1.0)
    group(namespace, "bert", 3)
    all_bound(namespace, "bert", 3)


def test_gang_with_a_deleted_pod_group_waits_for_a_new_one(namespace):
    namespace.nodes(1, cpu=1)
    namespace.gang("bert", 2, cpu=1)
    never(lambda: bound(namespace), 0.5)
    path = namespace.path("podgroups", "bert", group="scheduling.batchsched.dev/v1alpha1")
    namespace.api.delete(path)
    # Nodes come by another watch, which may be the quicker one.
    eventually(lambda: "no PodGroup" in condition(namespace, "bert-0").get("message", ""))
    namespace.nodes(1, prefix="more", cpu=1)
    never(lambda: bound(namespace), 1.5)
    group(namespace, "bert", 2)
    all_bound(namespace, "bert", 2)


def test_partially_bound_gang_is_completed_before_an_older_pending_one(namespace):
    namespace.nodes(3, cpu=1)
    namespace.gang("old", 2, cpu=2)  # fits nowhere, and waits
    group(namespace, "half", 3)
    namespace.pod("half-0", gang="half", cpu=1)
    namespace.bind("half-0", "node-0")
    namespace.pods(2, prefix="half-more", gang="half", cpu=1)
    all_bound(namespace, "half", 3)


def test_partially_bound_gang_is_rolled_back_after_its_timeout(namespace):
    namespace.nodes(2, cpu=1)
    group(namespace, "half", 3, scheduleTimeoutSeconds=2)
    namespace.pods(3, prefix="half", gang="half", cpu=1)
    namespace.bind("half-0", "node-0")
    eventually(lambda: "half-0" not in pods(namespace))
    never(lambda: bound(namespace), 1.0)
    namespace.gang("next", 2, cpu=1)
    all_bound(namespace, "next", 2)
