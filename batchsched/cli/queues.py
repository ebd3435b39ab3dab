"""`batchsched queues`: who has what, who is entitled to what, and why a team waits."""

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
    existing,
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
            help="With explain, one queue: why its gangs wait. Files, as decide reads them, stand for the cluster.",
            show_default=False,
        ),
    ] = None,
    resource: Annotated[
        str | None,
        typer.Option(
            "--resource",
            "-r",
            metavar="NAME",
            help="What is compared; default: what is asked for most, of what there is.",
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

    Without files it is that of the cluster, as it is now; it is listed, and nothing is written. Use the
    configuration of the running scheduler. A bar is as long as the cluster is large.
    """
    from batchsched.cli.live import ClusterAccess, live_session
    from batchsched.cli.printing import print_data
    from batchsched.cli.queue_tables import explained, print_explained, print_queues
    from batchsched.cli.session import run_session
    from batchsched.session.queue_report import report_queues

    name, files = _named(subject or [])
    if files:
        session = run_session(existing([Path(one) for one in files]), config, profile, seed, now)
    else:
        session = live_session(ClusterAccess(kubeconfig, context, config, profile), seed)
    view = report_queues(session.snapshot, session.profile, session.now)
    if resource is not None and resource not in view.capacity:
        raise typer.BadParameter(f"no node has {resource!r}; there are {', '.join(sorted(view.capacity))}")
    if name is not None:
        found = explained(_known(name, view, session), view, session.decision)
        print_explained(found) if output is Output.TABLE else print_data(found, output)
    elif output is Output.TABLE:
        print_queues(view, resource)
    else:
        print_data(view, output)
    raise typer.Exit(session.exit_code)


def _named(subject: list[str]) -> tuple[str | None, list[str]]:
    """Tell the queue to explain, None for the tree, from the files.

    Raises:
      BadParameter: nobody says which queue, or the only file is not there.
    """
    if len(subject) == 1 and subject[0] != EXPLAIN and not Path(subject[0]).exists() and subject[0] != "-":
        raise typer.BadParameter(
            f"there is no file {subject[0]!r}; for one queue: batchsched queues explain {subject[0]}"
        )
    if not subject or subject[0] != EXPLAIN or Path(EXPLAIN).exists():
        return None, subject
    if len(subject) < 2:
        raise typer.BadParameter("explain which queue? Expected batchsched queues explain NAME")
    return subject[1], subject[2:]


def _known(name: str, view: "QueuesReport", session: "DecidedSession") -> str:
    """Return the name of a queue.

    Raises:
      BadParameter: there is none of that name, or it was set aside.
    """
    from batchsched.api.crd.validation import nearest

    known = [one.name for one in view.queues]
    if name in known:
        return name
    for aside in session.decision.set_aside:
        if aside.object == f"Queue {name}":
            raise typer.BadParameter(f"{aside.object} was set aside: {aside.field}: {aside.message}")
    raise typer.BadParameter(f"there is no Queue {name!r}; {nearest(name, known)}")
