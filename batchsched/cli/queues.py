"""`batchsched queues`: the amounts and entitlements of queues, and the reasons why their gangs wait."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from batchsched.cli.options import (
    Config,
    Context,
    Format,
    Kubeconfig,
    Now,
    Output,
    ProfileName,
    Seed,
    check_files_exist,
)

if TYPE_CHECKING:
    from batchsched.cli.session import DecidedSession
    from batchsched.session.queue_report import QueuesReport

EXAMPLES = """Examples:

batchsched queues

batchsched queues --resource nvidia.com/gpu

batchsched queues explain team-a

batchsched queues explain research examples/ -o json
"""
EXPLAIN = "explain"


def queues(
    subject: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[explain NAME] [FILE]...",
            help="explain NAME prints why the gangs of one queue wait. Manifests, as for decide, replace the cluster.",
            show_default=False,
        ),
    ] = None,
    resource: Annotated[
        str | None,
        typer.Option(
            "--resource",
            "-r",
            metavar="NAME",
            help="The resource to show; default: the one with the highest demand relative to its capacity.",
            show_default=False,
        ),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    config: Config = None,
    profile: ProfileName = None,
    seed: Seed = 0,
    now: Now = None,
    output: Format = Output.TABLE,
) -> None:
    """Show the tree of queues: guarantee, fair share, allocated, borrowed, pending, and the longest wait.

    Without files the command lists the cluster in its current state and writes nothing. Use the configuration of the
    running scheduler. A full bar is the capacity of the cluster.
    """
    from batchsched.cli.live import ClusterAccess, live_session
    from batchsched.cli.printing import print_data
    from batchsched.cli.queue_tables import explain_queue, print_queue_explanation, print_queues
    from batchsched.cli.session import run_session
    from batchsched.session.queue_report import report_queues

    name, files = _split_arguments(subject or [])
    if files:
        session = run_session(check_files_exist([Path(path) for path in files]), config, profile, seed, now)
    else:
        session = live_session(ClusterAccess(kubeconfig, context, config, profile), seed)
    view = report_queues(session.snapshot, session.profile, session.now)
    if resource is not None and resource not in view.capacity:
        raise typer.BadParameter(
            f"no node has {resource!r}; expected one of {', '.join(sorted(view.capacity))}"
        )
    if name is not None:
        explanation = explain_queue(_check_queue_name(name, view, session), view, session.decision)
        print_queue_explanation(explanation) if output is Output.TABLE else print_data(explanation, output)
    elif output is Output.TABLE:
        print_queues(view, resource)
    else:
        print_data(view, output)
    raise typer.Exit(session.exit_code)


def _split_arguments(subject: list[str]) -> tuple[str | None, list[str]]:
    """Split the arguments into the queue to explain, None for the whole tree, and the files.

    Raises:
      BadParameter: `explain` has no queue name, or the only file does not exist.
    """
    if len(subject) == 1 and subject[0] != EXPLAIN and not Path(subject[0]).exists() and subject[0] != "-":
        raise typer.BadParameter(
            f"there is no file {subject[0]!r}; for one queue: batchsched queues explain {subject[0]}"
        )
    if not subject or subject[0] != EXPLAIN or Path(EXPLAIN).exists():
        return None, subject
    if len(subject) < 2:
        raise typer.BadParameter("which queue? Expected batchsched queues explain NAME")
    return subject[1], subject[2:]


def _check_queue_name(name: str, view: "QueuesReport", session: "DecidedSession") -> str:
    """Return the name of a queue, after checking that the view contains it.

    Raises:
      BadParameter: there is no queue of that name, or it was set aside.
    """
    from batchsched.api.crd.validation import nearest

    names = [queue.name for queue in view.queues]
    if name in names:
        return name
    for aside in session.decision.set_aside:
        if aside.object == f"Queue {name}":
            raise typer.BadParameter(f"{aside.object} was set aside: {aside.field}: {aside.message}")
    raise typer.BadParameter(f"there is no Queue {name!r}; {nearest(name, names)}")
