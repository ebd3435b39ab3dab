"""The sharing policy of Armada: fair shares are capped by demand, and the least cost per weight is next."""

from typing import ClassVar

import numpy as np
from pydantic import Field
from typing_extensions import override

from batchsched.api.crd.base import StrictModel
from batchsched.queues.gang_order import FloatArray, IntArray
from batchsched.queues.sharing.policy import FairSharePolicy
from batchsched.queues.sharing.sibling_queues import SiblingQueues, dominant_shares, shares_per_weight
from batchsched.queues.sharing.water_filling import round_to_units

_ROUNDS = 10
_LEAST = 0.01


class ArmadaArgs(StrictModel):
    """Arguments of the sharing policy `armada`."""

    rounds: int = Field(
        default=_ROUNDS,
        ge=1,
        le=1000,
        description="Maximum number of times that the remainder is divided again.",
    )
    least: float = Field(
        default=_LEAST, ge=0, lt=1, description="Part of the cluster that may remain undivided."
    )


class Armada(FairSharePolicy):
    """Fair sharing of Armada: the cost of a queue is max_r usage_r / capacity_r, divided by its weight.

    The queue with the smallest cost(usage + candidate) / weight is next. Fair shares are parts of the cluster: the
    weight of each queue over all weights, capped at its demand. The remainder is divided among the other queues by
    weight, at most 10 times, or until at most 1 % is left. In resources, the fair share of a queue is that part of
    its demand. A queue reclaims up to its fair share from queues above their fair shares.

    Invariants: no fair share exceeds the demand; the sum of fair shares does not exceed the cluster; a queue that
    demands no more than its weighted part gets all of it.

    Source: Armada, `UpdateFairShares` of its scheduling context. Resource multipliers are 1 or 0 here. The penalty
    for short jobs is left out, because decayed usage (`decayed-usage`) accounts for them.
    """

    name = "armada"
    Args: ClassVar[type[ArmadaArgs]] = ArmadaArgs

    def __init__(self, args: ArmadaArgs | None = None) -> None:
        self.args = args or ArmadaArgs()

    @override
    def divide_surplus(self, siblings: SiblingQueues, surplus: IntArray) -> IntArray:
        """Divide the surplus in proportion to the weights of queues, but give no queue more than it demands.

        Parts of the surplus are measured by their cost: the dominant share of the cluster.
        """
        demand = np.where(surplus > 0, siblings.surplus_demand, 0)
        if (demand.sum(axis=0) <= surplus).all():
            return demand
        cost = self.demand_sizes(siblings, demand)
        whole_ = float(dominant_shares(surplus, siblings.capacity, siblings.weighed))
        fair = demand_capped_shares(cost, siblings.weight, whole_, self.args.rounds, self.args.least)
        part = np.divide(fair, cost, out=np.zeros_like(cost), where=cost > 0)
        real = demand * np.minimum(part, 1.0)[:, np.newaxis]
        total = real.sum(axis=0)
        scale = np.divide(surplus, total, out=np.ones_like(total), where=total > surplus)
        return round_to_units(
            real * np.minimum(scale, 1.0), demand, surplus, self.rounding_tie_break_keys(siblings)
        )

    @override
    def key(self, siblings: SiblingQueues, candidate: IntArray) -> FloatArray:
        """Return for each sibling queue the cost of its usage plus its next gang, divided by its weight.

        The cost is the dominant share of the cluster. Usage within the guarantee counts, too.
        """
        cost = dominant_shares(siblings.usage + candidate, siblings.capacity, siblings.weighed)
        return shares_per_weight(cost, siblings.weight)


def demand_capped_shares(
    demand: FloatArray,
    weight: FloatArray,
    total: float = 1.0,
    rounds: int = _ROUNDS,
    least: float = _LEAST,
) -> FloatArray:
    """Return the fair share of each queue: a part of `total` in proportion to its weight, at most its demand.

    What a queue would get above its demand is divided among the other queues again.

    Args:
      demand: [S] parts of the cluster that the queues can use.
      weight: [S] 0 or more.
      total: the part of the cluster that is divided.
      rounds: maximum number of divisions.
      least: the remainder at which division stops.

    Returns:
      [S] the part of the cluster that each queue gets.
    """
    shares = np.zeros(len(demand))
    remaining = total
    for _ in range(rounds):
        open_ = np.where(shares < demand, weight, 0.0)
        if remaining <= least or not open_.any():
            break
        shares = np.minimum(demand, shares + remaining * open_ / open_.sum())
        remaining = total - float(shares.sum())
    return shares
