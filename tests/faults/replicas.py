"""Replicas of the scheduler that are started again when they end, as by a kubelet, and which of them leads."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from tests.controlplane import audit
from tests.controlplane.fixtures import eventually
from tests.controlplane.installed import service_account
from tests.controlplane.plane import ApiFault, ControlPlane
from tests.controlplane.process import LEASE, LEASE_PATH, PROGRAM, SchedulerProcess, Terms, leader

_UP: Final = 3.0
"""Seconds after which a replica that waits knows the cluster."""


@dataclass
class Replica(SchedulerProcess):
    """One process, with the rights of `deploy/`.

    Args:
      server: where it believes the API server to be, None for where it is.
      terms: of the Lease; None: it is alone.
      program: what is run.
    """

    server: str | None = None
    terms: Terms | None = None
    program: Sequence[str] = PROGRAM
    started: float = field(init=False, default=0.0)
    starts: int = field(init=False, default=0)

    def discarded_solutions(self) -> list[str]:
        """The lines of its log that say that the solver's answer was illegal."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [line for line in lines if line.startswith("E") and " solver.stage] " in line]

    def start(self) -> None:
        """Start it, and do not wait."""
        kubeconfig = self.plane.kubeconfig(service_account(self.plane), self.server)
        elect = ("--lease", LEASE) if self.terms else ("--no-leader-elect",)
        self.started = time.monotonic()
        self.starts += 1
        self.launch(kubeconfig, self.terms or Terms(), elect, self.program)


@dataclass(slots=True)
class Replicas:
    """All replicas of one scheduler."""

    plane: ControlPlane
    all: tuple[Replica, ...]

    def leader(self) -> Replica | None:
        """The one that holds the Lease, if it runs."""
        return leader(self.plane.admin, self.all)

    def ready(self, within: float = 90.0) -> Replica:
        """Wait until one leads and the others are up; return the one that leads."""
        found: Replica = eventually(self._ready, within)
        return found

    def tend(self) -> bool:
        """Restart replicas that have ended; returns True, for use in a wait condition."""
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
    """Run replicas for one Lease without a holder; afterwards they are killed, and their logs shown.

    Meanwhile no binding may be taken twice, says the audit log of the API server, and no solver's answer be discarded.
    """
    plane = replicas[0].plane
    service_account(plane)
    with suppress(ApiFault):  # a replica killed in another test may still hold the Lease
        plane.admin.delete(LEASE_PATH)
    with ExitStack() as stack:
        stack.enter_context(audit.nothing_bound_twice(plane.home))
        for one in replicas:
            one.start()
            stack.callback(one.stop)
        yield Replicas(plane, replicas)
        assert not (discarded := [line for one in replicas for line in one.discarded_solutions()]), discarded


def pair(plane: ControlPlane, name: str, terms: Terms | None = None) -> tuple[Replica, Replica]:
    """Return two replicas that are to be run."""
    make = partial(Replica, plane, terms=terms or Terms())
    return make(name=f"{name}-0"), make(name=f"{name}-1")
