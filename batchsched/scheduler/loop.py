"""The scheduling loop: apply events, decide a session for each profile with pending pods, and start the bindings.

The decision runs in a thread of its own. Meanwhile the event loop renews the Lease, reads watches and binds pods. The
tables of the scheduler are not changed while a decision runs.

A session starts at once after few events, and a little later during a burst, so that one session decides all its pods.
The delay is in proportion to the last sessions: if they are short, pods wait little, and sessions still take only a
part of the time. Events that arrive during a session have waited already: if it was long, the next one starts without
further delay. A session that left gangs for the next one causes no delay either.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from batchsched.api.decision import Decision
from batchsched.controllers.event_recorder import PendingEvent
from batchsched.controllers.policy_worker import ForecastOutcome, PolicyWorker, policy_choice_event
from batchsched.ports.cluster import Clock, wall_clock_offset
from batchsched.runner.profile_scheduler import ProfileScheduler
from batchsched.scheduler.binding import BindingCycles

QUIET_SECONDS: Final = 0.01
"""Seconds without an event after which a burst is over."""
MAX_DELAY_SECONDS: Final = 0.25
"""Maximum seconds from the first event of a burst to the session, if no other session runs meanwhile."""
DELAY_PER_TURN: Final = 2.0
"""Maximum ratio of the delay to the time that the last sessions took: short sessions need no large bursts.

With 4, half of 200 pods per second waited 78 ms instead of 47 ms, and the scheduler took a quarter less CPU.
"""
MAX_EVENTS_WITHOUT_DELAY: Final = 8
"""Number of events up to which there is no delay."""
MIN_EVENTS_OF_SUBMISSION: Final = 64
"""Number of events from which a burst is a submission of many pods: one session for more of them saves CPU."""


class Wakeup:
    """A signal that the cluster changed, for which the scheduling loop waits.

    Args:
      clock: The clock.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._news = asyncio.Event()
        self._count = 0
        self._first_signal_at = 0.0
        """The time of the first change since the last wait ended, by the monotonic clock."""
        self._at_once = False

    def signal_cluster_change(self, *, at_once: bool = False) -> None:
        """Signal that the cluster changed; if `at_once` is true, the next session does not wait for further changes."""
        self._at_once |= at_once
        if not self._count:
            self._first_signal_at = self._clock.monotonic()
        self._count += 1
        self._news.set()

    async def wait_for_cluster_change(self, longest: float, max_delay: float = MAX_DELAY_SECONDS) -> None:
        """Wait until a change of the cluster is signalled, for at most `longest` seconds.

        After a burst of changes, wait for its end, for at most `max_delay` seconds. If there are as many as in a
        submission of many pods, the limit is `MAX_DELAY_SECONDS`.
        """
        try:
            # Not `wait_for`: until Python 3.12 it loses a cancellation that coincides with the event.
            async with asyncio.timeout(max(0.0, longest)):
                await self._news.wait()
        except TimeoutError:
            return
        # Even if the delay is over, events that the sockets hold are read before the session starts.
        seen = 0
        while self._count > MAX_EVENTS_WITHOUT_DELAY and self._count != seen:
            seen = self._count
            await self._clock.sleep(QUIET_SECONDS)
            limit = max_delay if self._count < MIN_EVENTS_OF_SUBMISSION else MAX_DELAY_SECONDS
            if self._at_once or self._clock.monotonic() - self._first_signal_at >= limit:
                break
        self._count, self._at_once = 0, False
        self._news.clear()


_LOG: Final = logging.getLogger(__name__)
IDLE_SECONDS: Final = 1.0
"""Seconds between two turns without events; backoffs end and Permit timeouts expire in the meantime."""
DecisionCallback = Callable[[ProfileScheduler, Decision, float], None]
"""Called after each decision with its duration in seconds."""


ForecastCallback = Callable[[ForecastOutcome], None]


def do_nothing_on_forecast(outcome: ForecastOutcome) -> None:
    """Do nothing; this is the default callback for the end of forecasts."""


class PeriodicTask(Protocol):
    """A periodic task that the scheduling loop runs between two sessions."""

    def run_once(self, now: float) -> None:
        """Do the task's work that is due at `now`, a time of `Clock.steady_now`.

        Slow work must be started in the background.
        """
        ...


class SchedulerLoop:
    """The main loop of a leading scheduler: it runs one session after the other for each profile.

    Args:
      profile_schedulers: The schedulers, one for each profile.
      cycles: Binds the placed pods.
      wakeup: Signals that the cluster changed.
      clock: The clock.
      callbacks: Called after each decision, in this order; the evictor comes first.
      tasks: Periodic tasks that run between two sessions, about once a second.
    """

    def __init__(
        self,
        profile_schedulers: Sequence[ProfileScheduler],
        cycles: BindingCycles,
        wakeup: Wakeup,
        clock: Clock,
        callbacks: Sequence[DecisionCallback] = (),
        tasks: Sequence[PeriodicTask] = (),
    ) -> None:
        self.profile_schedulers = tuple(profile_schedulers)
        self._next: tuple[ProfileScheduler, ...] | None = None
        self._cycles = cycles
        self._wakeup = wakeup
        self._clock = clock
        self._callbacks = tuple(callbacks)
        self._tasks = tuple(tasks)
        self.is_cache_outdated: Callable[[], bool] = lambda: False
        """Returns whether sessions must wait, because the API server was restored from a backup."""
        self.is_deciding = False
        """Whether a session is being decided."""
        self._tasks_done_at = float("-inf")
        self._turn_seconds = MAX_DELAY_SECONDS
        """Duration of the last turn with a session, of all profiles together."""
        self._forecasting: PolicyWorker | None = None

    def start_policy_forecasts(
        self, record_event: Callable[[PendingEvent], None], on_forecast: ForecastCallback
    ) -> None:
        """Start the background task that runs the forecasts of the policy `auto`.

        Args:
          record_event: Writes the Event that the policy chose another gang order.
          on_forecast: Called after each forecast.
        """

        def record_policy_choice(outcome: ForecastOutcome) -> None:
            if outcome.choice.changes_gang_order:
                record_event(policy_choice_event(outcome))

        self._forecasting = PolicyWorker(
            self._clock, lambda: self.profile_schedulers, (record_policy_choice, on_forecast)
        )
        self._forecasting.start()

    def stop_policy_forecasts(self) -> None:
        """Stop the background task that runs the forecasts of the policy `auto`."""
        if self._forecasting is not None:
            self._forecasting.stop()

    def replace_schedulers(self, profile_schedulers: Sequence[ProfileScheduler]) -> None:
        """Replace the schedulers of all profiles as soon as the running session has ended."""
        self._next = tuple(profile_schedulers)
        self._wakeup.signal_cluster_change()

    async def run(self) -> None:
        """Run sessions (`run_once`) until cancelled. An exception is logged, and the loop continues."""
        while True:
            try:
                await self.run_once()
            except Exception:  # a defect in one session must not stop scheduling
                _LOG.exception("a scheduling turn failed; continuing with the next one")
                await self._clock.sleep(IDLE_SECONDS)
            await self._wakeup.wait_for_cluster_change(
                IDLE_SECONDS, min(MAX_DELAY_SECONDS, DELAY_PER_TURN * self._turn_seconds)
            )

    async def run_once(self) -> None:
        """Apply the changes of the cluster, and run one session for each profile that has pending pods.

        Raises:
          ExceptionGroup: Periodic tasks or sessions failed. The tasks and sessions after them were run nevertheless.
        """
        if self.is_cache_outdated():
            return
        begun = self._clock.monotonic()
        errors = self._prepare()
        has_decided = False
        for profile_scheduler in self.profile_schedulers:
            try:
                has_decided |= await self._session(profile_scheduler)
            except Exception as error:  # the pods of the other profiles are still scheduled
                error.add_note(f"in a session of {profile_scheduler.profile.scheduler_name}")
                errors.append(error)
        if has_decided:
            self._turn_seconds = self._clock.monotonic() - begun
        if errors:
            raise ExceptionGroup("periodic tasks or sessions failed", errors)

    def _prepare(self) -> list[Exception]:
        """Do the work that must not overlap with a session; return the errors of periodic tasks."""
        if self._next is not None:
            before = {
                profile_scheduler.profile.scheduler_name: profile_scheduler
                for profile_scheduler in self.profile_schedulers
            }
            self.profile_schedulers, self._next = self._next, None
            for profile_scheduler in self.profile_schedulers:
                if profile_scheduler.profile.scheduler_name in before:
                    profile_scheduler.inherit_state(before[profile_scheduler.profile.scheduler_name])
        # Failed bindings release reservations of plugins, which a running session must not see change.
        self._cycles.requeue_pods_with_failed_bindings()
        now = self._clock.steady_now()
        errors: list[Exception] = []
        if now - self._tasks_done_at >= IDLE_SECONDS:
            self._tasks_done_at = now
            for task in self._tasks:
                try:
                    task.run_once(now)
                except Exception as error:  # the other tasks and the sessions are independent of it
                    errors.append(error)
        return errors

    async def _session(self, profile_scheduler: ProfileScheduler) -> bool:
        """Run one session if the profile has pending pods; return whether there was one."""
        now, begun = self._clock.steady_now(), self._clock.monotonic()
        wall_offset = wall_clock_offset(self._clock)
        try:
            profile_scheduler.sync_queue(now, wall_offset)
            reserved_elsewhere = [
                neighbour.reserved_volumes_and_devices
                for neighbour in self.profile_schedulers
                if neighbour is not profile_scheduler
            ]
            work = profile_scheduler.begin_session(now, reserved_elsewhere, wall_offset)
            if work is None:
                return False
            # `begin_session` took all input; the thread reads nothing that the event loop changes meanwhile.
            self.is_deciding = True
            decision = await asyncio.to_thread(work)
        except Exception:
            # Later sessions take fewer gangs until the gang that causes the failure is found.
            profile_scheduler.abandon_session(self._clock.steady_now())
            raise
        finally:
            self.is_deciding = False
        if self.is_cache_outdated():  # since the session began
            _LOG.warning("a session is abandoned: its cluster is from before a restore of the API server")
            profile_scheduler.abandon_session(self._clock.steady_now())
            self._wakeup.signal_cluster_change()
            return True
        now, seconds = self._clock.steady_now(), self._clock.monotonic() - begun
        await self._cycles.start_cycles(
            profile_scheduler, profile_scheduler.apply_decision(decision, now, seconds)
        )
        # More gangs are active, beyond the session's budget or moved by events: do not wait for the next event.
        if profile_scheduler.queue.pending_pod_counts()["active"]:
            self._wakeup.signal_cluster_change(at_once=profile_scheduler.is_last_session_full)
        # A hung call still occupies its thread; a renewed scheduler leaves the plugin out.
        if profile_scheduler.runner.hung:
            disabled = (
                ", ".join(call.plugin for call in profile_scheduler.runner.overdue) or "none of them again"
            )
            _LOG.error("plugins exceeded their deadline and are disabled until restart: %s", disabled)
            profile_schedulers = self.profile_schedulers if self._next is None else self._next
            self.replace_schedulers(
                [
                    other.without_hung_plugins() if other is profile_scheduler else other
                    for other in profile_schedulers
                ]
            )
        for callback in self._callbacks:
            callback(profile_scheduler, decision, self._clock.monotonic() - begun)
        return True
