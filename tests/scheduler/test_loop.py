"""Events wake the loop, it survives failures, and periodic tasks run about once a second."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from typing_extensions import override

from batchsched.errors import ApiError
from batchsched.kube.clock import SystemClock
from batchsched.ports.external import ExceededDeadline
from batchsched.runner.profile_scheduler import ProfileScheduler
from batchsched.runner.session_runner import SessionRunner
from batchsched.scheduler.loop import (
    DELAY_PER_TURN,
    MAX_DELAY_SECONDS,
    MAX_EVENTS_WITHOUT_DELAY,
    MIN_EVENTS_OF_SUBMISSION,
    QUIET_SECONDS,
    SchedulerLoop,
    Wakeup,
)
from tests.service.town import Clock, Town
from tests.session.scenario import GPU, alone, cluster, gang, nodes, pod, profile


async def test_loop_continues_after_a_failed_turn(monkeypatch):
    town = Town(cluster(nodes(1, gpu=1), alone(1, gpu=1)))
    broken = 2

    def chore(now: float) -> None:
        nonlocal broken
        broken -= 1
        if broken >= 0:
            raise RuntimeError("a bug")

    monkeypatch.setattr(town.expiry, "run_once", chore)
    running = asyncio.create_task(town.loop.run())
    for _ in range(100):
        town.clock.turn(1)
        town.wakeup.signal_cluster_change()
        await asyncio.sleep(0.001)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    town.watch()
    assert set(town.bound) == {"solo-0"}


async def test_task_that_always_fails_stops_neither_sessions_nor_the_tasks_after_it(monkeypatch):
    town = Town(cluster(nodes(1, gpu=1), alone(1, gpu=1)))
    times: list[float] = []

    def fail(now: float) -> None:
        raise RuntimeError("a bug")

    tasks: list[Any] = [town.expiry, SimpleNamespace(run_once=times.append)]
    monkeypatch.setattr(town.expiry, "run_once", fail)
    town.loop = SchedulerLoop([town.profile_scheduler], town.cycles, town.wakeup, town.clock, [], tasks)
    with pytest.raises(ExceptionGroup, match="periodic tasks or sessions failed"):
        await town.loop.run_once()
    await town.cycles.wait_until_idle()
    town.watch()
    assert (set(town.bound), len(times)) == ({"solo-0"}, 1)


async def test_failed_session_of_one_profile_does_not_keep_the_others_from_theirs(monkeypatch):
    town = Town(cluster(nodes(1, gpu=1), alone(1, gpu=1)))
    broken = ProfileScheduler(profile(schedulerName="broken"), town.cache)

    def fail(*arguments: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(broken, "sync_queue", fail)
    town.loop = SchedulerLoop([broken, town.profile_scheduler], town.cycles, town.wakeup, town.clock)
    with pytest.raises(ExceptionGroup) as failed:
        await town.loop.run_once()
    assert failed.value.exceptions[0].__notes__ == ["in a session of broken"]
    await town.cycles.wait_until_idle()
    town.watch()
    assert set(town.bound) == {"solo-0"}


async def test_sessions_and_periodic_tasks_wait_until_the_objects_of_a_restored_server_are_listed(
    monkeypatch,
):
    town = Town(cluster(nodes(1, gpu=1), alone(1, gpu=1)))
    times: list[float] = []
    monkeypatch.setattr(town.expiry, "run_once", times.append)
    town.loop.is_cache_outdated = lambda: True
    await town.turn(1)
    assert (town.bound, times) == ({}, [])
    town.loop.is_cache_outdated = lambda: False
    await town.turn(1)
    assert set(town.bound) == {"solo-0"}


async def test_session_that_was_running_when_the_server_was_restored_binds_nothing():
    town = Town(cluster(nodes(1, gpu=1), alone(1, gpu=1)))
    answers = [False, True]
    town.loop.is_cache_outdated = lambda: answers.pop(0) if answers else False
    await town.turn(1)
    assert town.bound == {}
    await town.turn(30)
    assert set(town.bound) == {"solo-0"}


async def test_nothing_is_touched_while_a_session_is_decided():
    """What fails in the background meanwhile is taken back by the next turn."""
    town = Town(cluster(nodes(1, gpu=3), gang("bert", 2)))
    town.fail("bert-1", None)
    await town.turn()
    town.make(alone(1, cpu=1).pods)
    seen: list[set[str]] = []

    def heard(profile_scheduler: Any, decision: Any, took: float) -> None:
        seen.append(town.assumed)

    town.loop = SchedulerLoop([town.profile_scheduler], town.cycles, town.wakeup, town.clock, [heard], [])
    town.server.pods.pop("team/bert-1")
    town.mend()
    await town.turn(1, watch=False)
    assert "bert-1" in seen[0]
    await town.turn(1, watch=False)
    assert "bert-1" not in town.assumed


async def test_periodic_tasks_run_about_once_a_second_even_if_the_clock_is_set_back(monkeypatch):
    town = Town(cluster(nodes(1)))
    times: list[float] = []
    monkeypatch.setattr(town.expiry, "run_once", times.append)
    for _ in range(30):
        await town.turn(0.1)
    assert 2 <= len(times) <= 4
    seen = len(times)
    town.clock.set_by = -1000.0
    for _ in range(30):
        await town.turn(0.1)
    assert 2 <= len(times) - seen <= 4


async def test_new_schedulers_take_over_between_sessions_with_bindings_in_flight():
    town = Town(cluster(nodes(2, gpu=2), gang("bert", 2), alone(1, gpu=1)))
    town.fail("bert-1", None)
    await town.turn()
    town.fail("bert-1", ApiError(500, "InternalError", "try again"))
    other = ProfileScheduler(profile(), town.cache, leaving=town.stranded.leaving)
    town.loop.replace_schedulers([other])
    assert town.loop.profile_schedulers == (town.profile_scheduler,)
    await town.turn(1)
    assert town.loop.profile_schedulers == (other,)
    town.mend()
    await town.turns(20)
    assert set(town.bound) == {"bert-0", "bert-1", "solo-0"}


async def test_gang_without_room_is_tried_again_if_the_gang_that_took_it_cannot_be_bound():
    town = Town(cluster(nodes(1, gpu=1), gang("bert", 1), gang("gpt", 1)))
    town.fail("bert-0", ApiError(403, "Forbidden", "a policy does not allow it"))
    await town.turns(3)
    assert set(town.bound) == {"gpt-0"}


async def test_new_scheduler_keeps_the_usage_history():
    settings = profile(queuePolicy={"name": "decayed-usage"})
    town = Town(cluster(nodes(1, gpu=3), gang("bert", 2)), settings)
    await town.turns(3)
    other = ProfileScheduler(settings, town.cache, leaving=town.stranded.leaving)
    other.recording = True
    town.loop.replace_schedulers([other])
    await town.turn(3600)
    town.make([pod("late", gpu=1)])
    await town.turns(2)
    assert other.session_input is not None
    assert ("default", GPU) in {(one.queue, one.resource) for one in other.session_input.snapshot.usage}


async def test_scheduler_with_a_hung_plugin_is_replaced_by_one_without_it():
    town = Town(cluster(nodes(1, gpu=1), alone(1, gpu=1)))
    runner = SessionRunner(profile(), (ExceededDeadline("Slow", "Filter", 0, 1.0),))
    runner.hung = True  # as its last session leaves it
    town.loop.profile_schedulers = (ProfileScheduler(profile(), town.cache, runner=runner),)
    await town.turns(2)
    (profile_scheduler,) = town.loop.profile_schedulers
    assert not profile_scheduler.runner.hung
    assert [one.plugin for one in profile_scheduler.runner.overdue] == ["Slow"]
    assert set(town.bound) == {"solo-0"}


async def test_failed_binding_of_another_profile_after_a_plugin_hung_is_tried_again():
    town = Town(cluster(nodes(1, gpu=1), alone(1, gpu=1)))
    runner = SessionRunner(profile(), (ExceededDeadline("Slow", "Filter", 0, 1.0),))
    runner.hung = True  # as its last session leaves it
    hung = ProfileScheduler(profile(schedulerName="other"), town.cache, runner=runner)
    (mine,) = town.loop.profile_schedulers
    town.loop.replace_schedulers([mine, hung.without_hung_plugins()])
    town.fail("solo-0", ApiError(403, "Forbidden", "a policy does not allow it"))
    await town.turns(2)
    assert town.loop.profile_schedulers[0] is mine
    assert not town.bound
    town.mend()
    await town.turn(3600)
    await town.turns(2)
    assert set(town.bound) == {"solo-0"}


async def test_event_wakes_the_loop_at_once():
    wakeup = Wakeup(SystemClock())
    wakeup.signal_cluster_change()
    async with asyncio.timeout(60):
        await wakeup.wait_for_cluster_change(3600)


async def test_wait_without_events_ends_after_its_maximum():
    await Wakeup(SystemClock()).wait_for_cluster_change(0.01)


async def test_a_flood_is_waited_out_and_forgotten():
    wakeup = Wakeup(SystemClock())
    for _ in range(2 * MAX_EVENTS_WITHOUT_DELAY):
        wakeup.signal_cluster_change()
    async with asyncio.timeout(60):
        await wakeup.wait_for_cluster_change(3600)
    waiting = asyncio.create_task(wakeup.wait_for_cluster_change(3600))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    waiting.cancel()


class EagerClock(Clock):
    """A clock whose sleeps take no real time, and after each of which another event arrives."""

    wakeup: Wakeup

    @override
    async def sleep(self, seconds: float) -> None:
        self.time += seconds
        self.wakeup.signal_cluster_change()


async def delay_after(
    session_seconds: float,
    *,
    at_once: bool = False,
    max_delay: float = MAX_DELAY_SECONDS,
    events: int = MAX_EVENTS_WITHOUT_DELAY,
) -> float:
    """Return the seconds that a stream of events delays the session after one that took this long."""
    clock = EagerClock()
    wakeup = clock.wakeup = Wakeup(clock)
    for _ in range(events):
        wakeup.signal_cluster_change()
    wakeup.signal_cluster_change(at_once=at_once)
    clock.turn(session_seconds)
    begun = clock.monotonic()
    await wakeup.wait_for_cluster_change(3600, max_delay)
    return clock.monotonic() - begun


async def test_a_stream_of_events_delays_the_next_session_by_the_rest_of_a_maximum():
    assert await delay_after(0.0) == pytest.approx(MAX_DELAY_SECONDS, abs=2 * QUIET_SECONDS)
    assert await delay_after(0.2) == pytest.approx(MAX_DELAY_SECONDS - 0.2, abs=2 * QUIET_SECONDS)


async def test_a_stream_of_events_delays_a_session_by_no_more_than_the_callers_maximum():
    assert await delay_after(0.0, max_delay=0.05) == pytest.approx(0.05, abs=2 * QUIET_SECONDS)


async def test_one_session_takes_the_pods_of_a_large_submission():
    delay = await delay_after(0.0, max_delay=0.05, events=MIN_EVENTS_OF_SUBMISSION)
    assert delay == pytest.approx(MAX_DELAY_SECONDS, abs=2 * QUIET_SECONDS)


@pytest.mark.parametrize("session_seconds", [0.01, 0.03, 1.0])
async def test_the_delay_is_in_proportion_to_the_last_sessions(session_seconds, monkeypatch):
    """The sessions of all profiles count, and a turn without a session changes nothing."""
    town = Town(cluster(nodes(1, gpu=1), alone(1, gpu=1)))
    other = ProfileScheduler(profile(schedulerName="other"), town.cache)
    town.loop.profile_schedulers = (*town.loop.profile_schedulers, other)
    delays: list[float] = []

    async def record(longest: float, max_delay: float) -> None:
        delays.append(max_delay)
        if len(delays) == 2:
            raise asyncio.CancelledError

    monkeypatch.setattr(town.wakeup, "wait_for_cluster_change", record)
    begin = ProfileScheduler.begin_session

    def begin_slowly(scheduler: ProfileScheduler, *arguments):
        town.clock.turn(session_seconds)
        return begin(scheduler, *arguments)

    monkeypatch.setattr(ProfileScheduler, "begin_session", begin_slowly)
    with pytest.raises(asyncio.CancelledError):
        await town.loop.run()
    turn_seconds = 2 * session_seconds
    assert delays == [pytest.approx(min(MAX_DELAY_SECONDS, DELAY_PER_TURN * turn_seconds))] * 2


async def test_events_that_waited_during_a_long_session_are_not_delayed_further():
    assert await delay_after(1.0) == pytest.approx(QUIET_SECONDS)


async def test_events_do_not_delay_the_session_after_a_full_one():
    assert await delay_after(0.0, at_once=True) == pytest.approx(QUIET_SECONDS)


async def test_gangs_that_a_full_session_left_are_placed_without_delay():
    few = profile(sessionWindow=2)
    town = Town(cluster(nodes(1, gpu=9), alone(5, gpu=1)), few)
    signals: list[bool] = []
    signal = town.wakeup.signal_cluster_change

    def record(*, at_once: bool = False) -> None:
        signals.append(at_once)
        signal(at_once=at_once)

    town.wakeup.signal_cluster_change = record  # type: ignore[method-assign]
    await town.turns(3)
    assert signals == [True, True]


@pytest.mark.parametrize("later", range(5))
async def test_cancellation_together_with_an_event_is_not_lost(later):
    """A leader that lost its Lease has to leave: its bindings fail, which is news all the time."""
    wakeup = Wakeup(SystemClock())

    async def loop():
        while True:
            await wakeup.wait_for_cluster_change(3600)

    task = asyncio.create_task(loop())
    await asyncio.sleep(0)
    wakeup.signal_cluster_change()
    for _ in range(later):
        await asyncio.sleep(0)
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=5)
    task.cancel()
    assert done
