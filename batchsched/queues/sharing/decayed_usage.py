"""Decayed usage: the queue with the smallest recent usage is next, and gets more surplus until it has caught up."""

from typing import ClassVar

import numpy as np
from pydantic import Field
from typing_extensions import override

from batchsched.api.crd.base import SpecPart
from batchsched.queues.gang_order.policy import FloatArray, IntArray
from batchsched.queues.sharing.policy import FairShare
from batchsched.queues.sharing.sibling_queues import SiblingQueues, dominant, per_weight


class DecayedUsageArgs(SpecPart):
    """Arguments of `decayed-usage`."""

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


class DecayedUsage(FairShare):
    """Admission fair sharing of Kueue, extended by a fair share.

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
    def start(self, siblings: SiblingQueues) -> FloatArray:
        """Return the levels of past usage at which the division starts."""
        past = per_weight(dominant(siblings.history, siblings.capacity, siblings.weighed), siblings.weight)
        return self.args.pull * np.where(np.isfinite(past), past, 0.0)

    @override
    def key(self, siblings: SiblingQueues, candidate: IntArray) -> FloatArray:
        """Return the mean over resources of recent usage plus `penalty` · candidate, divided by the weight."""
        used = siblings.history + self.args.penalty * candidate
        has_capacity = (siblings.capacity > 0) & siblings.weighed
        parts = used[:, has_capacity] / siblings.capacity[has_capacity]
        mean: FloatArray = parts.sum(axis=1) / max(1, int(has_capacity.sum()))
        return per_weight(mean, siblings.weight)
