"""Headroom: the gang order developed for batchsched.

Short, wide gangs suffer most under other orders: a gang that runs for five seconds on 64 nodes and waits for a day
has a slowdown of thousands. Therefore a long gang may start only if a share of the cluster remains free, within the
next hour, for later gangs. The required share shrinks as the slowdown of the long gang grows. Gangs are ordered by
area, aged by slowdown; a gang that has waited longer than the age limit comes first.
"""

from typing import ClassVar

import numpy as np
from pydantic import Field

from batchsched.api.crd.base import SpecPart
from batchsched.queues.gang_order.batch import estimates
from batchsched.queues.gang_order.policy import FloatArray, GangColumns

SLOWDOWN_BOUND_SECONDS = 10.0
"""Minimum run time in seconds in the bounded slowdown."""
AGE_LIMIT_KEY = -(2.0**60)
"""Smallest key of a gang past the age limit: such gangs precede all others, in order of arrival."""


class HeadroomArgs(SpecPart):
    """Arguments of `headroom`, set under `policy.args`."""

    ageing: float = Field(
        default=0.02, ge=0, description="c: rate at which the slowdown of a gang reduces its area."
    )
    share: float = Field(
        default=0.125, ge=0, lt=1, description="eta: share of the cluster that remains free."
    )
    long_seconds: float = Field(
        default=3600.0, ge=0, description="L: run time in seconds above which a gang must leave room."
    )
    horizon_seconds: float = Field(
        default=3600.0, ge=0, description="H: seconds within which the share must be free."
    )
    patience: float = Field(
        default=10.0, gt=0, description="p: at a slowdown of 1 + p, a gang needs no room."
    )
    age_limit_seconds: float = Field(
        default=950400.0, gt=0, description="T: gangs that wait longer come first."
    )


class Headroom:
    """Smallest slowdown-aged area first, with headroom that long gangs must leave free.

    With s = max(1, (wait + estimate) / max(estimate, 10 s)): key = share · estimate / (1 + c · s); room = eta ·
    max(0, 1 - (s - 1) / p) for gangs longer than L, else 0. A gang that has waited longer than T comes first, in
    order of arrival, and needs no room. A gang with room > 0 is skipped, both as head and for backfill, unless its
    own requests plus the room are free now, or are held by gangs that end within H, or no gang is running.

    Source: batchsched; the decision record on headroom describes how it was found and what it costs.
    """

    name: ClassVar[str] = "headroom"
    Args: ClassVar[type[HeadroomArgs]] = HeadroomArgs

    def __init__(self, args: HeadroomArgs | None = None) -> None:
        self.args = args or HeadroomArgs()

    @property
    def horizon(self) -> float:
        """Seconds within which the capacity of a running gang that ends counts as room."""
        return self.args.horizon_seconds

    def key(self, gangs: GangColumns, now: float) -> FloatArray:
        """Return keys that order by aged area, and by arrival for gangs past the age limit."""
        area = gangs.share * estimates(gangs)
        aged = now - gangs.created > self.args.age_limit_seconds
        return np.where(
            aged, AGE_LIMIT_KEY + gangs.arrival, area / (1.0 + self.args.ageing * self._slowdown(gangs, now))
        )

    def room(self, gangs: GangColumns, now: float) -> FloatArray:
        """Return [G] the share of the cluster that must remain free when each gang starts."""
        patience = np.maximum(0.0, 1.0 - (self._slowdown(gangs, now) - 1.0) / self.args.patience)
        kept = (estimates(gangs) > self.args.long_seconds) & (
            now - gangs.created <= self.args.age_limit_seconds
        )
        return np.where(kept, self.args.share * patience, 0.0)

    def _slowdown(self, gangs: GangColumns, now: float) -> FloatArray:
        run = estimates(gangs)
        return np.maximum(1.0, (now - gangs.created + run) / np.maximum(run, SLOWDOWN_BOUND_SECONDS))
