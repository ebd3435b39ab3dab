"""KAI's time-based fairness: over-quota weights that shrink with what was used."""

from typing import ClassVar

import numpy as np
from pydantic import Field
from typing_extensions import override

from batchsched.api.crd.base import SpecPart
from batchsched.queues.gang_order.policy import FloatArray, IntArray
from batchsched.queues.sharing.policy import FairShare
from batchsched.queues.sharing.priority import buckets
from batchsched.queues.sharing.sibling_queues import BoolArray, ReclaimRequest, SiblingQueues, portions
from batchsched.queues.sharing.water_filling import whole


class TimeBasedArgs(SpecPart):
    """Arguments of `time-based`."""

    k: float = Field(
        default=0.5, ge=0, description="How much the past bears on a queue's part; 0 not at all."
    )
    utilization_multiplier: float = Field(
        default=1.0,
        ge=1,
        description="What the reclaimer's saturation is multiplied by before it is compared.",
    )


class TimeBased(FairShare):
    """KAI-Scheduler's quota, priority and time-aware over-quota, resource by resource.

    Beyond guarantees, the surplus of a resource goes down the priorities of queues; those of one priority divide it in
    rounds. In each round a queue that still wants more has the portion P = max(0, W + k · (W - U)): W is its weight
    over the weights of all that want more, U its decayed usage over the capacity. It gets its part of the sum of
    portions and no more than it wants; the rest goes into the next round. What only queues with a portion of 0 want is
    divided by weight. Whole units go by the largest remainder.
    Who is next: under the fair share before over it; under the guarantee with the candidate; the higher priority; the
    smaller usage / fair share with the candidate. Reclaim: the reclaimer stays within its fair share, the victim is
    above its own, and (usage + gang) / fair share of the reclaimer stays below the victim's usage / fair share.

    Invariants: without history it is weighted max-min by priority; a queue gets surplus only when those of higher
    priority have what they want; the larger of the two saturations falls with every reclaim.

    Source: KAI-Scheduler, docs/fairness, docs/timeaware and its resource_division; where KAI gives the only queue of a
    priority all that is left, here it gets what it wants.
    """

    name = "time-based"
    remembers = True
    Args: ClassVar[type[TimeBasedArgs]] = TimeBasedArgs

    def __init__(self, args: TimeBasedArgs | None = None) -> None:
        self.args = args or TimeBasedArgs()

    @override
    def divide(self, siblings: SiblingQueues, surplus: IntArray) -> IntArray:
        """Divide resource by resource, priority by priority, in rounds."""
        demand = siblings.demand
        if (demand.sum(axis=0) <= surplus).all():
            return demand
        used = portions(siblings.history, siblings.capacity, np.ones_like(siblings.weighed))
        late = self.late(siblings)
        given = np.zeros_like(demand)
        for at in buckets(siblings.priority):
            left = np.maximum(0, surplus - given.sum(axis=0))
            real = np.zeros((len(at), len(surplus)))
            for resource in np.flatnonzero((left > 0) & (demand[at] > 0).any(axis=0)).tolist():
                real[:, resource] = self._rounds(
                    demand[at, resource], float(left[resource]), siblings.weight[at], used[at, resource]
                )
            given[at] = whole(real, demand[at], left, late[at])
        return given

    def _rounds(self, demand: IntArray, left: float, weight: FloatArray, used: FloatArray) -> FloatArray:
        """[S] real parts of one resource among queues of one priority."""
        wanted = demand.astype(np.float64)
        given = np.zeros(len(demand))
        while left > 1e-9 * (1.0 + given.sum()):
            open_ = given < wanted
            if not open_.any():
                break
            portion = self._portions(weight, used, open_)
            part = np.minimum(left * portion / portion.sum(), wanted - given)
            sated = open_ & (part >= wanted - given)
            given = np.where(sated, wanted, given + part)
            left -= float(part.sum())
            if not sated.any():
                break
        return given

    def _portions(self, weight: FloatArray, used: FloatArray, open_: BoolArray) -> FloatArray:
        """[S] portions of those that still want more; by weight, or all alike, when every portion is 0."""
        weight = np.where(open_, weight, 0.0)
        total = weight.sum()
        if total <= 0:
            return np.where(open_, 1.0, 0.0)
        mine = weight / total
        portion = np.where(weight > 0, np.maximum(0.0, mine + self.args.k * (mine - used)), 0.0)
        return portion if portion.sum() > 0 else mine

    @override
    def key(self, siblings: SiblingQueues, candidate: IntArray) -> FloatArray:
        """[S, 4]: by fair share, guarantee, priority, then saturation."""
        after = siblings.usage + candidate
        over_fair = (siblings.usage > siblings.fair).any(axis=1)
        over_guarantee = (after > siblings.guarantee).any(axis=1)
        priority = -siblings.priority.astype(np.float64)
        return np.stack([over_fair, over_guarantee, priority, self._saturation(siblings, after)], axis=1)

    @override
    def may_reclaim(self, siblings: SiblingQueues, claim: ReclaimRequest) -> bool:
        """Within the fair share, from above it, and less saturated after than the victim before."""
        if not super().may_reclaim(siblings, claim):
            return False
        after = siblings.usage.copy()
        after[claim.reclaimer] += claim.gains
        mine = self._saturation(siblings, after)[claim.reclaimer]
        theirs = self._saturation(siblings, siblings.usage)[claim.victim]
        return bool(mine * self.args.utilization_multiplier < theirs)

    def _saturation(self, siblings: SiblingQueues, usage: IntArray) -> FloatArray:
        """[S] max_r usage_r / fair_r: infinite for use of what a queue has no fair share of."""
        some = siblings.fair > 0
        ratio = np.divide(usage, siblings.fair, out=np.zeros(usage.shape), where=some)
        saturation: FloatArray = np.where(some | (usage <= 0), ratio, np.inf).max(axis=1, initial=0.0)
        return saturation
