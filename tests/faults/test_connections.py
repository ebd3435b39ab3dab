"""Connections to the HTTPS server that never send a request: they stop neither binding nor health checks."""

import os
import resource
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from batchsched.observability.http.connections import ConnectionLimits
from tests.controlplane.fixtures import eventually
from tests.controlplane.process import PROGRAM
from tests.e2e.running import bound
from tests.e2e.serving import Served, serving

COUNT = int(os.environ.get("BATCHSCHED_CONNECTIONS", "975"))
"""`make soak` opens 10,000."""
PER_SECOND = 10_000 / 120
DESCRIPTORS = 1024
LIMITED_PROGRAM = ("sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$@"', "sh", *PROGRAM)
PEERS = [f"127.0.0.{number}" for number in range(2, 17)]
LIMITS = ConnectionLimits()
SLACK = 3.0
"""Seconds by which a busy machine may be late."""

pytestmark = pytest.mark.slow


@dataclass
class Flood:
    """Half-open connections from several addresses: TCP connections without a TLS handshake.

    Args:
      port: The port of the server.
      count: The number of connections.
      seconds: The time within which they are opened.
    """

    port: int
    count: int
    seconds: float
    opened: int = field(default=0, init=False)
    lifetimes: list[float] = field(default_factory=list, init=False)
    """Seconds after which the server closed each connection."""

    @contextmanager
    def running(self) -> Iterator["Flood"]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield self
        finally:
            thread.join()

    @property
    def is_over(self) -> bool:
        return len(self.lifetimes) == self.count

    def _run(self) -> None:
        began = time.monotonic()
        with selectors.DefaultSelector() as selector:
            while not self.is_over and time.monotonic() - began < self.seconds + 60:
                due = (
                    self.count if not self.seconds else (time.monotonic() - began) / self.seconds * self.count
                )
                while self.opened < min(due, self.count):
                    peer = (PEERS[self.opened % len(PEERS)], 0)
                    connection = socket.create_connection(("127.0.0.1", self.port), 10, peer)
                    selector.register(connection, selectors.EVENT_READ, time.monotonic())
                    self.opened += 1
                for key, _ in selector.select(0.05):
                    selector.unregister(key.fileobj)
                    assert isinstance(key.fileobj, socket.socket)
                    key.fileobj.close()
                    self.lifetimes.append(time.monotonic() - key.data)


def open_descriptors(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def test_binding_and_health_checks_continue_while_connections_are_half_open(plane, namespace, tmp_path):
    namespace.nodes(1, pods=500)
    served = Served(plane, "flooded", tmp_path / "batchsched.yaml", program=LIMITED_PROGRAM)
    with serving(served):
        pid = served.scheduler.pid
        assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (DESCRIPTORS, DESCRIPTORS)
        before, most = open_descriptors(pid), 0
        seconds = 0.0 if COUNT < DESCRIPTORS else COUNT / PER_SECOND
        bindings: list[float] = []
        checks: list[float] = []
        with Flood(served.port, COUNT, seconds).running() as flood:
            eventually(lambda: flood.opened > min(COUNT, DESCRIPTORS) / 2)
            while not flood.is_over or not bindings:
                most = max(most, open_descriptors(pid))
                began = time.monotonic()
                namespace.pod(f"pod-{len(bindings)}", cpu="10m")
                eventually(lambda: len(bound(namespace)) > len(bindings), 20)
                bindings.append(time.monotonic() - began)
                began = time.monotonic()
                assert served.ask("/livez", "")[0] == 200
                checks.append(time.monotonic() - began)
                time.sleep(max(0.0, 0.5 - bindings[-1]))
        print(
            f"{COUNT} connections, at most {most} file descriptors ({before} before); closed after at most "
            f"{max(flood.lifetimes):.1f} s; {len(bindings)} bindings within {max(bindings):.2f} s, health checks "
            f"within {max(checks):.2f} s"
        )
        assert most < before + LIMITS.total + 32
        assert max(flood.lifetimes) < LIMITS.handshake_seconds + SLACK
        assert max(*bindings, *checks) < SLACK
        eventually(lambda: open_descriptors(pid) <= before + 8, LIMITS.request_seconds + SLACK)
