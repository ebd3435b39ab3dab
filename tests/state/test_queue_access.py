"""Demand of queues in the running scheduler: pods of namespaces that a queue does not select are none."""

from collections import Counter
from typing import Any

from batchsched.api.core.cluster_objects import Namespace
from batchsched.api.core.metadata import ObjectMeta
from batchsched.controllers.queue_status_inputs import queue_positions, queue_status_inputs
from tests.controllers.office import observed
from tests.session.scenario import gang, queue
from tests.state.objects import node, pod

OF_ML: dict[str, Any] = {"namespaceSelector": {"matchLabels": {"team": "ml"}}}


def namespace(**labels: str) -> Namespace:
    return Namespace(metadata=ObjectMeta(name="team", labels=labels))


def test_demand_of_a_queue_follows_its_selector_and_the_labels_of_the_namespace():
    pending = gang("w", 2, queue="a", requests={"cpu": 1})
    cache = observed(
        [node("n0", cpu="8"), queue("a", **OF_ML), queue("up"), namespace(team="web")],
        pending.pods,
        pending.pod_groups,
        [pod("bound", on="n0", labels={"scheduling.batchsched.dev/queue": "a"})],
    )

    def seen() -> tuple[int, int, int, int | None]:
        usage, allocation = cache.queue_usage, queue_status_inputs(cache)["a"]
        return (
            usage.allocated_by_queue["a"]["cpu"],
            usage.pending_requests_by_queue.get("a", Counter())["cpu"],
            allocation.pending,
            queue_positions(cache).get("team/w"),
        )

    assert seen() == (1000, 0, 0, None)
    cache.put(namespace(team="ml"))
    assert seen() == (1000, 2000, 1, 1)
    assert cache.queue_usage.usage_and_demand_by_queue_and_resource()["a", "cpu"] == (1000, 2000)
    cache.remove(namespace(team="ml"))
    assert seen() == (1000, 0, 0, None)
    cache.put(queue("a", parent="up"))
    assert seen() == (1000, 2000, 1, 1)
    cache.put(queue("up", **OF_ML))
    assert seen() == (1000, 0, 0, None)


def test_selector_is_found_if_queues_form_a_cycle():
    cache = observed([queue("a", parent="b"), queue("b", parent="a")])
    assert cache.queue_access().allows_namespace("a", "team")


def defaulting(name: str) -> Namespace:
    return namespace(**{"scheduling.batchsched.dev/default-queue": name})


def test_running_and_pending_gangs_move_when_the_default_queue_of_the_namespace_changes():
    waiting, running = gang("w", 2, requests={"cpu": 1}), gang("r", 1)
    cache = observed(
        [node("n0", cpu="8"), queue("a"), queue("b"), defaulting("a")],
        waiting.pods,
        waiting.pod_groups,
        [pod("r-0", group="r", on="n0")],
        running.pod_groups,
    )
    changed = cache.gangs.create_changed_gangs_reader()
    changed.read_changed_gangs()

    def seen() -> dict[str, tuple[int, int]]:
        allocations = queue_status_inputs(cache)
        return {
            name: (allocation.allocated["cpu"], allocation.pending)
            for name, allocation in allocations.items()
            if allocation.pending
        }

    assert seen() == {"a": (1000, 1)}
    cache.put(defaulting("b"))
    assert seen() == {"b": (1000, 1)}
    assert changed.read_changed_gangs() == {"team/w", "team/r"}
    cache.put(namespace(**{"scheduling.batchsched.dev/default-queue": "b", "other": "label"}))
    assert changed.read_changed_gangs() == set()
