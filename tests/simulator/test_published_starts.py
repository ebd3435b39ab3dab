"""A start that was published is kept, where the documentation says so and run times are as stated."""

import pytest
from hypothesis import given
from typing_extensions import override

from batchsched.api.core.metadata import parse_timestamp
from batchsched.config.schema import Profile
from batchsched.session.session import Session
from batchsched.simulator.run import RunSettings, simulate_workload
from tests.simulator.clusters import gangs_of
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

    @override
    def decide(self, now, seed, taking_part=None, telemetry=None):
        decision = super().decide(now, seed, taking_part, telemetry)
        for one in decision.reservations:
            self.published.setdefault(one.pod_group.partition("/")[2], parse_timestamp(one.start))
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
