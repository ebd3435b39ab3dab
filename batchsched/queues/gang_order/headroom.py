"""Headroom: batchsched's own ordering of gangs.

Short, wide gangs are the ones that suffer: five seconds of 64 nodes that wait for a day have a slowdown of
thousands. So a long gang may start only if it leaves, an hour from now, a share of the cluster free for whoever
comes next; its patience with that rule ends as its own slowdown grows. The order is that of areas, aged by slowdown;
whoever has waited longer than an age limit goes first.
"""

from typing import ClassVar

import numpy as np
from pydantic import Field

from batchsched.api.crd.base import SpecPart
from batchsched.queues.gang_order.batch import estimates
from batchsched.queues.gang_order.policy import FloatArray, GangColumns

BOUND = 10.0
"""Seconds below which no run time counts in a bounded slowdown."""
FIRST = -(2.0**60)
"""Keys of gangs past the age limit begin here: before all others, in the order of arrival."""


class HeadroomArgs(SpecPart):
    """Arguments of `headroom`; each may be set under `policy.args`."""

    ageing: float = Field(default=0.02, ge=0, description="c: how fast a gang's slowdown shrinks its area.")
    share: float = Field(
        default=0.125, ge=0, lt=1, description="eta: the share of the cluster that is kept free."
    )
    long_seconds: float = Field(
        default=3600.0, ge=0, description="L: gangs expected to run longer are held back."
    )
    horizon_seconds: float = Field(
        default=3600.0, ge=0, description="H: when the share has to be free again."
    )
    patience: float = Field(
        default=10.0, gt=0, description="p: at a slowdown of 1 + p nothing holds a gang back."
    )
    age_limit_seconds: float = Field(default=950400.0, gt=0, description="T: who waits longer goes first.")


class Headroom:
    """Smallest slowdown-aged area first, with headroom kept against long gangs.

    With s = max(1, (wait + estimate) / max(estimate, 10 s)): key = share · estimate / (1 + c · s); room = eta ·
    max(0, 1 - (s - 1) / p) for gangs longer than L, else 0; a gang that has waited longer than T goes first, in
    the order of arrival, and needs no room. A gang with room > 0 is passed over, neither head nor backfill, unless
    its own needs and the room are free now or held by gangs that end within H, or nothing runs at all.

    Source: our own; how it was found and what it costs stands in the decision record on headroom.
    """

    name: ClassVar[str] = "headroom"
    Args: ClassVar[type[HeadroomArgs]] = HeadroomArgs

    def __init__(self, args: HeadroomArgs | None = None) -> None:
        self.args = args or HeadroomArgs()

    @property
    def horizon(self) -> float:
        """Seconds within which a running gang's end counts as room."""
        return self.args.horizon_seconds

    def key(self, gangs: GangColumns, now: float) -> FloatArray:
        """Order by aged area; past the age limit by arrival."""
        area = gangs.share * estimates(gangs)
        aged = now - gangs.created > self.args.age_limit_seconds
        return np.where(
            aged, FIRST + gangs.arrival, area / (1.0 + self.args.ageing * self._slowdown(gangs, now))
        )

    def room(self, gangs: GangColumns, now: float) -> FloatArray:
        """[G] share of the cluster that must be left free when the gang starts."""
        patience = np.maximum(0.0, 1.0 - (self._slowdown(gangs, now) - 1.0) / self.args.patience)
        kept = (estimates(gangs) > self.args.long_seconds) & (
            now - gangs.created <= self.args.age_limit_seconds
        )
        return np.where(kept, self.args.share * patience, 0.0)

    def _slowdown(self, gangs: GangColumns, now: float) -> FloatArray:
        run = estimates(gangs)
        return np.maximum(1.0, (now - gangs.created + run) / np.maximum(run, BOUND))
