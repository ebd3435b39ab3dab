"""Held gangs: those that a Permit plugin made wait in an earlier session, asked again before anything else."""

from collections.abc import Iterable

from batchsched.api.gang_identity import SINGLE_POD_PREFIX
from batchsched.api.snapshot import HeldGang
from batchsched.framework.status import Code, Status
from batchsched.session.placement.statement import GangPlacement, PlannedPods, Statement
from batchsched.session.tables.frame import Frame
from batchsched.session.tables.gang import PendingGang

TIMED_OUT = "the gang waited at Permit longer than scheduleTimeoutSeconds"


def revisit(frame: Frame, walk: Statement, held: Iterable[HeldGang], now: float) -> tuple[GangPlacement, ...]:
    """Walk held gangs over the nodes where they hold their places.

    Returns: for each, what became of it: let go, held on until its first deadline, or refused. One whose time is
    over is unreserved, the last pod first.
    """
    return tuple(walked for one in held if (walked := _revisit(frame, walk, one, now)) is not None)


def _revisit(frame: Frame, walk: Statement, held: HeldGang, now: float) -> GangPlacement | None:
    members = frame.gangs.get(held.pod_group) or frame.gangs.get(SINGLE_POD_PREFIX + held.pod_group)
    if members is None or not members.pending:
        return None
    gang = frame.gang(members)
    mark = walk.mark()
    walked = walk.gang(gang, _shares(frame, gang, held))
    if walked.refusal.ok and not walked.placed:  # its nodes are gone: it queues again like any other
        return None
    if now >= held.until and walked.held_by:
        walk.undo(mark)
        walked.refusal = Status(Code.UNSCHEDULABLE, (TIMED_OUT,), held.plugin)
        walked.held_by = ""
    elif walked.held_by:
        walked.until = min(walked.until, held.until)
    return walked


def _shares(frame: Frame, gang: PendingGang, held: HeldGang) -> list[PlannedPods]:
    places = {one.pod: frame.table.index.get(one.node, -1) for one in held.pods}
    shares = []
    for part in gang.parts:
        pods = tuple(pod for pod in part.pods if places.get(pod.key, -1) >= 0)
        if pods:
            nodes = tuple(places[pod.key] for pod in pods)
            shares.append(
                PlannedPods(type(part)(part.pod_class, part.subgroup, pods), nodes, (1,) * len(pods))
            )
    return shares
