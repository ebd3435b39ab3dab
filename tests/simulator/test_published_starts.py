"""A start that was published is kept, where the documentation says so and run times are as stated."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from batchsched.api.core.metadata import parse_timestamp
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.session.session import Session
from batchsched.simulator.run import RunSettings, simulate_workload
from batchsched.simulator.workload import (
    TraceGang,
    Workload,
    create_nodes,
    create_pod_spec,
    create_rigid_arrival,
)
from tests.session.scenario import priority_class
from tests.simulator.clusters import CPU, gangs_of
from tests.simulator.test_run import WIDE

IN_ORDER = {"selection": "ordered", "backfill": "easy"}
KEPT = {"selection": "ordered", "backfill": "kept"}
PROFILES = {
    "easy fcfs": IN_ORDER | {"policy": {"name": "fcfs"}},
    "easy with one priority": IN_ORDER | {"policy": {"name": "priority"}},
    "kept fcfs": KEPT | {"policy": {"name": "fcfs"}, "promiseSlowdown": 1},
    "kept sjf": KEPT | {"policy": {"name": "sjf"}, "promiseSlowdown": 2},
    "kept headroom": KEPT | {"policy": {"name": "headroom", "args": {"share": 0.5}}, "promiseSlowdown": 1},
}


class Publishing(Session):
    """A session that remembers the first start that was published for each gang."""

    def __init__(self, snapshot, profile):
        super().__init__(snapshot, profile)
        self.published = {}
        self.published_at = {}

    @override
    def decide(self, now, seed, taking_part=None, telemetry=None, *, with_evictions=True):
        decision = super().decide(now, seed, taking_part, telemetry, with_evictions=with_evictions)
        for one in decision.reservations:
            self.published.setdefault(one.pod_group.partition("/")[2], parse_timestamp(one.start))
            self.published_at.setdefault(one.pod_group.partition("/")[2], now)
        return decision


@pytest.mark.properties
@pytest.mark.parametrize("name", PROFILES)
@given(rows=WIDE)
def test_no_gang_starts_later_than_was_first_published(name, rows):
    profile, sessions = Profile.model_validate(PROFILES[name]), []

    def scheduler(snapshot):
        sessions.append(Publishing(snapshot, profile))
        return sessions[-1]

    result = simulate_workload(gangs_of(rows, 8), scheduler, RunSettings(name))
    started = {one.key.partition("/")[2]: one.started for one in result.gangs}
    for gang, start in sessions[0].published.items():
        assert started[gang] <= start


@pytest.mark.properties
@given(rows=WIDE, high=st.sets(st.integers(0, 13)))
def test_only_a_gang_of_higher_priority_that_arrives_later_delays_a_published_start(rows, high):
    """The order is `priority` with two priorities: the starts of the higher one are kept."""
    profile, sessions = Profile.model_validate(PROFILES["easy with one priority"]), []

    def scheduler(snapshot):
        sessions.append(Publishing(snapshot, profile))
        return sessions[-1]

    names = {f"g{number:02d}" for number in high}
    arrivals = [
        create_rigid_arrival(
            TraceGang(
                name, ((create_pod_spec(CPU, priority_class="high" if name in names else ""), size),), runtime
            ),
            submit,
            runtime,
        )
        for name, (submit, runtime, size) in ((f"g{number:02d}", row) for number, row in enumerate(rows))
    ]
    arrivals.sort(key=lambda arrival: arrival.time)
    cluster = Snapshot(nodes=create_nodes(8, CPU), priority_classes=(priority_class("high", 10),))
    result = simulate_workload(Workload("two", cluster, tuple(arrivals), ()), scheduler, RunSettings("two"))
    gangs = {one.key.partition("/")[2]: one for one in result.gangs}
    for name, start in sessions[0].published.items():
        later = [
            other
            for other in names & gangs.keys()
            if name not in names and gangs[other].submitted >= sessions[0].published_at[name]
        ]
        assert gangs[name].started <= start or later
