"""Consolidation: gangs are moved to other nodes so that the free room is in one place.

Only whole gangs are moved, and only if all of them fit elsewhere at once. The greedy answers that, over the nodes
without the moved gangs and with the gang that they make room for. Quotas and topology levels are respected; rules
that are not rows of the problem are checked by the pipeline once the moved gangs are pending again.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from batchsched.api.core.pod import Pod
from batchsched.session.joint.formulation import SessionContext, formulate
from batchsched.session.preemption.candidates import EvictionUnit, VictimCandidate
from batchsched.session.preemption.constraints import EvictionOption
from batchsched.session.tables.gang import PendingGang, PodGroupState
from batchsched.solver.greedy import solve_greedy

CONSOLIDATED: Final = "Consolidated"
"""Eviction reason of a pod that fits on another node at once."""


def list_movable(gang: PendingGang, candidates: Iterable[VictimCandidate]) -> list[EvictionOption]:
    """Return the options to move gangs for a pending gang.

    A gang may be moved if it counts against a queue, has no higher priority, and is disrupted as a whole.
    """
    return [
        EvictionOption(candidate.units[0], CONSOLIDATED)
        for candidate in candidates
        if len(candidate.units) == 1
        and candidate.priority <= gang.priority
        and candidate.units[0].total.any()
    ]


def all_fit_elsewhere(context: SessionContext, units: Sequence[EvictionUnit]) -> bool:
    """Return True if the gangs of all units fit at once on the nodes as the tables show them now.

    Args:
      context: the session; its node table is without the units.
      units: the gangs to move, each as a single unit.
    """
    gangs = [context.tables.pending_gang(_as_pending(unit)) for unit in units]
    formulation = formulate(context, gangs, min(gang.created for gang in gangs))
    solution = solve_greedy(formulation.problem)
    placed = int(solution.counts.sum())
    # All pods, not the minimum only: a moved gang must not lose pods that it had.
    return not formulation.failures and placed == sum(gang.size for gang in gangs)


def _as_pending(unit: EvictionUnit) -> PodGroupState:
    """Return the gang of a unit as it is once its controller has created the evicted pods again."""
    pods = {pod.key: _unbound(pod) for pod, _ in unit.pods}
    return PodGroupState(unit.members.identity, unit.members.group, pending=pods)


def _unbound(pod: Pod) -> Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))
