"""Shortfall: batchsched's own way for queues to share."""

from typing import ClassVar

import numpy as np
from pydantic import Field
from typing_extensions import override

from batchsched.model.custom import Part
from batchsched.ordering.fairness.policy import FairShare
from batchsched.ordering.fairness.siblings import Siblings, dominant
from batchsched.ordering.headroom import Headroom
from batchsched.ordering.policy import FloatArray, IntArray, Policy

_ROUNDED = 1e-9
"""Of a grain: six tenths divided by a tenth are six."""


class ShortfallArgs(Part):
    """Arguments of `shortfall`."""

    grain: float = Field(
        default=0.1,
        gt=0,
        le=1,
        description="Shortfalls within one such part of the cluster count as equal, and the gangs decide.",
    )


class Shortfall(FairShare):
    """Who misses most of its fair share is next; among those that miss alike, the gang that costs others least.

    missing = max_r max(0, fair_r - usage_r) / capacity_r, in whole grains of the cluster; the more the sooner. Between
    queues that miss as many grains the next gang decides, as in each queue: `headroom`'s order, the smallest
    area aged by slowdown. The surplus is divided as by `drf`, which is the share that the fairness error measures.
    Reclaim: up to the fair share, from a queue above its own.

    Invariants: as `drf`: guarantees and limits hold, nobody gets more than it asked, who asks for no more than its
    weighted part gets it; of two queues in the same share of their entitlement, one that misses at least a grain
    more goes first; a queue at its fair share goes before none that misses a grain.

    Source: our own; the fairness error is Armada's.
    """

    name = "shortfall"
    gangs: Policy | None = Headroom()
    Args: ClassVar[type[ShortfallArgs]] = ShortfallArgs

    def __init__(self, args: ShortfallArgs | None = None) -> None:
        self.args = args or ShortfallArgs()

    @override
    def key(self, siblings: Siblings, candidate: IntArray) -> FloatArray:
        """Whole grains that each misses, the most first."""
        missing = np.maximum(0, siblings.fair - siblings.usage)
        share = dominant(missing, siblings.capacity, siblings.weighed)
        return -np.floor(share / self.args.grain + _ROUNDED)
