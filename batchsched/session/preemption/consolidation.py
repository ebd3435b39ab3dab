"""Moving: gangs leave so that their room is in one place, and all of them find another at once.

Only whole gangs are moved. That they find a place is asked of the greedy, over the nodes without them and with whoever
they leave for: quotas and levels hold, and rules that are no rows are the pipeline's when they come again.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from batchsched.api.core.pod import Pod
from batchsched.session.joint.formulation import SessionContext, formulate
from batchsched.session.preemption.candidates import EvictionUnit, VictimCandidate
from batchsched.session.preemption.constraints import EvictionLimit
from batchsched.session.tables.gang import PendingGang, PodGroupState
from batchsched.solver.greedy import solve_greedy

CONSOLIDATED: Final = "Consolidated"
"""Why a pod is evicted that is to find another place at once."""


def movable(gang: PendingGang, tenants: Iterable[VictimCandidate]) -> list[EvictionLimit]:
    """Name who may be moved for a gang: ours, of no higher priority, and disrupted as one."""
    return [
        EvictionLimit(tenant.units[0], CONSOLIDATED)
        for tenant in tenants
        if len(tenant.units) == 1 and tenant.priority <= gang.priority and tenant.units[0].total.any()
    ]


def all_find_a_place(context: SessionContext, units: Sequence[EvictionUnit]) -> bool:
    """Tell whether gangs that left all fit again, as things stand without them."""
    gangs = [context.tables.pending_gang(_waiting(unit)) for unit in units]
    formulation = formulate(context, gangs, min(gang.created for gang in gangs))
    solution = solve_greedy(formulation.problem)
    placed = int(solution.counts.sum())
    return not formulation.failures and placed == sum(gang.size for gang in gangs)


def _waiting(unit: EvictionUnit) -> PodGroupState:
    """The gang as if its pods had just been made anew."""
    pods = {pod.key: _unbound(pod) for pod, _ in unit.pods}
    return PodGroupState(unit.members.identity, unit.members.group, pending=pods)


def _unbound(pod: Pod) -> Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))
