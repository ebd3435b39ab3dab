from typing import Any

import msgspec
import pytest

from batchsched.api.core.node import NodeCondition
from batchsched.framework.events import Resource
from batchsched.framework.object_changes import events_of
from tests.plugins.cluster import node, pod

PLAIN = node("n")
TAINTED = node("n", taints=[{"key": "a", "effect": "NoSchedule"}])
CORDONED = node("n", unschedulable=True)


def with_status(**fields: Any) -> Any:
    return msgspec.structs.replace(PLAIN, status=msgspec.structs.replace(PLAIN.status, **fields))


def labels(resource: Resource, old: Any, new: Any) -> list[str]:
    return [event.label.removeprefix(resource) for event in events_of(resource, old, new)]


@pytest.mark.parametrize(
    "old, new, told",
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
def test_an_update_of_a_node_is_told_by_what_scheduling_looks_at(old, new, told):
    assert labels(Resource.NODE, old, new) == told


def test_conditions_count_by_what_they_say_and_annotations_count():
    ready, unready = (
        with_status(conditions=(NodeCondition(type="Ready", status=status),)) for status in ("True", "False")
    )
    noted = msgspec.structs.replace(
        PLAIN, metadata=msgspec.structs.replace(PLAIN.metadata, annotations={"a": "b"})
    )
    assert labels(Resource.NODE, ready, unready) == ["UpdateNodeCondition"]
    assert labels(Resource.NODE, PLAIN, noted) == ["UpdateNodeAnnotation"]


@pytest.mark.parametrize(
    "old, new, told",
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
def test_an_update_of_a_pod_is_told_by_what_scheduling_looks_at(old, new, told):
    assert labels(Resource.ASSIGNED_POD, old, new) == told


def test_a_pod_that_begins_to_terminate_is_an_event_of_its_own():
    old = pod("p")
    gone = msgspec.structs.replace(old.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    new = msgspec.structs.replace(old, metadata=gone)
    assert labels(Resource.ASSIGNED_POD, old, new) == ["UpdatePodTerminating"]


def test_any_other_object_is_added_updated_or_deleted():
    assert labels(Resource.QUEUE, object(), object()) == ["Update"]
    with pytest.raises(ValueError, match="before, after, or both"):
        events_of(Resource.QUEUE, None, None)
