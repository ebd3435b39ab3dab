"""A scheduler behind a proxy, for all tests of a module."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.controlplane.plane import ControlPlane
from tests.controlplane.proxy import Proxy
from tests.faults.replicas import Replica, running


@dataclass(frozen=True, slots=True)
class ProxiedScheduler:
    """A scheduler that is alone, and the proxy between it and the API server."""

    process: Replica
    proxy: Proxy


@pytest.fixture(scope="module")
def running_scheduler(plane: ControlPlane) -> Iterator[ProxiedScheduler]:
    """The scheduler of all tests of a module."""
    with Proxy(plane.server, plane.certificate, seed=7) as proxy:
        process = Replica(plane, name="proxied", server=proxy.url)
        with running(process):
            yield ProxiedScheduler(process, proxy)


@pytest.fixture
def scheduler(running_scheduler: ProxiedScheduler) -> Iterator[ProxiedScheduler]:
    """The scheduler, which must survive the test; the proxy forgets its rules afterwards."""
    yield running_scheduler
    running_scheduler.proxy.calm()
    assert running_scheduler.process.runs
    assert running_scheduler.process.starts == 1
