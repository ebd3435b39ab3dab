"""Armada's fairness: cost per weight, demand-capped fair shares, and the fairness error."""

from typing import ClassVar

import numpy as np
from pydantic import Field
from typing_extensions import override

from batchsched.api.crd.base import SpecPart
from batchsched.queues.gang_order.policy import FloatArray, IntArray
from batchsched.queues.sharing.policy import FairShare
from batchsched.queues.sharing.sibling_queues import SiblingQueues, dominant, per_weight
from batchsched.queues.sharing.water_filling import whole

_ROUNDS = 10
_LEAST = 0.01


class ArmadaArgs(SpecPart):
    """Arguments of `armada`."""

    rounds: int = Field(
        default=_ROUNDS, ge=1, le=1000, description="How often what is left is divided again, at most."
    )
    least: float = Field(
        default=_LEAST, ge=0, lt=1, description="The part of the cluster that may be left undivided."
    )


class Armada(FairShare):
    """Armada's fair shares: cost = max_r usage_r / capacity_r, by weight.

    Who is next: the smallest cost(usage + candidate) / weight. Fair shares are parts of the cluster: each queue's
    weight over all weights, capped at its demand; what that leaves goes to the others by weight, at most 10 times, or
    until no more than 1 % is left. In resources, a queue's fair share is that part of its demand. Reclaim:
    up to the fair share, from queues above theirs.

    Invariants: nobody's fair share is above its demand; together they are no more than the cluster; who demands
    no more than its weighted part has all of it.

    Source: Armada, `UpdateFairShares` of its scheduling context. Its multiplier by resource is 1 or 0 here; its penalty
    for short jobs is left out, since decayed usage (`decayed-usage`) charges for them.
    """

    name = "armada"
    Args: ClassVar[type[ArmadaArgs]] = ArmadaArgs

    def __init__(self, args: ArmadaArgs | None = None) -> None:
        self.args = args or ArmadaArgs()

    @override
    def divide(self, siblings: SiblingQueues, surplus: IntArray) -> IntArray:
        """Give each the part of its demand that its fair share is of its demand's cost."""
        demand = np.where(surplus > 0, siblings.demand, 0)
        if (demand.sum(axis=0) <= surplus).all():
            return demand
        cost = self.sizes(siblings, demand)
        whole_ = float(dominant(surplus, siblings.capacity, siblings.weighed))
        fair = adjusted_shares(cost, siblings.weight, whole_, self.args.rounds, self.args.least)
        part = np.divide(fair, cost, out=np.zeros_like(cost), where=cost > 0)
        real = demand * np.minimum(part, 1.0)[:, np.newaxis]
        asked = real.sum(axis=0)
        scale = np.divide(surplus, asked, out=np.ones_like(asked), where=asked > surplus)
        return whole(real * np.minimum(scale, 1.0), demand, surplus, self.late(siblings))

    @override
    def key(self, siblings: SiblingQueues, candidate: IntArray) -> FloatArray:
        """Cost by weight, guarantees included."""
        cost = dominant(siblings.usage + candidate, siblings.capacity, siblings.weighed)
        return per_weight(cost, siblings.weight)


def adjusted_shares(
    demand: FloatArray,
    weight: FloatArray,
    total: float = 1.0,
    rounds: int = _ROUNDS,
    least: float = _LEAST,
) -> FloatArray:
    """[S] demand-capped fair shares: by weight, capped at the demand, the rest divided again.

    Args:
      demand: [S] parts of the cluster that queues could use.
      weight: [S] 0 or more.
      total: the part of the cluster that is divided.
      rounds: how often, at most.
      least: the part that may be left over.
    """
    given = np.zeros(len(demand))
    left = total
    for _ in range(rounds):
        open_ = np.where(given < demand, weight, 0.0)
        if left <= least or not open_.any():
            break
        given = np.minimum(demand, given + left * open_ / open_.sum())
        left = total - float(given.sum())
    return given


def fairness_error(fair: FloatArray, actual: FloatArray) -> float:
    """Armada's fairness error: sum over queues of max(0, fair share - actual share), in parts of the cluster."""
    return float(np.maximum(0.0, fair - actual).sum())
