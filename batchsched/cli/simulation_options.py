"""Arguments of `batchsched simulate` that several of its commands take, stated once."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Backfill(StrEnum):
    """What gangs behind a head that does not fit may do."""

    EASY = "easy"
    NONE = "none"


class Selection(StrEnum):
    """How a session chooses."""

    ORDERED = "ordered"
    WEIGHT = "weight"


Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        metavar="NAME[:ARG=VALUE,...]",
        help="The order of gangs, with arguments where wanted; several are compared with the first.",
    ),
]
BackfillOption = Annotated[
    Backfill,
    typer.Option(
        help="easy: the head reserves its earliest start, and gangs behind it may start if they do not delay it."
    ),
]
Blocking = Annotated[
    bool, typer.Option(help="Without backfill: a head that does not fit blocks all behind it.")
]
SelectionOption = Annotated[
    Selection,
    typer.Option(help="ordered: the policy's order is strict. weight: the solver chooses by weight."),
]
Window = Annotated[
    int, typer.Option("--session-window", min=1, help="How many waiting gangs, in order, a session looks at.")
]
Interval = Annotated[
    int,
    typer.Option(
        "--session-interval",
        min=0,
        metavar="SECONDS",
        help="Least time between two sessions; 0: one whenever something happened.",
    ),
]
Processes = Annotated[
    int | None, typer.Option(min=1, help="Runs at a time; default: one a processor.", show_default=False)
]
Report = Annotated[
    Path | None,
    typer.Option("--report", metavar="FILE", help="Write an HTML report of the runs.", dir_okay=False),
]
Nodes = Annotated[int, typer.Option("--nodes", min=1, help="Nodes of the cluster.")]
GpusPerNode = Annotated[int, typer.Option("--gpus-per-node", min=1, help="Devices of each node.")]
BetweenFailures = Annotated[
    float | None,
    typer.Option(
        "--hours-between-failures",
        min=0.01,
        help="Mean time between two failures of a node; none fails without it.",
        show_default=False,
    ),
]
Repair = Annotated[float, typer.Option("--hours-to-repair", min=0.01, help="Mean time until a node is back.")]
