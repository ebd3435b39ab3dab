"""Queues on a real API server: reclaimed, preempted, edited and deleted while pods run."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.controlplane.fixtures import Namespace, eventually
from tests.e2e.running import all_bound, bound, group, never
from tests.e2e.test_status import SOON, events, scheduled, status

pytestmark = pytest.mark.usefixtures("scheduler")
QUEUES = "/apis/scheduling.batchsched.dev/v1alpha1/queues"


class Queues:
    """Queues of one test; they are cluster-wide, so their names say whose they are."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._made: set[str] = set()

    def name(self, short: str) -> str:
        return f"{self._namespace.name}-{short}"

    def make(self, short: str, **spec: Any) -> None:
        name = self.name(short)
        manifest = {
            "apiVersion": "scheduling.batchsched.dev/v1alpha1",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": spec,
        }
        self._namespace.api.create(QUEUES, manifest)
        self._made.add(name)

    def edit(self, short: str, **spec: Any) -> None:
        self._namespace.api.merge(f"{QUEUES}/{self.name(short)}", {"spec": spec})

    def delete(self, short: str) -> None:
        self._namespace.api.delete(f"{QUEUES}/{self.name(short)}")
        self._made.discard(self.name(short))

    def clear(self) -> None:
        for name in sorted(self._made):
            self._namespace.api.delete(f"{QUEUES}/{name}")


@pytest.fixture
def queues(namespace: Namespace) -> Iterator[Queues]:
    made = Queues(namespace)
    yield made
    made.clear()


def gang(namespace: Namespace, name: str, count: int, **spec: Any) -> None:
    """A gang of pods of one CPU."""
    group(namespace, name, spec.pop("minimum", count), **spec)
    namespace.pods(count, prefix=name, gang=name, cpu=1)


def test_a_queue_wins_its_guarantee_back_and_events_say_who_left_for_whom(namespace, queues):
    namespace.nodes(2, cpu=4)
    queues.make("a", guarantee={"cpu": "4"})
    queues.make("b", guarantee={"cpu": "4"})
    gang(namespace, "taker", 8, minimum=1, queue=queues.name("b"), disruptionMode="Elastic")
    all_bound(namespace, "taker", 8)
    gang(namespace, "owner", 4, queue=queues.name("a"))
    all_bound(namespace, "owner", 4)
    assert len(bound(namespace, "taker")) == 4
    left = {f"taker-{at}" for at in range(8)} - bound(namespace, "taker").keys()
    eventually(lambda: all("Reclaimed" in events(namespace, one) for one in left), SOON)
    said = {events(namespace, one)["Reclaimed"]["note"] for one in left}
    assert all(f"{namespace.name}/owner" in note for note in said)
    never(lambda: len(bound(namespace, "owner")) < 4, 1.0)


def test_a_budget_is_kept_when_priority_preempts(namespace):
    namespace.nodes(2, cpu=2)
    high = f"{namespace.name}-high"
    namespace.api.create(
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": high},
            "value": 1000,
        },
    )
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


def test_a_limit_lowered_below_what_is_used_evicts_nobody_and_lets_nobody_in(namespace, queues):
    namespace.nodes(2, cpu=8)
    queues.make("a", limit={"cpu": "4"})
    gang(namespace, "first", 4, queue=queues.name("a"))
    all_bound(namespace, "first", 4)
    queues.edit("a", limit={"cpu": "2"})
    gang(namespace, "second", 2, queue=queues.name("a"))
    eventually(lambda: scheduled(status(namespace, "second")).get("reason") == "QueueLimit", SOON)
    assert len(bound(namespace, "first")) == 4
    queues.edit("a", limit={"cpu": "6"})
    all_bound(namespace, "second", 2)


def test_pods_of_a_deleted_queue_stay_and_its_gangs_wait_for_another(namespace, queues):
    namespace.nodes(1, cpu=8)
    queues.make("a", limit={"cpu": "2"})  # nobody else gets in before the deletion is known
    gang(namespace, "first", 2, queue=queues.name("a"))
    all_bound(namespace, "first", 2)
    queues.delete("a")
    gang(namespace, "second", 2, queue=queues.name("a"))
    eventually(lambda: scheduled(status(namespace, "second")).get("reason") == "QueueNotFound", SOON)
    assert len(bound(namespace, "first")) == 2
    queues.make("a")
    all_bound(namespace, "second", 2)
