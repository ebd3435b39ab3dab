"""What the page shows, as values: queues, gangs with why they wait, sessions, and nodes by topology."""

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
"""Nodes of one domain that are shown."""
_PLAIN: Final = ("cpu", "memory")
_MOST_DEVICES: Final = 2
NOWHERE: Final = "—"


@dataclass(frozen=True, slots=True)
class PendingRow:
    """A gang, or a pod alone, that waits.

    Args:
      key: namespace/name.
      place: where in the scheduling queue.
      since: when it came there, RFC 3339.
      attempts: sessions that it took part in.
      by: who refused it.
      refusal: what the last session said of it, None where it said nothing.
    """

    key: str
    place: str
    since: str
    attempts: int
    by: str
    refusal: Refusal | None


@dataclass(frozen=True, slots=True)
class GangRow:
    """A PodGroup: how much of it has a node, and why the rest has none."""

    key: str
    queue: str
    least: int
    placed: int
    pods: int
    waiting: PendingRow | None


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue of the tree: its depth there, what it may use and uses."""

    name: str
    depth: int
    guarantee: str
    limit: str
    allocated: str
    pending: str
    gangs: int


@dataclass(frozen=True, slots=True)
class QueueShare:
    """How much of a resource is requested."""

    requested: str
    offered: str
    fraction: float


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node, or some of them together."""

    name: str
    nodes: int
    closed: int
    pods: int
    shares: tuple[QueueShare, ...]
    parts: tuple["NodeRow", ...] = ()


@dataclass(frozen=True, slots=True)
class DomainNodes:
    """The nodes by one topology: its levels in words, and a row for each of the narrowest domains."""

    name: str
    levels: str
    domains: tuple[NodeRow, ...]
    left_out: int


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What a snapshot shows."""

    resources: tuple[str, ...]
    queues: tuple[QueueRow, ...]
    gangs: tuple[GangRow, ...]
    left_out: int
    topologies: tuple[DomainNodes, ...]


def waiting(planners: Sequence[ProfileScheduler], refusals: Mapping[str, Refusal]) -> dict[str, PendingRow]:
    """Return who waits, by name. To be called between two sessions, or while one is decided."""
    found: dict[str, PendingRow] = {}
    for planner in planners:
        for entity in planner.queue.entities():
            key = key_of(entity.identity)
            by = ", ".join(entity.gated_by or entity.rejection.everyone)
            found[key] = PendingRow(
                key, entity.place.value, timestamp(entity.queued), entity.attempts, by, refusals.get(key)
            )
        for held in planner.held:
            place = f"Held until {timestamp(held.until)}"
            found[held.pod_group] = PendingRow(held.pod_group, place, "", 1, held.plugin, None)
    return found


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
    in_queue = Counter(one.queue for one in gangs if one.waiting is not None)
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
        *(name for name, _ in sorted(devices.items(), key=lambda one: (-one[1], one[0]))[:_MOST_DEVICES]),
    )


def _gangs(
    snapshot: Snapshot, waits: Mapping[str, PendingRow], counts: Mapping[str, tuple[int, int]]
) -> list[GangRow]:
    """Return those that wait first, the longest first, then the others by name."""
    groups = {group.key: group for group in snapshot.pod_groups}
    found = []
    for key in groups.keys() | waits.keys():
        spec = groups[key].spec if key in groups else None
        queue, least = (spec.queue, spec.min_member or 1) if spec is not None else (NOWHERE, 1)
        found.append(GangRow(key, queue, least, *counts.get(key, (0, 0)), waits.get(key)))
    return sorted(
        found, key=lambda one: (one.waiting is None, one.waiting.since if one.waiting else "", one.key)
    )


def _queues(snapshot: Snapshot, usage: ResourceUsage, gangs: Mapping[str, int]) -> Iterable[QueueRow]:
    """Yield the queues, children below their parents; and those that are used without being made."""
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
    """Write an amount with no more digits than a reader needs."""
    if resource == "memory" and amount >= 1 << 30:
        return f"{amount / (1 << 30):.4g}Gi"
    if resource == "cpu" and amount >= 1000:
        return f"{amount / 1000:.4g}"
    return show(resource, amount)


def _topologies(snapshot: Snapshot, resources: tuple[str, ...]) -> Iterable[DomainNodes]:
    machines = _machines(snapshot, resources)
    stated = [
        (one.name, [(level.name, level.node_label) for level in one.spec.levels])
        for one in snapshot.topologies
    ]
    for name, levels in stated or [("", [])]:
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
"""A node, what it offers, and what is requested of it."""


def _machines(snapshot: Snapshot, resources: tuple[str, ...]) -> dict[str, _Counted]:
    used: dict[str, Counter[str]] = {}
    pods: Counter[str] = Counter()
    for pod in snapshot.pods:
        if pod.node:
            used.setdefault(pod.node, Counter()).update(requests(pod))
            pods[pod.node] += 1
    found: dict[str, _Counted] = {}
    for node in snapshot.nodes:
        offered, requested = node.allocatable(), used.get(node.name, Counter())
        shares = _shares(offered, requested, resources)
        machine = NodeRow(node.name, 1, int(node.spec.unschedulable), pods[node.name], shares)
        found[node.name] = (machine, offered, requested)
    return found


def _together(name: str, some: Sequence[_Counted], resources: tuple[str, ...]) -> NodeRow:
    offered: Counter[str] = Counter()
    requested: Counter[str] = Counter()
    for _, theirs, used in some:
        offered.update(theirs)
        requested.update(used)
    machines = [machine for machine, _, _ in some]
    return NodeRow(
        name,
        len(machines),
        sum(one.closed for one in machines),
        sum(one.pods for one in machines),
        _shares(offered, requested, resources),
        tuple(machines[:MOST_NODES]),
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
