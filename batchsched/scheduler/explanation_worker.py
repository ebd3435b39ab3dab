"""The explanation worker: it verifies, between sessions, what would help the gangs that sessions refused.

An explanation decides a session again, up to a hundred times. It runs in a thread of its own while the scheduler is
quiet: no session is being decided, and none ended and no pod was bound a moment ago. As soon as a session begins, the
decision of an explanation stops at the next stage and is repeated later, since both share the lock of the Python
interpreter. So explanations delay sessions and the event loop little, and a busy scheduler explains nothing.

The worker reads frozen inputs only, and changes no decision and no recorded session.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Final

from typing_extensions import override

from batchsched.api.core.pod import Pod
from batchsched.api.decision import Decision, Refusal
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import ExplanationSettings, Profile
from batchsched.controllers.periodic_worker import PeriodicWorker, run_in_daemon_thread
from batchsched.ports.cluster import Clock
from batchsched.ports.external import Telemetry
from batchsched.runner.profile_scheduler import ProfileScheduler
from batchsched.runner.refusal_explanations import (
    ExplanationOutcome,
    ExplanationResultCode,
    PendingExplanation,
    RefusalExplanations,
    RefusingSession,
)
from batchsched.scheduler.loop import DecisionCallback
from batchsched.session.explanation.explain import RefusalVerifier
from batchsched.session.explanation.verification import (
    MAX_WORK_PER_GANG,
    AssignmentDecision,
    decide_assignments,
)
from batchsched.solver.relaxation.budget import ExplanationBudget

PERIOD_SECONDS: Final = 0.2
"""Seconds between two checks whether a refusal can be explained now."""
QUIET_SECONDS: Final = 0.3
"""Seconds after a session or a binding in which no explanation runs."""
POLL_SECONDS: Final = 0.02
"""Seconds between two checks of an interrupted explanation whether it may continue."""
MAX_INTERRUPTIONS: Final = 50
"""How often one decision of an explanation is repeated because a session began.

After that, the refusal keeps its estimate until the gang takes part in another session.
"""
MINUTE: Final = 60.0
STOP_SECONDS: Final = 1.0
"""Maximum seconds to wait for the thread of an explanation when this replica stops."""


ExplanationCallback = Callable[[ExplanationOutcome], None]


def do_nothing_on_explanation(outcome: ExplanationOutcome) -> None:
    """Do nothing; this is the default callback for the end of an explanation."""


class InterruptedDecisionError(BaseException):
    """Raised to interrupt the explanation of a refusal while the scheduler is busy with sessions or bindings.

    It is not an `Exception`, so that no handler for failing plugins catches it.
    """


class OutdatedExplanationError(BaseException):
    """Raised to end the explanation of a refusal, because the explanation is no longer needed.

    Like `InterruptedDecisionError`, it is not an `Exception`.
    """


class ExplanationGate(Telemetry):
    """The component that interrupts explanations of refusals while the scheduler is busy with other work.

    The other work is sessions and bindings. An explanation decides a session again with changed inputs: these are
    trial decisions. The gate is the telemetry of the trial decisions, and each stage that they report is an opportunity
    to stop. All methods are called in the thread of the explanation.

    Args:
      is_busy: Returns whether the scheduler is busy with sessions or bindings at the moment.
      is_current: Returns whether the explanation is still needed.
    """

    def __init__(self, is_busy: Callable[[], bool], is_current: Callable[[], bool]) -> None:
        self._is_busy = is_busy
        self._is_current = is_current

    def decide_again(self, snapshot: Snapshot, profile: Profile, now: float, seed: int) -> AssignmentDecision:
        """Decide a session again with a changed input; if a new session interrupts the decision, start over.

        This method is a `DecideAgain`.

        Raises:
          OutdatedExplanationError: The explanation is no longer needed, or was interrupted too often.
        """
        for _ in range(MAX_INTERRUPTIONS):
            self.wait_until_scheduler_is_quiet()
            try:
                return decide_assignments(snapshot, profile, now, seed, self)
            except InterruptedDecisionError:
                continue
        raise OutdatedExplanationError

    def wait_until_scheduler_is_quiet(self) -> None:
        """Block the thread of the explanation while the scheduler is busy with sessions or bindings.

        Raises:
          OutdatedExplanationError: The explanation is no longer needed.
        """
        while self._is_current():
            if not self._is_busy():
                return
            time.sleep(POLL_SECONDS)
        raise OutdatedExplanationError

    def _end_if_busy_or_outdated(self) -> None:
        """Raise an exception that ends the trial decision if the scheduler is busy or the explanation is outdated."""
        if self._is_busy():
            raise InterruptedDecisionError
        if not self._is_current():
            raise OutdatedExplanationError

    @override
    @contextmanager
    def stage_span(self, name: str) -> Iterator[None]:
        """Raise an exception at the start of a stage if the scheduler is busy or the explanation is outdated.

        The exception ends the trial decision. The time of the stage is not measured.
        """
        self._end_if_busy_or_outdated()
        yield

    @override
    def gang_span(self, pod_group: str) -> AbstractContextManager[None]:
        """Raise an exception before a gang is tried if the scheduler is busy or the explanation is outdated.

        The exception ends the trial decision. The time of the gang is not measured.
        """
        self._end_if_busy_or_outdated()
        return nullcontext()

    @override
    @contextmanager
    def plugin_span(self, plugin: str, point: str) -> Iterator[None]:
        """Raise an exception before a plugin call if the scheduler is busy or the explanation is outdated.

        The exception ends the trial decision. The time of the call is not measured.
        """
        self._end_if_busy_or_outdated()
        yield

    @override
    def on_progress(self, done: int, total: int, unit: str) -> None:
        """Raise an exception if the scheduler is busy or the explanation is outdated; show no progress."""
        self._end_if_busy_or_outdated()


@dataclass(slots=True)
class ExplanationWorker:
    """The worker that explains the refusals of the running scheduler, one at a time, within a CPU budget.

    Args:
      settings: The budget.
      clock: The clock.
      is_deciding: Returns whether a session is being decided.
      is_pending: Returns whether a gang (`namespace/name`) still has pending pods.
      callbacks: Called in the event loop after each explanation.
    """

    settings: ExplanationSettings
    clock: Clock
    is_deciding: Callable[[], bool]
    is_pending: Callable[[str], bool]
    callbacks: tuple[ExplanationCallback, ...] = ()
    _explanations: RefusalExplanations = field(init=False, default_factory=RefusalExplanations)
    _last_activity: float = field(init=False, default=float("-inf"))
    """When a session or a binding ended last, by the monotonic clock."""
    _rest_until: float = field(init=False, default=float("-inf"))
    """Until when no explanation starts, so that explanations keep to their share of the CPU time."""
    _starts: deque[float] = field(init=False, default_factory=deque)
    """When the explanations of the last minute started."""
    _worker: PeriodicWorker = field(init=False)
    _gate: ExplanationGate = field(init=False)
    _running: PendingExplanation | None = field(init=False, default=None)
    """The refusal that the thread explains, or explained last."""
    _session: RefusingSession | None = field(init=False, default=None)
    """The session of the verifier."""
    _verifier: RefusalVerifier | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._gate = ExplanationGate(self._is_busy, self._is_current)
        self._worker = PeriodicWorker("explanations", PERIOD_SECONDS, self.clock, self.run_once)

    def pause_after_binding(self, pod: Pod, node: str, problem: str, seconds: float) -> None:
        """Record the time of a binding; for a short time afterwards, no explanation runs.

        This method is a `BindingCallback`.
        """
        self._last_activity = self.clock.monotonic()

    def wrap_callback_with_known_explanations(self, callback: DecisionCallback) -> DecisionCallback:
        """Return a callback that adds known explanations to each decision, and passes it to `callback`.

        The callback also records the decision, so that the explanation worker can explain its refusals later.

        Args:
          callback: Receives the decision, in which explained refusals of earlier sessions replace equal refusals.
        """

        def record_decision(profile_scheduler: ProfileScheduler, decision: Decision, took: float) -> None:
            self._last_activity = self.clock.monotonic()
            if self._is_enabled:
                decision = self._explanations.record_refusals_with_known_explanations(
                    profile_scheduler, decision
                )
            callback(profile_scheduler, decision, took)

        return record_decision

    @property
    def _is_enabled(self) -> bool:
        return self.settings.cpu_share > 0

    def start(self) -> None:
        """Start the task that explains refusals."""
        self._worker.start()

    def stop(self) -> None:
        """Stop the task that explains refusals. The explanation that runs ends at the next stage of its decision."""
        self._worker.stop()

    async def run_once(self) -> None:
        """Explain the next refusal, if no session or binding is in progress and the budget allows it."""
        if not self._is_enabled or self._is_busy() or not self._has_budget():
            return
        pending = self._explanations.next_pending()
        if pending is None:
            self._session = self._verifier = self._running = None  # their tables take memory
            return
        if not self.is_pending(pending.gang_key):
            self._explanations.forget_gang(pending.gang_key)
            return
        self._starts.append(self.clock.monotonic())
        self._explanations.record_explanation_start(pending)
        outcome = await self._explain(pending)
        share = self.settings.cpu_share
        self._rest_until = self.clock.monotonic() + outcome.seconds * (1 - share) / share
        for callback in self.callbacks:
            callback(outcome)

    def _is_busy(self) -> bool:
        return self.is_deciding() or 0 <= self.clock.monotonic() - self._last_activity < QUIET_SECONDS

    def _has_budget(self) -> bool:
        now = self.clock.monotonic()
        while self._starts and now - self._starts[0] >= MINUTE:
            self._starts.popleft()
        return now >= self._rest_until and len(self._starts) < self.settings.gangs_per_minute

    async def _explain(self, pending: PendingExplanation) -> ExplanationOutcome:
        running = asyncio.wrap_future(
            run_in_daemon_thread("explanation", lambda: self._explain_in_thread(pending))
        )
        try:
            outcome = await asyncio.shield(running)
        finally:
            # After `stop`, the thread ends at the next stage of its decision, unless it hangs in a plugin.
            await asyncio.wait([running], timeout=STOP_SECONDS)
        if outcome.defect is not None:
            self._worker.report_failure(f"the refusal of {pending.gang_key} is not explained", outcome.defect)
        if outcome.explained is None:
            self._explanations.drop_pending(pending)
        elif not self._explanations.store_explanation_if_current(pending, outcome.explained):
            return replace(outcome, explained=None, result=ExplanationResultCode.OUTDATED)
        return outcome

    def _explain_in_thread(self, pending: PendingExplanation) -> ExplanationOutcome:
        """Explain a refusal. Only one thread calls this method at a time."""
        begun = time.thread_time()
        explained: Refusal | None = None
        result, defect = ExplanationResultCode.OUTDATED, None
        self._running = pending
        try:
            self._gate.wait_until_scheduler_is_quiet()
            verifier = self._verifier_of(pending.session)
            explained = verifier.explain_refusal(pending.refusal, ExplanationBudget(MAX_WORK_PER_GANG))
            result = ExplanationResultCode.VERIFIED if explained.verified else ExplanationResultCode.PARTIAL
        except OutdatedExplanationError:
            pass
        except Exception as error:  # noqa: BLE001 - a defect in one explanation must not end the others
            result, defect = ExplanationResultCode.FAILED, error
        name, seconds = pending.session.profile.scheduler_name, time.thread_time() - begun
        return ExplanationOutcome(name, pending.refusal, explained, result, seconds, defect)

    def _verifier_of(self, session: RefusingSession) -> RefusalVerifier:
        """Return the verifier of a session; refusals of one session share its tables."""
        if self._verifier is None or self._session is not session:
            gate = self._gate
            self._session = session
            self._verifier = RefusalVerifier(
                session.input_with_decision, gate.decide_again, gate.wait_until_scheduler_is_quiet
            )
        return self._verifier

    def _is_current(self) -> bool:
        """Return whether the result of the thread is still needed."""
        return (
            not self._worker.is_stopped
            and self._running is not None
            and self._explanations.is_current(self._running)
        )
