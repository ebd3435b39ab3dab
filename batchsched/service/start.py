"""The start of a scheduler process from the options of the command line."""

import asyncio
import logging
import os
import socket
import uuid
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from batchsched.api.snapshot import Snapshot
from batchsched.config.extenders import seconds_of
from batchsched.config.load import load_with_warnings
from batchsched.config.schema import BatchSchedulerConfiguration, LeaderElection
from batchsched.errors import InvalidInput
from batchsched.kube.clock import SystemClock
from batchsched.kube.connection import Connection
from batchsched.kube.credentials import Credentials
from batchsched.kube.lease import Lease, LeaseTimes
from batchsched.observability.logs import Format, log_warning, set_up_logging
from batchsched.observability.observer import Observer
from batchsched.scheduler.app import SchedulerApp
from batchsched.service.background import BackgroundTasks
from batchsched.service.process import Process
from batchsched.session.session import Session

_LOG: Final = logging.getLogger("batchsched")


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line. The configuration file applies where an option is None.

    Args:
      config: The configuration file, None for the defaults.
      kubeconfig, context: The cluster.
      leader_elect: Whether to wait for the Lease before scheduling.
      lease: Namespace and name of the Lease; namespace "" is that of the credentials.
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


def start(options: Options) -> int:
    """Run a scheduler until a signal arrives or the Lease is lost, and return the exit code.

    Raises:
      InvalidInput: The configuration is invalid.
      UnusableInput: No cluster can be reached, or the port is in use.
    """
    set_up_logging(options.log_format, options.verbosity)
    configuration = BatchSchedulerConfiguration()
    if options.config is not None:
        configuration, warnings = load_with_warnings(options.config)
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


async def _run(options: Options, configuration: BatchSchedulerConfiguration) -> int:
    clock = SystemClock()
    configured_kubeconfig = configuration.client_connection.kubeconfig
    kubeconfig = options.kubeconfig or (Path(configured_kubeconfig) if configured_kubeconfig else None)
    async with Connection(Credentials(kubeconfig, options.context), clock) as connection:
        observation = Observer(
            clock, configuration.sessions_kept, configuration.leader_election.resource_name
        )
        connection.on_request = observation.counting.count_request
        lease = _lease(options, configuration.leader_election, connection, clock)

        def make() -> SchedulerApp:
            return SchedulerApp(
                connection,
                clock,
                configuration.profiles,
                fence=lease,
                on_binding=observation.record_binding,
                on_decision=observation.record_decision,
                telemetry=observation.telemetry,
                recording=configuration.sessions_kept > 0,
                on_eviction=observation.record_eviction,
            )

        attendance = BackgroundTasks(observation, configuration, options.config)
        return await Process(connection, clock, lease, make, attendance.beside).run()


def _lease(
    options: Options, election: LeaderElection, connection: Connection, clock: SystemClock
) -> Lease | None:
    """Return the Lease to wait for, None without leader election."""
    elected = election.leader_elect if options.leader_elect is None else options.leader_elect
    if not elected:
        return None
    namespace, name = options.lease or (election.resource_namespace, election.resource_name)
    terms = LeaseTimes(
        duration=seconds_of(election.lease_duration),
        renew=seconds_of(election.renew_deadline),
        retry=seconds_of(election.retry_period),
    )
    return Lease(connection, clock, (namespace or connection.namespace, name), _identity(), terms)


def _identity() -> str:
    """Return a unique holder identity for the Lease."""
    return f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4()}"


def _run_event_loop(work: Coroutine[Any, Any, int]) -> int:
    try:
        import uvloop
    except ImportError:  # not on every system; asyncio's own loop does, a little slower
        return asyncio.run(work)
    return uvloop.run(work)
