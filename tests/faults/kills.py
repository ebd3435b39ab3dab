"""SIGKILL at moments that a seed draws, under load: what `make test` does ten times and `make soak` again and again."""

import random
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from tests.controlplane.fixtures import Namespace, eventually
from tests.faults.load import Batch, Load
from tests.faults.replicas import Replicas
from tests.faults.witness import Witness

CPUS: Final = 16
"""Of each node, one for a pod."""
TWICE: Final = 0.25
"""Share of rounds in which the next leader is killed too, soon after it took over."""
SPAN: Final = 1.5
"""Seconds over which the pods of a round come."""
PATIENCE: Final = 180.0


@dataclass(frozen=True, slots=True)
class Kill:
    """What became of one round.

    Args:
      number: of the round.
      moment: when the leader was killed, for people.
      kills: how many leaders were.
      half: gangs of which some pods, but too few, were bound then.
      resumed: seconds from the last kill to the next bind, None when everything was bound by then.
      whole: seconds from the last kill until everything was bound.
    """

    number: int
    moment: str
    kills: int
    half: int
    resumed: float | None
    whole: float


@dataclass
class Rounds:
    """Rounds of load and kills; each begins when everything is bound, and ends so.

    Two rounds' pods fill the cluster: the pods of the last round end as those of the next come.

    Args:
      replicas: one of them leads.
      namespace: for the pods.
      witness: sees everything.
      seed: of the load and of the moments.
      pods: of one round.
      spec: of every pod, more than usual.
    """

    replicas: Replicas
    namespace: Namespace
    witness: Witness
    seed: int
    pods: int = 80
    spec: dict[str, Any] | None = None
    done: list[Kill] = field(default_factory=list)
    _last: Batch | None = None

    def __post_init__(self) -> None:
        self._draw = random.Random(self.seed)
        self._load = Load(self.namespace, random.Random(self.seed + 1), spec=self.spec)
        self.namespace.nodes(-(-self.pods * 5 // 4 // CPUS), cpu=CPUS)

    def run(self) -> Kill:
        """Do one round.

        Raises:
          AssertionError: an invariant does not hold, or it took too long.
        """
        lead = self.replicas.ready()
        batch = self._load.batch(self.pods)
        if self._last is not None:
            self._load.remove(self._last)
        kills = 1
        with self._load.submitting(batch, SPAN):
            moment = self._wait(batch)
            lead = self.replicas.leader() or lead
            lead.end(signal.SIGKILL)
            killed = time.monotonic()
            lead.start()
            half = self._half(batch)
        if self._draw.random() < TWICE:
            self._again()
            killed, kills = time.monotonic(), 2
            half += self._half(batch)
        eventually(lambda: self.replicas.tend() and self._load.whole(batch, self.witness), PATIENCE)
        over = time.monotonic()
        resumed = self.witness.resumed(killed)
        kill = Kill(
            number=len(self.done) + 1,
            moment=moment,
            kills=kills,
            half=half,
            resumed=None if resumed is None else resumed - killed,
            whole=over - killed,
        )
        self._load.check([batch], self.witness)
        self._last = batch
        self.done.append(kill)
        return kill

    def _wait(self, batch: Batch) -> str:
        """Wait for the moment: some time after the first pods are created, or a number of binds."""
        if self._draw.random() < 0.5:
            seconds = self._draw.uniform(0, SPAN)
            time.sleep(seconds)
            return f"{seconds:.2f} s after the first pod"
        wanted = self._draw.randint(1, len(batch.pods) - 1)
        eventually(
            # On a busy machine a leader may lose its Lease and end; a Deployment would restart it.
            lambda: self.replicas.tend() and self.witness.bound(self.namespace.name, batch.pods) >= wanted,
            PATIENCE,
        )
        return f"after {wanted} of {len(batch.pods)} binds"

    def _half(self, batch: Batch) -> int:
        """The number of partially bound gangs, after the last binds have been seen."""
        time.sleep(0.1)
        return len(self._load.half([batch], self.witness))

    def _again(self) -> None:
        """Kill the next leader while it recovers."""
        seconds = self._draw.uniform(0, SPAN / 2)
        lead = eventually(lambda: self.replicas.tend() and self.replicas.leader(), PATIENCE)
        time.sleep(seconds)
        lead.end(signal.SIGKILL)
        lead.start()


def table(kills: Sequence[Kill]) -> Iterator[str]:
    """Say what became of some rounds, in lines for people."""
    total = sum(one.kills for one in kills)
    half = sum(one.half for one in kills)
    caught = sum(one.half > 0 for one in kills)
    yield f"{total} kills in {len(kills)} rounds; {caught} rounds left {half} gangs partially bound; all were completed"
    times = {
        "kill to the next bind": [one.resumed for one in kills if one.resumed is not None],
        "kill to everything bound": [one.whole for one in kills],
    }
    for name, seconds in times.items():
        if seconds:
            yield f"{name}: {spread(seconds)} ({len(seconds)})"


def spread(seconds: Sequence[float]) -> str:
    """Say how long something took: in the middle, for nine of ten, and at worst."""
    middle, ninth, worst = np.quantile(seconds, (0.5, 0.9, 1.0), method="higher")
    return f"median {middle:.2f} s, P90 {ninth:.2f} s, worst {worst:.2f} s"
