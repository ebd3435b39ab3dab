"""The scheduler of one replica: it follows a cluster, and schedules while it is the leader."""

import asyncio
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from batchsched.config.schema import ExplanationSettings, PodGrouperSettings, Profile
from batchsched.controllers.evictor import Evicted, Evictor, do_nothing_on_eviction
from batchsched.controllers.recovery import (
    AssumedPodVerifier,
    RefusedGangClaimController,
    StaleGangController,
)
from batchsched.controllers.reporter import Reporter
from batchsched.errors import InvalidInput
from batchsched.kube.claim_writer import ResourceClaimWriter
from batchsched.kube.connection import (
    CLAIM_RESOURCE,
    POD_GROUP_RESOURCE,
    POD_RESOURCE,
    ApiResource,
    Connection,
)
from batchsched.kube.reflector import Reflector
from batchsched.kube.writer import VOLUME_CLAIM_RESOURCE, ApiBinder, VolumeClaims, WriteFence, Writer
from batchsched.podgrouper.grouper import PodGrouper
from batchsched.podgrouper.pod_group_writer import PodGroupWriter
from batchsched.ports.cluster import Clock
from batchsched.runner.profile_scheduler import ProfileScheduler
from batchsched.runner.session_runner import (
    SessionRunner,
    TelemetryFactory,
    close_unused_solver_processes,
    make_no_telemetry,
    shared_solver_processes,
)
from batchsched.scheduler.binding import (
    BindingCallback,
    BindingCycles,
    combine_callbacks,
    do_nothing_on_binding,
)
from batchsched.scheduler.cluster_reflectors import ClusterReflectors
from batchsched.scheduler.explanation_worker import (
    ExplanationCallback,
    ExplanationWorker,
    do_nothing_on_explanation,
)
from batchsched.scheduler.loop import (
    DecisionCallback,
    ForecastCallback,
    SchedulerLoop,
    Wakeup,
    do_nothing_on_forecast,
)
from batchsched.scheduler.standby_usage import StandbyUsageRecorder, log_sampling_failure
from batchsched.state.cluster_state import ClusterState

ASSUMED_POD_SECONDS = 60.0
"""Seconds after a binding until an assumed pod that no watch event confirmed is checked against the API server."""


@dataclass(slots=True)
class SchedulerApp:
    """The scheduler of one process: it connects cluster state, reflectors, scheduling loop and controllers.

    Args:
      connection: The connection to the API server.
      clock: The clock.
      profiles: The profiles, one for each scheduler name.
      fence: Rejects writes once this replica has lost the Lease; None if there is no leader election.
      on_binding: Called after each binding, with the reason if it failed, otherwise with "".
      on_decision: Called after each decision.
      on_explanation: Called after each explanation of a refused gang.
      on_forecast: Called after each forecast of the policy `auto`.
      telemetry: Returns the telemetry of a profile.
      recording: Whether the input of each session is kept for the recorded sessions.
      on_eviction: Called for each evicted pod.
      deployment: A text that all replicas of this deployment have in common, and no other deployment has; "" if other
        deployments with the same scheduler names are not searched for.
      grouping: The settings of the pod grouper.
      explanations: The budget for explanations of refused gangs.
    """

    connection: Connection
    clock: Clock
    profiles: Sequence[Profile]
    fence: WriteFence | None = None
    on_binding: BindingCallback = do_nothing_on_binding
    on_decision: DecisionCallback | None = None
    on_explanation: ExplanationCallback = do_nothing_on_explanation
    on_forecast: ForecastCallback = do_nothing_on_forecast
    telemetry: TelemetryFactory = make_no_telemetry
    recording: bool = False
    on_eviction: Evicted = do_nothing_on_eviction
    deployment: str = ""
    grouping: PodGrouperSettings = field(default_factory=PodGrouperSettings)
    explanations: ExplanationSettings = field(default_factory=ExplanationSettings)
    loop: SchedulerLoop | None = field(init=False, default=None)
    _reporter: Reporter | None = field(init=False, default=None)
    _explaining: ExplanationWorker | None = field(init=False, default=None)
    _leaving: Container[str] = field(init=False, default=frozenset())
    cache: ClusterState = field(init=False)
    wakeup: Wakeup = field(init=False)
    standby_usage: StandbyUsageRecorder = field(init=False)
    grouper: PodGrouper = field(init=False)
    writer: Writer = field(init=False)
    followed: ClusterReflectors = field(init=False)

    def __post_init__(self) -> None:
        self.cache = ClusterState([profile.scheduler_name for profile in self.profiles], ASSUMED_POD_SECONDS)
        self.wakeup = Wakeup(self.clock)
        self.standby_usage = StandbyUsageRecorder(
            self.cache, self.clock, lambda: self.profiles, lambda: self.loop is not None
        )
        self.writer = Writer(self.connection, self.clock, self.fence)
        self.grouper = PodGrouper(
            self.cache,
            self.cache.scheduler_names,
            self.wakeup.signal_cluster_change,
            self.grouping.enabled,
            self.grouping.rules,
        )
        self.followed = ClusterReflectors.for_cluster(
            self.connection, self.clock, self.grouper, self.wakeup.signal_cluster_change
        )
        for reflector in self.reflectors:
            reflector.on_rewound = self._list_all_again

    @property
    def reflectors(self) -> Sequence[Reflector]:
        """The reflectors of all kinds of objects."""
        return self.followed.all

    async def follow_cluster(self) -> None:
        """Keep the cluster state up to date by list and watch until cancelled, as leader or as standby replica."""
        sampling = asyncio.create_task(self.standby_usage.run(), name="standby-usage")
        sampling.add_done_callback(log_sampling_failure)
        try:
            async with asyncio.TaskGroup() as tasks:
                for reflector in self.reflectors:
                    tasks.create_task(reflector.run(), name=reflector.resource.plural)
        finally:
            sampling.cancel()
            await asyncio.wait([sampling])

    @property
    def _pod_reflector(self) -> Reflector:
        return self._reflector_of(POD_RESOURCE)

    def _reflector_of(self, resource: ApiResource) -> Reflector:
        return next(reflector for reflector in self.reflectors if reflector.resource == resource)

    async def wait_until_synced(self) -> None:
        """Wait until every reflector has listed its objects once."""
        for reflector in self.reflectors:
            await reflector.synced.wait()

    async def wait_until_up_to_date(self) -> None:
        """Wait until the cluster state contains the last writes of the previous leader.

        These are bindings, PodGroup statuses and ResourceClaims. A watch can be delayed or silent, so a new leader must
        ask for the current resource version. Otherwise it would see free room on nodes to which the previous leader
        bound pods, and free devices that it allocated. If the API server was restored from a
        backup, the cache has objects that are gone, so the versions of all kinds are verified.
        """
        await asyncio.gather(
            *(
                reflector.wait_until_up_to_date()
                if reflector.resource in (POD_RESOURCE, POD_GROUP_RESOURCE)
                or (reflector.resource == CLAIM_RESOURCE and self._can_allocate_devices())
                else reflector.verify_resource_version()
                for reflector in self.reflectors
            )
        )
        # Only now is it known whether one of them found that the API server was restored.
        await asyncio.gather(*(reflector.wait_for_list() for reflector in self.reflectors))

    def _list_all_again(self) -> None:
        """List every kind again, because one of them shows that the API server was restored from a backup."""
        for reflector in self.reflectors:
            reflector.request_relist()

    async def run_as_leader(self) -> None:
        """Schedule as the leader until cancelled, then finish the bindings in flight.

        Events that are still queued then are written by `flush_events`.
        """
        # Without a complete cache, sessions would see free room on nodes that are full.
        await self.wait_until_synced()
        handle_claim = self._reflector_of(CLAIM_RESOURCE).add_or_update_from_json
        find_claim = partial(self.cache.get, "resource_claims")
        claims = ResourceClaimWriter(self.writer, self.clock, handle_claim, find_claim)
        volume_claims = VolumeClaims(
            self._reflector_of(VOLUME_CLAIM_RESOURCE).add_or_update_from_json,
            partial(self.cache.get, "persistent_volume_claims"),
        )
        binder = ApiBinder(self.writer, claims, volume_claims)
        writers = (self.writer, Writer(self.connection, self.clock))
        reporter = Reporter(self.cache, writers, self.clock, self.profiles[0], lambda: not cycles.is_idle)
        explaining = self._explaining = self._new_explanation_worker(reporter)
        on_binding, on_eviction = (
            combine_callbacks(self.on_binding, reporter.record_binding, explaining.pause_after_binding),
            combine_callbacks(self.on_eviction, reporter.record_eviction),
        )
        cycles = BindingCycles(binder, self.cache, self.clock, on_binding, self.wakeup.signal_cluster_change)
        stale_gangs = StaleGangController(
            self.cache,
            self.connection,
            self.writer,
            cycles.has_unfinished_bindings,
            self.clock,
            on_eviction,
        )
        assumed_pods = AssumedPodVerifier(self.cache, self._read, self._pod_reflector.add_or_update_from_json)
        evictor = Evictor(
            self.cache,
            self.writer,
            self.clock,
            self._pod_reflector.add_or_update_from_json,
            self.wakeup.signal_cluster_change,
            on_eviction,
        )
        self._leaving = stale_gangs.leaving
        profile_schedulers = self._new_schedulers(self.profiles)
        for profile_scheduler in profile_schedulers:
            profile_scheduler.set_usage_history(self.standby_usage.usage_history(profile_scheduler.profile))
        on_decision = [
            evictor.start_nominations_and_evictions,
            RefusedGangClaimController(
                self.cache, claims, cycles.has_unfinished_bindings
            ).release_claims_of_refused_gangs,
            explaining.wrap_callback_with_known_explanations(reporter.record_decision),
            *([self.on_decision] if self.on_decision else []),
        ]
        group_writer = PodGroupWriter(
            self.grouper.groups,
            self.grouper.members,
            self.writer,
            self.clock,
            patch_pods=self.grouping.patch_pods,
            on_kept_queue=reporter.record_kept_queue,
        )
        group_writing = asyncio.create_task(group_writer.run(), name="pod group writer")
        explaining.start()
        self._reporter = reporter
        reporter.set_up_set_aside_events(self.reflectors)
        if self.deployment:
            reporter.set_up_scheduler_name_leases(self.connection, self.deployment)
        reporter.start()
        try:
            self.loop = SchedulerLoop(
                profile_schedulers, cycles, self.wakeup, self.clock, on_decision, [stale_gangs, assumed_pods]
            )
            self.loop.is_cache_outdated = self._is_cache_outdated
            self.loop.start_policy_forecasts(reporter.recorder.record_without_series, self.on_forecast)
            await self.loop.run()
        finally:
            group_writing.cancel()
            explaining.stop()
            if self.loop is not None:
                self.loop.stop_policy_forecasts()
            # Order matters: binding cycles report to the reporter, so it settles after they have ended.
            await cycles.wait_until_idle()
            await reporter.write_queued_status()

    def _new_explanation_worker(self, reporter: Reporter) -> ExplanationWorker:
        return ExplanationWorker(
            self.explanations,
            self.clock,
            is_deciding=lambda: self.loop is not None and self.loop.is_deciding,
            is_pending=lambda key: bool(reporter.status.pending_pod_keys(key)),
            callbacks=(reporter.record_explanation, self.on_explanation),
        )

    async def wait_until_no_write_in_flight(self) -> None:
        """Wait until the API server has answered all writes that only a leader sends, or their deadlines are over."""
        await self.writer.wait_until_idle()

    async def flush_events(self) -> None:
        """Write the Events that are still queued when this replica no longer leads.

        Another replica may lead by then, because writes of Events do not require the Lease.
        """
        if self._reporter is not None:
            await self._reporter.stop()

    def _is_cache_outdated(self) -> bool:
        """Return whether the cache contains objects from before a restore of the API server."""
        return any(reflector.is_relist_requested for reflector in self.reflectors)

    @property
    def profile_schedulers(self) -> Sequence[ProfileScheduler]:
        """The schedulers of all profiles; empty while this replica does not lead."""
        return self.loop.profile_schedulers if self.loop is not None else ()

    @property
    def is_leading(self) -> bool:
        """True while this replica schedules and its Lease is valid."""
        return self.loop is not None and (self.fence is None or self.fence.remaining_seconds() > 0)

    @property
    def conflicting_deployments(self) -> Mapping[str, str]:
        """The other deployments that use a scheduler name of this deployment, by scheduler name."""
        return self._reporter.conflicting_deployments if self._reporter is not None else {}

    def reconfigure(
        self, profiles: Sequence[Profile], recording: bool, explanations: ExplanationSettings
    ) -> None:
        """Use new profiles and new settings for recording and explanations from the next session on.

        Raises:
          InvalidInput: A profile cannot be used, or the scheduler names differ from those at the start. Nothing was
            changed.
        """
        # Pods of a new scheduler name would be missing: the cache selects pods by name from the start on.
        names, names_at_start = {profile.scheduler_name for profile in profiles}, self.cache.scheduler_names
        if names != names_at_start:
            raise InvalidInput(
                f"expected the scheduler names of the start, {', '.join(sorted(names_at_start))}, found "
                f"{', '.join(sorted(names))}; restart to change them",
                field="profiles",
            )
        settings = tuple(profiles), recording, explanations
        if settings == (tuple(self.profiles), self.recording, self.explanations):
            return
        before = self.profiles, self.recording, self.explanations
        self.profiles, self.recording, self.explanations = settings
        try:
            profile_schedulers = self._new_schedulers(profiles)
        except InvalidInput:
            self.profiles, self.recording, self.explanations = before
            raise
        if self.loop is not None:
            self.loop.replace_schedulers(profile_schedulers)
        if self._reporter is not None:
            self._reporter.use_reloaded_profile(self.profiles[0])
        if self._explaining is not None:
            self._explaining.settings = explanations
        close_unused_solver_processes(profiles)

    def _new_schedulers(self, profiles: Sequence[Profile]) -> list[ProfileScheduler]:
        profile_schedulers = []
        for profile in profiles:
            workers = shared_solver_processes(profile.solver.workers)
            runner = SessionRunner(profile, telemetry=self.telemetry(profile), workers=workers)
            profile_scheduler = ProfileScheduler(profile, self.cache, leaving=self._leaving, runner=runner)
            # Explanations read the input of a session, too.
            profile_scheduler.recording = self.recording or self.explanations.cpu_share > 0
            profile_scheduler.can_allocate_devices = self._can_allocate_devices
            profile_schedulers.append(profile_scheduler)
        return profile_schedulers

    async def _read(self, pod: str) -> bytes:
        namespace, _, name = pod.partition("/")
        return await self.connection.request("GET", POD_RESOURCE.path(namespace, name))

    def _can_allocate_devices(self) -> bool:
        """Return whether the ResourceClaims are known: without them, used devices would be allocated again."""
        reflector = self._reflector_of(CLAIM_RESOURCE)
        return reflector.synced.is_set() and not reflector.is_missing and not reflector.forbidden
