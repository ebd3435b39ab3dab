"""Queues for people: a tree with bars, and the reasons for which a queue waits."""

from collections.abc import Iterable

import msgspec
import typer

from batchsched.api.core.quantity import show
from batchsched.api.decision import Decision, Refusal
from batchsched.cli.listing import aligned, duration
from batchsched.cli.tables import missing_of
from batchsched.session.queue_report import Amounts, PendingGangReport, QueueReport, QueuesReport

WIDTH = 24
"""Cells of a bar, which is as long as the cluster is large."""
OWN, BORROWED, PENDING, FAIR = "█", "▓", "░", "│"
MOST_GANGS = 10
LEGEND = f"{OWN} allocated  {BORROWED} above the guarantee  {PENDING} pending  {FAIR} fair share"
SHARES = {
    "guarantee": "inside the guarantee of its queue, or of one above it: it goes before all that borrow",
    "fair": "inside the fair share of its queue: it goes before all that borrow",
    "borrowing": "beyond the fair share of its queue: it starts in what nobody entitled to it wants",
    "all": "queues are entitled to nothing in particular: priority and age decide",
}


class WaitingGang(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A gang that waits, and why it does not start now; no refusal: it starts in the next session."""

    gang: PendingGangReport
    refusal: Refusal | None = None


class Explanation(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Why a queue waits.

    Args:
      queue: itself, with what is below it.
      above: those above it, its parent first.
      waiting: its gangs and those below it, whose turn comes first, first.
      over_share: queues without children that have more than their fair share, and how much.
    """

    queue: QueueReport
    above: tuple[QueueReport, ...]
    waiting: tuple[WaitingGang, ...]
    over_share: dict[str, Amounts]


def scarcest(view: QueuesReport) -> str:
    """Return the resource that is asked for most, of what there is."""
    roots = [one for one in view.queues if not one.parent]

    def load(resource: str) -> float:
        asked = sum(one.allocated.get(resource, 0) + one.pending.get(resource, 0) for one in roots)
        return asked / view.capacity[resource]

    return max(sorted(view.capacity), key=load, default="cpu")


def bar(queue: QueueReport, resource: str, capacity: int) -> str:
    """Draw what a queue has, wants and is entitled to."""

    def cells(amount: int) -> int:
        """Return how long an amount is; whatever there is shows."""
        return max(amount > 0, round(WIDTH * min(amount, capacity) / max(1, capacity)))

    allocated = queue.allocated.get(resource, 0)
    borrowed = queue.borrowed.get(resource, 0)
    own, held = cells(allocated - borrowed), cells(allocated)
    wanted = cells(allocated + queue.pending.get(resource, 0))
    drawn = list((OWN * own + BORROWED * (held - own) + PENDING * (wanted - held)).ljust(WIDTH + 1))
    drawn[cells(queue.fair_share.get(resource, 0))] = FAIR
    return "".join(drawn)


def print_queues(view: QueuesReport, resource: str | None) -> None:
    """Print the tree."""
    chosen = resource or scarcest(view)
    capacity = view.capacity.get(chosen, 0)
    titles = ["QUEUE", "", "ALLOCATED", "GUARANTEE", "FAIR", "BORROWED", "PENDING", "LIMIT", "GANGS", "WAIT"]
    table = [titles]
    for branch, one in zip(branches(view.queues), view.queues, strict=True):
        cells = [
            amount.get(chosen)
            for amount in (one.allocated, one.guarantee, one.fair_share, one.borrowed, one.pending, one.limit)
        ]
        table.append(
            [
                branch + one.name,
                bar(one, chosen, capacity),
                *("-" if amount is None else show(chosen, amount) for amount in cells),
                f"{one.running}+{one.waiting}",
                duration(one.longest_wait) if one.waiting else "-",
            ]
        )
    typer.echo(f"{chosen}: {show(chosen, capacity)} in the cluster")
    for line in aligned(table):
        typer.echo(line)
    typer.echo(LEGEND)


def branches(queues: Iterable[QueueReport]) -> list[str]:
    """Return what stands before each name, so that the tree shows."""
    listed = list(queues)
    last = {one.parent: one.name for one in listed}
    names: list[str] = []
    found = []
    for one in listed:
        names[one.depth :] = [one.name]
        lines = ""
        parents = ["", *names]
        for depth in range(1, one.depth + 1):
            name, parent = names[depth], parents[depth]
            ends = last[parent] == name
            if depth == one.depth:
                lines += "└─ " if ends else "├─ "
            else:
                lines += "   " if ends else "│  "
        found.append(lines)
    return found


def explained(name: str, view: QueuesReport, decision: Decision) -> Explanation:
    """Work out why a queue waits; it is one of the view."""
    by_name = {one.name: one for one in view.queues}
    above, at = [], by_name[name].parent
    while at:
        above.append(by_name[at])
        at = by_name[at].parent
    below = {name}
    for one in view.queues:  # parents come first
        if one.parent in below:
            below.add(one.name)
    refusals = {one.pod_group: one for one in decision.refusals}
    waiting = [
        WaitingGang(gang=one, refusal=refusals.get(one.pod_group))
        for one in view.waiting
        if one.queue in below
    ]
    parents = {one.parent for one in view.queues}
    over = {one.name: _over(one) for one in view.queues if one.name not in parents and one.name not in below}
    return Explanation(
        queue=by_name[name],
        above=tuple(above),
        waiting=tuple(waiting),
        over_share={queue: amounts for queue, amounts in over.items() if amounts},
    )


def _over(queue: QueueReport) -> Amounts:
    return {
        resource: amount - queue.fair_share.get(resource, 0)
        for resource, amount in queue.allocated.items()
        if amount > queue.fair_share.get(resource, 0)
    }


def print_explained(found: Explanation) -> None:
    """Print why a queue waits."""
    queue = found.queue
    waits = (
        f"{queue.waiting} wait, the longest for {duration(queue.longest_wait)}"
        if queue.waiting
        else "none waits"
    )
    typer.echo(f"Queue {queue.name}: gangs: {queue.running} run, {waits}")
    for one in (queue, *found.above):
        _print_amounts(one, "" if one is queue else f"above it, {one.name}: ")
    if not found.waiting:
        return
    typer.echo("\nwaiting, whose turn comes first, first:")
    for waiting in found.waiting[:MOST_GANGS]:
        _print_gang(waiting)
    if len(found.waiting) > MOST_GANGS:
        typer.echo(f"and {len(found.waiting) - MOST_GANGS} more (-o json has all)")
    entitled = any(one.gang.share in ("guarantee", "fair") for one in found.waiting)
    if entitled and found.over_share:
        typer.echo("\nothers have more than their fair share:")
        for name, amounts in found.over_share.items():
            typer.echo(f"  {name}: {_said(amounts)}")


def _print_amounts(queue: QueueReport, before: str) -> None:
    resources = sorted({*queue.allocated, *queue.guarantee, *queue.limit, *queue.pending})
    if not resources:
        return
    titles = [before + "RESOURCE", "ALLOCATED", "GUARANTEE", "FAIR", "BORROWED", "PENDING", "LIMIT"]
    parts = (queue.allocated, queue.guarantee, queue.fair_share, queue.borrowed, queue.pending, queue.limit)
    rows = [[one, *("-" if one not in part else show(one, part[one]) for part in parts)] for one in resources]
    for line in aligned([titles, *rows]):
        typer.echo(f"  {line}")


def _print_gang(waiting: WaitingGang) -> None:
    gang, refusal = waiting.gang, waiting.refusal
    typer.echo(f"  {gang.pod_group} ({gang.queue}, for {duration(gang.waited)}) wants {_said(gang.wanted)}")
    typer.echo(f"    {SHARES[gang.share]}")
    if refusal is None:
        typer.echo("    it is placed by the next session")
        return
    typer.echo(f"    {refusal.reason}: {refusal.message}")
    if not all(resource in refusal.message for resource in refusal.missing):
        typer.echo(f"    missing: {missing_of(refusal)}")
    if refusal.relaxation:
        typer.echo(f"    would help: {refusal.relaxation}")


def _said(amounts: Amounts) -> str:
    return ", ".join(f"{show(resource, amount)} {resource}" for resource, amount in sorted(amounts.items()))
