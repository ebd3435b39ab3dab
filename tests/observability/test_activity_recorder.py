"""What operators see: sessions and bindings counted under kube-scheduler's names, and sessions kept that repeat."""

import pytest
from msgspec.structs import replace

from batchsched.api.decision import Decision
from batchsched.api.snapshot import Snapshot
from batchsched.observability import activity_recorder
from batchsched.observability.activity_recorder import ActivityRecorder
from batchsched.observability.collector import MetricsCollector
from batchsched.record.file import compare_decisions, read_session_file
from batchsched.runner.profile_scheduler import ProfileScheduler
from batchsched.runner.refusal_explanations import ExplanationOutcome, ExplanationResultCode
from batchsched.runner.session_runner import SessionRunner
from batchsched.session.session import decide
from tests.service.town import Town
from tests.session.scenario import alone, cluster, gang, nodes, profile

PROFILE = profile().scheduler_name


class Observed:
    """A town, observed."""

    def __init__(self, snapshot, kept=3) -> None:
        self.town = town = Town(snapshot)
        self.seen = seen = ActivityRecorder(town.clock, kept)
        profile_scheduler = ProfileScheduler(
            profile(),
            town.cache,
            runner=SessionRunner(profile(), telemetry=seen.telemetry_of_profile(profile())),
        )
        profile_scheduler.recording = kept > 0
        town.profile_scheduler = profile_scheduler
        town.loop.profile_schedulers = (profile_scheduler,)
        town.loop._callbacks = (*town.loop._callbacks, seen.record_decision)
        town.cycles._on_binding = seen.record_binding
        self.gauges = MetricsCollector(seen.metrics, town.cache, ())

    def read(self) -> None:
        self.gauges.update_gauges(self.town.loop.profile_schedulers, self.town.clock.monotonic())

    def value(self, name: str, **labels: str) -> float | None:
        return self.seen.metrics.registry.get_sample_value(name, labels)


async def test_bound_gang_is_counted_once_and_each_of_its_pods_once():
    one = Observed(cluster(nodes(2, gpu=2), gang("bert", 3)))
    await one.town.turns(3)
    assert one.value("batchsched_gangs_total", result="placed", profile=PROFILE) == 1
    assert one.value("scheduler_schedule_attempts_total", result="scheduled", profile=PROFILE) == 3
    assert one.value("scheduler_pod_scheduling_sli_duration_seconds_count", attempts="1") == 3
    assert one.value("batchsched_bind_duration_seconds_count", result="scheduled") == 3
    assert one.value("batchsched_session_pods_sum", profile=PROFILE) == 3


async def test_refused_gang_is_counted_by_reason_and_waits_among_the_unschedulable():
    one = Observed(cluster(nodes(1, gpu=2), gang("bert", 3)))
    await one.town.turns(1)
    one.read()
    assert one.value("scheduler_schedule_attempts_total", result="unschedulable", profile=PROFILE) == 3
    assert one.value("batchsched_refusals_total", reason="InsufficientResources", profile=PROFILE) == 1
    assert one.value("scheduler_pending_pods", queue="unschedulable") == 3
    assert one.value("batchsched_pending_gangs", queue="unschedulable") == 1
    assert one.value("scheduler_pending_pods", queue="active") == 0


async def test_explanations_are_counted_and_shown_in_place_of_the_refusal_that_they_explain():
    one = Observed(cluster(nodes(1, gpu=2), gang("bert", 3)))
    await one.town.turns(1)
    refusal = one.seen.refusals["team/bert"]
    verified = replace(refusal, verified=True)
    for result, explained in (
        (ExplanationResultCode.OUTDATED, None),
        (ExplanationResultCode.VERIFIED, verified),
    ):
        one.seen.record_explanation(ExplanationOutcome(PROFILE, refusal, explained, result, 1.5))
    assert one.seen.refusals["team/bert"] == verified
    newer = replace(refusal, message="another one")
    one.seen.record_explanation(
        ExplanationOutcome(PROFILE, newer, newer, ExplanationResultCode.VERIFIED, 0.5)
    )
    assert one.seen.refusals["team/bert"] == verified
    assert one.value("batchsched_explanations_total", result="verified", profile=PROFILE) == 2
    assert one.value("batchsched_explanation_seconds_total", result="verified", profile=PROFILE) == 2
    assert one.value("batchsched_explanation_seconds_total", result="outdated", profile=PROFILE) == 1.5


async def test_refusals_of_deleted_gangs_are_dropped(monkeypatch):
    monkeypatch.setattr(activity_recorder, "_MIN_REFUSALS", 4)
    one = Observed(cluster(nodes(1, gpu=2), gang("stays", 3)))
    await one.town.turns(1)
    for number in range(20):
        group = gang(f"leaves-{number}", 3)
        one.town.make(group.pods)
        await one.town.turns(1)
        assert f"team/leaves-{number}" in one.seen.refusals
        for pod in group.pods:
            one.town.delete(pod.name)
        await one.town.turns(1)
    assert "team/stays" in one.seen.refusals
    assert len(one.seen.refusals) <= 6


async def test_binding_that_failed_is_an_error():
    one = Observed(cluster(nodes(1, gpu=1), alone(1, gpu=1)))
    one.town.fail("solo-0", RuntimeError("no"))
    await one.town.turns(1)
    assert one.value("scheduler_schedule_attempts_total", result="error", profile=PROFILE) == 1
    assert one.value("scheduler_pod_scheduling_attempts_count") == 0
    assert one.value("batchsched_bind_duration_seconds_count", result="error") == 1


async def test_deleted_pod_and_the_new_pod_of_its_name_are_both_counted_when_their_bindings_end():
    one = Observed(cluster(nodes(1, gpu=8), alone(1, gpu=1)))
    town = one.town
    town.fail("solo-0", None)
    await town.turns(1)
    town.delete("solo-0")
    town.make(alone(1, gpu=1).pods)
    await town.turns(1)
    town.mend()
    await town.turns(2)
    for result in ("error", "scheduled"):
        assert one.value("scheduler_schedule_attempts_total", result=result, profile=PROFILE) == 1
    assert one.value("scheduler_pod_scheduling_sli_duration_seconds_count", attempts="1") == 1


async def test_duration_of_a_binding_is_that_of_the_monotonic_clock(monkeypatch):
    one = Observed(cluster(nodes(1, gpu=1), alone(1, gpu=1)))
    town = one.town
    town.fail("solo-0", None)
    await town.turns(1)
    monkeypatch.setattr(town.clock, "now", lambda: town.clock.time + 3600)  # the time is set forward
    town.clock.turn(2)
    town.mend()
    await town.cycles.wait_until_idle()
    assert one.value("batchsched_bind_duration_seconds_sum", result="scheduled") == 2


async def test_counters_that_are_read_off_tables_count_each_thing_once():
    one = Observed(cluster(nodes(1, gpu=1), alone(2, gpu=1)))
    await one.town.turns(1)
    for _ in range(3):
        one.read()
    assert one.value("scheduler_queue_incoming_pods_total", queue="active", event="UnscheduledPodAdd") == 2


async def test_pods_of_a_queue_are_allocated_once_they_have_a_node():
    one = Observed(cluster(nodes(1, gpu=3), alone(2, gpu=1), gang("bert", 4)))
    await one.town.turns(2)
    one.read()
    device = "nvidia.com/gpu"
    found = {
        what: one.value(f"batchsched_queue_{what}", queue="default", resource=device)
        for what in ("allocated", "pending")
    }
    assert found == {"allocated": 2, "pending": 4}


async def test_kept_session_decides_again_as_it_was_decided(tmp_path):
    one = Observed(cluster(nodes(2, gpu=2), gang("bert", 3), alone(2, gpu=1)))
    await one.town.turns(1)
    (summary,) = one.seen.sessions.summaries()
    file = tmp_path / "session.json.gz"
    kept = one.seen.sessions.get_session(summary.id)
    assert kept is not None
    file.write_bytes(kept.encode_as_session_file())
    recorded = read_session_file(file)
    again = decide(recorded.snapshot, recorded.profile, recorded.now, recorded.seed)
    assert not compare_decisions(recorded.decision, again)
    assert recorded.decision.solver.stages


async def test_only_the_last_sessions_are_kept():
    one = Observed(cluster(nodes(9, gpu=1)), kept=2)
    for number in range(4):
        one.town.make(alone(1, prefix=f"solo{number}", gpu=1).pods)
        await one.town.turns(1)
    assert [summary.id for summary in one.seen.sessions.summaries()] == [4, 3]
    assert one.seen.sessions.get_session(1) is None
    one.seen.sessions.set_max_sessions(1)
    assert [summary.id for summary in one.seen.sessions.summaries()] == [4]


async def test_no_session_is_recorded_if_none_is_kept():
    one = Observed(cluster(nodes(1, gpu=1), alone(1, gpu=1)), kept=0)
    await one.town.turns(1)
    assert one.value("batchsched_gangs_total", result="placed", profile=PROFILE) == 1
    assert not one.seen.sessions.summaries()


async def test_long_session_names_its_longest_stage_and_gang_for_ten_minutes(caplog):
    one = Observed(cluster(nodes(1), alone(1)))
    for seconds, gangs in ((4.0, {"team/short": 4.0}), (9.0, {"team/a": 1.0, "team/b": 3.0})):
        timed = one.seen.telemetry_of_profile(profile())
        timed.stages, timed.gangs = {"walk": 1.0, "pipeline": 3.5}, gangs
        one.seen.record_decision(one.town.profile_scheduler, Decision(), seconds)

    def series():
        (family,) = one.seen.metrics.long_session_gang.collect()
        return [(sample.labels, sample.value) for sample in family.samples]

    assert series() == [({"profile": PROFILE, "stage": "pipeline", "pod_group": "team/b"}, 3.0)]
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning.startswith("Session took long")
    one.seen.clear_expired_long_session_metric(one.town.clock.monotonic() + 500)
    assert len(series()) == 1
    one.seen.clear_expired_long_session_metric(one.town.clock.monotonic() + 700)
    assert series() == []


@pytest.mark.parametrize("settings", [{}, {"selection": "ordered"}, {"solver": {"enabled": False}}])
def test_telemetry_measures_the_work_for_each_gang_that_takes_part(settings):
    measured = ActivityRecorder(Town(Snapshot()).clock, 0).telemetry_of_profile(profile())
    snapshot = cluster(nodes(1, gpu=2), gang("placed", 2), gang("refused", 3))
    decide(snapshot, profile(**settings), 0.0, 0, telemetry=measured)
    assert measured.gangs.keys() == {"team/placed", "team/refused"}
    measured.clear_session_durations()
    assert measured.gangs == {}
