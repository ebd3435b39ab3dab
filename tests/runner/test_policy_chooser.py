"""The choice of a gang order under `auto`: forecasts, scores and hysteresis."""

import pytest

from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.ports.cluster import ClusterChanges
from batchsched.queues.gang_order import AutoArgs, CandidatePolicy
from batchsched.runner.policy_chooser import PolicyChooser, arguments_of_auto_policy
from batchsched.runner.policy_forecast import Forecast, forecast_candidate
from batchsched.session.session import Session, decide
from tests.simulator.clusters import gangs_of

AUTO = {"selection": "ordered", "backfill": "easy", "policy": {"name": "auto"}}
FCFS, SJF = CandidatePolicy(name="fcfs"), CandidatePolicy(name="sjf")
HOUR = 3600.0


def chooser_of(*candidates, **args):
    return PolicyChooser(AutoArgs(candidates=candidates or (FCFS, SJF), **args))


def forecasts(fcfs, sjf, end=HOUR):
    return {"fcfs": Forecast(fcfs, HOUR, 10), "sjf": Forecast(sjf, end, 10)}


def session_with(rows, slots=4, profile=None):
    """A session over one-slot nodes with all gangs of these rows (submit, runtime, size) pending."""
    workload = gangs_of(rows, slots)
    session = Session(workload.cluster, Profile.model_validate(profile or AUTO))
    for arrival in workload.arrivals:
        session.apply_changes(ClusterChanges(pod_groups=(arrival.group,), added_pods=arrival.pods))
    session.tables.update_pending_gangs_and_indexes()
    return session


def test_first_forecast_follows_after_eight_gangs_and_later_ones_after_half_as_many_as_were_seen():
    session = session_with([(at, 10, 1) for at in range(40)])
    chooser = chooser_of()
    identities = [f"default/g{number:02d}" for number in range(40)]
    chooser.record_arrived_gangs(session, identities[:7])
    assert not chooser.is_forecast_due(100.0)
    chooser.record_arrived_gangs(session, identities[:8])
    assert chooser.is_forecast_due(100.0)
    chooser.build_next_forecast_input(session, Snapshot(), 100.0)
    chooser.record_arrived_gangs(session, identities[:15])
    assert not chooser.is_forecast_due(100.0)
    chooser.record_arrived_gangs(session, identities[:16])
    assert chooser.is_forecast_due(100.0)


def test_pause_after_forecasts_keeps_their_cpu_time_at_a_tenth_of_one_core():
    chooser = chooser_of(gangs_between_forecasts=1)
    chooser.record_arrived_gangs(session_with([(0, 10, 1)]), ["default/g0"])
    chooser.choose_gang_order(forecasts(2.0, 2.0), 100.0)
    # 20 simulated sessions of 2 ms are 0.04 s of CPU time.
    assert not chooser.is_forecast_due(100.39)
    assert chooser.is_forecast_due(100.41)


def test_candidate_that_is_better_by_less_than_the_hysteresis_is_not_chosen():
    choice = chooser_of(hysteresis=0.05).choose_gang_order(forecasts(2.0, 1.92), 0.0)
    assert (choice.policy, choice.changes_gang_order) == ("fcfs", False)
    assert choice.reason.startswith("fcfs stays: sjf is better by 0.041, which is within the hysteresis")


def test_candidate_that_is_better_by_more_than_the_hysteresis_is_chosen_with_a_reason():
    choice = chooser_of(hysteresis=0.05).choose_gang_order(forecasts(2.0, 1.5), 7.0)
    assert (choice.policy, choice.previous, choice.time) == ("sjf", "fcfs", 7.0)
    assert choice.reason == (
        "sjf replaces fcfs: mean slowdown 1.50 instead of 2.00, mean end of device hours 1.0 h instead of 1.0 h in "
        "the last forecast"
    )


def test_candidate_that_delays_device_hours_is_not_chosen_for_a_small_gain_of_slowdown():
    assert chooser_of().choose_gang_order(forecasts(2.0, 1.8, end=1.2 * HOUR), 0.0).policy == "fcfs"


def test_one_forecast_does_not_reverse_what_several_earlier_ones_found():
    chooser = chooser_of(memory=0.7)
    for _ in range(4):
        assert chooser.choose_gang_order(forecasts(2.0, 1.0), 0.0).policy == "sjf"
    assert chooser.choose_gang_order(forecasts(1.0, 2.0), 0.0).policy == "sjf"


def test_forecast_prefers_the_order_that_lets_short_gangs_go_first():
    rows = [(0, 1000, 4), *((at, 10, 4) for at in range(1, 9))]
    session = session_with(rows)
    chooser = chooser_of()
    chooser.record_arrived_gangs(session, [f"default/g{number}" for number in range(9)])
    given = chooser.build_next_forecast_input(session, Snapshot(), 9.0)
    assert given.pools == {"pool-0": {"cpu": 4000}}
    assert len(given.pending) == len(given.recent) == 9
    result = chooser.forecast_all_candidates(given)
    assert result["sjf"].slowdown < result["fcfs"].slowdown
    assert chooser.choose_gang_order(result, 9.0).policy == "sjf"


def test_gangs_of_a_forecast_wait_until_running_gangs_end():
    workload = gangs_of([(0, 500, 4), (0, 10, 4)])
    session = Session(workload.cluster, Profile.model_validate(AUTO | {"policy": {"name": "fcfs"}}))
    for arrival in workload.arrivals:
        session.apply_changes(ClusterChanges(pod_groups=(arrival.group,), added_pods=arrival.pods))
    session.tables.update_pending_gangs_and_indexes()
    chooser = chooser_of()
    chooser.record_arrived_gangs(session, ["default/g1"])
    # g0 starts; its pods are bound when the next session begins.
    nodes = {assignment.pod: assignment.node for assignment in session.decide(0.0, 0).assignments}
    session.apply_changes(
        ClusterChanges(bound_pods=[_bound(pod, nodes) for pod in workload.arrivals[0].pods])
    )
    session.tables.update_pending_gangs_and_indexes()
    given = chooser.build_next_forecast_input(session, Snapshot(), 100.0)
    assert [(gang.remaining, gang.requests) for gang in given.running] == [(400, {"cpu": 4000})]
    # 100 s of waiting so far, 400 s until g0 ends; then the same gang again, which arrives one second later.
    expected = ((500 + 10) / 10 + (409 + 10) / 10) / 2
    assert forecast_candidate(given, FCFS).slowdown == pytest.approx(expected)


def _bound(pod, nodes):
    from msgspec.structs import replace

    from batchsched.api.core.pod import PodStatus

    return replace(
        pod,
        spec=replace(pod.spec, node_name=nodes[pod.name]),
        status=PodStatus(phase="Running", start_time="1970-01-01T00:00:00Z"),
    )


def test_profile_that_does_not_read_the_order_needs_no_forecasts():
    assert arguments_of_auto_policy(Profile.model_validate(AUTO)) == AutoArgs()
    assert arguments_of_auto_policy(Profile.model_validate(AUTO | {"selection": "weight"})) is None
    assert arguments_of_auto_policy(Profile()) is None


def test_choice_in_the_snapshot_gives_the_decision_of_the_chosen_order():
    auto = AUTO | {"policy": {"name": "auto", "args": {"candidates": [{"name": "fcfs"}, {"name": "sjf"}]}}}
    arrivals = gangs_of([(0, 1000, 4), (1, 10, 4)]).arrivals
    cluster = gangs_of([]).cluster
    fields = {
        "nodes": cluster.nodes,
        "pods": tuple(pod for arrival in arrivals for pod in arrival.pods),
        "pod_groups": tuple(arrival.group for arrival in arrivals),
    }
    by_choice = {
        choice: decide(Snapshot(**fields, chosen_policy=choice), Profile.model_validate(auto), 5.0, 0)
        for choice in ("", "fcfs", "sjf")
    }
    for name in ("fcfs", "sjf"):
        plain = decide(Snapshot(**fields), Profile.model_validate(AUTO | {"policy": {"name": name}}), 5.0, 0)
        assert by_choice[name].assignments == plain.assignments
    assert by_choice[""].assignments == by_choice["fcfs"].assignments != by_choice["sjf"].assignments


def test_candidate_without_backfill_replaces_the_backfill_of_the_profile():
    rows = [(0, 1000, 3), (1, 1000, 4), (2, 5000, 1)]
    candidates = [{"name": "fcfs"}, {"name": "fcfs", "backfill": "none"}]
    session = session_with(
        rows, profile=AUTO | {"policy": {"name": "auto", "args": {"candidates": candidates}}}
    )
    assert len(session.decide(5.0, 0).assignments) == 3
    session.use_gang_order_candidate("fcfs (backfill none)")
    assert len(session.decide(5.0, 0).assignments) == 4
    session.use_gang_order_candidate("fcfs")
    assert len(session.decide(5.0, 0).assignments) == 3
