"""One gang's life in a simulated cluster: it waits, runs, ends, or is killed and waits again."""

from dataclasses import dataclass, field

from batchsched.api.core.pod import Pod
from batchsched.simulator.result import GangRecord
from batchsched.simulator.workload import Arrival


@dataclass(slots=True)
class GangRun:
    """A gang since its arrival.

    Args:
      number: its place in the order of arrival.
      arrival: what arrived.
      gpus: devices that its pods ask for together.
      pending, bound: its pods by `namespace/name`.
      started: seconds since 1970 at which its minimum was bound; None while it waits.
      ended: when it finished.
      restarts: how often it was killed; an end that was foreseen before the last kill does not come.
      lost: seconds that it ran in vain, over all its kills.
      evicted: its pods that decisions took.
      placements: (node, units there) of its last run.
    """

    number: int
    arrival: Arrival
    gpus: int
    pending: dict[str, Pod] = field(default_factory=dict)
    bound: dict[str, Pod] = field(default_factory=dict)
    started: int | None = None
    ended: int | None = None
    restarts: int = 0
    lost: int = 0
    evicted: int = 0
    placements: tuple[tuple[str, int], ...] = ()

    def arrive(self) -> None:
        """Lay its pods out as they came."""
        for pod in self.arrival.pods:
            (self.bound if pod.node else self.pending)[pod.key] = pod

    def bind(self, pod: Pod, key: str) -> None:
        """Take in a pod that was bound."""
        del self.pending[key]
        self.bound[key] = pod

    def kill(self, now: int) -> None:
        """Lose what it has run so far; whoever kills it sees to its pods."""
        if self.started is not None:
            self.lost += now - self.started
            self.started = None
            self.restarts += 1

    def start(self, now: int) -> bool:
        """Begin to run when the minimum is bound and it does not run yet; tells whether it did."""
        if self.started is not None or len(self.bound) < self.arrival.minimum:
            return False
        self.started = now
        return True

    def end(self, now: int) -> tuple[Pod, ...]:
        """Finish; returns the pods that are gone with it, the bound ones first."""
        gone = (*self.bound.values(), *self.pending.values())
        self.ended = now
        self.bound.clear()
        self.pending.clear()
        return gone

    def record(self) -> GangRecord:
        """Return what became of it so far."""
        arrival = self.arrival
        group = arrival.group
        return GangRecord(
            key=arrival.key,
            queue=arrival.queue,
            size=len(arrival.pods),
            gpus=self.gpus,
            submitted=arrival.at,
            started=self.started,
            ended=self.ended,
            runtime=arrival.runtime,
            estimate=group.spec.expected_runtime_seconds if group is not None else None,
            placements=self.placements,
            restarts=self.restarts,
            lost=self.lost,
            evicted=self.evicted,
        )
