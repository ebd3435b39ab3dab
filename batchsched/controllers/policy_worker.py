"""The policy worker: it runs the forecasts of the policy `auto` next to the sessions, at a small share of one core.

A forecast runs in a thread. After each simulated second the thread sleeps so long that it uses at most the share of one
CPU that the profile permits, also for a short time. Sessions never wait for a forecast: its result is the input of the
sessions that begin later.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from batchsched.controllers.event_recorder import PendingEvent, object_reference
from batchsched.controllers.periodic_worker import PeriodicWorker, run_in_daemon_thread
from batchsched.controllers.scheduler_names import (
    SCHEDULER_NAME_LEASE_NAMESPACE,
    lease_name_of_scheduler_name,
)
from batchsched.kube.connection import LEASES
from batchsched.ports.cluster import Clock
from batchsched.runner.policy_chooser import CandidateChoice, PolicyChooser
from batchsched.runner.policy_forecast import Forecast, ForecastInput
from batchsched.runner.profile_scheduler import ProfileScheduler

_LOG: Final = logging.getLogger(__name__)
POLICY_CHOSEN: Final = "PolicyChosen"
CHECK_SECONDS: Final = 1.0
"""Seconds between two checks whether a forecast is due."""


class StoppedForecastError(BaseException):
    """Raised to end a running forecast of the policy `auto` in its thread, because this replica stops.

    It is not an `Exception`, so that no handler for failing plugins catches it.
    """


@dataclass(frozen=True, slots=True)
class ForecastOutcome:
    """The result of the forecasts of one profile with the policy `auto`.

    Args:
      profile: the scheduler name of the profile.
      choice: the gang order that the policy chose by these forecasts.
      seconds: the CPU time that the forecasts took.
    """

    profile: str
    choice: CandidateChoice
    seconds: float


def policy_choice_event(outcome: ForecastOutcome) -> PendingEvent:
    """Return the Kubernetes Event about a change of the gang order that the policy `auto` uses."""
    target = object_reference(
        LEASES, SCHEDULER_NAME_LEASE_NAMESPACE, lease_name_of_scheduler_name(outcome.profile), ""
    )
    return PendingEvent(target, POLICY_CHOSEN, "Scheduling", outcome.choice.reason)


class PolicyWorker:
    """The component that runs the due forecasts of the policy `auto`, for one profile after the other.

    Args:
      clock: the clock.
      profile_schedulers: returns the schedulers of all profiles.
      callbacks: called with the outcome of each forecast, in the event loop.
    """

    def __init__(
        self,
        clock: Clock,
        profile_schedulers: Callable[[], Sequence[ProfileScheduler]],
        callbacks: Sequence[Callable[[ForecastOutcome], None]] = (),
    ) -> None:
        self._clock = clock
        self._profile_schedulers = profile_schedulers
        self._callbacks = callbacks
        self._worker = PeriodicWorker("forecasts", CHECK_SECONDS, clock, self.run_once)

    def start(self) -> None:
        """Start the background task that runs the forecasts of the policy `auto`."""
        self._worker.start()

    def stop(self) -> None:
        """Stop the task that runs forecasts. A forecast in progress ends after its next simulated second."""
        self._worker.stop()

    async def run_once(self) -> None:
        """Run all forecasts of the policy `auto` that are due, for one profile after the other.

        If the forecasts of a profile fail, its sessions continue to use the present gang order.
        """
        for profile_scheduler in self._profile_schedulers():
            chooser = profile_scheduler.chooser
            if chooser is None or chooser.due_forecast is None:
                continue
            frozen, chooser.due_forecast = chooser.due_forecast, None
            profile = profile_scheduler.profile.scheduler_name
            with self._worker.log_and_ignore_errors(f"the forecast of profile {profile} failed"):
                await self._forecast(profile, chooser, frozen)

    async def _forecast(self, profile: str, chooser: PolicyChooser, frozen: ForecastInput) -> None:
        pacer = _Pacer(chooser.args.cpu_share, lambda: self._worker.is_stopped)
        try:
            work = partial(_forecast_in_thread, chooser, frozen, pacer)
            forecasts = await asyncio.wrap_future(run_in_daemon_thread("forecast", work))
        except StoppedForecastError:
            return
        choice = chooser.choose_gang_order(forecasts, self._clock.now())
        if choice.changes_gang_order:
            _LOG.info("policy auto of profile %s: %s", profile, choice.reason)
        for callback in self._callbacks:
            callback(ForecastOutcome(profile, choice, pacer.spent))


def _forecast_in_thread(
    chooser: PolicyChooser, frozen: ForecastInput, pacer: "_Pacer"
) -> dict[str, Forecast]:
    pacer.start_cpu_clock()
    return chooser.forecast_all_candidates(frozen, pacer.sleep_to_cpu_share)


class _Pacer:
    """Limits a thread to a share of one CPU. All methods but `__init__` are called in this thread."""

    def __init__(self, share: float, is_stopped: Callable[[], bool]) -> None:
        self.spent = 0.0
        """The CPU seconds of the thread so far."""
        self._share = share
        self._is_stopped = is_stopped
        self._last = 0.0

    def start_cpu_clock(self) -> None:
        """Start to measure the CPU time of the thread in which a forecast runs."""
        self._last = time.thread_time()

    def sleep_to_cpu_share(self) -> None:
        """Sleep so long that the thread of the forecasts uses no more than its share of a CPU on average.

        Raises:
          StoppedForecastError: this replica stops.
        """
        if self._is_stopped():
            raise StoppedForecastError
        used = time.thread_time() - self._last
        self.spent += used
        time.sleep(used * (1.0 - self._share) / self._share)
        self._last = time.thread_time()
