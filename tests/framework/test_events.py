import pytest

from batchsched.framework.events import (
    ANY_EVENT,
    FORCE_ACTIVATE,
    UNSCHEDULABLE_TIMEOUT,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    EnqueueExtensionsPlugin,
    Hint,
    Resource,
    when_node_begins_to_pass,
)
from tests.plugins.cluster import node, pod


@pytest.mark.parametrize(
    "resource, action, label",
    [
        (Resource.NODE, Action.ADD, "NodeAdd"),
        (Resource.NODE, Action.UPDATE_NODE_TAINT, "NodeUpdateNodeTaint"),
        (Resource.ASSIGNED_POD, Action.UPDATE_POD_SCALE_DOWN, "AssignedPodUpdatePodScaleDown"),
        (Resource.TARGET_POD, Action.UPDATE_POD_LABEL, "UnscheduledPodUpdatePodLabel"),
        (Resource.CLAIM, Action.UPDATE_OTHER, "PersistentVolumeClaimUpdate"),
    ],
)
def test_an_event_is_labelled_as_in_the_metrics_of_kube_scheduler(resource, action, label):
    assert ClusterEvent(resource, action).label == label
    assert (FORCE_ACTIVATE.label, UNSCHEDULABLE_TIMEOUT.label) == ("ForceActivate", "UnschedulableTimeout")


def test_a_registered_event_includes_the_actions_that_it_names():
    registered = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE)
    assert registered.includes(ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL))
    assert registered.includes(ClusterEvent(Resource.NODE, Action.UPDATE_OTHER))
    assert not registered.includes(ClusterEvent(Resource.NODE, Action.DELETE))
    assert not registered.includes(ClusterEvent(Resource.CSI_NODE, Action.ADD))
    assert ANY_EVENT.includes(ClusterEvent(Resource.CSI_NODE, Action.ADD))


def test_a_node_that_begins_to_pass_helps_and_one_that_went_on_passing_does_not():
    hint = when_node_begins_to_pass(lambda one, there: there.name == one.name)
    good, bad = node("p"), node("q")
    assert [hint(pod("p"), *both) for both in ((None, good), (bad, good), (good, good), (good, bad))] == [
        Hint.QUEUE,
        Hint.QUEUE,
        Hint.SKIP,
        Hint.SKIP,
    ]


def test_whoever_registers_events_is_known_by_the_method():
    class Outside:
        def events_to_register(self):
            return (ClusterEventWithHint.on(Resource.NODE, Action.ADD),)

    assert isinstance(Outside(), EnqueueExtensionsPlugin)
    assert Outside().events_to_register()[0].hint is None
