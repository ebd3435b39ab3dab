"""Dominant resource fairness, the default."""

from batchsched.queues.sharing.policy import FairShare


class Drf(FairShare):
    """Weighted dominant resource fairness by water-filling.

    Every queue keeps its guarantee as far as it wants it. The surplus is divided along each queue's unmet demand d:
    at level l queue q has l · weight_q / D_q of d_q, with D_q = max_r d_qr / capacity_r; all rise together until a
    resource is spent, whoever wants of that stops, the others go on. With one resource this is weighted max-min
    fairness. Who is next: the smallest max_r (usage + candidate - guarantee)_r / capacity_r / weight.

    Invariants: nobody gets more than it asked; no queue gains by asking for more than it uses; whoever asks for no
    more than its weighted part of every resource gets all of it; raising one queue's part takes from one that
    has, by weight, no more. A queue reclaims up to its fair share from one above its own.

    Source: Ghodsi et al., Dominant Resource Fairness: Fair Allocation of Multiple Resource Types, NSDI 2011.
    """

    name = "drf"
