"""Dominant resource fairness, the default sharing policy."""

from batchsched.queues.sharing.policy import FairShare


class Drf(FairShare):
    """Weighted dominant resource fairness by water-filling.

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
