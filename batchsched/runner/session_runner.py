"""Runs the sessions of one profile, calls extenders, enforces plugin deadlines, and records the answers.

A command decides one session from a snapshot. A running scheduler follows the cluster from session to session, so its
plugins and the ports behind them stay, while the recorded answers belong to one session.

Python cannot stop a call in its own process, and a call that hangs may still change its arguments. So the whole
session is abandoned with its thread, and decided again from the snapshot. Decisions are deterministic: the same call
comes again, is known to be overdue, fails its pod, and the plugin is disabled. Before that, the deadline costs
nothing but a counter: one thread checks from time to time whether the current call is still the same.

A plugin that never releases the interpreter lock, such as a long loop in C, is not detected.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from batchsched.api.decision import Decision
from batchsched.api.gang import gang_identity
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.framework.runtime.deadline import CountingPluginRunner
from batchsched.framework.runtime.registry import standard_registry
from batchsched.ports.external import ExceededDeadline, Extenders, ExternalClients, Telemetry
from batchsched.ports.workers import SolverWorkers
from batchsched.record.external_answers import NO_ANSWERS, ExternalAnswers, RecordingExtenderClient
from batchsched.runner.policy_chooser import make_chooser
from batchsched.session.session import decide

if TYPE_CHECKING:
    from batchsched.runner.solver_processes import SolverProcesses

T = TypeVar("T")
CHECKS_PER_DEADLINE: Final = 8
"""Checks within the time of one deadline."""
MAX_CHECK_SECONDS: Final = 0.5


TelemetryFactory = Callable[[Profile], Telemetry | None]
"""Returns what receives the stages of a profile's sessions; None: nothing does."""


def make_no_telemetry(profile: Profile) -> Telemetry | None:
    """Return None, for sessions without telemetry; this function is the default `TelemetryFactory`."""


@cache
def shared_extender_client() -> Extenders:
    """Return the HTTP client with which the whole process calls scheduler extenders.

    All callers share the client, so that connections are reused.
    """
    from batchsched.kube.extender import HttpExtenderClient

    return HttpExtenderClient()


_solver_processes: dict[int, "SolverProcesses"] = {}
"""The processes of all profiles, by the number of `solver.workers`."""


def shared_solver_processes(workers: int) -> SolverWorkers | None:
    """Return the solver processes that all profiles with this `solver.workers` share; None if it is 1.

    The processes stay alive from session to session.
    """
    if workers == 1:
        return None
    if workers not in _solver_processes:
        from batchsched.runner.solver_processes import SolverProcesses

        _solver_processes[workers] = SolverProcesses(workers)
    return _solver_processes[workers]


def close_unused_solver_processes(profiles: Iterable[Profile]) -> None:
    """End the solver processes that none of the given profiles uses, without waiting until they are idle."""
    for workers in _solver_processes.keys() - {profile.solver.workers for profile in profiles}:
        Thread(target=_solver_processes.pop(workers).close, daemon=True).start()


@dataclass(frozen=True)
class SessionInput:
    """The input of a session, from which the session can be decided again with the same profile.

    Args:
      cluster: The cluster.
      taking_part: Identities of the gangs that took part.
      now: Seconds since 1970.
      seed: The seed of all random choices.
    """

    cluster: Snapshot
    taking_part: frozenset[str]
    now: float
    seed: int

    @cached_property
    def snapshot(self) -> Snapshot:
        """The input as a Snapshot; its field `resting` lists pending gangs that the session ignores."""
        pending = {gang_identity(pod) for pod in self.cluster.pods if not pod.node_name}
        return replace(self.cluster, resting=tuple(sorted(pending - self.taking_part)))


class SessionRunner:
    """The component that runs the sessions of one profile, and records extender responses and hung plugins.

    Args:
      profile: The profile.
      overdue: Plugins that hung in earlier sessions and are disabled.
      telemetry: Receives the durations of the sessions' stages.
      workers: The solver processes.
    """

    def __init__(
        self,
        profile: Profile,
        overdue: tuple[ExceededDeadline, ...] = (),
        telemetry: Telemetry | None = None,
        workers: SolverWorkers | None = None,
    ) -> None:
        self.profile = profile
        self.overdue = overdue
        self.telemetry = telemetry
        self._workers = workers
        self.chooser = make_chooser(profile)
        """Chooses the candidate of the policy `auto`; None under other policies."""
        self.has_external_plugins = bool(standard_registry().external_plugin_names(profile))
        """Whether plugins of other packages are enabled, which may hang."""
        self.hung = False
        """Whether a plugin hung, so that the scheduler that follows the cluster must be rebuilt."""
        self.answers = NO_ANSWERS
        """The recorded answers of the last session."""
        self._extenders = shared_extender_client() if profile.extenders else None
        self._extender_client = RecordingExtenderClient((), self._extenders)
        self._plugin_runner = CountingPluginRunner(overdue) if self.has_external_plugins else None
        self.outside = ExternalClients(self._extender_client, self._plugin_runner, workers)
        """The external calls of the plugins of a scheduler that follows the cluster."""

    def without_hung_plugins(self) -> "SessionRunner":
        """Return a new runner of the same profile in which the plugins that hung are disabled."""
        return SessionRunner(self.profile, self.overdue, self.telemetry, self._workers)

    def run_within_plugin_deadline(
        self, follow: Callable[[], Decision], session_input: SessionInput | None
    ) -> Decision:
        """Call the function `follow`, which decides a session, and return the decision.

        If a plugin hangs, the session is decided again from its Snapshot.

        Args:
          follow: Decides the session with the scheduler that follows the cluster.
          session_input: The input of the session; required if external plugins are enabled.
        """
        self._extender_client.restart_recording()
        if self._plugin_runner is None or session_input is None:
            decision = follow()
        else:
            result = run_with_plugin_deadline(
                follow, self._plugin_runner, self.profile.plugin_deadline_seconds
            )
            if isinstance(result, ExceededDeadline):
                # The call hangs again and is numbered again: the scheduler that follows the cluster counted other
                # calls, and a replay counts from a fresh scheduler. The tables that it left are half changed.
                self.hung = True
                return self.decide_from_snapshot(
                    session_input.snapshot, session_input.now, session_input.seed
                )
            decision = result
        self.answers = ExternalAnswers(self._extender_client.calls, self.overdue)
        return decision

    def decide_from_snapshot(self, snapshot: Snapshot, now: float, seed: int) -> Decision:
        """Decide a session from a Snapshot; a plugin that exceeds its deadline is disabled."""

        def attempt_decision(plugin_runner: CountingPluginRunner | None) -> Decision:
            # After a plugin hung, the recorded answers of extenders are used again.
            self._extender_client.restart_recording(self._extender_client.calls)
            outside = ExternalClients(self._extender_client, plugin_runner, self._workers)
            return decide(snapshot, self.profile, now, seed, telemetry=self.telemetry, outside=outside)

        if self.has_external_plugins:
            seconds = self.profile.plugin_deadline_seconds
            decision, overdue = repeat_until_no_call_is_overdue(attempt_decision, seconds, self.overdue)
        else:
            decision, overdue = attempt_decision(None), self.overdue
        self.answers = ExternalAnswers(self._extender_client.calls, overdue)
        # Later sessions number their calls again, so they need only the names of the plugins.
        self.overdue = tuple(msgspec.structs.replace(call, call=0) for call in overdue)
        return decision


def repeat_until_no_call_is_overdue(
    work: Callable[[CountingPluginRunner], T], seconds: float, overdue: tuple[ExceededDeadline, ...] = ()
) -> tuple[T, tuple[ExceededDeadline, ...]]:
    """Call `work`; if a plugin call in it exceeds its deadline, call `work` again without this plugin call.

    Args:
      work: The work. It starts from the beginning each time and shares no mutable state with earlier runs.
      seconds: The time that one call may take.
      overdue: The calls that are already overdue.

    Returns: The result of the work, and the calls that are overdue now.
    """
    while True:
        plugin_runner = CountingPluginRunner(overdue)
        result = run_with_plugin_deadline(partial(work, plugin_runner), plugin_runner, seconds)
        if not isinstance(result, ExceededDeadline):
            return result, overdue
        overdue = (*overdue, result)


def run_with_plugin_deadline(
    work: Callable[[], T], plugin_runner: CountingPluginRunner, seconds: float
) -> T | ExceededDeadline:
    """Run a function in a new thread; return its result, or the plugin call that exceeded its deadline."""
    result: Future[T] = Future()

    def run_work_and_set_result() -> None:
        try:
            plugin_runner.begin_session()
            result.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
            result.set_exception(error)

    # A daemon thread, so that a plugin that never returns does not block the end of the process.
    Thread(target=run_work_and_set_result, name="session", daemon=True).start()
    interval = min(seconds / CHECKS_PER_DEADLINE, MAX_CHECK_SECONDS)
    last_call, since = plugin_runner.current, monotonic()
    while not wait([result], interval).done:
        call, now = plugin_runner.current, monotonic()
        if call is None or call != last_call:
            last_call, since = call, now
        elif now - since >= seconds:
            # From now on the thread ends as soon as the call returns, and changes nothing any more.
            plugin_runner.abandoned = True
            number, plugin, point = call
            return ExceededDeadline(plugin, point, number, seconds)
    return result.result()
