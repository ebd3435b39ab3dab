"""`batchsched queues`: print the usage and fair shares of queues, and the reasons why their gangs wait."""

import sys
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from batchsched.api.core.quantity import format_quantity
from batchsched.api.decision import Decision, Refusal, refusal_text
from batchsched.cli.options import (
    Config,
    Context,
    Kubeconfig,
    ListFormat,
    NoHeaders,
    Now,
    OutputFormat,
    ProfileName,
    SessionSeed,
    check_no_cluster_options,
)
from batchsched.cli.printing import (
    COLUMN_GAP,
    NONE,
    UNKNOWN,
    column_widths,
    format_duration,
    format_resource_amounts,
    output_width,
    print_aligned,
    print_data,
)

if TYPE_CHECKING:
    from batchsched.cli.session import DecidedSession
    from batchsched.session.queue_report import Amounts, PendingGangReport, QueueReport, QueueTreeReport

EXAMPLES = """Examples:

batchsched queues

batchsched queues --resource nvidia.com/gpu

batchsched queues explain team-a

batchsched queues explain research examples/ -o json
"""
EXPLAIN = "explain"
WIDTH = 24
"""Characters of a bar; the full bar is the capacity of the cluster."""
OWN, BORROWED, PENDING, FAIR = "█", "▓", "░", "│"
MOST_GANGS = 10
LEGEND = f"{OWN} allocated  {BORROWED} above the guarantee  {PENDING} pending  {FAIR} fair share  GANGS running+pending"
SHARES = {
    "guarantee": "inside the guarantee of its queue or of an ancestor: it is scheduled before all borrowing gangs",
    "fair": "inside the fair share of its queue: it is scheduled before all borrowing gangs",
    "borrowing": "beyond the fair share of its queue: it uses capacity that no entitled queue requests",
    "all": "no queue is entitled to a part of the cluster: priority and age decide",
}
_NO_ENTITLEMENT: Final = (
    "No Queue sets spec.guarantee, spec.weight, spec.priority or spec.policy, and the profile has no queuePolicy, so "
    "queues do not divide the cluster. Set spec.guarantee or spec.weight of a Queue to entitle its gangs to capacity."
)
"""The advice for gangs of the entitlement class `all`."""
_AMOUNT_TITLES: Final = ("ALLOCATED", "GUARANTEE", "FAIR", "BORROWED", "PENDING", "LIMIT")
_LEFT_OUT_FIRST: Final = ("", "BORROWED", "WAIT", "GUARANTEE", "PENDING", "LIMIT", "GANGS")
"""Columns of the tree that are left out of a narrow terminal, in this order; the bar has no title."""


def queues(
    subject: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[explain NAME] [FILE]...",
            help="explain NAME (or queue/NAME) prints why the gangs of one queue wait. Manifests, as for decide, "
            "replace the cluster.",
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
    seed: SessionSeed = None,
    now: Now = None,
    output: ListFormat = OutputFormat.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """Show the tree of queues: guarantee, fair share, allocated, borrowed, pending, and the longest wait.

    Without files the command lists the cluster in its current state and writes nothing. Use the configuration of the
    running scheduler. A full bar is the capacity of the cluster.
    """
    from batchsched.cli.live_cluster import LiveClusterOptions
    from batchsched.cli.session import decide_live_session, decide_session_over_files
    from batchsched.session.queue_report import report_queues

    name, files = _split_arguments(subject or [])
    if files:
        check_no_cluster_options(kubeconfig, context)
        session = decide_session_over_files([Path(path) for path in files], config, profile, seed, now)
    else:
        session = decide_live_session(LiveClusterOptions(kubeconfig, context, config, profile), seed)
    view = report_queues(session.snapshot, session.profile, session.now)
    if resource is not None and resource not in view.capacity:
        raise typer.BadParameter(
            f"no node has {resource!r}; expected one of {', '.join(sorted(view.capacity))}"
        )
    if name is not None:
        queue_name = _check_queue_name(name, view, session)
        pending = {
            item.gang.pod_group for item in explain_pending_gangs(queue_name, view, session.decision).waiting
        }
        explained = session.with_explained_refusals(pending)
        explanation = explain_pending_gangs(queue_name, view, explained.decision)
        if output.is_table:
            print_queue_explanation(explanation)
        else:
            print_data(explanation, output)
    elif output is OutputFormat.NAME:
        for queue in view.queues:
            print(f"queue/{queue.name}")
    elif output.is_table:
        print_queues(view, resource, wide=output is OutputFormat.WIDE, headers=not no_headers)
    else:
        print_data(view, output)
    raise typer.Exit(session.exit_code)


def _split_arguments(subject: list[str]) -> tuple[str | None, list[str]]:
    """Split the arguments into the queue to explain (None for the whole tree) and the input files.

    Raises:
      BadParameter: `explain` has no queue name, or the only file does not exist.
    """
    if len(subject) == 1 and subject[0] != EXPLAIN and not Path(subject[0]).exists() and subject[0] != "-":
        raise typer.BadParameter(
            f"there is no file {subject[0]!r}; for one queue: batchsched queues explain {subject[0]}"
        )
    first = subject[0] if subject else EXPLAIN
    if first != EXPLAIN and not Path(first).exists() and get_close_matches(first, [EXPLAIN], cutoff=0.8):
        raise typer.BadParameter(f"there is no file {first!r}; did you mean {EXPLAIN}?")
    if not subject or subject[0] != EXPLAIN or Path(EXPLAIN).exists():
        return None, subject
    if len(subject) < 2:
        raise typer.BadParameter("which queue? Expected batchsched queues explain NAME")
    return subject[1].removeprefix("queue/"), subject[2:]


def _check_queue_name(name: str, view: "QueueTreeReport", session: "DecidedSession") -> str:
    """Return the name of a queue, after checking that the report contains the queue.

    Raises:
      BadParameter: there is no queue of that name, or it was set aside.
    """
    from batchsched.api.crd.validation import suggest_name
    from batchsched.cli.session import check_not_set_aside

    names = [queue.name for queue in view.queues]
    if name in names:
        return name
    check_not_set_aside(session, f"Queue {name}")
    raise typer.BadParameter(f"there is no Queue {name!r}; {suggest_name(name, names)}")


class PendingGangExplanation(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A pending gang of a queue, with the refusal that it would get in the next session.

    The refusal is None if the next session would place the gang.
    """

    gang: "PendingGangReport"
    refusal: Refusal | None = None


class QueueExplanation(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The reasons why the gangs of a queue are pending, with the amounts of the queue and of its ancestors.

    Args:
      queue: the queue; its amounts include those of the queues below it.
      above: the ancestors of the queue, its parent first.
      waiting: pending gangs of the queue and of the queues below it, in scheduling order.
      over_share: for each other leaf queue that uses more than its fair share, the amounts above its fair share.
    """

    queue: "QueueReport"
    above: "tuple[QueueReport, ...]"
    waiting: tuple[PendingGangExplanation, ...]
    over_share: "dict[str, Amounts]"


def most_demanded_resource(view: "QueueTreeReport") -> str:
    """Return the resource with the highest demand (allocated plus pending) relative to its capacity."""
    roots = [queue for queue in view.queues if not queue.parent]

    def demand_ratio(resource: str) -> float:
        demand = sum(queue.allocated.get(resource, 0) + queue.pending.get(resource, 0) for queue in roots)
        return demand / view.capacity[resource]

    return max(sorted(view.capacity), key=demand_ratio, default="cpu")


def queue_usage_bar(queue: "QueueReport", resource: str, capacity: int) -> str:
    """Draw a text bar with the allocated, borrowed and pending amounts of a queue and its fair share."""

    def bar_length(amount: int) -> int:
        """Return the length of an amount in the text bar, in characters; at least 1 for an amount above 0."""
        return max(amount > 0, round(WIDTH * min(amount, capacity) / max(1, capacity)))

    allocated = queue.allocated.get(resource, 0)
    borrowed = queue.borrowed.get(resource, 0)
    own, held = bar_length(allocated - borrowed), bar_length(allocated)
    requested = bar_length(allocated + queue.pending.get(resource, 0))
    drawn = list((OWN * own + BORROWED * (held - own) + PENDING * (requested - held)).ljust(WIDTH + 1))
    drawn[bar_length(queue.fair_share.get(resource, 0))] = FAIR
    return "".join(drawn)


def print_queues(
    view: "QueueTreeReport", resource: str | None, *, wide: bool = False, headers: bool = True
) -> None:
    """Print the tree of queues with the amounts of one resource; the capacity and the legend go to standard error.

    Args:
      view: The report on the queues.
      resource: The resource; None: the one with the highest demand.
      wide: true to add the namespaces that may use each queue.
      headers: false to leave the headings and the legend out.
    """
    chosen = resource or most_demanded_resource(view)
    capacity = view.capacity.get(chosen, 0)
    rows = [["QUEUE", "", *_AMOUNT_TITLES, "GANGS", "WAIT", *(["NAMESPACES"] if wide else [])]]
    for branch, queue in zip(tree_prefixes(view.queues), view.queues, strict=True):
        rows.append(
            [
                branch + queue.name,
                queue_usage_bar(queue, chosen, capacity),
                *_amount_cells(queue, chosen),
                f"{queue.running}+{queue.waiting}",
                _wait_cell(queue),
                *([queue.namespaces or NONE] if wide else []),
            ]
        )
    if headers:
        print(f"{chosen}: {format_quantity(chosen, capacity)} in the cluster", file=sys.stderr)
    rows, left_out = (rows, []) if wide else _fitted_columns(rows, output_width())
    print_aligned(rows, headers=headers)
    if headers:
        print(LEGEND if "" in rows[0] else LEGEND.rpartition("  ")[2], file=sys.stderr)
    if left_out:
        print(f"too narrow for {', '.join(left_out)}; -o wide prints all columns", file=sys.stderr)


def _fitted_columns(rows: list[list[str]], width: int | None) -> tuple[list[list[str]], list[str]]:
    """Return the rows with as many columns as fit a width, and the titles of the columns that are left out.

    Args:
      rows: the rows of cells; the first row contains the headings.
      width: characters of a line; None: all columns.
    """
    left_out: list[str] = []
    for title in _LEFT_OUT_FIRST:
        if width is None or sum(column_widths(rows)) + COLUMN_GAP * (len(rows[0]) - 1) <= width:
            break
        column = rows[0].index(title)
        rows = [row[:column] + row[column + 1 :] for row in rows]
        left_out.append(title or "the bars")
    return rows, left_out


def _amount_cells(queue: "QueueReport", resource: str) -> list[str]:
    """Return the amounts of a queue in the order of `_AMOUNT_TITLES`."""
    parts = (queue.allocated, queue.guarantee, queue.fair_share, queue.borrowed, queue.pending, queue.limit)
    return [NONE if resource not in part else format_quantity(resource, part[resource]) for part in parts]


def tree_prefixes(queues: Iterable["QueueReport"]) -> list[str]:
    """Return for each queue the branch characters, such as `├─`, before its name in the printed tree."""
    listed = list(queues)
    last = {queue.parent: queue.name for queue in listed}
    names: list[str] = []
    prefixes = []
    for queue in listed:
        names[queue.depth :] = [queue.name]
        lines = ""
        parents = ["", *names]
        for depth in range(1, queue.depth + 1):
            name, parent = names[depth], parents[depth]
            ends = last[parent] == name
            if depth == queue.depth:
                lines += "└─ " if ends else "├─ "
            else:
                lines += "   " if ends else "│  "
        prefixes.append(lines)
    return prefixes


def explain_pending_gangs(name: str, view: "QueueTreeReport", decision: Decision) -> QueueExplanation:
    """Return the reasons why the gangs of a queue are pending.

    The report `view` must contain the queue.
    """
    by_name = {entry.name: entry for entry in view.queues}
    above, parent = [], by_name[name].parent
    while parent:
        above.append(by_name[parent])
        parent = by_name[parent].parent
    below = {name}
    for entry in view.queues:  # parents come first
        if entry.parent in below:
            below.add(entry.name)
    refusals = {entry.pod_group: entry for entry in decision.refusals}
    waiting = [
        PendingGangExplanation(gang=entry, refusal=refusals.get(entry.pod_group))
        for entry in view.waiting
        if entry.queue in below
    ]
    parents = {entry.parent for entry in view.queues}
    over = {
        entry.name: _over(entry)
        for entry in view.queues
        if entry.name not in parents and entry.name not in below
    }
    return QueueExplanation(
        queue=by_name[name],
        above=tuple(above),
        waiting=tuple(waiting),
        over_share={queue: amounts for queue, amounts in over.items() if amounts},
    )


def _over(queue: "QueueReport") -> "Amounts":
    return {
        resource: amount - queue.fair_share.get(resource, 0)
        for resource, amount in queue.allocated.items()
        if amount > queue.fair_share.get(resource, 0)
    }


def print_queue_explanation(explanation: QueueExplanation) -> None:
    """Print the reasons why the gangs of a queue are pending."""
    queue = explanation.queue
    waits = f"{queue.waiting} wait, {_longest_wait_text(queue)}" if queue.waiting else "none waits"
    print(f"Queue {queue.name}: gangs: {queue.running} run, {waits}")
    if queue.namespaces:
        print(f"  for namespaces with {queue.namespaces}")
    for related in (queue, *explanation.above):
        _print_amounts(related, "" if related is queue else f"ancestor {related.name}")
    if not explanation.waiting:
        return
    print("\npending gangs in scheduling order:")
    for waiting in explanation.waiting[:MOST_GANGS]:
        _print_gang(waiting)
    if len(explanation.waiting) > MOST_GANGS:
        print(f"and {len(explanation.waiting) - MOST_GANGS} more (-o json prints all)")
    if any(waiting.gang.share == "all" for waiting in explanation.waiting):
        print(f"\n{_NO_ENTITLEMENT}")
    entitled = any(related.gang.share in ("guarantee", "fair") for related in explanation.waiting)
    if entitled and explanation.over_share:
        print("\nother queues above their fair share:")
        for name, amounts in explanation.over_share.items():
            print(f"  {name}: {format_resource_amounts(dict(sorted(amounts.items())))}")


def _print_amounts(queue: "QueueReport", heading: str) -> None:
    resources = sorted({*queue.allocated, *queue.guarantee, *queue.limit, *queue.pending})
    if not resources:
        return
    if heading:
        print(f"  {heading}")
    titles = ["RESOURCE", *_AMOUNT_TITLES]
    rows = [[resource, *_amount_cells(queue, resource)] for resource in resources]
    print_aligned([titles, *rows], indent="  ")


def _age_text(waited: float) -> str:
    """Return how long a gang has waited. The API server sets the creation time, so a gang of a file may have none."""
    return f"for {format_duration(waited)}" if waited else "age unknown"


def _longest_wait_text(queue: "QueueReport") -> str:
    wait = queue.longest_wait
    return f"the longest for {format_duration(wait)}" if wait else "age unknown"


def _wait_cell(queue: "QueueReport") -> str:
    if not queue.waiting:
        return NONE
    return format_duration(queue.longest_wait) if queue.longest_wait else UNKNOWN


def _print_gang(waiting: PendingGangExplanation) -> None:
    gang, refusal = waiting.gang, waiting.refusal
    request = format_resource_amounts(dict(sorted(gang.requests.items())))
    print(f"  {gang.pod_group} ({gang.queue}, {_age_text(gang.waited)}) requests {request}")
    print(f"    {SHARES[gang.share]}")
    if refusal is None:
        print("    it is placed by the next session")
        return
    print(f"    {refusal.reason}: {refusal_text(refusal)}")
