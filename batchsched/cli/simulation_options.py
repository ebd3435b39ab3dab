"""Command line options that several commands of `batchsched simulate` share."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from batchsched.cli.options import check_writable


class Backfill(StrEnum):
    """The values of `--backfill`: whether a gang may start while a gang ahead of it in the order must wait.

    With `kept`, an announced start of the waiting gang stays, whatever arrives later.
    """

    EASY = "easy"
    KEPT = "kept"
    NONE = "none"


class SelectionChoice(StrEnum):
    """How simulated sessions choose gangs: one by one in the gang order, or jointly by the highest weight."""

    ORDERED = "ordered"
    WEIGHT = "weight"


def _policy_names() -> list[str]:
    """Return the names of the policies that a simulation can use, for completion."""
    from batchsched.queues.gang_order import gang_order_names

    return list(gang_order_names())


Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        autocompletion=_policy_names,
        metavar="NAME[:ARG=VALUE,...]",
        help="The policy that orders gangs, with optional arguments. Repeat the option to compare policies with "
        "the first. Default: fcfs; of `generate`, priority; of `manifests`, that of the profile.",
    ),
]
BackfillOption = Annotated[
    Backfill,
    typer.Option(
        metavar="easy|kept|none",
        help="easy: the head gang reserves its earliest start; gangs behind it may start if they do not delay it. "
        "kept: as easy, but a published start is kept.",
    ),
]
Blocking = Annotated[
    bool, typer.Option(help="Without backfill: a head gang that does not fit blocks all gangs behind it.")
]
SelectionOption = Annotated[
    SelectionChoice,
    typer.Option(
        metavar="ordered|weight",
        help="ordered: the policy's order is strict. weight: the solver chooses by weight.",
    ),
]
Window = Annotated[
    int,
    typer.Option(
        "--session-window", min=1, help="Maximum number of pending gangs, in order, that a session considers."
    ),
]
Interval = Annotated[
    int,
    typer.Option(
        "--session-interval",
        min=0,
        metavar="SECONDS",
        help="Minimum time between two sessions; 0: a session after every change.",
    ),
]
Processes = Annotated[
    int | None,
    typer.Option(min=1, help="Number of parallel runs; default: one per processor.", show_default=False),
]
Report = Annotated[
    Path | None,
    typer.Option(
        "--report",
        metavar="FILE",
        help="Write an HTML report of the runs.",
        dir_okay=False,
        callback=check_writable,
    ),
]
Nodes = Annotated[int, typer.Option("--nodes", min=1, help="Number of nodes.")]
GpusPerNode = Annotated[int, typer.Option("--gpus-per-node", min=1, help="GPUs per node.")]
BetweenFailures = Annotated[
    float | None,
    typer.Option(
        "--hours-between-failures",
        min=0.01,
        max=1_000_000,
        help="Mean time between two failures of a node; default: no failures.",
        show_default=False,
    ),
]
Repair = Annotated[
    float,
    typer.Option(
        "--hours-to-repair", min=0.01, max=1_000_000, help="Mean time until a failed node is ready."
    ),
]
SwfTrace = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="A trace in the Standard Workload Format, optionally gzipped.",
        exists=True,
        dir_okay=False,
    ),
]
Processors = Annotated[
    int | None,
    typer.Option(
        "--processors",
        min=1,
        help="Number of nodes with one processor each; default: the number in the header of the trace.",
        show_default=False,
    ),
]
Rows = Annotated[
    int | None,
    typer.Option(
        "--jobs", min=1, help="Rows per sequence; default: all rows from its start.", show_default=False
    ),
]
Starts = Annotated[
    str | None,
    typer.Option("--starts", metavar="ROW,...", help="First rows of the sequences; rows count from 0."),
]
Windows = Annotated[
    int, typer.Option("--windows", min=0, help="Number of random sequences, instead of --starts.")
]
WindowSeed = Annotated[int, typer.Option("--window-seed", min=0, help="Seed of --windows.")]
WindowBelow = Annotated[
    int | None,
    typer.Option(
        "--window-below",
        min=1,
        help="Random sequences start below this row; default: the last row that leaves a full sequence.",
        show_default=False,
    ),
]
PhillyTrace = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="CSV with timestamp, duration, num_gpus and cluster, optionally gzipped.",
        exists=True,
        dir_okay=False,
    ),
]
VirtualClusters = Annotated[
    Path | None,
    typer.Option(
        "--queues",
        metavar="FILE",
        help="CSV that names the virtual clusters to use in its first column; default: all.",
        exists=True,
        dir_okay=False,
    ),
]
First = Annotated[
    str | None,
    typer.Option("--first", metavar="RFC3339", help="Use only jobs that arrive at this time or later."),
]
Last = Annotated[
    str | None, typer.Option("--last", metavar="RFC3339", help="Use only jobs that arrive up to this time.")
]
Pooled = Annotated[
    bool,
    typer.Option("--pooled/--no-pooled", help="One queue for all jobs, or one queue per virtual cluster."),
]
Gangs = Annotated[int, typer.Option("--gangs", min=1, help="Number of gangs that arrive.")]
Load = Annotated[
    float,
    typer.Option(
        "--load", min=0.01, max=1000, help="Requested GPU seconds divided by available GPU seconds."
    ),
]
Queues = Annotated[int, typer.Option("--queues", min=1, help="Number of queues that submit gangs.")]
Overestimate = Annotated[
    float,
    typer.Option(
        "--overestimate",
        min=0,
        max=1000,
        help="Mean excess of estimates over run times, as a share of the run time.",
    ),
]
Runtime = Annotated[
    int,
    typer.Option(
        "--runtime", min=0, metavar="SECONDS", help="Run time of gangs without expectedRuntimeSeconds."
    ),
]
