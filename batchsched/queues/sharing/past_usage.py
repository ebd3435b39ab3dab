"""Sharing policies that consider past usage: time-based fairness as in KAI, and decayed usage as in Kueue."""

from typing import ClassVar

import numpy as np
from pydantic import Field
from typing_extensions import override

from batchsched.api.crd.base import StrictModel
from batchsched.queues.gang_order import FloatArray, IntArray
from batchsched.queues.sharing.policy import FairSharePolicy, sibling_indexes_by_priority
from batchsched.queues.sharing.sibling_queues import (
    BoolArray,
    ReclaimRequest,
    SiblingQueues,
    capacity_shares,
    dominant_shares,
    shares_per_weight,
)
from batchsched.queues.sharing.water_filling import round_to_units


class TimeBasedArgs(StrictModel):
    """Arguments of the sharing policy `time-based`."""

    k: float = Field(
        default=0.5, ge=0, description="Influence of past usage on the part of a queue; 0: none."
    )
    utilization_multiplier: float = Field(
        default=1.0,
        ge=1,
        description="Factor on the saturation of the reclaimer before the comparison.",
    )


class TimeBased(FairSharePolicy):
    """Fair sharing of KAI-Scheduler by quota, priority and past usage, for each resource separately.

    Beyond guarantees, the surplus of a resource is passed from priority to priority; queues of one priority divide it
    in rounds. In each round, a queue with unmet demand has the portion P = max(0, W + k · (W - U)). W is its weight
    over the weights of all queues with unmet demand, U is its decayed usage over the capacity. The queue gets its
    part of the sum of portions, up to its demand; the remainder goes to the next round. Demand only of queues with
    portion 0 is divided by weight. Whole units are assigned by the largest remainder. The next queue is determined
    by, in this order: usage below the fair share; usage below the guarantee with the candidate; higher priority;
    smaller usage / fair share with the candidate. For reclaim, the reclaimer stays within its fair share, the victim
    exceeds its own, and (usage + gang) / fair share of the reclaimer stays below usage / fair share of the victim.

    Invariants: without history the policy is weighted max-min by priority; a queue gets surplus only after queues of
    higher priority have their demand; the larger of the two saturations falls with every reclaim.

    Source: KAI-Scheduler, docs/fairness, docs/timeaware and its resource_division. KAI gives the only queue of a
    priority the whole remainder; here it gets its demand.
    """

    name = "time-based"
    remembers = True
    Args: ClassVar[type[TimeBasedArgs]] = TimeBasedArgs

    def __init__(self, args: TimeBasedArgs | None = None) -> None:
        self.args = args or TimeBasedArgs()

    @override
    def divide_surplus(self, siblings: SiblingQueues, surplus: IntArray) -> IntArray:
        """Divide the surplus of each resource separately, first among the queues of the highest priority.

        The queues of one priority divide it in rounds.
        """
        demand = siblings.surplus_demand
        if (demand.sum(axis=0) <= surplus).all():
            return demand
        used = capacity_shares(siblings.history, siblings.capacity, np.ones_like(siblings.weighed))
        late = self.rounding_tie_break_keys(siblings)
        parts = np.zeros_like(demand)
        for members in sibling_indexes_by_priority(siblings.priority):
            remaining = np.maximum(0, surplus - parts.sum(axis=0))
            real = np.zeros((len(members), len(surplus)))
            for resource in np.flatnonzero((remaining > 0) & (demand[members] > 0).any(axis=0)).tolist():
                real[:, resource] = self._rounds(
                    demand[members, resource],
                    float(remaining[resource]),
                    siblings.weight[members],
                    used[members, resource],
                )
            parts[members] = round_to_units(real, demand[members], remaining, late[members])
        return parts

    def _rounds(self, demand: IntArray, remaining: float, weight: FloatArray, used: FloatArray) -> FloatArray:
        """Return [S] real parts of one resource among queues of one priority."""
        amounts = demand.astype(np.float64)
        parts = np.zeros(len(demand))
        while remaining > 1e-9 * (1.0 + parts.sum()):
            open_ = parts < amounts
            if not open_.any():
                break
            portion = self._portions(weight, used, open_)
            part = np.minimum(remaining * portion / portion.sum(), amounts - parts)
            sated = open_ & (part >= amounts - parts)
            parts = np.where(sated, amounts, parts + part)
            remaining -= float(part.sum())
            if not sated.any():
                break
        return parts

    def _portions(self, weight: FloatArray, used: FloatArray, open_: BoolArray) -> FloatArray:
        """Return [S] portions of queues with unmet demand; by weight, or equal, if every portion is 0."""
        weight = np.where(open_, weight, 0.0)
        total = weight.sum()
        if total <= 0:
            return np.where(open_, 1.0, 0.0)
        weight_share = weight / total
        portion = np.where(
            weight > 0, np.maximum(0.0, weight_share + self.args.k * (weight_share - used)), 0.0
        )
        return portion if portion.sum() > 0 else weight_share

    @override
    def key(self, siblings: SiblingQueues, candidate: IntArray) -> FloatArray:
        """Return four sort keys for each queue; the first key prefers queues within their fair shares.

        The first two keys are whether the queue exceeds its fair share, and whether it exceeds its guarantee with its
        next gang. The other two are its negative priority, and its usage with its next gang, divided by its fair share.

        Returns:
          [S, 4] the keys, the most significant first.
        """
        after = siblings.usage + candidate
        over_fair = (siblings.usage > siblings.fair).any(axis=1)
        over_guarantee = (after > siblings.guarantee).any(axis=1)
        priority = -siblings.priority.astype(np.float64)
        return np.stack([over_fair, over_guarantee, priority, self._saturation(siblings, after)], axis=1)

    @override
    def may_reclaim(self, siblings: SiblingQueues, claim: ReclaimRequest) -> bool:
        """Return whether usage / fair share of the reclaiming queue is at most 1 and below the victim's.

        The pending gang counts as usage of the reclaiming queue. The ratio of this queue is multiplied by
        `utilization_multiplier` before the comparison. The victim must exceed its fair share.
        """
        if not super().may_reclaim(siblings, claim):
            return False
        after = siblings.usage.copy()
        after[claim.reclaimer] += claim.gains
        reclaimer_saturation = self._saturation(siblings, after)[claim.reclaimer]
        victim_saturation = self._saturation(siblings, siblings.usage)[claim.victim]
        return bool(reclaimer_saturation * self.args.utilization_multiplier < victim_saturation)

    def _saturation(self, siblings: SiblingQueues, usage: IntArray) -> FloatArray:
        """Return [S] max_r usage_r / fair_r; infinite for usage of a resource without a fair share."""
        has_share = siblings.fair > 0
        ratio = np.divide(usage, siblings.fair, out=np.zeros(usage.shape), where=has_share)
        saturation: FloatArray = np.where(has_share | (usage <= 0), ratio, np.inf).max(axis=1, initial=0.0)
        return saturation


class DecayedUsageArgs(StrictModel):
    """Arguments of the sharing policy `decayed-usage`."""

    penalty: float = Field(
        default=0.0003438,
        ge=0,
        le=1,
        description="Part of a gang's request that counts as used when the gang is admitted: "
        "1 - 0.5^(sampling interval / half-life). The default is that of 5 minutes and 7 days.",
    )
    pull: float = Field(
        default=1.0,
        ge=0,
        description="Influence of recent usage on the division of the surplus; 0: as `drf`.",
    )


class DecayedUsageSharing(FairSharePolicy):
    """Admission fair sharing of Kueue by decayed usage, extended by a fair share for each queue.

    U is the decayed usage of a queue with the half-life of the profile: U <- (1 - a) · U + a · current, a = 1 -
    0.5^(dt / half-life). The queue with the smallest mean over resources of (U_r + penalty · candidate_r) /
    capacity_r, divided by its weight, is next. The surplus is divided as under `drf`, but the level of a queue starts
    at pull · U / weight, its dominant share of past usage. A queue with much past usage gets surplus only after the
    others have caught up. A queue reclaims up to its fair share.

    Invariants: of two queues with equal demand, the one with less recent usage gets no less; equal demand leads to
    equal mean usage over time; without history the policy equals `drf`. Guarantees do not depend on history.

    Source: Kueue, concepts/admission_fair_sharing and KEP-4136. Resources are weighted equally after division by
    capacity, whereas Kueue weights raw amounts.
    """

    name = "decayed-usage"
    remembers = True
    Args: ClassVar[type[DecayedUsageArgs]] = DecayedUsageArgs

    def __init__(self, args: DecayedUsageArgs | None = None) -> None:
        self.args = args or DecayedUsageArgs()

    @override
    def initial_fill_levels(self, siblings: SiblingQueues) -> FloatArray:
        """Return the water-filling level below which a queue gets no surplus: `pull` · past usage / weight.

        Returns:
          [S] the level of each sibling queue.
        """
        past = shares_per_weight(
            dominant_shares(siblings.history, siblings.capacity, siblings.weighed), siblings.weight
        )
        return self.args.pull * np.where(np.isfinite(past), past, 0.0)

    @override
    def key(self, siblings: SiblingQueues, candidate: IntArray) -> FloatArray:
        """Return for each sibling queue (past usage + `penalty` · request of its next gang) / its weight.

        The usage is the mean over all resources, as fractions of the capacity.
        """
        used = siblings.history + self.args.penalty * candidate
        has_capacity = (siblings.capacity > 0) & siblings.weighed
        parts = used[:, has_capacity] / siblings.capacity[has_capacity]
        mean: FloatArray = parts.sum(axis=1) / max(1, int(has_capacity.sum()))
        return shares_per_weight(mean, siblings.weight)
