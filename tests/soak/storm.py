"""A network at its worst: rounds of load, each through another mixture of faults that a seed draws, on any request."""

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from tests.controlplane.fixtures import Namespace, eventually
from tests.controlplane.plane import ControlPlane
from tests.controlplane.process import Terms
from tests.controlplane.proxy import Ending, Fault, Proxy, cut, delayed, hung, lost, page, refused, status
from tests.faults.kills import CPUS, spread
from tests.faults.load import Batch, Load
from tests.faults.replicas import Replica, Replicas, running
from tests.faults.witness import Witness

KINDS: Final[dict[str, Fault]] = {
    "429": status(429, "TooManyRequests", retry_after=1),
    "500": status(500, "InternalError"),
    "503": status(503, "ServiceUnavailable"),
    "502, a page": page(502),
    "410": status(410, "Expired"),
    "late": delayed(0.5),
    "refused": refused(),
    "hung": hung(),
    "answer lost": lost(),
    "answer hung": lost(Ending.STALL),
    "reset": cut(700),
    "truncated": cut(700, Ending.END),
    "silent": cut(700, Ending.STALL),
}
PATIENCE: Final = 300.0
"""Seconds: a watch that fell silent is noticed after 90."""


@dataclass(frozen=True, slots=True)
class Gust:
    """What became of one round: its faults, how many struck, and the seconds from their end until all was bound."""

    number: int
    faults: str
    struck: int
    whole: float


@dataclass
class Storm:
    """Rounds of faults over two replicas; each begins when everything is bound, and ends so.

    Args:
      plane: the control plane.
      namespace: for the pods.
      seed: of faults and load.
      pods: of one round.
    """

    plane: ControlPlane
    namespace: Namespace
    seed: int
    pods: int = 100
    done: list[Gust] = field(default_factory=list)
    _last: Batch | None = None

    def __post_init__(self) -> None:
        self._draw = random.Random(self.seed)
        self._load = Load(self.namespace, random.Random(self.seed + 1))

    def run(self, seconds: float) -> Iterator[Gust]:
        """Run for a number of seconds.

        Raises:
          AssertionError: an invariant does not hold, or it took too long.
        """
        self.namespace.nodes(-(-self.pods * 5 // 4 // CPUS), prefix="storm", cpu=CPUS)
        begun = time.monotonic()
        with (
            Proxy(self.plane.server, self.plane.certificate, seed=self.seed) as proxy,
            Witness(self.plane.admin, CPUS).watching() as witness,
        ):
            make = partial(Replica, self.plane, server=proxy.url, terms=Terms())
            with running(make(name="soak-storm-0"), make(name="soak-storm-1")) as replicas:
                while time.monotonic() - begun < seconds:
                    replicas.ready(PATIENCE)
                    yield self._round(proxy, replicas, witness)

    def _round(self, proxy: Proxy, replicas: Replicas, witness: Witness) -> Gust:
        names = self._draw.sample(sorted(KINDS), self._draw.randint(1, 4))
        for name in names:
            proxy.on(KINDS[name], chance=self._draw.uniform(0.02, 0.3))
        if self._draw.random() < 0.5:
            proxy.sever()
        batch, load = self._load.batch(self.pods), self._load
        if self._last is not None:
            load.remove(self._last)
        load.submit(batch)
        time.sleep(self._draw.uniform(0, 6))
        struck = sum(rule.hits for rule in proxy.rules)
        proxy.calm()
        calm = time.monotonic()
        eventually(lambda: replicas.tend() and load.whole(batch, witness), PATIENCE)
        gust = Gust(len(self.done) + 1, ", ".join(names), struck, time.monotonic() - calm)
        load.check([batch], witness)
        self._last = batch
        self.done.append(gust)
        return gust

    def summary(self) -> Iterator[str]:
        """Report the results, in lines for people."""
        if not self.done:
            return
        took = spread([one.whole for one in self.done])
        struck = sum(one.struck for one in self.done)
        yield f"{struck} faults in {len(self.done)} rounds of {self.pods} pods"
        yield f"end of the faults to everything bound: {took}"
