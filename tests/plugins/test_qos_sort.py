"""QOSSort: priority, then the class of service, then the time."""

from typing import Any

import pytest

from batchsched.api.core.quality_of_service import QosClass, qos_class
from batchsched.plugins.qos_sort import QOSSort
from tests.plugins.cluster import pod

FULL = {"cpu": "1", "memory": "1Gi"}


def with_containers(*resources: dict[str, Any], **spec: Any) -> Any:
    containers = [{"name": f"c{at}", "resources": one} for at, one in enumerate(resources)]
    return pod("x", containers=containers, **spec)


@pytest.mark.parametrize(
    "resources, found",
    [
        ([{}], QosClass.BEST_EFFORT),
        ([{"requests": {"nvidia.com/gpu": "1"}}], QosClass.BEST_EFFORT),
        ([{"requests": {"cpu": "0"}}], QosClass.BEST_EFFORT),
        ([{"requests": {"cpu": "1"}}], QosClass.BURSTABLE),
        ([{"requests": FULL, "limits": {**FULL, "cpu": "2"}}], QosClass.BURSTABLE),
        ([{"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}], QosClass.BURSTABLE),
        ([{"requests": FULL, "limits": FULL}], QosClass.GUARANTEED),
        ([{"requests": {"cpu": "1000m", "memory": "1024Mi"}, "limits": FULL}], QosClass.GUARANTEED),
        ([{"requests": FULL, "limits": FULL}, {}], QosClass.BURSTABLE),
        ([{"requests": FULL, "limits": FULL}, {"requests": FULL, "limits": FULL}], QosClass.GUARANTEED),
    ],
)
def test_qos_class_follows_from_cpu_and_memory_of_all_containers(resources, found):
    assert qos_class(with_containers(*resources)) is found


def test_init_containers_count_as_well():
    whole = {"requests": FULL, "limits": FULL}
    assert qos_class(with_containers(whole, initContainers=[{"name": "i"}])) is QosClass.BURSTABLE


def test_pod_level_resources_override_those_of_the_containers():
    assert qos_class(with_containers({}, resources={"requests": FULL, "limits": FULL})) is QosClass.GUARANTEED
    own = {"requests": FULL, "limits": {"cpu": "1"}}
    assert qos_class(with_containers({"requests": FULL, "limits": FULL}, resources=own)) is QosClass.BURSTABLE


def test_order_is_priority_then_qos_class_then_waiting_time():
    firm: dict[str, Any] = {"requests": FULL, "limits": FULL}
    some: dict[str, Any] = {"requests": FULL}
    none: dict[str, Any] = {}
    queue = [("late", firm, 5, 9.0), ("early", firm, 5, 1.0), ("some", some, 5, 0.0), ("none", none, 5, 0.0)]
    queue.append(("high", none, 6, 9.0))
    ordered = sorted(queue, key=lambda one: QOSSort().sort_key(with_containers(one[1]), one[2], one[3]))
    assert [one[0] for one in ordered] == ["high", "early", "late", "some", "none"]


def test_the_sort_plugin_adds_nothing_to_the_signature():
    assert QOSSort().signature(pod("a")) == QOSSort().signature(with_containers({"requests": FULL}))
