"""`batchsched decide`: decide one session over manifests, and print the decision."""

from pathlib import Path
from typing import Annotated

import typer

from batchsched.cli.options import (
    Config,
    Files,
    ListFormat,
    NoHeaders,
    Now,
    OutputFormat,
    ProfileName,
    SessionSeed,
    check_replaces_only_dump_or_session,
)

EXAMPLES = """Examples:

batchsched decide examples/

batchsched decide cluster.yaml jobs.json.gz -o json

batchsched decide examples/ -o jsonpath='{range .refusals[*]}{.podGroup}{"\\t"}{.reason}{"\\n"}{end}'

batchsched decide cluster.yaml job.yaml

batchsched dump --to cluster.json.gz && batchsched decide cluster.json.gz
"""


def decide(
    files: Files,
    config: Config = None,
    profile: ProfileName = None,
    seed: SessionSeed = None,
    now: Now = None,
    output: ListFormat = OutputFormat.TABLE,
    no_headers: NoHeaders = False,
    record: Annotated[
        Path | None,
        typer.Option(
            "--record",
            metavar="FILE",
            help="Write the session to this file, for replay.",
            dir_okay=False,
            callback=check_replaces_only_dump_or_session,
        ),
    ] = None,
    timings: Annotated[
        bool,
        typer.Option(
            "--timings",
            help="Add the durations of the session and its stages to JSON and YAML, and print those of plugin calls, "
            "sampled in a tenth of the cycles, on standard error.",
        ),
    ] = False,
) -> None:
    """Decide one session over manifests, and print which pods are bound, evicted, waiting at Permit, or refused.

    The command reads Nodes, bound and pending Pods, PodGroups, Queues, Topologies, PriorityClasses,
    PodDisruptionBudgets and volumes. It ignores other kinds, and it writes to no cluster. For Jobs, JobSets,
    PyTorchJobs and other owners that no API server has created yet, it adds the pods that their controllers would
    create.

    It also reads a dump of `batchsched dump`, or a recorded session, and adds the objects of further files to it. The
    time is then that of the dump or session, and a session states its profile and seed too, unless options differ.
    """
    from batchsched.cli.session import decide_session_over_files

    session = decide_session_over_files(files, config, profile, seed, now)
    if record is not None:
        from batchsched.cli.record import write_session

        write_session(session, record)
    session = session.with_explained_refusals()
    if timings:
        from batchsched.cli.printing import print_plugin_timings

        print_plugin_timings(session.timings)
    if output.is_table or output is OutputFormat.NAME:
        from batchsched.cli.printing import print_decision

        print_decision(session, output, headers=not no_headers)
    else:
        from batchsched.cli.printing import print_data

        print_data(session.decision_with_durations() if timings else session.decision, output)
    raise typer.Exit(session.exit_code)
