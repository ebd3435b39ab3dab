"""For every prefix of a random event stream, what is followed equals what is built from the snapshot."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from typing_extensions import override

from batchsched.api.core.pod import USER_LABEL, Pod
from batchsched.api.decision import to_json
from batchsched.session.gangs.queue_limits import compute_remaining_limits
from batchsched.session.queue_report import report_queues
from batchsched.session.session import Session
from tests.guards.cases import PROFILES, busy
from tests.session.scenario import NOW, profile
from tests.state.test_up_to_date_scheduler import History

SCHEDULER = "batchsched"
WAYS = ("joint", "consolidate", "ordered-easy", "weight-kept", "pod-by-pod")
EVERY = 8
"""Events between two prefixes that are decided; the tables are compared at every prefix."""


class BusyHistory(History):
    """A history with all queues present from the start, so that one session covers nearly all of it.

    Args:
      seed: of the events.
      way: the profile, by its name.
    """

    def __init__(self, seed: int, way: str) -> None:
        super().__init__(seed, profile(**PROFILES[way]))
        if seed % 2:
            full = busy(seed % 40, limits=0.2)
            self.full = replace(full, pods=tuple(map(with_user, full.pods)))

    @override
    def events(self) -> Iterator[None]:
        full = self.full
        for known in (*full.queues, *full.topologies, *full.priority_classes):
            self.cache.put(known)
        coming: list[Any] = [*full.pod_groups, *full.pods]
        self.rng.shuffle(coming)
        for node in full.nodes:
            self.cache.put(node)
        for item in coming:
            self.cache.put(item)
            yield
            if self.rng.random() < 0.4:
                self.move()
                yield


def with_user(pod: Pod) -> Pod:
    """Return the pod with a user; pods of one gang may have several."""
    user = "ann" if len(pod.name) % 2 or sum(pod.name.encode()) % 5 else "bob"
    labels = {**pod.labels, USER_LABEL: user}
    return structs.replace(pod, metadata=structs.replace(pod.metadata, labels=labels))


def tables(session: Session) -> dict[str, Any]:
    """Return what a session knows: what nodes hold, each gang's pods, and what the limits of queues leave."""
    known = session.tables
    known.update_pending_gangs_and_indexes()
    limits = compute_remaining_limits(known, SCHEDULER)
    # A session may know resources that no object names any more.
    columns = [
        at for at, name in enumerate(known.node_table.resources) if known.node_table.allocatable[:, at].any()
    ]
    names = [known.node_table.resources[at] for at in columns]
    return {
        "nodes": {
            node: dict(zip(names, known.node_table.requested[at, columns].tolist(), strict=True))
            for at, node in enumerate(known.node_table.names)
        },
        "gangs": {
            identity: (
                state.group,
                sorted(state.pending),
                {key: pod.node_name for key, (pod, _) in state.bound.items()},
                state.queue,
                state.minimum,
            )
            for identity, state in known.gangs.items()
        },
        "kinds": [sorted(kind) for kind in (known.running, known.incomplete, known.nominated)],
        "pending": sorted(state.identity for state in known.pending_gangs),
        "limits": sorted(
            (
                str(limit.name),
                str(limit.pod_groups),
                *limits.remaining_amounts[at, columns].tolist(),
                int(limits.remaining_gang_starts[at]),
            )
            for at, limit in enumerate(limits.limits)
        ),
    }


@pytest.mark.properties
@given(seed=st.integers(0, 2**32 - 1))
def test_followed_tables_are_those_of_a_fresh_snapshot_at_every_prefix(seed: int):
    history = BusyHistory(seed, "joint")
    for _ in history.events():
        followed: Any = history.feed.updated_scheduler()
        assert tables(followed) == tables(history.follower(history.cache.snapshot()))


@pytest.mark.properties
@given(seed=st.integers(0, 2**32 - 1), way=st.sampled_from(WAYS))
def test_followed_decisions_are_those_of_a_fresh_snapshot_at_many_prefixes(seed: int, way: str):
    history = BusyHistory(seed, way)
    reservations: tuple[Any, ...] = ()
    before: Any = None
    for number, _ in enumerate(history.events()):
        followed: Any = history.feed.updated_scheduler()
        if followed is not before:  # A session that was made again from a snapshot knows of no reservations.
            before, reservations = followed, ()
        if number % EVERY == EVERY - 1:
            fresh = history.follower(replace(history.cache.snapshot(), reservations=reservations))
            decision = followed.decide(NOW, 0)
            assert to_json(decision) == to_json(fresh.decide(NOW, 0))
            reservations = decision.reservations


@pytest.mark.properties
@given(seed=st.integers(0, 2**32 - 1))
def test_usage_of_queues_is_that_of_a_fresh_snapshot_whatever_the_order_of_events(seed: int):
    history = BusyHistory(seed, "joint")
    for _ in history.events():
        pass
    snapshot = history.cache.snapshot()
    backwards = replace(snapshot, pods=snapshot.pods[::-1], pod_groups=snapshot.pod_groups[::-1])
    reports = [report_queues(each, history.settings, NOW) for each in (snapshot, backwards)]
    first, second = (
        [(queue.name, queue.allocated, queue.running) for queue in one.queues] for one in reports
    )
    assert first == second
