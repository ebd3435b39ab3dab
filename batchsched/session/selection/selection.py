"""The selection of one session: held gangs first, then one proposer for all pending gangs."""

from collections.abc import Sequence

from batchsched.api.snapshot import HeldGang
from batchsched.session.gangs.permit_waiting import revisit
from batchsched.session.refusals.diagnosis import refuse_at_permit, refuse_without_nodes
from batchsched.session.selection.in_order import InOrderProposer
from batchsched.session.selection.joint import JointWindowProposer
from batchsched.session.selection.pod_by_pod import PodByPodProposer
from batchsched.session.selection.selection_run import Proposer, SelectionRun
from batchsched.session.tables.pending import OrderedGangs


def revisit_held_gangs(run: SelectionRun, held: Sequence[HeldGang]) -> frozenset[str]:
    """Ask Permit again for gangs that wait there, before any other gang can take their nodes.

    Returns:
      Identities of the gangs that were asked; they do not take part in the selection.
    """
    deadlines = {held_gang.pod_group: held_gang.until for held_gang in reversed(held)}
    placements = revisit(run.tables, run.statement, held, run.now)
    for placement in placements:
        if placement.refusal.ok:
            run.builder.placements.append(placement)
        else:
            timed_out = run.now >= deadlines.get(placement.gang.key, float("inf"))
            run.builder.refusals.append(refuse_at_permit(placement, timed_out=timed_out))
    return frozenset(placement.gang.members.identity for placement in placements)


def select_gangs(run: SelectionRun, pending: OrderedGangs) -> None:
    """Place pending gangs in the way that the profile asks for.

    Args:
      run: the session; its builder receives placements, evictions and refusals.
      pending: the gangs that take part, in the policy's order.
    """
    if not run.tables.node_table.nodes:
        run.builder.refusals += [refuse_without_nodes(members) for members in pending.members]
        return
    _proposer(run).select(pending)


def _proposer(run: SelectionRun) -> Proposer:
    if not run.profile.solver.enabled:
        return PodByPodProposer(run)
    if run.profile.selection == "ordered":
        return InOrderProposer(run)
    return JointWindowProposer(run)
