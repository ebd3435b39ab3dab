"""A decision as tables."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from batchsched.api.core.pod import POD_GROUP_LABEL
from batchsched.api.core.quantity import show
from batchsched.api.decision import Decision, Refusal
from batchsched.api.snapshot import Snapshot
from batchsched.cli.printing import add_row, console, table

if TYPE_CHECKING:
    from rich.table import Table

    from batchsched.cli.session import DecidedSession, Timings

MOST_ROWS = 60
"""Maximum rows of one table; -o json prints all of them."""
_MOST_NODES = 6


def print_decision(session: "DecidedSession") -> None:
    """Print the decision: placed, waiting, refused and evicted, and the gap to the solver's bound."""
    decision = session.decision
    gangs = placed_pods(decision, session.snapshot)
    out = console()
    for made in _tables(decision, gangs):
        out.print(made)
    out.print(_summary(decision, len(gangs), len(session.snapshot.nodes)))
    out.print(_account(decision))


def placed_pods(decision: Decision, snapshot: Snapshot) -> dict[str, list[tuple[str, str]]]:
    """Return the (pod, node) pairs to bind, by PodGroup; a pod without a PodGroup has its own key."""
    groups = {pod.key: pod.labels.get(POD_GROUP_LABEL, "") for pod in snapshot.pods if not pod.node}
    placed: dict[str, list[tuple[str, str]]] = {}
    for assignment in decision.assignments:
        pod = f"{assignment.namespace}/{assignment.pod}"
        group = groups.get(pod, "")
        placed.setdefault(f"{assignment.namespace}/{group}" if group else pod, []).append(
            (assignment.pod, assignment.node)
        )
    return placed


def nodes_of(pods: Iterable[tuple[str, str]], most: int = _MOST_NODES) -> str:
    """Return the nodes of pods with counts: `n1 ×8, n2 ×4`."""
    counts: dict[str, int] = {}
    for _, node in pods:
        counts[node] = counts.get(node, 0) + 1
    shown = [node if count == 1 else f"{node} ×{count}" for node, count in list(counts.items())[:most]]
    more = len(counts) - most
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def missing_of(refusal: Refusal) -> str:
    """Return the missing amounts as text: `16 nvidia.com/gpu, 64Gi memory`."""
    return ", ".join(f"{show(resource, amount)} {resource}" for resource, amount in refusal.missing.items())


def _tables(decision: Decision, gangs: dict[str, list[tuple[str, str]]]) -> Iterable["Table"]:
    if gangs:
        rows = [(group, str(len(pods)), nodes_of(pods)) for group, pods in gangs.items()]
        yield _filled("Placed", ("PodGroup", "Pods", "Nodes"), rows)
    if decision.waiting:
        held = [(entry.pod_group, entry.plugin, entry.until) for entry in decision.waiting]
        yield _filled("Waiting at Permit", ("PodGroup", "Held by", "Until"), held)
    if decision.refusals:
        refused = [(f"{entry.pod_group}\n{entry.reason}", _why(entry)) for entry in decision.refusals]
        yield _filled("Refused", ("PodGroup, and reason", "Explanation, and what would help"), refused)
    if decision.evictions:
        evicted = [
            (f"{entry.namespace}/{entry.pod}", entry.for_, entry.reason) for entry in decision.evictions
        ]
        yield _filled("Evicted", ("Pod", "For", "Reason"), evicted)
    if decision.nominations:
        nominated = [(f"{entry.namespace}/{entry.pod}", entry.node) for entry in decision.nominations]
        yield _filled("Nominated", ("Pod", "Reserved node"), nominated)
    if decision.reservations:
        reserved = [(entry.pod_group, entry.start) for entry in decision.reservations]
        yield _filled("Reserved", ("PodGroup", "Earliest start"), reserved)
    if decision.set_aside:
        aside = [(entry.object or entry.file, entry.field, entry.message) for entry in decision.set_aside]
        yield _filled("Set aside", ("Object", "Field", "Why"), aside)


def print_timings(timings: "Timings") -> None:
    """Print the durations of plugin calls on standard error, the longest first."""
    from rich.console import Console

    slowest = sorted(timings.items(), key=lambda item: -item[1][1])
    rows = [
        (plugin, point, str(calls), f"{seconds * 1e3:.2f}", f"{seconds / calls * 1e6:.0f}")
        for (plugin, point), (calls, seconds) in slowest
    ]
    columns = ("Plugin", "Point", "Calls", "ms", "µs a call")
    Console(stderr=True).print(_filled("Plugins, in a tenth of the cycles", columns, rows))


def _filled(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> "Table":
    made = table(title, *columns)
    for row in rows[:MOST_ROWS]:
        add_row(made, *row)
    if len(rows) > MOST_ROWS:
        add_row(made, f"and {len(rows) - MOST_ROWS} more", *("" for _ in columns[1:]))
    return made


def _why(refusal: Refusal) -> str:
    parts = [refusal.message]
    if refusal.missing:
        parts.append(f"missing: {missing_of(refusal)}")
    if refusal.relaxation:
        parts.append(f"would help: {refusal.relaxation}")
    return "\n".join(parts)


def _summary(decision: Decision, gangs: int, nodes: int) -> str:
    parts = [f"{gangs} placed ({len(decision.assignments)} pods)"]
    if decision.waiting:
        parts.append(f"{len(decision.waiting)} waiting")
    parts.append(f"{len(decision.refusals)} refused")
    if decision.set_aside:
        parts.append(f"{len(decision.set_aside)} set aside")
    return f"PodGroups: {', '.join(parts)}; {nodes} nodes"


def _account(decision: Decision) -> str:
    account = decision.solver
    sentence = f"Solved in {account.seconds:.2f} s"
    if account.tiers:
        count = len(account.tiers)
        sentence += f", {count} {'tier' if count == 1 else 'tiers'}, {account.gap:.2%} from the bound"
    if account.guard:
        sentence += "; the wall-clock guard fired, the decision may not repeat"
    return sentence
