"""Who has to leave on a real API server: pods, nominations, budgets, and Events that say for whom and why."""

from typing import Any

import pytest

from tests.controlplane.fixtures import Namespace, eventually
from tests.e2e.running import all_bound, bound, group, pods

SOON = 60.0
pytestmark = pytest.mark.usefixtures("scheduler")


def events(namespace: Namespace, reason: str) -> dict[str, str]:
    """By object, what the Events of a reason say."""
    found = namespace.api.get(namespace.path("events", group="events.k8s.io/v1"))["items"]
    return {one["regarding"]["name"]: one["note"] for one in found if one["reason"] == reason}


def full(namespace: Namespace, **spec: Any) -> dict[str, str]:
    """Two nodes of one place each, both held by a gang."""
    namespace.nodes(2, pods=1, cpu=4)
    group(namespace, "low", 2, **spec)
    namespace.pods(2, prefix="low", gang="low")
    return all_bound(namespace, "low", 2, SOON)


def queue(namespace: Namespace, name: str, **spec: Any) -> None:
    kind = "scheduling.batchsched.dev/v1alpha1"
    made = {"apiVersion": kind, "kind": "Queue", "metadata": {"name": name}, "spec": spec}
    namespace.api.create(f"/apis/{kind}/queues", made)


def test_gang_of_higher_priority_gets_the_places_of_a_lower_one_and_events_say_so(namespace):
    places = full(namespace)
    made = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": f"high-{namespace.name}"},
        "value": 1000,
    }
    namespace.api.create("/apis/scheduling.k8s.io/v1/priorityclasses", made)
    group(namespace, "high", 2, priorityClassName=f"high-{namespace.name}")
    namespace.pods(2, prefix="high", gang="high")
    assert set(all_bound(namespace, "high", 2, SOON).values()) == set(places.values())
    assert bound(namespace, "low") == {}
    eventually(lambda: len(events(namespace, "Preempted")) == 2, SOON)
    assert all(
        f"by {namespace.name}/high on node" in note for note in events(namespace, "Preempted").values()
    )


def test_queue_wins_its_guarantee_back_and_events_say_for_whom(namespace):
    ours, theirs = (f"{name}-{namespace.name}" for name in ("ours", "theirs"))
    queue(namespace, ours, guarantee={"cpu": "8"})
    queue(namespace, theirs)
    full(namespace, queue=theirs)
    group(namespace, "mine", 2, queue=ours)
    namespace.pods(2, prefix="mine", gang="mine")
    all_bound(namespace, "mine", 2, SOON)
    assert [name for name in pods(namespace) if name.startswith("low")] == []
    eventually(lambda: len(events(namespace, "Reclaimed")) == 2, SOON)
    assert all(f"by {namespace.name}/mine" in note for note in events(namespace, "Reclaimed").values())
