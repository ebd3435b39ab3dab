"""Queues on a real API server: reclaimed, preempted, edited and deleted while pods run."""

from typing import Any

import pytest

from tests.controlplane.fixtures import QUEUES, Namespace, eventually
from tests.e2e.running import all_bound, bound, group, never
from tests.e2e.test_status import SOON, events, scheduled, status

pytestmark = pytest.mark.usefixtures("scheduler")


def gang(namespace: Namespace, name: str, count: int, **spec: Any) -> None:
    """A gang of pods of one CPU."""
    group(namespace, name, spec.pop("minimum", count), **spec)
    namespace.pods(count, prefix=name, gang=name, cpu=1)


def test_a_queue_reclaims_its_guarantee_and_events_name_the_gang_that_gets_the_room(namespace):
    namespace.nodes(2, cpu=4)
    namespace.queue(f"{namespace.name}-a", guarantee={"cpu": "4"})
    namespace.queue(f"{namespace.name}-b", guarantee={"cpu": "4"})
    gang(namespace, "taker", 8, minimum=1, queue=f"{namespace.name}-b", disruptionMode="Elastic")
    all_bound(namespace, "taker", 8)
    gang(namespace, "owner", 4, queue=f"{namespace.name}-a")
    all_bound(namespace, "owner", 4)
    assert len(bound(namespace, "taker")) == 4
    left = {f"taker-{at}" for at in range(8)} - bound(namespace, "taker").keys()
    eventually(lambda: all("Reclaimed" in events(namespace, one) for one in left), SOON)
    said = {events(namespace, one)["Reclaimed"]["note"] for one in left}
    assert all(f"{namespace.name}/owner" in note for note in said)
    never(lambda: len(bound(namespace, "owner")) < 4, 1.0)


def full(namespace: Namespace, **spec: Any) -> dict[str, str]:
    """Two nodes of one place each, both held by a gang."""
    namespace.nodes(2, pods=1, cpu=4)
    group(namespace, "low", 2, **spec)
    namespace.pods(2, prefix="low", gang="low")
    return all_bound(namespace, "low", 2, SOON)


@pytest.mark.parametrize("reason", ["Preempted", "Reclaimed"])
def test_a_rigid_gang_is_evicted_completely_for_a_gang_entitled_to_its_capacity(namespace, reason):
    ours, theirs = f"{namespace.name}-ours", f"{namespace.name}-theirs"
    template = {}
    if reason == "Preempted":
        namespace.priority_class(ours, 1000)
        places = full(namespace)
        template = {"priorityClassName": ours}
        group(namespace, "mine", 2)
    else:
        namespace.queue(ours, guarantee={"cpu": "8"})
        namespace.queue(theirs)
        places = full(namespace, queue=theirs)
        group(namespace, "mine", 2, queue=ours)
    namespace.pods(2, prefix="mine", gang="mine", spec=template)
    assert set(all_bound(namespace, "mine", 2, SOON).values()) == set(places.values())
    assert bound(namespace, "low") == {}
    eventually(lambda: all(reason in events(namespace, one) for one in places), SOON)
    assert all(f"by {namespace.name}/mine" in events(namespace, one)[reason]["note"] for one in places)


def test_a_budget_is_kept_when_priority_preempts(namespace):
    namespace.nodes(2, cpu=2)
    high = f"{namespace.name}-high"
    namespace.priority_class(high, 1000)
    for at in range(4):
        namespace.pod(f"low-{at}", labels={"budget": "kept" if at < 2 else "none"}, cpu=1)
    eventually(lambda: len(bound(namespace)) == 4, SOON)
    budgets = namespace.path("poddisruptionbudgets", group="policy/v1")
    namespace.api.create(
        budgets,
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "kept"},
            "spec": {"minAvailable": 2, "selector": {"matchLabels": {"budget": "kept"}}},
        },
    )
    group(namespace, "urgent", 2, priorityClassName=high)
    namespace.pods(2, prefix="urgent", gang="urgent", cpu=1, spec={"priorityClassName": high})
    all_bound(namespace, "urgent", 2)
    assert {"low-0", "low-1"} <= bound(namespace).keys()
    eventually(lambda: all("Preempted" in events(namespace, one) for one in ("low-2", "low-3")), SOON)
    assert f"{namespace.name}/urgent" in events(namespace, "low-2")["Preempted"]["note"]


def test_a_limit_below_the_usage_of_a_queue_evicts_no_pod_and_admits_no_gang(namespace):
    namespace.nodes(2, cpu=8)
    namespace.queue(f"{namespace.name}-a", limit={"cpu": "4"})
    gang(namespace, "first", 4, queue=f"{namespace.name}-a")
    all_bound(namespace, "first", 4)
    namespace.api.merge(f"{QUEUES}/{namespace.name}-a", {"spec": {"limit": {"cpu": "2"}}})
    gang(namespace, "second", 2, queue=f"{namespace.name}-a")
    eventually(lambda: scheduled(status(namespace, "second")).get("reason") == "QueueLimit", SOON)
    assert len(bound(namespace, "first")) == 4
    namespace.api.merge(f"{QUEUES}/{namespace.name}-a", {"spec": {"limit": {"cpu": "6"}}})
    all_bound(namespace, "second", 2)


def test_pods_of_a_deleted_queue_stay_and_its_gangs_wait_for_another(namespace):
    namespace.nodes(1, cpu=8)
    namespace.queue(
        f"{namespace.name}-a", limit={"cpu": "2"}
    )  # no other pod is bound before the deletion is known
    gang(namespace, "first", 2, queue=f"{namespace.name}-a")
    all_bound(namespace, "first", 2)
    namespace.api.delete(f"{QUEUES}/{namespace.name}-a")
    gang(namespace, "second", 2, queue=f"{namespace.name}-a")
    eventually(lambda: scheduled(status(namespace, "second")).get("reason") == "QueueNotFound", SOON)
    assert len(bound(namespace, "first")) == 2
    namespace.queue(f"{namespace.name}-a")
    all_bound(namespace, "second", 2)
