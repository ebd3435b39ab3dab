"""Gangs that a Permit plugin made wait in an earlier session; they are processed before all others."""

from collections.abc import Iterable

from batchsched.api.gang import SINGLE_POD_PREFIX
from batchsched.api.snapshot import HeldGang
from batchsched.framework.status import Code, Status
from batchsched.session.placement.statement import GangPlacement, PlannedPods, Statement
from batchsched.session.tables.gang import PendingGang
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
