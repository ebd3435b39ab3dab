"""Replicas of the scheduler that are started again when they end, as by a kubelet, and which of them leads."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import urllib3
import yaml

from tests.controlplane import audit
from tests.controlplane.fixtures import eventually
from tests.controlplane.installed import NAMESPACE, service_account
from tests.controlplane.plane import ApiFault, ControlPlane

LEASE: Final = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/batchsched"
PROGRAM: Final = (str(Path(sys.executable).with_name("batchsched")),)
_ROOT: Final = Path(__file__).parents[2]
_UP: Final = 3.0
"""Seconds after which a replica that waits knows the cluster."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The times of the Lease, in seconds: short enough for tests, long enough for a busy machine."""

    duration: float = 5.0
    renew: float = 3.5
    retry: float = 0.5


@dataclass(slots=True)
class Replica:
    """One process, with the rights of `deploy/`.

    Args:
      plane: the control plane.
      name: of its log.
      server: where it believes the API server to be, None for where it is.
      terms: of the Lease; None: it is alone.
      program: what is run.
    """

    plane: ControlPlane
    name: str
    server: str | None = None
    terms: Terms | None = None
    program: Sequence[str] = PROGRAM
    process: subprocess.Popen[bytes] | None = field(init=False, default=None)
    started: float = field(init=False, default=0.0)
    starts: int = field(init=False, default=0)

    @property
    def log(self) -> Path:
        """Where it writes."""
        return self.plane.home / f"{self.name}.log"

    def start(self) -> None:
        """Start it, and do not wait."""
        kubeconfig = self.plane.kubeconfig(service_account(self.plane), self.server)
        elect = ("--lease", f"{NAMESPACE}/batchsched") if self.terms else ("--no-leader-elect",)
        command = (*self.program, "run", "--kubeconfig", kubeconfig, "--config", self._config(), "-v", *elect)
        self.started = time.monotonic()
        self.starts += 1
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=_ROOT,
                env={key: value for key, value in os.environ.items() if "proxy" not in key.lower()},
            )

    @property
    def pid(self) -> int:
        """Its process."""
        assert self.process is not None
        return self.process.pid

    @property
    def runs(self) -> bool:
        """Whether it runs."""
        return self.process is not None and self.process.poll() is None

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """End it, and return its exit code."""
        assert self.process is not None
        self.process.send_signal(how)
        return self.process.wait(timeout=60)

    def _config(self) -> Path:
        terms = self.terms or Terms()
        said = {
            "apiVersion": "config.batchsched.dev/v1alpha1",
            "kind": "BatchSchedulerConfiguration",
            "leaderElection": {
                "leaseDuration": f"{round(1000 * terms.duration)}ms",
                "renewDeadline": f"{round(1000 * terms.renew)}ms",
                "retryPeriod": f"{round(1000 * terms.retry)}ms",
            },
            "serving": {"securePort": 0},
        }
        path = self.plane.home / f"{self.name}.yaml"
        path.write_text(yaml.safe_dump(said))
        return path


@dataclass(slots=True)
class Replicas:
    """All replicas of one scheduler."""

    plane: ControlPlane
    all: tuple[Replica, ...]

    def leader(self) -> Replica | None:
        """The one that holds the Lease, if it runs."""
        try:
            found = self.plane.admin.get(LEASE)
        except (ApiFault, urllib3.exceptions.HTTPError):
            return None
        holder = found["spec"].get("holderIdentity") or ""
        return next((one for one in self.all if f"_{one.pid}_" in holder and one.runs), None)

    def ready(self, within: float = 90.0) -> Replica:
        """Wait until one leads and the others are up; return the one that leads."""
        found: Replica = eventually(self._ready, within)
        return found

    def tend(self) -> bool:
        """Start whoever ended; True, for use in a condition that is waited for."""
        for one in self.all:
            if not one.runs:
                one.start()
        return True

    def _ready(self) -> Replica | None:
        self.tend()
        lead = self.leader()
        others = [one for one in self.all if one is not lead]
        up = all(time.monotonic() - one.started > _UP for one in others)
        return lead if up else None


@contextmanager
def running(*replicas: Replica) -> Iterator[Replicas]:
    """Run some for one Lease that nobody holds; whatever is left of them is killed, and their logs shown.

    Meanwhile no binding may be taken twice, says the audit log of the API server.
    """
    plane = replicas[0].plane
    service_account(plane)
    with suppress(ApiFault):  # whoever was killed in another test does not lead
        plane.admin.delete(LEASE)
    with ExitStack() as stack:
        stack.enter_context(audit.nothing_bound_twice(plane.home))
        for one in replicas:
            one.start()
            stack.callback(_stop, one)
        yield Replicas(plane, replicas)


def pair(plane: ControlPlane, name: str, terms: Terms | None = None) -> tuple[Replica, Replica]:
    """Return two replicas that are to be run."""
    make = partial(Replica, plane, terms=terms or Terms())
    return make(name=f"{name}-0"), make(name=f"{name}-1")


def _stop(one: Replica) -> None:
    if one.runs:
        one.end(signal.SIGKILL)
    print(f"--- {one.name}, started {one.starts} times\n{one.log.read_text(errors='replace')[-5000:]}")
