"""From options to a running process."""

import asyncio
import logging
import os
import socket
import uuid
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from batchsched.kube.clock import SystemClock
from batchsched.kube.connection import Connection
from batchsched.kube.credentials import Credentials
from batchsched.kube.lease import Lease, Terms
from batchsched.model.decision import Decision
from batchsched.service.planner import Planner
from batchsched.service.process import Process
from batchsched.service.wiring import Service
from batchsched.settings.extenders import seconds_of
from batchsched.settings.load import load_with_warnings
from batchsched.settings.schema import BatchSchedulerConfiguration
from batchsched.settings.serving import LeaderElection

_LOG: Final = logging.getLogger("batchsched")


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says.

    Args:
      config: the configuration file, None for the defaults.
      kubeconfig, context: the cluster.
      lease: namespace ("" for our own) and name of the Lease; None: we are alone.
      verbose: log each session.
    """

    config: Path | None = None
    kubeconfig: Path | None = None
    context: str | None = None
    lease: tuple[str, str] | None = None
    verbose: bool = False


def start(options: Options) -> int:
    """Run until told to leave; returns the exit code.

    Raises:
      InvalidInput: the configuration cannot be used.
      UnusableInput: there is no cluster to talk to.
    """
    logging.basicConfig(
        level=logging.INFO if options.verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    configuration = BatchSchedulerConfiguration()
    if options.config is not None:
        configuration, warnings = load_with_warnings(options.config)
        for warning in warnings:
            _LOG.warning("%s", warning)
    return _on_a_loop(_run(options, configuration))


async def _run(options: Options, configuration: BatchSchedulerConfiguration) -> int:
    clock = SystemClock()
    async with Connection(Credentials(options.kubeconfig, options.context), clock) as connection:
        lease = None
        if options.lease is not None:
            namespace, name = options.lease
            place = namespace or connection.namespace, name
            lease = Lease(connection, clock, place, _identity(), _terms(configuration.leader_election))

        def make() -> Service:
            return Service(connection, clock, configuration.profiles, fence=lease, heard=_log)

        return await Process(connection, clock, lease, make).run()


def _terms(stated: LeaderElection) -> Terms:
    return Terms(
        duration=seconds_of(stated.lease_duration),
        renew=seconds_of(stated.renew_deadline),
        retry=seconds_of(stated.retry_period),
    )


def _identity() -> str:
    """Return who we are: no two processes are the same."""
    return f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4()}"


def _log(planner: Planner, decision: Decision, took: float) -> None:
    _LOG.info(
        "session of %s: %d pods placed, %d gangs refused, %.0f ms",
        planner.profile.scheduler_name,
        len(decision.assignments),
        len(decision.refusals),
        1000 * took,
    )


def _on_a_loop(work: Coroutine[Any, Any, int]) -> int:
    try:
        import uvloop
    except ImportError:  # not on every system; asyncio's own loop does, a little slower
        return asyncio.run(work)
    return uvloop.run(work)
