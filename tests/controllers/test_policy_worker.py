"""In a cluster, forecasts of the policy `auto` run next to the sessions, and the choice is recorded with them."""

import logging
import time

from batchsched.api.decision import to_json, without_measured_durations
from batchsched.controllers.policy_worker import ForecastOutcome, PolicyWorker
from batchsched.observability.metrics import Metrics
from batchsched.observability.recorder import MetricsRecorder
from batchsched.record.file import SessionRecord, read_session_file, write_session_file
from batchsched.runner.policy_chooser import CandidateChoice
from batchsched.runner.policy_forecast import Forecast
from batchsched.session.session import decide
from tests.service.town import Town
from tests.session.scenario import cluster, gang, nodes, profile

CANDIDATES = [{"name": "fcfs"}, {"name": "sjf"}]
AUTO = profile(
    selection="ordered", policy={"name": "auto", "args": {"candidates": CANDIDATES}}, blocking=True
)


def backlog():
    """One node of two GPUs with a long gang that came first, and nine short ones behind it."""
    short = [gang(f"short-{number}", 2, age=100 - number, expectedRuntimeSeconds=10) for number in range(9)]
    return cluster(nodes(1, gpu=2), gang("long", 2, age=200, expectedRuntimeSeconds=90_000), *short)


def worker_of(town, outcomes=None):
    callbacks = () if outcomes is None else (outcomes.append,)
    return PolicyWorker(town.clock, lambda: [town.profile_scheduler], callbacks)


async def test_forecast_runs_after_a_session_and_its_choice_is_used_by_the_next_one(caplog):
    caplog.set_level(logging.INFO)
    town = Town(backlog(), AUTO)
    outcomes: list[ForecastOutcome] = []
    town.profile_scheduler.recording = True
    await town.turn()
    assert {name.rpartition("-")[0] for name in town.bound} == {"long"}
    await worker_of(town, outcomes).run_once()
    assert [outcome.choice.policy for outcome in outcomes] == ["sjf"]
    assert outcomes[0].seconds > 0
    assert "policy auto of profile batchsched: sjf replaces fcfs" in caplog.text
    town.make(gang("newest", 2, expectedRuntimeSeconds=5).pods)
    await town.turns(3)
    seen = town.profile_scheduler.session_input
    assert seen is not None
    assert seen.snapshot.chosen_policy == "sjf"


async def test_recorded_session_repeats_with_the_choice_of_its_time(tmp_path):
    town = Town(backlog(), AUTO)
    scheduler = town.profile_scheduler
    scheduler.recording = True
    assert scheduler.chooser is not None
    scheduler.chooser.policy = "sjf"
    now = town.clock.now()
    scheduler.sync_queue(now)
    work = scheduler.begin_session(now)
    assert work is not None
    decision, seen = work(), scheduler.session_input
    assert {assignment.pod.rpartition("-")[0] for assignment in decision.assignments} == {"short-0"}
    assert seen is not None
    record = SessionRecord(seen.snapshot, AUTO, now, seen.seed, decision)
    write_session_file(tmp_path / "session", record)
    kept = read_session_file(tmp_path / "session")
    again = decide(kept.snapshot, kept.profile, kept.now, kept.seed)
    assert to_json(without_measured_durations(again)) == to_json(without_measured_durations(decision))


async def test_forecast_sleeps_nine_times_as_long_as_it_computes():
    town = Town(backlog(), AUTO)
    outcomes: list[ForecastOutcome] = []
    await town.turn()
    begun = time.monotonic()
    await worker_of(town, outcomes).run_once()
    assert time.monotonic() - begun >= 9 * outcomes[0].seconds


async def test_worker_without_due_forecast_does_nothing():
    town = Town(cluster(nodes(1, gpu=2)), AUTO)
    outcomes: list[ForecastOutcome] = []
    await worker_of(town, outcomes).run_once()
    assert outcomes == []


async def test_forecast_ends_without_a_choice_when_the_replica_stops():
    town = Town(backlog(), AUTO)
    outcomes: list[ForecastOutcome] = []
    await town.turn()
    worker = worker_of(town, outcomes)
    worker.stop()
    await worker.run_once()
    assert outcomes == []


async def test_an_error_in_a_forecast_or_in_a_callback_does_not_end_later_forecasts(caplog, monkeypatch):
    town = Town(backlog(), AUTO)
    await town.turn()
    chooser = town.profile_scheduler.chooser
    assert chooser is not None
    due, forecast_all = chooser.due_forecast, chooser.forecast_all_candidates
    outcomes: list[ForecastOutcome] = []

    def record(outcome):
        outcomes.append(outcome)
        if len(outcomes) == 1:
            raise RuntimeError("no metrics")

    def fail(*_):
        raise ZeroDivisionError("no runtime")

    worker = PolicyWorker(town.clock, lambda: [town.profile_scheduler], (record,))
    for forecast in (fail, forecast_all, forecast_all):
        monkeypatch.setattr(chooser, "forecast_all_candidates", forecast)
        chooser.due_forecast = due
        await worker.run_once()
    assert [outcome.choice.policy for outcome in outcomes] == ["sjf", "sjf"]
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [record.getMessage() for record in errors] == [
        "the forecast of profile batchsched failed: a defect: no runtime",
        "the forecast of profile batchsched failed: a defect: no metrics",
    ]
    assert [bool(record.exc_info) for record in errors] == [True, False]


async def test_the_next_profile_gets_its_forecast_after_an_error_in_that_of_another(monkeypatch):
    towns = [Town(backlog(), AUTO), Town(backlog(), AUTO)]
    for town in towns:
        await town.turn()
    monkeypatch.setattr(towns[0].profile_scheduler.chooser, "forecast_all_candidates", lambda *_: 1 // 0)
    outcomes: list[ForecastOutcome] = []
    schedulers = [town.profile_scheduler for town in towns]
    await PolicyWorker(towns[0].clock, lambda: schedulers, (outcomes.append,)).run_once()
    assert len(outcomes) == 1


def test_metrics_show_the_chosen_candidate():
    metrics = Metrics()
    figures = {"fcfs": Forecast(2.0, 60.0, 5), "sjf": Forecast(1.0, 60.0, 5)}
    choice = CandidateChoice(0.0, "sjf", "fcfs", "because", figures)
    MetricsRecorder(metrics).record_forecast_metrics(ForecastOutcome("batchsched", choice, 1.5))
    text = metrics.prometheus_text().decode()
    assert 'batchsched_policy_chosen{policy="sjf",profile="batchsched"} 1.0' in text
    assert 'batchsched_policy_chosen{policy="fcfs",profile="batchsched"} 0.0' in text
    assert 'batchsched_policy_changes_total{profile="batchsched"} 1.0' in text
    assert 'batchsched_policy_forecast_seconds_total{profile="batchsched"} 1.5' in text
