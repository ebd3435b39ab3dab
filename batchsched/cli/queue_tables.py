"""Queues as text: a tree with bars, and the reasons why a queue waits."""

from collections.abc import Iterable

import msgspec
import typer

from batchsched.api.core.quantity import show
from batchsched.api.decision import Decision, Refusal
from batchsched.cli.listing import aligned, duration
from batchsched.cli.tables import missing_of
from batchsched.session.queue_report import Amounts, PendingGangReport, QueueReport, QueuesReport

WIDTH = 24
"""Characters of a bar; the full bar is the capacity of the cluster."""
OWN, BORROWED, PENDING, FAIR = "█", "▓", "░", "│"
MOST_GANGS = 10
LEGEND = f"{OWN} allocated  {BORROWED} above the guarantee  {PENDING} pending  {FAIR} fair share"
SHARES = {
    "guarantee": "inside the guarantee of its queue or of an ancestor: it is scheduled before all borrowing gangs",
    "fair": "inside the fair share of its queue: it is scheduled before all borrowing gangs",
    "borrowing": "beyond the fair share of its queue: it uses capacity that no entitled queue requests",
    "all": "no queue has an entitlement: priority and age decide",
}


class WaitingGang(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A pending gang and its refusal. Without a refusal the next session places the gang."""

    gang: PendingGangReport
    refusal: Refusal | None = None


class QueueExplanation(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Why the gangs of a queue wait.

    Args:
      queue: the queue, including the queues below it.
      above: the ancestors of the queue, its parent first.
      waiting: pending gangs of the queue and of the queues below it, in scheduling order.
      over_share: by leaf queue, the amounts above its fair share.
    """

    queue: QueueReport
    above: tuple[QueueReport, ...]
    waiting: tuple[WaitingGang, ...]
    over_share: dict[str, Amounts]


def most_demanded_resource(view: QueuesReport) -> str:
    """Return the resource with the highest demand, allocated and pending, relative to its capacity."""
    roots = [queue for queue in view.queues if not queue.parent]

    def load(resource: str) -> float:
        demand = sum(queue.allocated.get(resource, 0) + queue.pending.get(resource, 0) for queue in roots)
        return demand / view.capacity[resource]

    return max(sorted(view.capacity), key=load, default="cpu")


def bar(queue: QueueReport, resource: str, capacity: int) -> str:
    """Draw the allocated, borrowed and pending amounts of a queue and its fair share."""

    def cells(amount: int) -> int:
        """Return the length of an amount in characters; an amount above 0 has at least one."""
        return max(amount > 0, round(WIDTH * min(amount, capacity) / max(1, capacity)))

    allocated = queue.allocated.get(resource, 0)
    borrowed = queue.borrowed.get(resource, 0)
    own, held = cells(allocated - borrowed), cells(allocated)
    requested = cells(allocated + queue.pending.get(resource, 0))
    drawn = list((OWN * own + BORROWED * (held - own) + PENDING * (requested - held)).ljust(WIDTH + 1))
    drawn[cells(queue.fair_share.get(resource, 0))] = FAIR
    return "".join(drawn)


def print_queues(view: QueuesReport, resource: str | None) -> None:
    """Print the tree of queues."""
    chosen = resource or most_demanded_resource(view)
    capacity = view.capacity.get(chosen, 0)
    titles = ["QUEUE", "", "ALLOCATED", "GUARANTEE", "FAIR", "BORROWED", "PENDING", "LIMIT", "GANGS", "WAIT"]
    table = [titles]
    for branch, queue in zip(tree_prefixes(view.queues), view.queues, strict=True):
        cells = [
            amount.get(chosen)
            for amount in (
                queue.allocated,
                queue.guarantee,
                queue.fair_share,
                queue.borrowed,
                queue.pending,
                queue.limit,
            )
        ]
        table.append(
            [
                branch + queue.name,
                bar(queue, chosen, capacity),
                *("-" if amount is None else show(chosen, amount) for amount in cells),
                f"{queue.running}+{queue.waiting}",
                duration(queue.longest_wait) if queue.waiting else "-",
            ]
        )
    typer.echo(f"{chosen}: {show(chosen, capacity)} in the cluster")
    for line in aligned(table):
        typer.echo(line)
    typer.echo(LEGEND)


def tree_prefixes(queues: Iterable[QueueReport]) -> list[str]:
    """Return the branch characters before each queue's name; parents precede their children."""
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


def explain_queue(name: str, view: QueuesReport, decision: Decision) -> QueueExplanation:
    """Return why the gangs of a queue wait; the queue must be part of the view."""
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
        WaitingGang(gang=entry, refusal=refusals.get(entry.pod_group))
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


def _over(queue: QueueReport) -> Amounts:
    return {
        resource: amount - queue.fair_share.get(resource, 0)
        for resource, amount in queue.allocated.items()
        if amount > queue.fair_share.get(resource, 0)
    }


def print_queue_explanation(explanation: QueueExplanation) -> None:
    """Print why the gangs of a queue wait."""
    queue = explanation.queue
    waits = (
        f"{queue.waiting} wait, the longest for {duration(queue.longest_wait)}"
        if queue.waiting
        else "none waits"
    )
    typer.echo(f"Queue {queue.name}: gangs: {queue.running} run, {waits}")
    for related in (queue, *explanation.above):
        _print_amounts(related, "" if related is queue else f"ancestor {related.name}: ")
    if not explanation.waiting:
        return
    typer.echo("\npending gangs in scheduling order:")
    for waiting in explanation.waiting[:MOST_GANGS]:
        _print_gang(waiting)
    if len(explanation.waiting) > MOST_GANGS:
        typer.echo(f"and {len(explanation.waiting) - MOST_GANGS} more (-o json prints all)")
    entitled = any(related.gang.share in ("guarantee", "fair") for related in explanation.waiting)
    if entitled and explanation.over_share:
        typer.echo("\nother queues above their fair share:")
        for name, amounts in explanation.over_share.items():
            typer.echo(f"  {name}: {_amounts_text(amounts)}")


def _print_amounts(queue: QueueReport, before: str) -> None:
    resources = sorted({*queue.allocated, *queue.guarantee, *queue.limit, *queue.pending})
    if not resources:
        return
    titles = [before + "RESOURCE", "ALLOCATED", "GUARANTEE", "FAIR", "BORROWED", "PENDING", "LIMIT"]
    parts = (queue.allocated, queue.guarantee, queue.fair_share, queue.borrowed, queue.pending, queue.limit)
    rows = [
        [resource, *("-" if resource not in part else show(resource, part[resource]) for part in parts)]
        for resource in resources
    ]
    for line in aligned([titles, *rows]):
        typer.echo(f"  {line}")


def _print_gang(waiting: WaitingGang) -> None:
    gang, refusal = waiting.gang, waiting.refusal
    typer.echo(
        f"  {gang.pod_group} ({gang.queue}, for {duration(gang.waited)}) requests {_amounts_text(gang.wanted)}"
    )
    typer.echo(f"    {SHARES[gang.share]}")
    if refusal is None:
        typer.echo("    it is placed by the next session")
        return
    typer.echo(f"    {refusal.reason}: {refusal.message}")
    if not all(resource in refusal.message for resource in refusal.missing):
        typer.echo(f"    missing: {missing_of(refusal)}")
    if refusal.relaxation:
        typer.echo(f"    would help: {refusal.relaxation}")


def _amounts_text(amounts: Amounts) -> str:
    return ", ".join(f"{show(resource, amount)} {resource}" for resource, amount in sorted(amounts.items()))
