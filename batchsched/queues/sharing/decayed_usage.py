"""Decayed usage: who used least lately is next, and gets more of the surplus until it has caught up."""

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
        description="The part of a gang's request that counts as used when it is admitted: "
        "1 - 0.5^(sampling interval / half-life). The default is that of 5 minutes and 7 days.",
    )
    pull: float = Field(
        default=1.0,
        ge=0,
        description="How much of what was used lately counts when the surplus is divided; 0 divides as `drf`.",
    )


class DecayedUsage(FairShare):
    """Kueue's admission fair sharing, with a fair share to go with it.

    U is the usage of a queue decayed with the half-life of the profile: U <- (1 - a) · U + a · current, a = 1 -
    0.5^(dt / half-life). Who is next: the smallest mean over resources of (U_r + penalty · candidate_r) / capacity_r,
    divided by the weight. The surplus is divided as by `drf`, but the level of a queue begins at pull · U / weight, its
    dominant share of the past: who used much waits until the others have as much. Reclaim: up to the fair share.

    Invariants: of two queues that ask alike, the one that used less lately gets no less; equal requests get equal
    usage in the mean over time; with no history it is `drf`. Guarantees do not depend on history.

    Source: Kueue, concepts/admission_fair_sharing and KEP-4136; resources are weighed alike after division by
    capacity, where Kueue weighs raw amounts.
    """

    name = "decayed-usage"
    remembers = True
    Args: ClassVar[type[DecayedUsageArgs]] = DecayedUsageArgs

    def __init__(self, args: DecayedUsageArgs | None = None) -> None:
        self.args = args or DecayedUsageArgs()

    @override
    def start(self, siblings: SiblingQueues) -> FloatArray:
        """Begin where the past ends."""
        past = per_weight(dominant(siblings.history, siblings.capacity, siblings.weighed), siblings.weight)
        return self.args.pull * np.where(np.isfinite(past), past, 0.0)

    @override
    def key(self, siblings: SiblingQueues, candidate: IntArray) -> FloatArray:
        """Mean use of resources, the candidate's penalty included, by weight."""
        used = siblings.history + self.args.penalty * candidate
        there = (siblings.capacity > 0) & siblings.weighed
        parts = used[:, there] / siblings.capacity[there]
        mean: FloatArray = parts.sum(axis=1) / max(1, int(there.sum()))
        return per_weight(mean, siblings.weight)
