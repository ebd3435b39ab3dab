from typing import Any

import msgspec
import pytest

from batchsched.api.core.node import NodeCondition
from batchsched.framework.events import (
    ANY_EVENT,
    FORCE_ACTIVATE,
    UNSCHEDULABLE_TIMEOUT,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    EventResource,
    Hint,
    events_of_change,
    queue_if_node_begins_to_pass,
)
from batchsched.framework.interface import EnqueueExtensionsPlugin
from tests.plugins.cluster import node, pod


@pytest.mark.parametrize(
    "resource, action, label",
    [
        (EventResource.NODE, Action.ADD, "NodeAdd"),
        (EventResource.NODE, Action.UPDATE_NODE_TAINT, "NodeUpdateNodeTaint"),
        (EventResource.ASSIGNED_POD, Action.UPDATE_POD_SCALE_DOWN, "AssignedPodUpdatePodScaleDown"),
        (EventResource.TARGET_POD, Action.UPDATE_POD_LABEL, "UnscheduledPodUpdatePodLabel"),
        (EventResource.CLAIM, Action.UPDATE_OTHER, "PersistentVolumeClaimUpdate"),
    ],
)
def test_an_event_is_labelled_as_in_the_metrics_of_kube_scheduler(resource, action, label):
    assert ClusterEvent(resource, action).metric_label == label
    assert (FORCE_ACTIVATE.metric_label, UNSCHEDULABLE_TIMEOUT.metric_label) == (
        "ForceActivate",
        "UnschedulableTimeout",
    )


def test_a_registered_event_includes_the_actions_that_it_names():
    registered = ClusterEvent(EventResource.NODE, Action.ADD | Action.UPDATE)
    assert registered.includes(ClusterEvent(EventResource.NODE, Action.UPDATE_NODE_LABEL))
    assert registered.includes(ClusterEvent(EventResource.NODE, Action.UPDATE_OTHER))
    assert not registered.includes(ClusterEvent(EventResource.NODE, Action.DELETE))
    assert not registered.includes(ClusterEvent(EventResource.CSI_NODE, Action.ADD))
    assert ANY_EVENT.includes(ClusterEvent(EventResource.CSI_NODE, Action.ADD))


def test_hint_queues_for_a_node_that_begins_to_pass_and_skips_one_that_still_passes():
    hint = queue_if_node_begins_to_pass(lambda one, there: there.name == one.name)
    good, bad = node("p"), node("q")
    assert [hint(pod("p"), *both) for both in ((None, good), (bad, good), (good, good), (good, bad))] == [
        Hint.QUEUE,
        Hint.QUEUE,
        Hint.SKIP,
        Hint.SKIP,
    ]


def test_a_class_with_events_to_register_is_an_enqueue_extensions_plugin():
    class Outside:
        def events_to_register(self):
            return (ClusterEventWithHint.for_events(EventResource.NODE, Action.ADD),)

    assert isinstance(Outside(), EnqueueExtensionsPlugin)
    assert Outside().events_to_register()[0].hint is None


PLAIN = node("n")
TAINTED = node("n", taints=[{"key": "a", "effect": "NoSchedule"}])
CORDONED = node("n", unschedulable=True)


def with_status(**fields: Any) -> Any:
    return msgspec.structs.replace(PLAIN, status=msgspec.structs.replace(PLAIN.status, **fields))


def labels(resource: EventResource, old: Any, new: Any) -> list[str]:
    return [event.metric_label.removeprefix(resource) for event in events_of_change(resource, old, new)]


@pytest.mark.parametrize(
    "old, new, expected",
    [
        (None, PLAIN, ["Add"]),
        (PLAIN, None, ["Delete"]),
        (PLAIN, PLAIN, []),
        (PLAIN, node("n", {"cpu": "9"}), ["UpdateNodeAllocatable"]),
        (PLAIN, node("n", labels={"a": "b"}), ["UpdateNodeLabel"]),
        (TAINTED, PLAIN, ["UpdateNodeTaint"]),
        (CORDONED, PLAIN, ["UpdateNodeTaint"]),
        (PLAIN, CORDONED, []),
        (PLAIN, with_status(declared_features=("F",)), ["UpdateNodeDeclaredFeature"]),
        (TAINTED, node("n", {"cpu": "9"}), ["UpdateNodeAllocatable", "UpdateNodeTaint"]),
        (PLAIN, node("n", images=[{"names": ["a"]}]), []),
    ],
    ids=str.split("add delete same cpu label taint opened closed feature two images"),
)
def test_an_update_of_a_node_is_split_into_the_fields_that_scheduling_reads(old, new, expected):
    assert labels(EventResource.NODE, old, new) == expected


def test_changed_conditions_and_annotations_of_a_node_are_events():
    ready, unready = (
        with_status(conditions=(NodeCondition(type="Ready", status=status),)) for status in ("True", "False")
    )
    noted = msgspec.structs.replace(
        PLAIN, metadata=msgspec.structs.replace(PLAIN.metadata, annotations={"a": "b"})
    )
    assert labels(EventResource.NODE, ready, unready) == ["UpdateNodeCondition"]
    assert labels(EventResource.NODE, PLAIN, noted) == ["UpdateNodeAnnotation"]


@pytest.mark.parametrize(
    "old, new, expected",
    [
        (pod("p", {"cpu": "2"}), pod("p", {"cpu": "1"}), ["UpdatePodScaleDown"]),
        (pod("p", {"cpu": "1"}), pod("p", {"cpu": "2"}), ["Update"]),
        (pod("p", {"cpu": "1", "memory": "1Gi"}), pod("p", {"cpu": "2"}), ["UpdatePodScaleDown"]),
        (pod("p"), pod("p", tolerations=[{"operator": "Exists"}]), ["UpdatePodToleration"]),
        (
            pod("p", schedulingGates=[{"name": "g"}]),
            pod("p"),
            ["UpdatePodSchedulingGatesEliminated"],
        ),
        (
            pod("p", schedulingGates=[{"name": "g"}, {"name": "h"}]),
            pod("p", schedulingGates=[{"name": "h"}]),
            ["Update"],
        ),
        (pod("p"), pod("p"), ["Update"]),
    ],
    ids=str.split("less more gone tolerates free one-gate same"),
)
def test_an_update_of_a_pod_is_split_into_the_fields_that_scheduling_reads(old, new, expected):
    assert labels(EventResource.ASSIGNED_POD, old, new) == expected


def test_a_pod_that_begins_to_terminate_is_an_event_of_its_own():
    old = pod("p")
    gone = msgspec.structs.replace(old.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    new = msgspec.structs.replace(old, metadata=gone)
    assert labels(EventResource.ASSIGNED_POD, old, new) == ["UpdatePodTerminating"]


def test_any_other_object_is_added_updated_or_deleted():
    assert labels(EventResource.QUEUE, object(), object()) == ["Update"]
    with pytest.raises(ValueError, match="before, after, or both"):
        events_of_change(EventResource.QUEUE, None, None)


def test_all_actions_include_adding_deleting_and_every_update():
    assert all(action in Action.ALL for action in Action)
