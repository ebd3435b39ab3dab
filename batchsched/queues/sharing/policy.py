"""Sharing policies: the protocol, the behaviour that most of them share, and lookup by name.

    make_sharing_policy("drf", {}) -> SharingPolicy

A policy answers three questions for the children of one queue: how a surplus is divided, which queue is next, and
which resources a queue holds above its entitlement. Guarantees, limits, lending and borrowing hold under every
policy; `entitlements` and `reclaim_rules` enforce them.

Policies are found by name among the entry points `batchsched.queue_policies`. A gang order is a sharing policy, too:
then the order of gangs decides which queue gets the surplus. The simple policies are in this module, because they are
`FairSharePolicy` with another order; a policy with a formula of its own has its own module.
"""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Final, Protocol

import numpy as np
from typing_extensions import override

from batchsched.api.crd.validation import suggest_name
from batchsched.errors import InvalidInput
from batchsched.queues.external_policy import load_policy_class
from batchsched.queues.gang_order import (
    FcfsOrder,
    FloatArray,
    GangOrderPolicy,
    IntArray,
    PriorityOrder,
    construct_policy,
    find_gang_order_class,
    gang_order_names,
    make_gang_order_policy,
)
from batchsched.queues.sharing.sibling_queues import (
    BoolArray,
    ReclaimRequest,
    SiblingQueues,
    dominant_shares,
    dominant_shares_with_unweighed_fallback,
    shares_per_weight,
)
from batchsched.queues.sharing.water_filling import divide_surplus_by_water_filling, round_to_units

_LEAST = 1e-15


class SharingPolicy(Protocol):
    """A policy that divides the resources of a queue among its children.

    The pydantic model `Args` and a constructor that takes one are optional.

    Attributes:
      name: registered name.
      strict: the first gang that does not fit blocks all gangs behind it in the subtree.
      pooled: the surplus is shared: the parts that `divide_surplus` returns may sum up to more than the surplus, and
        only the parent's share limits the siblings together.
      remembers: the policy reads decayed usage, which is recorded only for such policies.
      gangs: the order of the PodGroups in these queues; None uses the order of the profile.
    """

    name: str
    strict: bool
    pooled: bool
    remembers: bool
    gangs: GangOrderPolicy | None

    def divide_surplus(self, siblings: SiblingQueues, surplus: IntArray) -> IntArray:
        """Return how much of the surplus each sibling queue gets in addition to its floor.

        Each part is at least 0 and at most `siblings.surplus_demand`. The method is called only if the surplus does not
        satisfy every demand.

        Args:
          siblings: the queues.
          surplus: [R] the amounts to divide.

        Returns:
          [S, R] the amounts that each queue gets.
        """

    def key(self, siblings: SiblingQueues, candidate: IntArray) -> FloatArray:
        """Return a sort key for each sibling queue; the queue with the smallest key comes first.

        The next gang of this queue is tried before those of its siblings. `candidate` [S, R] is what the next gang of
        each sibling needs at least. The result has the shape [S], or [S, K] for a key of K parts, the most significant
        first. Keys are compared only between queues of the same priority with next gangs of the same entitlement class;
        ties are broken by `head`. Each row must depend only on the same row of the siblings: the key of a queue does
        not depend on which other queues are passed.
        """

    def exceeded_resources(self, siblings: SiblingQueues, sibling: int) -> BoolArray:
        """Return for each resource whether the queue at index `sibling` exceeds its entitlement.

        Depending on the policy, a queue is entitled to its fair share, or only to its guarantee.

        Returns:
          [R] booleans.
        """

    def may_reclaim(self, siblings: SiblingQueues, claim: ReclaimRequest) -> bool:
        """Return whether one sibling queue may reclaim resources from another.

        The caller has already checked the guarantees.
        """


class FairSharePolicy:
    """Base class of most sharing policies: divides by weight, and lets a queue reclaim up to its fair share.

    The queue that has borrowed least in relation to its weight is next.
    """

    name = ""
    strict = False
    pooled = False
    remembers = False
    gangs: GangOrderPolicy | None = None

    def divide_surplus(self, siblings: SiblingQueues, surplus: IntArray) -> IntArray:
        """Divide the surplus by weight with water-filling; queues with weight 0 share the rest equally."""
        # A resource without surplus must not enlarge the dominant share of a demand.
        demand = np.where(surplus > 0, siblings.surplus_demand, 0)
        if (demand.sum(axis=0) <= surplus).all():
            return demand
        size, start = self.demand_sizes(siblings, demand), self.initial_fill_levels(siblings)
        parts = np.zeros_like(demand)
        for part, weight in _by_weight(siblings.weight):
            remaining = np.maximum(0, surplus - parts.sum(axis=0))
            pace = weight[part] / np.maximum(size[part], _LEAST)
            real = divide_surplus_by_water_filling(demand[part], remaining, pace, start[part])
            parts[part] = round_to_units(
                real, demand[part], remaining, self.rounding_tie_break_keys(siblings)[part]
            )
        return parts

    def key(self, siblings: SiblingQueues, candidate: IntArray) -> FloatArray:
        """Return the dominant share that each queue would borrow with its next gang, divided by its weight.

        This is max_r (usage + candidate - guarantee)_r / capacity_r / weight.
        """
        borrowed = np.maximum(0, siblings.usage + candidate - siblings.guarantee)
        return shares_per_weight(
            dominant_shares(borrowed, siblings.capacity, siblings.weighed), siblings.weight
        )

    def exceeded_resources(self, siblings: SiblingQueues, sibling: int) -> BoolArray:
        """Return for each resource whether the queue at index `sibling` exceeds its fair share."""
        above: BoolArray = siblings.usage[sibling] > siblings.fair[sibling]
        return above

    def may_reclaim(self, siblings: SiblingQueues, claim: ReclaimRequest) -> bool:
        """Return whether the reclaiming queue stays within its fair share and the victim's queue exceeds its own."""
        after = siblings.usage[claim.reclaimer] + claim.gains
        within = (after <= siblings.fair[claim.reclaimer]) | (claim.gains == 0)
        return bool(
            within.all()
            and (self.exceeded_resources(siblings, claim.victim) & claim.affected_resources).any()
        )

    def demand_sizes(self, siblings: SiblingQueues, demand: IntArray) -> FloatArray:
        """Return the demand of each sibling queue as one number: its dominant share of the cluster.

        Subclasses may compute another number.
        """
        return dominant_shares_with_unweighed_fallback(demand, siblings.capacity, siblings.weighed)

    def initial_fill_levels(self, siblings: SiblingQueues) -> FloatArray:
        """Return the water-filling level below which a queue gets no surplus: here 0 for each queue."""
        return np.zeros(len(siblings))

    def rounding_tie_break_keys(self, siblings: SiblingQueues) -> FloatArray:
        """Return past usage / weight of each queue, by which rounding decides between equal remainders.

        When amounts are rounded to whole units, the queue with the smallest value among equal remainders is rounded up.
        """
        return shares_per_weight(
            dominant_shares(siblings.history, siblings.capacity, siblings.weighed), siblings.weight
        )


def _by_weight(weight: FloatArray) -> list[tuple[IntArray, FloatArray]]:
    """Return the siblings with a weight, then those without: member indices, and weights for all S."""
    weighted, none = np.flatnonzero(weight > 0), np.flatnonzero(weight <= 0)
    parts = [(weighted, weight)] if len(weighted) else []
    return [*parts, (none, np.ones(len(weight)))] if len(none) else parts


class Drf(FairSharePolicy):
    """Weighted Dominant Resource Fairness (DRF): dominant shares of the surplus increase together, by weight.

    Every queue keeps the part of its guarantee that it demands. The surplus is divided along the unmet demand d of
    each queue: at level l, queue q has l · weight_q / D_q of d_q, with D_q = max_r d_qr / capacity_r. All levels rise
    together until a resource is exhausted; queues that demand it stop there, and the others continue. With one
    resource, this is weighted max-min fairness. The queue with the smallest max_r (usage + candidate - guarantee)_r /
    capacity_r / weight is next.

    Invariants: no queue gets more than its demand; no queue gains by demanding more than it uses; a queue that
    demands no more than its weighted part of every resource gets all of it; raising the part of one queue reduces
    that of a queue with no larger part by weight. A queue reclaims up to its fair share from a queue above its own.

    Source: Ghodsi et al., Dominant Resource Fairness: Fair Allocation of Multiple Resource Types, NSDI 2011.
    """

    name = "drf"


class PrioritySharing(FairSharePolicy):
    """Queues of the highest priority come first, up to their whole demand; equal priorities share as under `drf`.

    The surplus is passed from priority to priority. Queues of one priority divide it by dominant share and weight,
    and the remainder goes to the next priority. Within a queue, PodGroups are ordered by their own priority, then by
    submission.

    Invariants: a queue gets surplus only after all queues of higher priority have what they can use; guarantees of
    lower priorities hold nevertheless. A queue reclaims up to its fair share, only from queues of lower or equal
    priority.

    Source: queue priority of Volcano and KAI-Scheduler.
    """

    name = "priority"
    gangs: GangOrderPolicy | None = PriorityOrder()

    @override
    def divide_surplus(self, siblings: SiblingQueues, surplus: IntArray) -> IntArray:
        """Divide the surplus among the queues of the highest priority first, then of the next one, and so on."""
        parts = np.zeros_like(siblings.surplus_demand)
        for members in sibling_indexes_by_priority(siblings.priority):
            parts[members] = super().divide_surplus(
                siblings.select_siblings(members), surplus - parts.sum(axis=0)
            )
        return parts

    @override
    def key(self, siblings: SiblingQueues, candidate: IntArray) -> FloatArray:
        """Return two sort keys for each sibling queue: -priority, then borrowed dominant share per weight."""
        return np.stack([-siblings.priority.astype(np.float64), super().key(siblings, candidate)], axis=1)


def sibling_indexes_by_priority(priority: IntArray) -> list[IntArray]:
    """Return one array of sibling indexes for each queue priority, the highest priority first."""
    return [np.flatnonzero(priority == value) for value in np.unique(priority)[::-1]]


class GuaranteePolicy(FairSharePolicy):
    """Base class of sharing policies that entitle a queue to its guarantee, but to no part of the surplus."""

    @override
    def exceeded_resources(self, siblings: SiblingQueues, sibling: int) -> BoolArray:
        """Return for each resource whether the queue at index `sibling` exceeds its guarantee."""
        above: BoolArray = siblings.usage[sibling] > siblings.guarantee[sibling]
        return above

    @override
    def may_reclaim(self, siblings: SiblingQueues, claim: ReclaimRequest) -> bool:
        """Return False: a queue cannot reclaim surplus, because no queue is entitled to a part of it."""
        return False


class UndividedSurplusPolicy(GuaranteePolicy):
    """A sharing policy that does not divide the surplus: the order of gangs decides which gang uses the surplus.

    The gang orders `sjf`, `saf`, `wfp3`, `f1`, `fcfs` and `headroom` use it as sharing policies. The fair share of each
    queue is all that it can use of the surplus; the parent's share limits the sum.
    The queue of the first gang in the order is next.

    Invariants: guarantees and limits hold; no queue reclaims surplus from a sibling, because no queue is entitled to
    a part of it; a queue below its guarantee still reclaims.
    """

    pooled = True

    def __init__(self, gangs: GangOrderPolicy) -> None:
        self.name = self.name or gangs.name
        self.gangs = gangs

    @override
    def divide_surplus(self, siblings: SiblingQueues, surplus: IntArray) -> IntArray:
        """Return for each sibling queue all of the surplus that it can use; the sum may exceed the surplus."""
        from_pool: IntArray = siblings.surplus_demand.clip(max=surplus)
        return from_pool

    @override
    def key(self, siblings: SiblingQueues, candidate: IntArray) -> FloatArray:
        """Return for each sibling queue the position of its next gang in the order of gangs."""
        return siblings.head


class Fifo(UndividedSurplusPolicy):
    """First come, first served over all PodGroups of a queue's subtree. A PodGroup that does not fit blocks no other.

    The fair share of each queue is all that it can use of the surplus; the parent's share limits the sum.

    Invariants: guarantees and limits hold; no queue reclaims surplus from a sibling; of two gangs that both fit, the
    one submitted first starts first.

    Source: `BestEffortFIFO` of Kueue, `fifo` of YuniKorn.
    """

    name = "fifo"

    def __init__(self) -> None:
        super().__init__(FcfsOrder())


class StrictFifo(Fifo):
    """Strict first come, first served: a PodGroup that does not fit blocks all later ones in the queue's subtree.

    Invariants: no gang starts before a gang of the same subtree that was submitted earlier; otherwise as `fifo`.

    Source: `StrictFIFO` of Kueue.
    """

    name = "strict-fifo"
    strict = True


ENTRY_POINTS: Final = "batchsched.queue_policies"
DEFAULT_SHARING_POLICY: Final = "drf"
"""The policy that applies if no queue sets one."""


def make_sharing_policy(name: str, arguments: Mapping[str, Any]) -> SharingPolicy:
    """Create the sharing policy that has this name, such as `drf`, with these arguments.

    The name of a gang order is allowed as well.

    Raises:
      InvalidInput: the name is not registered, or the policy rejects its arguments.
    """
    classes = registered_policy_classes()
    if name in classes:
        made: SharingPolicy = construct_policy(classes[name], name, arguments)
        return made
    if find_gang_order_class(name) is None:
        names = sorted({*classes, *gang_order_names()})
        raise InvalidInput(f"there is no policy {name!r}; {suggest_name(name, names)}", field="policy.name")
    return UndividedSurplusPolicy(make_gang_order_policy(name, arguments))


@cache
def registered_policy_classes() -> Mapping[str, type]:
    """Return the classes of all registered sharing policies by name.

    Raises:
      PolicyError: the entry point of a policy is wrong.
    """
    return {
        point.name: load_policy_class(point)
        for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda policy: policy.name)
    }
