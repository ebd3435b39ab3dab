"""The selection of one session: held gangs first, then one proposer for all pending gangs."""

from collections.abc import Iterable, Sequence

from batchsched.api.gang_identity import SINGLE_POD_PREFIX
from batchsched.api.snapshot import HeldGang
from batchsched.framework.status import Code, Status
from batchsched.session.refusals import refuse_at_permit, refuse_without_nodes
from batchsched.session.selection.in_order import InOrderProposer
from batchsched.session.selection.joint import JointWindowProposer
from batchsched.session.selection.pod_by_pod import PodByPodProposer
from batchsched.session.selection.selection_run import Proposer, SelectionRun
from batchsched.session.statement import GangPlacement, PlannedPods, Statement
from batchsched.session.tables.gang import PendingGang
from batchsched.session.tables.pending import OrderedGangs
from batchsched.session.tables.session_tables import SessionTables

PERMIT_TIMEOUT_MESSAGE = "the gang waited at Permit longer than scheduleTimeoutSeconds"


def revisit(
    tables: SessionTables, statement: Statement, held: Iterable[HeldGang], now: float
) -> tuple[GangPlacement, ...]:
    """Place waiting gangs on their nodes again, and ask Permit again.

    Returns: the placements: allowed, waiting until the first deadline, or refused. If the time of a gang is over, its
    pods are unreserved, the last one first.
    """
    return tuple(walked for one in held if (walked := _revisit(tables, statement, one, now)) is not None)


def _revisit(tables: SessionTables, statement: Statement, held: HeldGang, now: float) -> GangPlacement | None:
    members = tables.gangs.get(held.pod_group) or tables.gangs.get(SINGLE_POD_PREFIX + held.pod_group)
    if members is None or not members.pending:
        return None
    gang = tables.pending_gang(members)
    mark = statement.checkpoint()
    walked = statement.place_gang(gang, _shares(tables, gang, held))
    if (
        walked.refusal.ok and not walked.placed
    ):  # its nodes no longer exist: it is pending like any other gang
        return None
    if now >= held.until and walked.held_by:
        statement.roll_back_to(mark)
        walked.refusal = Status(Code.UNSCHEDULABLE, (PERMIT_TIMEOUT_MESSAGE,), held.plugin)
        walked.held_by = ""
    elif walked.held_by:
        walked.until = min(walked.until, held.until)
    return walked


def _shares(tables: SessionTables, gang: PendingGang, held: HeldGang) -> list[PlannedPods]:
    places = {one.pod: tables.node_table.index.get(one.node, -1) for one in held.pods}
    shares = []
    for part in gang.parts:
        pods = tuple(pod for pod in part.pods if places.get(pod.key, -1) >= 0)
        if pods:
            nodes = tuple(places[pod.key] for pod in pods)
            shares.append(
                PlannedPods(type(part)(part.pod_class, part.subgroup, pods), nodes, (1,) * len(pods))
            )
    return shares


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
