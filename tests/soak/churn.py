"""One leader that is kept busy: jobs come and go at a steady rate on a full cluster, and nothing of it may leak."""

import random
import statistics
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

import psutil

from tests.controlplane.fixtures import Namespace, eventually
from tests.controlplane.plane import ControlPlane
from tests.faults.load import Batch, Load
from tests.faults.replicas import Replica, running
from tests.faults.witness import Witness

SHARE: Final = 0.005
"""Of the pods, which share comes and goes together."""
TOGETHER: Final = 10
"""Batches that are made together while the cluster is filled."""
EVERY: Final = 10.0
"""Seconds between two samples."""
WARM_UP: Final = 12_000
"""Pods that come and go before memory is judged: the tombstones and the caches of specs fill."""
TURNOVER: Final = 1.3
"""As many times all pods, too: until then the scheduler was rebuilt, which happens after four changes a pod
(`state/up_to_date_scheduler.py`), and what it keeps of pods that are gone is as much as it ever is."""
GROWTH: Final = 0.05
"""By which the memory of the last third may be above that of the first."""
PATIENCE: Final = 300.0


@dataclass(frozen=True, slots=True)
class Size:
    """How large the cluster is."""

    nodes: int
    pods: int


@dataclass(frozen=True, slots=True)
class Sample:
    """The scheduler at one moment: MiB of resident memory, open files, threads, CPU seconds, and binds until then."""

    seconds: float
    rss: float
    files: int
    threads: int
    cpu: float
    binds: int


@dataclass
class Churn:
    """Fills a cluster, and replaces its jobs one batch after another.

    Args:
      plane: the control plane.
      namespace: for the pods.
      size: of the cluster.
      seed: of the load.
      pause: seconds between the end of one batch and the next.
    """

    plane: ControlPlane
    namespace: Namespace
    size: Size
    seed: int
    pause: float = 0.0
    samples: list[Sample] = field(default_factory=list)
    took: list[float] = field(default_factory=list)
    """Seconds from the first pod of a batch until all of them were bound."""

    def run(self, seconds: float) -> Iterator[Sample]:
        """Fill the cluster, and yield a sample now and then for so long.

        Raises:
          AssertionError: an invariant does not hold.
        """
        batch, room = self._batch, self.node_cpus
        with ThreadPoolExecutor(8) as some:
            list(some.map(lambda at: self.namespace.nodes(1, f"node-{at}", cpu=room), range(self.size.nodes)))
        load = Load(self.namespace, random.Random(self.seed))
        scheduler = Replica(self.plane, name="soak-busy")
        with Witness(self.plane.admin, room).watching() as witness, running(scheduler):
            alive: deque[Batch] = deque()
            for left in range(-(-self.size.pods // batch), 0, -TOGETHER):
                alive += self._submit(load, witness, batch, min(left, TOGETHER))
            begun = last = time.monotonic()
            self.took.clear()
            while time.monotonic() - begun < seconds:
                time.sleep(self.pause)
                load.remove(alive.popleft())
                alive += self._submit(load, witness, batch)
                assert not witness.complaints, "; ".join(witness.complaints)
                assert scheduler.runs, "the scheduler has ended"
                if time.monotonic() - last >= EVERY:
                    last = time.monotonic()
                    self.samples.append(_sample(scheduler.pid, last - begun, len(witness.binds)))
                    yield self.samples[-1]
            load.check(alive, witness)
        assert (self.grown() or 0.0) <= GROWTH, "memory grows"

    @property
    def _batch(self) -> int:
        """The number of pods that come and go together."""
        return max(50, int(self.size.pods * SHARE))

    @property
    def node_cpus(self) -> int:
        """The CPUs of each node: one for each pod, with room for one batch in the cluster."""
        return -(-(self.size.pods + self._batch) // self.size.nodes)

    @property
    def warm_up(self) -> int:
        """How many pods come and go before memory is judged."""
        return max(WARM_UP, round(TURNOVER * self.size.pods))

    def grown(self) -> float | None:
        """By which share the memory of the last third is above that of the first; None: it was too short."""
        begun = self.samples[0].binds + self.warm_up
        kept = [one for one in self.samples if one.binds >= begun]
        if len(kept) < 6:
            return None
        third = len(kept) // 3
        first, last = (statistics.median(one.rss for one in part) for part in (kept[:third], kept[-third:]))
        return last / first - 1

    def summary(self) -> Iterator[str]:
        """Report the results, in lines for people."""
        if not self.samples:
            return
        last = self.samples[-1]
        took, grown = sorted(self.took), self.grown()
        judged = (
            "too short to judge"
            if grown is None
            else f"the last third is {100 * grown:+.1f} % above the first"
        )
        yield (
            f"churn on {self.size.nodes} nodes with {self.size.pods} pods for {last.seconds:.0f} s: {last.binds} binds"
        )
        yield (
            f"memory {self.samples[0].rss:.0f} to {last.rss:.0f} MiB, peak {max(one.rss for one in self.samples):.0f}; "
            f"after the first {self.warm_up} pods: {judged}"
        )
        yield f"open files {self.samples[0].files} to {last.files}, threads {self.samples[0].threads} to {last.threads}"
        yield f"a batch was bound after {took[len(took) // 2]:.2f} s (median of {len(took)}), {took[-1]:.2f} s at worst"

    def _submit(self, load: Load, witness: Witness, pods: int, batches: int = 1) -> list[Batch]:
        """Create batches of pods, and wait until all of them are bound."""
        made, begun = [load.batch(pods) for _ in range(batches)], time.monotonic()
        for one in made:
            load.submit(one)
        eventually(lambda: all(load.whole(one, witness) for one in made), PATIENCE)
        self.took.append(time.monotonic() - begun)
        return made


def _sample(pid: int, seconds: float, binds: int) -> Sample:
    process = psutil.Process(pid)
    times = process.cpu_times()
    return Sample(
        seconds=seconds,
        rss=process.memory_info().rss / 2**20,
        files=process.num_fds(),
        threads=process.num_threads(),
        cpu=times.user + times.system,
        binds=binds,
    )
