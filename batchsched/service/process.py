"""The life of one process: follow the cluster, wait for the Lease, schedule, and shut down in order.

`run_scheduler` creates the process from the options of the command line. The HTTP server and the reloads of the
configuration and of the certificate run in the background.

On SIGTERM or SIGINT the loop stops, bindings in flight are finished, the Lease is released, and the remaining Events
are written. If a write stays in flight, the Lease expires instead: the write may take effect later, and no other
replica may lead before. If the Lease is lost, only Events are still written; the process exits and Kubernetes restarts
it.
"""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from batchsched.api.snapshot import Snapshot
from batchsched.config.extenders import parse_duration
from batchsched.config.load import load_configuration_with_warnings
from batchsched.config.schema import BatchSchedulerConfiguration, LeaderElection
from batchsched.errors import InvalidInput
from batchsched.kube.clock import SystemClock
from batchsched.kube.connection import Connection
from batchsched.kube.credentials import CredentialsReader
from batchsched.kube.lease import LeaderElector, LeaseTimes
from batchsched.observability.activity_recorder import ActivityRecorder
from batchsched.observability.http.connections import raise_descriptor_limit
from batchsched.observability.http.server import reload_certificate_on_change
from batchsched.observability.http.site import build_server, configured_certificate_files
from batchsched.observability.logs import Format, log_warning, set_up_logging
from batchsched.ports.cluster import Clock
from batchsched.scheduler.app import SchedulerApp
from batchsched.service.memory import release_memory_regularly, share_one_heap
from batchsched.service.reload import ConfigReloader
from batchsched.session.session import Session

_LOG: Final = logging.getLogger(__name__)
EXIT_OK: Final = 0
EXIT_LEASE_LOST: Final = 1
"""Exit code after the Lease was lost."""
GC_THRESHOLD_OBJECTS: Final = 20_000
"""Number of new objects after which the garbage collector checks the youngest generation."""


@dataclass(frozen=True, slots=True)
class ReplicaProcess:
    """The process of a scheduler replica, which follows the cluster, waits for the Lease, and schedules.

    Args:
      connection: The open connection to the API server.
      clock: The clock.
      lease: The Lease to hold while scheduling; None if there is only one replica.
      make_app: Creates the scheduler; its writes must be fenced by the Lease.
      background: Opens the context of the background tasks, such as the HTTP server.
      patience: Maximum seconds for writes in flight, and again for the remaining Events, at shutdown.
    """

    connection: Connection
    clock: Clock
    lease: LeaderElector | None
    make_app: Callable[[], SchedulerApp]
    background: Callable[[SchedulerApp], AbstractAsyncContextManager[None]]
    patience: float = 20.0

    async def run(self) -> int:
        """Run the replica until a signal arrives or the Lease is lost, and return the exit code."""
        leave = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, leave.set)
        service = self.make_app()
        async with self.background(service):
            return await self._work(service, leave)

    async def _work(self, service: SchedulerApp, leave: asyncio.Event) -> int:
        """Follow the cluster, wait for the Lease, and schedule."""
        # Sessions create few reference cycles: with the default threshold, the collector took 7 % of the time and found
        # nothing.
        gc.set_threshold(GC_THRESHOLD_OBJECTS, *gc.get_threshold()[1:])
        follow = asyncio.create_task(service.follow_cluster(), name="follow")
        leaving = asyncio.create_task(leave.wait(), name="leave")
        releasing = asyncio.create_task(release_memory_regularly(self.clock), name="release memory")
        try:
            await _first_ended(leaving, follow, asyncio.create_task(service.wait_until_synced(), name="sync"))
            # The listed objects live as long as the process. Frozen objects are not scanned, which saves seconds.
            gc.collect()
            gc.freeze()
            _LOG.info("following the cluster")
            if self.lease is not None and not leaving.done():
                await _first_ended(leaving, follow, asyncio.create_task(self.lease.acquire(), name="acquire"))
            if leaving.done():
                return EXIT_OK
            return await self._lead(service, leaving, follow)
        finally:
            await _cancel(follow, leaving, releasing)

    async def _lead(
        self, service: SchedulerApp, leaving: asyncio.Task[bool], follow: asyncio.Task[None]
    ) -> int:
        lead = asyncio.create_task(self._begin(service), name="lead")
        keep = asyncio.create_task(self._keep(), name="keep")
        ended = await _first_ended(leaving, follow, lead, keep)
        if ended is keep:
            _LOG.error("the Lease is lost; exiting")
            lead.cancel()
            # Writes are fenced from now on, so it is useless to wait longer for bindings in flight.
            await asyncio.wait([lead], timeout=self.patience)
            await self._tell(service)
            return EXIT_LEASE_LOST
        _LOG.info("shutting down: finishing bindings in flight")
        lead.cancel()
        has_finished = await self._finish_writes(service, lead, keep)
        if self.lease is not None and has_finished:
            await self.lease.release()
        elif self.lease is not None:
            _LOG.warning("the Lease is not released, since writes are still in flight; it expires")
        await self._tell(service)
        return EXIT_OK

    async def _finish_writes(
        self, service: SchedulerApp, lead: asyncio.Task[None], keep: asyncio.Task[None]
    ) -> bool:
        """Stop to lead, and then to renew the Lease; return whether all writes ended within the patience."""
        try:
            async with asyncio.timeout(self.patience):
                await asyncio.wait([lead])
                await _cancel(keep)
                if self.lease is not None:
                    self.lease.stop_writes()
                # Evictions and other writes than bindings do not delay the end of `lead`.
                await service.wait_until_no_write_in_flight()
        except TimeoutError:
            await _cancel(keep)
            return False
        if not lead.cancelled():
            lead.result()
        return True

    async def _begin(self, service: SchedulerApp) -> None:
        if self.lease is not None:
            await service.wait_until_up_to_date()
        await service.run_as_leader()

    async def _tell(self, service: SchedulerApp) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(service.flush_events(), self.patience)

    async def _keep(self) -> None:
        if self.lease is None:
            await asyncio.Event().wait()
        else:
            await self.lease.renew_until_lost()


async def _first_ended(
    *tasks: asyncio.Task[bool] | asyncio.Task[None],
) -> asyncio.Task[bool] | asyncio.Task[None]:
    """Wait until a task has ended and return it; raise its exception if it failed."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        if task in done:
            task.result()
    return next(task for task in tasks if task in done)


async def _cancel(*tasks: asyncio.Task[bool] | asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """The command-line options of `batchsched run`. Where an option is None, the configuration file applies.

    Args:
      config: The configuration file, None for the defaults.
      kubeconfig, context: The kubeconfig file and its context, which select the cluster.
      leader_elect: Whether to wait for the Lease before scheduling.
      lease: Namespace and name of the Lease; "" stands for the namespace of the credentials.
      verbosity: The log verbosity, from 0 on.
      log_format: The log format.
    """

    config: Path | None = None
    kubeconfig: Path | None = None
    context: str | None = None
    leader_elect: bool | None = None
    lease: tuple[str, str] | None = None
    verbosity: int = 0
    log_format: Format = "text"


def run_scheduler(options: SchedulerOptions) -> int:
    """Run a scheduler until a signal arrives or the Lease is lost, and return the exit code.

    Raises:
      InvalidInput: The configuration is invalid.
      CommandError: No cluster can be reached, or the port is in use.
    """
    set_up_logging(options.log_format, options.verbosity)
    raise_descriptor_limit()
    share_one_heap()
    configuration = BatchSchedulerConfiguration()
    if options.config is not None:
        configuration, warnings = load_configuration_with_warnings(options.config)
        for warning in warnings:
            log_warning(_LOG, warning)
    _check_profiles(configuration, options.config)
    return _run_event_loop(_run(options, configuration))


def _check_profiles(configuration: BatchSchedulerConfiguration, file: Path | None) -> None:
    """Create the plugins and policies of each profile once.

    Otherwise a standby replica would detect an error in its configuration only when it has to lead.

    Raises:
      InvalidInput: A profile names an unknown plugin or policy, or its arguments are invalid.
    """
    for index, profile in enumerate(configuration.profiles):
        try:
            Session(Snapshot(), profile)
        except InvalidInput as error:
            field = f"profiles[{index}].{error.field.removeprefix('profiles[].')}"
            raise InvalidInput(error.message, file=str(file or ""), field=field) from error


async def _run(options: SchedulerOptions, configuration: BatchSchedulerConfiguration) -> int:
    clock = SystemClock()
    configured_kubeconfig = configuration.client_connection.kubeconfig
    kubeconfig = options.kubeconfig or (Path(configured_kubeconfig) if configured_kubeconfig else None)
    async with Connection(CredentialsReader(kubeconfig, options.context), clock) as connection:
        observation = ActivityRecorder(
            clock, configuration.sessions_kept, configuration.leader_election.resource_name
        )
        connection.on_request = observation.counting.record_request_metrics
        lease = _lease(options, configuration.leader_election, connection, clock)

        def make_scheduler_app() -> SchedulerApp:
            return SchedulerApp(
                connection,
                clock,
                configuration.profiles,
                fence=lease,
                on_binding=observation.record_binding,
                on_decision=observation.record_decision,
                on_explanation=observation.record_explanation,
                on_forecast=observation.counting.record_forecast_metrics,
                telemetry=observation.telemetry_of_profile,
                recording=configuration.sessions_kept > 0,
                on_eviction=observation.record_eviction,
                deployment=lease.lease_key if lease is not None else _identity(),
                grouping=configuration.pod_grouper,
                explanations=configuration.explanations,
            )

        background = BackgroundTasks(observation, configuration, options.config)
        return await ReplicaProcess(
            connection, clock, lease, make_scheduler_app, background.run_during_block
        ).run()


def _lease(
    options: SchedulerOptions, election: LeaderElection, connection: Connection, clock: SystemClock
) -> LeaderElector | None:
    """Return the Lease to wait for, None without leader election."""
    elected = election.leader_elect if options.leader_elect is None else options.leader_elect
    if not elected:
        return None
    namespace, name = options.lease or (election.resource_namespace, election.resource_name)
    terms = LeaseTimes(
        duration=parse_duration(election.lease_duration),
        renew=parse_duration(election.renew_deadline),
        retry=parse_duration(election.retry_period),
    )
    return LeaderElector(
        connection, clock, (namespace or connection.own_pod_namespace, name), _identity(), terms
    )


def _identity() -> str:
    """Return an identity that no other process has."""
    return f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4()}"


def _run_event_loop(work: Coroutine[Any, Any, int]) -> int:
    try:
        import uvloop
    except ImportError:  # not on every system; asyncio's own loop does, a little slower
        return asyncio.run(work)
    return uvloop.run(work)


@dataclass(frozen=True, slots=True)
class BackgroundTasks:
    """The background tasks of a scheduler: the HTTPS server, and reloads of configuration and certificate.

    Args:
      observation: The metrics and recorded sessions.
      configuration: The configuration at the start.
      file: The configuration file, None for the defaults.
    """

    observation: ActivityRecorder
    configuration: BatchSchedulerConfiguration
    file: Path | None

    @asynccontextmanager
    async def run_during_block(self, service: SchedulerApp) -> AsyncIterator[None]:
        """Return a context manager that starts the background tasks and stops them at the end of its block.

        Raises:
          CommandError: The port is in use, or the certificate cannot be used.
        """
        running: list[asyncio.Task[None]] = []
        reload = self._reload(service)
        running.append(asyncio.create_task(reload.run(), name="reload"))
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload.request_reload)
        serving = self.configuration.serving
        site = build_server(service, self.observation, serving, lambda: reload.configuration)
        try:
            if serving.secure_port:
                await site.start()
                pair = configured_certificate_files(serving)
                if pair is not None and site.tls is not None:
                    following = reload_certificate_on_change(site.tls, pair, service.clock)
                    running.append(asyncio.create_task(following, name="certificate"))
            yield
        finally:
            for task in running:
                task.cancel()
            await asyncio.wait(running)
            await site.stop()

    def _reload(self, service: SchedulerApp) -> ConfigReloader:
        metrics = self.observation.metrics

        def count_reload(succeeded: bool) -> None:
            metrics.reloads.labels("success" if succeeded else "failure").inc()
            metrics.reload_ok.set(succeeded)

        def apply_configuration(configuration: BatchSchedulerConfiguration) -> None:
            service.reconfigure(
                configuration.profiles, configuration.sessions_kept > 0, configuration.explanations
            )
            self.observation.sessions.set_max_sessions(configuration.sessions_kept)

        metrics.reload_ok.set(1)
        return ConfigReloader(self.file, self.configuration, apply_configuration, service.clock, count_reload)
