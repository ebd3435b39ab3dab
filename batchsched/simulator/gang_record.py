"""The state of one gang in a simulated cluster: pending, running, finished, or killed and pending again."""

from dataclasses import dataclass, field

from batchsched.api.core.pod import Pod
from batchsched.simulator.result import GangRecord
from batchsched.simulator.workload import Arrival


@dataclass(slots=True)
class GangRun:
    """A gang since its arrival.

    Args:
      number: its rank in the order of arrival.
      arrival: the arrival that created it.
      gpus: devices that its pods request together.
      pending, bound: its pods by `namespace/name`.
      started: seconds since 1970 at which its minimum was bound; None while it is pending.
      ended: seconds since 1970 at which it finished.
      restarts: number of kills; a completion that was scheduled before the last kill is ignored.
      lost: seconds of run time that kills discarded.
      evicted: number of its pods that decisions evicted.
      placements: (node, number of units) of its last run.
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
        """Add its pods as they arrived."""
        for pod in self.arrival.pods:
            (self.bound if pod.node else self.pending)[pod.key] = pod

    def bind(self, pod: Pod, key: str) -> None:
        """Record that a pod was bound."""
        del self.pending[key]
        self.bound[key] = pod

    def kill(self, now: int) -> None:
        """Discard its run time; the caller handles its pods."""
        if self.started is not None:
            self.lost += now - self.started
            self.started = None
            self.restarts += 1

    def start(self, now: int) -> bool:
        """Start if the minimum is bound and it is not running, and return whether it started."""
        if self.started is not None or len(self.bound) < self.arrival.minimum:
            return False
        self.started = now
        return True

    def end(self, now: int) -> tuple[Pod, ...]:
        """Finish, and return its pods, bound pods first."""
        ended_pods = (*self.bound.values(), *self.pending.values())
        self.ended = now
        self.bound.clear()
        self.pending.clear()
        return ended_pods

    def record(self) -> GangRecord:
        """Return the record of the gang so far."""
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
