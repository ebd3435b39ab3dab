"""Pictures of concepts: drawn as SVG from text and from the tables of the code."""

import itertools
from typing import Final

from batchsched.api.gang import MOVES as CHANGES
from batchsched.scheduling_queue import entity
from batchsched.scheduling_queue.entity import QueueState
from docs.generate.boxes import Arrow, Box, Grid, draw

_START: Final = "start"

_PHASES: Final = {
    "Pending": (0.55, 1),
    "Reserved": (1.55, 1),
    "Held": (2.05, 2),
    "Scheduled": (2.55, 1),
    "Running": (3.55, 1),
    "Succeeded": (4.55, 0.5),
    "Failed": (4.55, 1.5),
}
"""Column and row of each phase of a gang."""
_PHASE_BENDS: Final = {
    ("Reserved", "Pending"): 30,
    ("Scheduled", "Pending"): -84,
    ("Running", "Pending"): -146,
    ("Held", "Pending"): 44,
}

_QUEUE_PLACES: Final = {
    QueueState.NEW: (0.4, 1),
    QueueState.ACTIVE: (1.2, 1),
    QueueState.IN_FLIGHT: (2.4, 1),
    QueueState.UNSCHEDULABLE: (3.6, 1),
    QueueState.GATED: (1.8, 0),
    QueueState.BACKOFF: (1.8, 2),
    QueueState.GONE: (3, 2),
}
"""Column and row of each state of the scheduling queue."""
_QUEUE_BENDS: Final = {
    (QueueState.UNSCHEDULABLE, QueueState.ACTIVE): -50,
    (QueueState.IN_FLIGHT, QueueState.BACKOFF): 14,
    (QueueState.BACKOFF, QueueState.IN_FLIGHT): 14,
}


def queue_tree() -> str:
    """The tree of queues of docs/queues.md, with the fair shares of its example."""
    boxes = (
        Box("cluster", ("cluster", "96 GPUs"), 1.5, 0),
        Box("research", ("research", "guarantee 48, weight 2", "fair share 60"), 0.5, 1),
        Box("product", ("product", "guarantee 24, limit 40", "fair share 30"), 1.5, 1),
        Box("students", ("students", "no guarantee", "fair share 6"), 2.5, 1),
        Box("vision", ("vision", "no guarantee", "fair share 52"), 0, 2),
        Box("language", ("language", "guarantee 16, lends 8", "fair share 8"), 1, 2),
    )
    arrows = (
        Arrow("cluster", "research"),
        Arrow("cluster", "product"),
        Arrow("cluster", "students"),
        Arrow("research", "vision"),
        Arrow("research", "language"),
    )
    return draw("A tree of queues with guarantees and fair shares", boxes, arrows)


def session() -> str:
    """The steps of a session, from the objects of a cluster to the decision."""
    steps = (
        ("snapshot", ("Snapshot", "nodes, pods,", "PodGroups, queues")),
        ("queues", ("Queues", "fair shares give", "the order of gangs")),
        ("plugins", ("Plugins", "filter and score", "nodes for each gang")),
        ("solver", ("Solver", "chooses nodes", "for all gangs together")),
        ("decision", ("Decision", "pods to bind, evictions,", "explained refusals")),
    )
    boxes = tuple(Box(name, lines, number, 0) for number, (name, lines) in enumerate(steps))
    arrows = [Arrow(start.name, end.name) for start, end in itertools.pairwise(boxes)]
    return draw("What a session does", boxes, arrows)


def workload() -> str:
    """The way from a workload to bound pods, or to a reason."""
    boxes = (
        Box("workload", ("PyTorchJob", "1 master, 3 workers"), 0, 0.5),
        Box("pods", ("4 pods", "schedulerName: batchsched"), 1, 0),
        Box("group", ("PodGroup", "minMember: 4,", "queue, topology"), 1, 1),
        Box("session", ("Session",), 2, 0.5),
        Box("bound", ("All 4 pods are bound",), 3, 0),
        Box("pending", ("No pod is bound", "the PodGroup states", "the reason"), 3, 1),
    )
    arrows = (
        Arrow("workload", "pods", "its controller"),
        Arrow("workload", "group", "batchsched"),
        Arrow("pods", "session"),
        Arrow("group", "session"),
        Arrow("session", "bound", "room for 4 pods"),
        Arrow("session", "pending", "otherwise"),
    )
    return draw("From a workload to bound pods", boxes, arrows, Grid(width=184, column_gap=120, row_gap=30))


def gang_phases() -> str:
    """The phases of a gang, with an arrow for each change of the table."""
    boxes = [Box(_START, (), 0, 1, round=True)]
    boxes += [Box(phase, (phase,), column, row) for phase, (column, row) in _PHASES.items()]
    arrows = [Arrow(_START, "Pending")]
    for (phase, change), after in CHANGES.items():
        bend = _PHASE_BENDS.get((phase.value, after.value), 0)
        arrows.append(Arrow(phase.value, after.value, change.value, bend))
    return draw("Phases of a gang", boxes, arrows, Grid(width=96, column_gap=84, row_gap=56, margin=64))


def queue_states() -> str:
    """The states of the scheduling queue: an arrow for each move, except that pods are deleted in any state."""
    boxes = [
        Box(state, () if state is QueueState.NEW else (str(state),), *place, round=state is QueueState.NEW)
        for state, place in _QUEUE_PLACES.items()
    ]
    arrows = [
        Arrow(start, end, bend=_QUEUE_BENDS.get((start, end), 0))
        for start, end in entity.MOVES
        if end is not QueueState.GONE or start is QueueState.IN_FLIGHT
    ]
    return draw("States of the scheduling queue", boxes, arrows, Grid(width=112, column_gap=60, row_gap=64))


def extension_points() -> str:
    """The extension points of a pod, in the order of their calls."""
    rows = (
        ("PreEnqueue", "QueueSort", "PreFilter", "Filter", "PostFilter"),
        ("Constrain", "Reserve", "NormalizeScore", "Score", "PreScore"),
        ("Unreserve", "Permit", "PreBind", "Bind", "PostBind"),
    )
    boxes = [
        Box(name, (name,), column, row) for row, names in enumerate(rows) for column, name in enumerate(names)
    ]
    arrows = (
        Arrow("PreEnqueue", "QueueSort"),
        Arrow("QueueSort", "PreFilter"),
        Arrow("PreFilter", "Filter"),
        Arrow("Filter", "PostFilter", "none fits"),
        Arrow("Filter", "PreScore", "a node fits"),
        Arrow("PreScore", "Score"),
        Arrow("Score", "NormalizeScore"),
        Arrow("NormalizeScore", "Reserve"),
        Arrow("Constrain", "Reserve", "solver", dashed=True),
        Arrow("Reserve", "Permit"),
        Arrow("Reserve", "Unreserve", "refused"),
        Arrow("Permit", "Unreserve", "refused"),
        Arrow("Permit", "Permit", "wait", bend=-1),
        Arrow("Permit", "PreBind", "allowed"),
        Arrow("PreBind", "Bind"),
        Arrow("Bind", "PostBind"),
    )
    return draw(
        "Extension points of a pod", boxes, arrows, Grid(width=124, column_gap=84, row_gap=48, margin=44)
    )
