from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from batchsched.api.decision import Decision, Nomination, WaitingAtPermit
from batchsched.config.schema import Profile
from batchsched.lab.simulation import simulate_under_profile
from batchsched.session.session import Session
from batchsched.simulator.run import RunSettings, simulate_workload
from batchsched.simulator.workload import NodeOutage
from tests.simulator.clusters import FirstComeScheduler, gangs_of
from tests.simulator.easy import KEYS, easy_starts

SETTINGS = RunSettings("first come")
IN_ORDER = Profile.model_validate({"selection": "ordered", "policy": {"name": "saf"}})
ROWS, WIDE = (
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 30), st.integers(1, most)), min_size=1, max_size=14)
    for most in (6, 8)
)


def played(rows, slots=4, **options):
    made = []

    def scheduler(snapshot):
        made.append(FirstComeScheduler(snapshot))
        return made[-1]

    settings = RunSettings("first come", **{k: v for k, v in options.items() if k != "outages"})
    return simulate_workload(
        gangs_of(rows, slots, outages=options.get("outages", ())), scheduler, settings
    ), made


def spans(result):
    return [(one.started, one.ended) for one in result.gangs]


def test_a_gang_starts_when_it_arrives_and_ends_after_its_run_time():
    result, _ = played([(5, 7, 2)])
    assert spans(result) == [(5, 12)]


def test_completions_come_before_arrivals_and_arrivals_before_the_session():
    result, _ = played([(0, 10, 4), (10, 5, 4)])
    assert spans(result) == [(0, 10), (10, 15)]


def test_gangs_that_arrive_in_one_second_are_in_one_session():
    result, made = played([(3, 10, 1), (3, 10, 1), (3, 10, 1)])
    assert made[0].asked == [(3.0, 0)]
    assert result.sessions == 1


def test_no_session_is_held_while_nothing_waits():
    result, made = played([(0, 10, 4), (50, 5, 4)])
    assert [now for now, _ in made[0].asked] == [0.0, 50.0]
    assert result.sessions == 2


def test_a_gang_without_run_time_ends_in_the_second_in_which_it_starts_and_makes_room():
    result, _ = played([(0, 0, 4), (0, 5, 4)])
    assert spans(result) == [(0, 0), (0, 5)]


def test_a_gang_larger_than_the_cluster_stays_and_the_run_ends():
    result, _ = played([(0, 5, 2), (1, 5, 5)])
    assert spans(result) == [(0, 5), (None, None)]
    assert result.metrics().unfinished == 1


def test_a_session_interval_lets_arrivals_gather():
    result, made = played([(0, 1, 1), (3, 1, 1), (7, 1, 1), (25, 1, 1)], session_interval=10)
    assert [now for now, _ in made[0].asked] == [0.0, 10.0, 25.0]
    assert [started for started, _ in spans(result)] == [0, 10, 10, 25]


def test_a_failing_node_kills_the_gangs_on_it_whole_and_they_run_again_from_the_start():
    outage = NodeOutage("node-0", time=6, until=20)
    result, made = played([(0, 10, 4), (0, 10, 1)], outages=(outage,))
    first, second = result.gangs
    assert (first.started, first.ended, first.restarts) == (20, 30, 1)
    assert (second.started, second.ended, second.restarts) == (30, 40, 0)
    assert result.failures == 1
    assert len(made) == 1


def test_gangs_on_other_nodes_continue_when_a_node_fails():
    result, _ = played([(0, 10, 1), (0, 10, 1)], outages=(NodeOutage("node-0", time=5),))
    assert spans(result) == [(5, 15), (0, 10)]


def test_gangs_that_wait_for_a_node_without_a_repair_are_unfinished():
    result, _ = played([(0, 10, 4)], outages=(NodeOutage("node-3", time=5),))
    assert spans(result) == [(None, None)]
    assert result.gangs[0].restarts == 1


def test_a_session_that_placed_its_whole_window_is_followed_by_another_at_once():
    class Narrow(FirstComeScheduler):
        @override
        def decide(self, now, seed):
            decided = super().decide(now, seed)
            return Decision(assignments=decided.assignments[:2])

    rows = [(0, 10, 1)] * 4
    result = simulate_workload(gangs_of(rows), Narrow, RunSettings("narrow", window=2))
    assert spans(result) == [(0, 10)] * 4
    assert simulate_workload(gangs_of(rows), Narrow, SETTINGS).gangs[3].started == 10


def test_the_seed_is_passed_to_every_session():
    _, made = played([(0, 1, 1), (5, 1, 1)], seed=11)
    assert [seed for _, seed in made[0].asked] == [11, 11]


def test_progress_is_reported_up_to_the_end():
    told = []
    simulate_workload(
        gangs_of([(0, 1, 1), (2, 1, 1)]), FirstComeScheduler, SETTINGS, lambda *both: told.append(both)
    )
    assert told[0] == (0, 2)
    assert told[-1] == (2, 2)


def test_a_gang_held_at_permit_is_passed_to_the_next_session_until_its_timeout():
    class Holding(FirstComeScheduler):
        @override
        def decide(self, now, seed):
            decided = super().decide(now, seed)
            if now >= 30:
                return decided
            return Decision(
                nominations=tuple(
                    Nomination(namespace=one.namespace, pod=one.pod, node=one.node)
                    for one in decided.assignments
                ),
                waiting=(
                    WaitingAtPermit(pod_group="default/g0", plugin="Quota", until="1970-01-01T00:00:30Z"),
                ),
            )

    made = []

    def scheduler(snapshot):
        made.append(Holding(snapshot))
        return made[-1]

    result = simulate_workload(gangs_of([(0, 5, 2)]), scheduler, SETTINGS)
    assert spans(result) == [(30, 35)]
    assert made[0].held == ()
    assert made[0].asked == [(0.0, 0), (30.0, 0)]


def test_the_series_contain_used_amounts_and_pending_gangs():
    result, _ = played([(0, 10, 3), (2, 10, 2)])
    series = result.series
    assert series.times == (0, 2, 10, 20)
    assert series.used["cpu"] == (3000, 3000, 2000, 0)
    assert series.total["cpu"] == (4000, 4000, 4000, 4000)
    assert series.waiting == (0, 1, 0, 0)
    assert series.running == (1, 1, 1, 0)


@pytest.mark.properties
@pytest.mark.parametrize("policy", sorted(KEYS))
@given(rows=WIDE)
def test_sessions_in_order_with_backfill_are_easy_start_by_start(policy, rows):
    profile = Profile.model_validate({"selection": "ordered", "backfill": "easy", "policy": {"name": policy}})
    slots = 8  # shares of eight are exact in floats, so that equal shares stay equal
    result = simulate_under_profile(gangs_of(rows, slots), profile, RunSettings(policy))
    expected = easy_starts(sorted(rows, key=lambda row: row[0]), slots, KEYS[policy])
    assert {number: one.started for number, one in enumerate(result.gangs)} == expected


@pytest.mark.properties
@given(rows=ROWS)
def test_sessions_in_order_that_block_are_first_come_first_served(rows):
    profile = Profile.model_validate({"selection": "ordered", "blocking": True, "policy": {"name": "fcfs"}})
    result = simulate_under_profile(gangs_of(rows, 6), profile, RunSettings("fcfs"))
    expected = easy_starts(sorted(rows, key=lambda row: row[0]), 6, KEYS["fcfs"], backfill=False)
    assert {number: one.started for number, one in enumerate(result.gangs)} == expected


class Doubted:
    """A follower that asks, at every session, a fresh one over the same cluster, and compares."""

    def __init__(self, snapshot, profile):
        self.profile, self.start = profile, snapshot
        self.follower = Session(snapshot, profile)
        self.groups = {one.key: one for one in snapshot.pod_groups}
        self.pods = {one.key: one for one in snapshot.pods}

    def apply_changes(self, changes):
        if changes.nodes is not None:
            self.start = replace(self.start, nodes=tuple(changes.nodes))
        self.groups |= {group.key: group for group in changes.pod_groups}
        for pod in changes.removed_pods:
            del self.pods[pod.key]
        self.pods |= {pod.key: pod for pod in (*changes.bound_pods, *changes.added_pods)}
        for key in changes.removed_pod_groups:
            del self.groups[key]
        self.follower.apply_changes(changes)

    def set_waiting_gangs(self, held):
        self.follower.set_waiting_gangs(held)

    def decide(self, now, seed):
        decided = self.follower.decide(now, seed)
        whole = replace(self.start, pods=tuple(self.pods.values()), pod_groups=tuple(self.groups.values()))
        assert decided == Session(whole, self.profile).decide(now, seed)
        return decided


PROFILES = {
    "easy": {"selection": "ordered", "backfill": "easy", "policy": {"name": "saf"}},
    "headroom": {
        "selection": "ordered",
        "backfill": "easy",
        "policy": {"name": "headroom", "args": {"share": 0.5}},
    },
    "podwise": {"solver": {"enabled": False}},
}


@pytest.mark.properties
@pytest.mark.parametrize("profile", sorted(PROFILES))
@given(
    rows=ROWS,
    failing=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 30), st.integers(1, 9)), max_size=2),
)
def test_following_event_by_event_decides_as_a_fresh_look_at_the_cluster(profile, rows, failing):
    outages = tuple(NodeOutage(f"node-{node}", at, at + time) for node, at, time in failing)
    chosen = Profile.model_validate(PROFILES[profile])
    result = simulate_workload(
        gangs_of(rows, 6, outages=outages), lambda snapshot: Doubted(snapshot, chosen), RunSettings(profile)
    )
    assert result.metrics().unfinished == 0


def test_following_decides_as_a_fresh_look_where_the_solver_chooses_by_weight():
    rows = [(0, 10, 4), (0, 12, 3), (2, 5, 2), (4, 9, 6), (4, 3, 1), (11, 4, 5)]
    result = simulate_workload(
        gangs_of(rows, 6, outages=(NodeOutage("node-2", 6, 14),)),
        lambda snapshot: Doubted(snapshot, Profile()),
        SETTINGS,
    )
    assert result.metrics().unfinished == 0


@given(rows=ROWS)
def test_a_run_repeats(rows):
    workload = gangs_of(rows, 6)
    assert simulate_under_profile(workload, IN_ORDER, SETTINGS) == simulate_under_profile(
        workload, IN_ORDER, SETTINGS
    )


@given(rows=ROWS)
def test_nodes_are_never_overcommitted_and_gangs_hold_all_of_their_pods(rows):
    result = simulate_under_profile(gangs_of(rows, 6), IN_ORDER, SETTINGS)
    assert all(
        used <= total
        for used, total in zip(result.series.used["cpu"], result.series.total["cpu"], strict=True)
    )
    assert all(sum(units for _, units in one.placements) == one.size for one in result.gangs)
