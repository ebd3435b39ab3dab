"""The rows of the web page: queues, gangs with the reasons of their refusals, and nodes by topology."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from batchsched.api.core.metadata import timestamp
from batchsched.api.core.node import Node
from batchsched.api.core.quantity import show
from batchsched.api.core.requests import requests
from batchsched.api.crd.base import in_base_units
from batchsched.api.decision import Refusal
from batchsched.api.gang_identity import key_of
from batchsched.api.snapshot import Snapshot
from batchsched.runner.profile_scheduler import ProfileScheduler
from batchsched.state.podgroup_state import GangPods
from batchsched.state.queue_usage import ResourceUsage

MOST_GANGS: Final = 300
MOST_DOMAINS: Final = 300
MOST_NODES: Final = 64
"""Maximum number of nodes that are shown of one domain."""
_PLAIN: Final = ("cpu", "memory")
_MOST_DEVICES: Final = 2
NOWHERE: Final = "—"


@dataclass(frozen=True, slots=True)
class PendingRow:
    """A pending gang or a pending single pod.

    Args:
      key: namespace/name.
      place: Its state in the scheduling queue.
      since: The time at which it was queued, RFC 3339.
      attempts: Number of sessions that it took part in.
      by: The plugins that refused it.
      refusal: Its refusal in the last session; None without one.
    """

    key: str
    place: str
    since: str
    attempts: int
    by: str
    refusal: Refusal | None


@dataclass(frozen=True, slots=True)
class GangRow:
    """A PodGroup: its minimum, its placed pods, and the refusal of the others."""

    key: str
    queue: str
    least: int
    placed: int
    pods: int
    waiting: PendingRow | None


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue of the tree: its depth, its guarantee and limit, and what it uses."""

    name: str
    depth: int
    guarantee: str
    limit: str
    allocated: str
    pending: str
    gangs: int


@dataclass(frozen=True, slots=True)
class QueueShare:
    """The requested share of a resource."""

    requested: str
    offered: str
    fraction: float


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node, or several nodes together."""

    name: str
    nodes: int
    closed: int
    pods: int
    shares: tuple[QueueShare, ...]
    parts: tuple["NodeRow", ...] = ()


@dataclass(frozen=True, slots=True)
class DomainNodes:
    """The nodes of one topology: the names of its levels, and a row for each domain of the lowest level."""

    name: str
    levels: str
    domains: tuple[NodeRow, ...]
    left_out: int


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The rows of the page."""

    resources: tuple[str, ...]
    queues: tuple[QueueRow, ...]
    gangs: tuple[GangRow, ...]
    left_out: int
    topologies: tuple[DomainNodes, ...]


def waiting(planners: Sequence[ProfileScheduler], refusals: Mapping[str, Refusal]) -> dict[str, PendingRow]:
    """Return the pending gangs by key. Call it in the event loop, since sessions change the scheduling queue."""
    row_by_key: dict[str, PendingRow] = {}
    for planner in planners:
        for entity in planner.queue.entities():
            key = key_of(entity.identity)
            rejected_by = ", ".join(entity.gated_by or entity.rejection.everyone)
            row_by_key[key] = PendingRow(
                key,
                entity.place.value,
                timestamp(entity.queued),
                entity.attempts,
                rejected_by,
                refusals.get(key),
            )
        for held in planner.held:
            place = f"Held until {timestamp(held.until)}"
            row_by_key[held.pod_group] = PendingRow(held.pod_group, place, "", 1, held.plugin, None)
    return row_by_key


def pod_counts(gangs: Iterable[GangPods]) -> dict[str, tuple[int, int]]:
    """Return, by `namespace/name`, how many pods of each gang are bound, and how many pods it has."""
    return {key_of(gang.identity): (len(gang.bound), len(gang.bound) + len(gang.pending)) for gang in gangs}


def cluster(
    snapshot: Snapshot,
    waits: Mapping[str, PendingRow],
    usage: ResourceUsage,
    counts: Mapping[str, tuple[int, int]],
) -> ClusterView:
    """Return the rows of the page. It may run in another thread.

    Args:
      snapshot: The cluster.
      waits: The pending gangs, by `namespace/name`.
      usage: What queues use.
      counts: Bound pods and all pods of each gang, as `pod_counts` returns them.
    """
    resources = _resources(snapshot.nodes)
    gangs = _gangs(snapshot, waits, counts)
    in_queue = Counter(gang.queue for gang in gangs if gang.waiting is not None)
    return ClusterView(
        resources,
        tuple(_queues(snapshot, usage, in_queue)),
        tuple(gangs[:MOST_GANGS]),
        max(0, len(gangs) - MOST_GANGS),
        tuple(_topologies(snapshot, resources)),
    )


def _resources(nodes: Iterable[Node]) -> tuple[str, ...]:
    devices = Counter(name for node in nodes for name in node.allocatable() if "/" in name)
    return (
        *_PLAIN,
        *(
            name
            for name, _ in sorted(devices.items(), key=lambda entry: (-entry[1], entry[0]))[:_MOST_DEVICES]
        ),
    )


def _gangs(
    snapshot: Snapshot, waits: Mapping[str, PendingRow], counts: Mapping[str, tuple[int, int]]
) -> list[GangRow]:
    """Return pending gangs first, the oldest first, then the others by name."""
    groups = {group.key: group for group in snapshot.pod_groups}
    rows = []
    for key in groups.keys() | waits.keys():
        spec = groups[key].spec if key in groups else None
        queue, least = (spec.queue, spec.min_member or 1) if spec is not None else (NOWHERE, 1)
        rows.append(GangRow(key, queue, least, *counts.get(key, (0, 0)), waits.get(key)))
    return sorted(
        rows, key=lambda row: (row.waiting is None, row.waiting.since if row.waiting else "", row.key)
    )


def _queues(snapshot: Snapshot, usage: ResourceUsage, gangs: Mapping[str, int]) -> Iterable[QueueRow]:
    """Return the queues, children below their parents, with queues that are used but do not exist."""
    specs = {queue.name: queue.spec for queue in snapshot.queues}
    below: dict[str | None, list[str]] = {}
    for name in sorted({*specs, *(name for name, _ in usage), *gangs} - {NOWHERE}):
        parent = specs[name].parent if name in specs else None
        below.setdefault(parent if parent in specs else None, []).append(name)
    rows = [(name, 0) for name in reversed(below.get(None, ()))]
    while rows:
        name, depth = rows.pop()
        rows += [(child, depth + 1) for child in reversed(below.get(name, ()))]
        spec = specs.get(name)
        used = {resource: amounts for (queue, resource), amounts in usage.items() if queue == name}
        yield QueueRow(
            name,
            depth,
            _amounts(in_base_units(spec.guarantee)) if spec is not None else "",
            _amounts(in_base_units(spec.limit)) if spec is not None else "",
            _amounts({resource: amounts[0] for resource, amounts in used.items() if amounts[0]}),
            _amounts({resource: amounts[1] for resource, amounts in used.items() if amounts[1]}),
            gangs.get(name, 0),
        )


def _amounts(amounts: Mapping[str, int]) -> str:
    return ", ".join(f"{_short(resource, amounts[resource])} {resource}" for resource in sorted(amounts))


def _short(resource: str, amount: int) -> str:
    """Format an amount with few digits."""
    if resource == "memory" and amount >= 1 << 30:
        return f"{amount / (1 << 30):.4g}Gi"
    if resource == "cpu" and amount >= 1000:
        return f"{amount / 1000:.4g}"
    return show(resource, amount)


def _topologies(snapshot: Snapshot, resources: tuple[str, ...]) -> Iterable[DomainNodes]:
    machines = _machines(snapshot, resources)
    levels_by_topology = [
        (topology.name, [(level.name, level.node_label) for level in topology.spec.levels])
        for topology in snapshot.topologies
    ]
    for name, levels in levels_by_topology or [("", [])]:
        domains: dict[tuple[str, ...], list[Node]] = {}
        for node in snapshot.nodes:
            path = tuple(node.labels.get(label, NOWHERE) for _, label in levels)
            domains.setdefault(path, []).append(node)
        rows = [
            _together(
                " / ".join(path) or "all nodes", [machines[node.name] for node in domains[path]], resources
            )
            for path in sorted(domains)
        ]
        shown = tuple(rows[:MOST_DOMAINS])
        yield DomainNodes(name, " / ".join(level for level, _ in levels), shown, len(rows) - len(shown))


_Counted = tuple[NodeRow, Mapping[str, int], Mapping[str, int]]
"""The row of a node, its allocatable resources, and its requested resources."""


def _machines(snapshot: Snapshot, resources: tuple[str, ...]) -> dict[str, _Counted]:
    used: dict[str, Counter[str]] = {}
    pods: Counter[str] = Counter()
    for pod in snapshot.pods:
        if pod.node:
            used.setdefault(pod.node, Counter()).update(requests(pod))
            pods[pod.node] += 1
    nodes_by_name: dict[str, _Counted] = {}
    for node in snapshot.nodes:
        offered, requested = node.allocatable(), used.get(node.name, Counter())
        shares = _shares(offered, requested, resources)
        machine = NodeRow(node.name, 1, int(node.spec.unschedulable), pods[node.name], shares)
        nodes_by_name[node.name] = (machine, offered, requested)
    return nodes_by_name


def _together(name: str, counted_nodes: Sequence[_Counted], resources: tuple[str, ...]) -> NodeRow:
    offered: Counter[str] = Counter()
    requested: Counter[str] = Counter()
    for _, allocatable, used in counted_nodes:
        offered.update(allocatable)
        requested.update(used)
    rows = [row for row, _, _ in counted_nodes]
    return NodeRow(
        name,
        len(rows),
        sum(row.closed for row in rows),
        sum(row.pods for row in rows),
        _shares(offered, requested, resources),
        tuple(rows[:MOST_NODES]),
    )


def _shares(
    offered: Mapping[str, int], requested: Mapping[str, int], resources: tuple[str, ...]
) -> tuple[QueueShare, ...]:
    return tuple(
        QueueShare(
            _short(resource, requested.get(resource, 0)),
            _short(resource, offered.get(resource, 0)),
            min(1.0, requested.get(resource, 0) / offered[resource]) if offered.get(resource) else 0.0,
        )
        for resource in resources
    )
