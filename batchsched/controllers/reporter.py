"""The reporter: turns decisions, bindings and evictions into Events, conditions and status."""

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final

from batchsched.api.core.pod import Pod
from batchsched.api.decision import Decision, refusal_text
from batchsched.api.external.pod_group import is_converted_from_external
from batchsched.api.gang import gang_key_from_identity
from batchsched.config.schema import Profile
from batchsched.controllers.event_recorder import (
    EventObjectReference,
    EventRecorder,
    PendingEvent,
    WriteDelay,
    object_reference,
)
from batchsched.controllers.queue_status_inputs import RemainingQueueLimits
from batchsched.controllers.refusal_history import SURPLUS_REASONS, GangStatusRecords
from batchsched.controllers.scheduler_names import SchedulerNameLeases
from batchsched.controllers.set_aside_events import SetAsideEventReporter
from batchsched.controllers.status_controller import StatusController
from batchsched.controllers.workload_status import GroupDisruptionWriter
from batchsched.kube.connection import POD_GROUP_RESOURCE, Connection
from batchsched.kube.connection import POD_RESOURCE as RESOURCE
from batchsched.kube.reflector import Reflector
from batchsched.kube.writer import Writer
from batchsched.ports.cluster import Clock
from batchsched.runner.profile_scheduler import ProfileScheduler
from batchsched.runner.refusal_explanations import ExplanationOutcome
from batchsched.scheduling_queue.entity import Entity
from batchsched.state.cluster_state import POD_GROUPS, PODS, ClusterState

_LOG: Final = logging.getLogger(__name__)
FAILED: Final = "FailedScheduling"
CHECK_SECONDS: Final = 1.0
"""Seconds between two checks for messages that were held back."""
RESTART_SECONDS: Final = 30.0
"""Seconds after which the reporter restarts after a failure."""


class Reporter:
    """The component that reports decisions, bindings and evictions to users, by Events and status.

    Args:
      cache: The state of the cluster.
      writers: The writer of status, and the writer of Events, which may write after another replica leads.
      clock: The clock.
      profile: The first profile; its scheduler name is the name of the reporting controller.
      busy: Returns whether pods are being bound; meanwhile, writes are delayed.
    """

    def __init__(
        self,
        cache: ClusterState,
        writers: tuple[Writer, Writer],
        clock: Clock,
        profile: Profile,
        busy: Callable[[], bool],
    ) -> None:
        writer, events = writers
        name = profile.scheduler_name
        self._cache = cache
        self._clock = clock
        self._refusals = GangStatusRecords()
        self._remaining_limits = RemainingQueueLimits(cache)
        self._task: asyncio.Task[None] | None = None
        self._resting = False
        self._scheduler_name_leases: SchedulerNameLeases | None = None
        self._set_aside: SetAsideEventReporter | None = None
        self._write_delay = write_delay = WriteDelay(clock, busy)
        self.recorder = EventRecorder(events, clock, write_delay, name, f"{name}-{socket.gethostname()}")
        self._disruptions = GroupDisruptionWriter(cache, writer, clock)
        self.status = StatusController(
            cache, self._refusals, writer, self.recorder, write_delay, clock, profile
        )

    def use_reloaded_profile(self, profile: Profile) -> None:
        """Use the given profile, the first one of a reloaded configuration, for later status updates."""
        self.status.profile = profile

    def set_up_scheduler_name_leases(self, connection: Connection, deployment: str) -> None:
        """Set up a Lease for each scheduler name, so that other deployments with the same names are reported.

        Call this method before `start`.
        """
        names, report = self._cache.scheduler_names, self.recorder.record_series
        self._scheduler_name_leases = SchedulerNameLeases(connection, self._clock, deployment, names, report)

    def set_up_set_aside_events(self, reflectors: Sequence[Reflector]) -> None:
        """Create the component that writes Events about the invalid objects that reflectors ignore.

        Call this method before `start`.
        """
        self._set_aside = SetAsideEventReporter(reflectors, self._clock, self.recorder.record_series)

    @property
    def conflicting_deployments(self) -> Mapping[str, str]:
        """The other deployments that use a scheduler name of this deployment, by scheduler name."""
        return self._scheduler_name_leases.conflicts if self._scheduler_name_leases is not None else {}

    def record_binding(self, pod: Pod, node: str, problem: str, seconds: float) -> None:
        """Record an Event for a successful or failed binding of a pod.

        This method is a `binding.BindingCallback`.
        """
        target = _pod_reference(pod)
        if problem:
            note = f"binding rejected: {problem}"
            self.recorder.record_series(PendingEvent(target, FAILED, "Scheduling", note, warning=True))
        else:
            note = f"Successfully assigned {pod.key} to {node}"
            self.recorder.record_without_series(PendingEvent(target, "Scheduled", "Binding", note))

    def record_eviction(self, pod: Pod, reason: str, message: str) -> None:
        """Record an Event for an evicted pod, and write the `DisruptionTarget` condition of its PodGroup.

        The condition is written only if the PodGroup falls below its minimum. This method is an `evictor.Evicted`
        callback.
        """
        self._disruptions.record_eviction(pod, reason, message)
        self.recorder.record_without_series(PendingEvent(_pod_reference(pod), reason, "Preempting", message))

    def record_decision(self, profile_scheduler: ProfileScheduler, decision: Decision, took: float) -> None:
        """Record Events for the gangs that a decision refused, and request status updates of changed gangs.

        This method is a `loop.DecisionCallback`.
        """
        held = {waiting_gang.pod_group for waiting_gang in decision.waiting}
        present = {
            gang_key_from_identity(entity.identity): entity for entity in profile_scheduler.taking_part
        }
        surplus = self._full_queues(
            {key: entity for key, entity in present.items() if key not in held and self._surplus(entity)}
        )
        changed = self._refusals.record_decision(
            decision,
            profile_scheduler.profile.scheduler_name,
            present,
            surplus,
            self._cache.count_objects("nodes"),
            self._clock.now(),
        )
        self.status.request_status_updates(changed)
        for key, entity in present.items():
            self._refused(key, entity.pods.values())

    def _surplus(self, entity: Entity) -> bool:
        """Return whether pods beyond the minimum of a gang that was not refused stayed pending in the last cycle."""
        surplus = sum(pod.key in entity.pods for pod in entity.popped)
        return surplus > 0 and (
            surplus < len(entity.popped) or self.status.needs_no_further_pods(entity.identity)
        )

    def _full_queues(self, surplus: Mapping[str, Entity]) -> dict[str, str]:
        """Return, for each gang with surplus pods, the queue that has no room for them within its limit, or ""."""
        if not surplus:
            return {}
        self._remaining_limits.refresh()
        gangs = {key: self._cache.gangs.get(entity.identity) for key, entity in surplus.items()}
        return {
            key: self._remaining_limits.find_full_queue(gang) if gang is not None else ""
            for key, gang in gangs.items()
        }

    def _refused(self, key: str, pods: Iterable[Pod]) -> None:
        last_refusal = self._refusals.status_record_of(key)
        refusal = last_refusal.refusal
        if refusal is None:
            return
        for pod in pods:
            if not pod.spec.scheduling_gates:  # no session tried a pod with gates
                target, note = _pod_reference(pod), last_refusal.message
                self.recorder.record_series(PendingEvent(target, FAILED, "Scheduling", note, warning=True))
        group = self._cache.get(POD_GROUPS, key)
        if (
            group is not None
            and not is_converted_from_external(group)
            and refusal.reason not in SURPLUS_REASONS
        ):
            target = object_reference(POD_GROUP_RESOURCE, group.namespace, group.name, group.metadata.uid)
            note = f"{refusal.reason}: {refusal_text(refusal)}"
            self.recorder.record_series(PendingEvent(target, "GangRefused", "Scheduling", note, warning=True))

    def record_kept_queue(self, key: str, queue_of_owner: str | None) -> None:
        """Record an Event for a PodGroup that keeps its queue although its owner names another one.

        This method is the callback `on_kept_queue` of `PodGroupWriter`.

        Args:
          key: the `namespace/name` of the PodGroup.
          queue_of_owner: the queue that its owner names; None if the owner names none.
        """
        group = self._cache.get(POD_GROUPS, key)
        if group is None:
            return
        target = object_reference(POD_GROUP_RESOURCE, group.namespace, group.name, group.metadata.uid)
        named = f"the queue {queue_of_owner}" if queue_of_owner is not None else "no queue"
        kept = f"the queue {group.spec.queue}" if group.spec.queue is not None else "its present queue"
        note = f"its owner names {named}; the gang keeps {kept} as long as one of its pods has a node"
        self.recorder.record_series(PendingEvent(target, "QueueKept", "Scheduling", note, warning=True))

    def publish_due_messages(self) -> None:
        """Write the messages about refused gangs that were held back and are now due."""
        self._report(
            self._refusals.publish_due_refusals(self._cache.count_objects("nodes"), self._clock.now())
        )

    def record_explanation(self, outcome: ExplanationOutcome) -> None:
        """Report a refusal again, with the verified changes that the explanation worker found for it.

        This method is an `ExplanationCallback`.
        """
        if outcome.explained is not None:
            nodes, now = self._cache.count_objects("nodes"), self._clock.now()
            self._report(self._refusals.record_explanation(outcome.refusal, outcome.explained, nodes, now))

    def _report(self, changed: Iterable[str]) -> None:
        """Write the status and the Events of gangs with a new message."""
        self.status.request_status_updates(changed)
        for key in changed:
            pods = (self._cache.get(PODS, pod) for pod in self.status.pending_pod_keys(key))
            self._refused(key, [pod for pod in pods if pod is not None and not pod.node_name])

    async def _publish_periodically(self) -> None:
        while True:
            await self._clock.sleep(CHECK_SECONDS)
            self.publish_due_messages()

    def start(self) -> None:
        """Start the tasks that write Events and status."""
        self._start_task(self._run())

    async def write_queued_status(self) -> None:
        """Write every status of gangs and queues that is still to be written, without a delay for bindings."""
        self._write_delay.hurry = True
        if self._task is not None and not self._task.done() and not self._resting:
            await self.status.write_all_queued_status()

    async def stop(self) -> None:
        """Write the queued Events, then stop the reporting tasks."""
        task, self._task = self._task, None
        if task is None:
            return
        try:
            if not task.done() and not self._resting:
                await self.recorder.wait_until_all_written()
        finally:
            task.cancel()
            await asyncio.wait([task])

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.create_task(work, name="reports")
        self._task.add_done_callback(self._ended)

    def _ended(self, running: asyncio.Task[None]) -> None:
        """Log a failure and restart after a delay; scheduling continues without reports."""
        if running.cancelled() or running.exception() is None:
            return
        _LOG.error(
            "status and Events are not written for %g s: a defect",
            RESTART_SECONDS,
            exc_info=running.exception(),
        )
        if self._task is running:
            self._resting = True
            self._start_task(self._restart_after_delay())

    async def _restart_after_delay(self) -> None:
        await self._clock.sleep(RESTART_SECONDS)
        self._resting = False
        await self._run()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.recorder.run(), name="events")
            tasks.create_task(self.status.run(), name="status")
            tasks.create_task(self._publish_periodically(), name="verdicts")
            if self._set_aside is not None:
                tasks.create_task(self._set_aside.run(), name="set-aside")
            if self._scheduler_name_leases is not None:
                tasks.create_task(self._scheduler_name_leases.run(), name="scheduler-names")


def _pod_reference(pod: Pod) -> EventObjectReference:
    return object_reference(RESOURCE, pod.namespace, pod.name, pod.metadata.uid)
