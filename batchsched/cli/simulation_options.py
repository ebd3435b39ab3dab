"""Arguments of `batchsched simulate` that several of its commands take, stated once."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from batchsched.cli.options import writable


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
    typer.Option(
        "--report",
        metavar="FILE",
        help="Write an HTML report of the runs.",
        dir_okay=False,
        callback=writable,
    ),
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
SwfTrace = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="A trace in the Standard Workload Format, possibly gzipped.",
        exists=True,
        dir_okay=False,
    ),
]
Processors = Annotated[
    int | None,
    typer.Option(
        "--processors",
        min=1,
        help="One-slot nodes; default: what the trace's header states.",
        show_default=False,
    ),
]
Rows = Annotated[
    int | None,
    typer.Option(
        "--jobs", min=1, help="Rows in each sequence; default: all that follow.", show_default=False
    ),
]
Starts = Annotated[
    str | None,
    typer.Option("--starts", metavar="ROW,...", help="Rows at which sequences begin, the first row is 0."),
]
Windows = Annotated[
    int, typer.Option("--windows", min=0, help="Draw so many sequences, instead of --starts.")
]
WindowSeed = Annotated[int, typer.Option("--window-seed", min=0, help="Of the draw.")]
WindowBelow = Annotated[
    int | None,
    typer.Option(
        "--window-below",
        min=1,
        help="Draw rows below; default: every row that a sequence fits behind.",
        show_default=False,
    ),
]
PhillyTrace = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="CSV with timestamp, duration, num_gpus and cluster, possibly gzipped.",
        exists=True,
        dir_okay=False,
    ),
]
VirtualClusters = Annotated[
    Path | None,
    typer.Option(
        "--queues",
        metavar="FILE",
        help="CSV whose first column names the clusters that count; default: all.",
        exists=True,
        dir_okay=False,
    ),
]
First = Annotated[
    str | None, typer.Option("--first", metavar="RFC3339", help="Arrivals from this moment on.")
]
Last = Annotated[str | None, typer.Option("--last", metavar="RFC3339", help="Arrivals up to this moment.")]
Pooled = Annotated[
    bool, typer.Option("--pooled/--no-pooled", help="One queue for all, or a queue for each virtual cluster.")
]
Gangs = Annotated[int, typer.Option("--gangs", min=1, help="Gangs that arrive.")]
Load = Annotated[
    float, typer.Option("--load", min=0.01, help="GPU seconds that arrive ÷ those that the cluster has.")
]
Queues = Annotated[int, typer.Option("--queues", min=1, help="Queues that submit.")]
Overestimate = Annotated[
    float,
    typer.Option(
        "--overestimate", min=0, help="Mean of what estimates exceed run times by, as a share of them."
    ),
]
Runtime = Annotated[
    int,
    typer.Option(
        "--runtime", min=0, metavar="SECONDS", help="Run time of gangs that state no expectedRuntimeSeconds."
    ),
]
