"""The status page, which shows queues, gangs with the reasons why they are pending, and nodes by topology.

It is one HTML file without external resources that reloads every 15 seconds, unless the reader stops that.
"""

import asyncio
import datetime as dt
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from aiohttp import web

from batchsched import __version__
from batchsched.api.core.metadata import format_timestamp
from batchsched.api.core.node import Node
from batchsched.api.core.quantity import format_quantity
from batchsched.api.core.requests import pod_requests
from batchsched.api.crd.base import parse_quantities_in_base_units
from batchsched.api.decision import Refusal, refusal_text
from batchsched.api.gang import gang_key_from_identity, gang_namespace
from batchsched.api.queue_access import QueueAccess
from batchsched.api.snapshot import Snapshot
from batchsched.observability.activity_recorder import ActivityRecorder
from batchsched.observability.http.html_page import (
    content_security_policy,
    page_headers,
    reload_script,
    template_values_of_table_pages,
)
from batchsched.ports.cluster import wall_clock_offset
from batchsched.runner.profile_scheduler import ProfileScheduler
from batchsched.scheduler.app import SchedulerApp
from batchsched.state.podgroup_state import GangPods
from batchsched.state.queue_usage import ResourceUsage

if TYPE_CHECKING:
    from jinja2 import Template


MAX_GANGS: Final = 300
MAX_DOMAINS: Final = 300
MAX_NODES_PER_DOMAIN: Final = 64
"""Maximum number of nodes shown in one topology domain."""
_STANDARD_RESOURCES: Final = ("cpu", "memory")
_MAX_DEVICE_COLUMNS: Final = 2
NO_VALUE: Final = "—"


@dataclass(frozen=True, slots=True)
class PendingGangRow:
    """A row of the status page for a pending gang or single pod.

    Args:
      key: `namespace/name`.
      place: The state of the gang in the scheduling queue, such as Active or Backoff.
      since: The time at which the gang was queued, RFC 3339.
      attempts: The number of sessions in which the gang took part.
      by: The plugins that refused or gated the gang.
      refusal: The refusal by the last session; None if it did not refuse the gang.
    """

    key: str
    place: str
    since: str
    attempts: int
    by: str
    refusal: Refusal | None


@dataclass(frozen=True, slots=True)
class GangRow:
    """A row of the status page for a PodGroup: the numbers of its pods, and why some pods are pending."""

    key: str
    queue: str
    least: int
    placed: int
    pods: int
    waiting: PendingGangRow | None


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A row of the status page for a queue: its depth in the tree, guarantee, limit, usage and pending requests.

    Usage, requests and waiting gangs include those of the descendants, as in the status of the Queue.
    """

    name: str
    depth: int
    guarantee: str
    limit: str
    allocated: str
    pending: str
    gangs: int


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """The requested and the allocatable amount of one resource on a node or in a topology domain."""

    requested: str
    offered: str
    fraction: float


@dataclass(frozen=True, slots=True)
class NodeOrDomainRow:
    """A row of the status page for a node, or for a topology domain with the sums over its nodes."""

    name: str
    nodes: int
    closed: int
    pods: int
    shares: tuple[ResourceUse, ...]
    parts: tuple["NodeOrDomainRow", ...] = ()


@dataclass(frozen=True, slots=True)
class TopologyView:
    """The nodes that the status page shows, grouped by the domains of one topology."""

    name: str
    levels: str
    domains: tuple[NodeOrDomainRow, ...]
    left_out: int


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The content of the status page: queues, gangs, and nodes by topology."""

    resources: tuple[str, ...]
    queues: tuple[QueueRow, ...]
    gangs: tuple[GangRow, ...]
    left_out: int
    topologies: tuple[TopologyView, ...]


def build_pending_gang_rows(
    profile_schedulers: Sequence[ProfileScheduler], refusals: Mapping[str, Refusal], wall_offset: float = 0.0
) -> dict[str, PendingGangRow]:
    """Return the status page's row for each pending gang or single pod, by `namespace/name`.

    Call this function in the event loop only. `wall_offset` is added to the times of the scheduling queue.
    """
    rows: dict[str, PendingGangRow] = {}
    for profile_scheduler in profile_schedulers:
        for entity in profile_scheduler.queue.entities():
            key = gang_key_from_identity(entity.identity)
            by = ", ".join(entity.blocking_plugins)
            rows[key] = PendingGangRow(
                key,
                entity.place.value,
                format_timestamp(entity.queued + wall_offset),
                entity.attempts,
                by,
                refusals.get(key),
            )
        for held in profile_scheduler.held:
            place = f"Held until {format_timestamp(held.until)}"
            rows[held.pod_group] = PendingGangRow(held.pod_group, place, "", 1, held.plugin, None)
    return rows


def bound_and_total_pods_by_gang(gangs: Iterable[GangPods]) -> dict[str, tuple[int, int]]:
    """Return the number of bound pods and the number of all pods of each gang, by `namespace/name`."""
    return {
        gang_key_from_identity(gang.identity): (len(gang.bound), len(gang.bound) + len(gang.pending))
        for gang in gangs
    }


def build_cluster_view(
    snapshot: Snapshot,
    waits: Mapping[str, PendingGangRow],
    usage: ResourceUsage,
    counts: Mapping[str, tuple[int, int]],
) -> ClusterView:
    """Return the content of the status page; this function may run in another thread.

    Args:
      snapshot: The cluster.
      waits: The rows of pending gangs, by `namespace/name`.
      usage: The allocated and pending amounts of each queue.
      counts: The numbers of bound pods and of all pods of each gang, as `bound_and_total_pods_by_gang` returns them.
    """
    resources = _resources(snapshot.nodes)
    access = QueueAccess(snapshot.queues, snapshot.namespaces)
    gangs = _gangs(snapshot, waits, counts, access)
    in_queue = Counter(
        row.queue
        for row in gangs
        if row.waiting is not None and access.allows_namespace(row.queue, gang_namespace(row.key))
    )
    return ClusterView(
        resources,
        tuple(_queues(snapshot, usage, in_queue)),
        tuple(gangs[:MAX_GANGS]),
        max(0, len(gangs) - MAX_GANGS),
        tuple(_topologies(snapshot, resources)),
    )


def _resources(nodes: Iterable[Node]) -> tuple[str, ...]:
    devices = Counter(
        name for node in nodes for name in node.parse_allocatable_in_base_units() if "/" in name
    )
    return (
        *_STANDARD_RESOURCES,
        *(
            name
            for name, _ in sorted(devices.items(), key=lambda item: (-item[1], item[0]))[:_MAX_DEVICE_COLUMNS]
        ),
    )


def _gangs(
    snapshot: Snapshot,
    waits: Mapping[str, PendingGangRow],
    counts: Mapping[str, tuple[int, int]],
    access: QueueAccess,
) -> list[GangRow]:
    """Return the rows of the gangs: first pending gangs, the oldest first, then all others by name."""
    groups = {group.key: group for group in snapshot.pod_groups}
    rows = []
    for key in groups.keys() | waits.keys():
        spec = groups[key].spec if key in groups else None
        default = access.default_queue_name(gang_namespace(key))
        queue, least = (spec.queue or default, spec.min_member or 1) if spec is not None else (NO_VALUE, 1)
        rows.append(GangRow(key, queue, least, *counts.get(key, (0, 0)), waits.get(key)))
    return sorted(
        rows, key=lambda row: (row.waiting is None, row.waiting.since if row.waiting else "", row.key)
    )


def _queues(snapshot: Snapshot, usage: ResourceUsage, gangs: Mapping[str, int]) -> Iterable[QueueRow]:
    """Yield the rows of the queues; child queues follow their parents.

    A queue that pods or gangs name has a row even if there is no Queue object of that name.
    """
    specs = {queue.name: queue.spec for queue in snapshot.queues}
    below: dict[str | None, list[str]] = {}
    for name in sorted({*specs, *(name for name, _ in usage), *gangs} - {NO_VALUE}):
        parent = specs[name].parent if name in specs else None
        below.setdefault(parent if parent in specs else None, []).append(name)
    order = list(_depth_first(below))
    allocated: dict[str, Counter[str]] = {name: Counter() for name, _ in order}
    requested: dict[str, Counter[str]] = {name: Counter() for name, _ in order}
    for (name, resource), (used, pending) in usage.items():
        if name in allocated:
            allocated[name][resource] += used
            requested[name][resource] += pending
    waiting = Counter(gangs)
    # Children come after their parents, so that each queue is complete before its parent receives its sums.
    for name, _ in reversed(order):
        parent = specs[name].parent if name in specs else None
        if parent in allocated:
            allocated[parent].update(allocated[name])
            requested[parent].update(requested[name])
            waiting[parent] += waiting[name]
    for name, depth in order:
        spec = specs.get(name)
        yield QueueRow(
            name,
            depth,
            _amounts(parse_quantities_in_base_units(spec.guarantee)) if spec is not None else "",
            _amounts(parse_quantities_in_base_units(spec.limit)) if spec is not None else "",
            _amounts(+allocated[name]),
            _amounts(+requested[name]),
            waiting[name],
        )


def _depth_first(below: Mapping[str | None, Sequence[str]]) -> Iterator[tuple[str, int]]:
    """Yield (queue, depth) for each queue; child queues follow their parents.

    Args:
      below: The children of each queue; those of None are the roots.
    """
    rows = [(name, 0) for name in reversed(below.get(None, ()))]
    while rows:
        name, depth = rows.pop()
        rows += [(child, depth + 1) for child in reversed(below.get(name, ()))]
        yield name, depth


def _amounts(amounts: Mapping[str, int]) -> str:
    return ", ".join(f"{_short(resource, amounts[resource])} {resource}" for resource in sorted(amounts))


def _short(resource: str, amount: int) -> str:
    """Format a resource amount with at most four significant digits."""
    if resource == "memory" and amount >= 1 << 30:
        return f"{amount / (1 << 30):.4g}Gi"
    if resource == "cpu" and amount >= 1000:
        return f"{amount / 1000:.4g}"
    return format_quantity(resource, amount)


def _topologies(snapshot: Snapshot, resources: tuple[str, ...]) -> Iterable[TopologyView]:
    node_rows = _node_rows(snapshot, resources)
    levels_by_topology = [
        (topology.name, [(level.name, level.node_label) for level in topology.spec.levels])
        for topology in snapshot.topologies
    ]
    for name, levels in levels_by_topology or [("", [])]:
        domains: dict[tuple[str, ...], list[Node]] = {}
        for node in snapshot.nodes:
            path = tuple(node.labels.get(label, NO_VALUE) for _, label in levels)
            domains.setdefault(path, []).append(node)
        rows = [
            _domain_row(
                " / ".join(path) or "all nodes", [node_rows[node.name] for node in domains[path]], resources
            )
            for path in sorted(domains)
        ]
        shown = tuple(rows[:MAX_DOMAINS])
        yield TopologyView(name, " / ".join(level for level, _ in levels), shown, len(rows) - len(shown))


_NodeAmounts = tuple[NodeOrDomainRow, Mapping[str, int], Mapping[str, int]]
"""The row of a node, its allocatable amounts, and the amounts that its pods request."""


def _node_rows(snapshot: Snapshot, resources: tuple[str, ...]) -> dict[str, _NodeAmounts]:
    used: dict[str, Counter[str]] = {}
    pods: Counter[str] = Counter()
    for pod in snapshot.pods:
        if pod.node_name:
            used.setdefault(pod.node_name, Counter()).update(pod_requests(pod))
            pods[pod.node_name] += 1
    rows: dict[str, _NodeAmounts] = {}
    for node in snapshot.nodes:
        offered, requested = node.parse_allocatable_in_base_units(), used.get(node.name, Counter())
        shares = _shares(offered, requested, resources)
        row = NodeOrDomainRow(node.name, 1, int(node.spec.unschedulable), pods[node.name], shares)
        rows[node.name] = (row, offered, requested)
    return rows


def _domain_row(name: str, nodes: Sequence[_NodeAmounts], resources: tuple[str, ...]) -> NodeOrDomainRow:
    offered: Counter[str] = Counter()
    requested: Counter[str] = Counter()
    for _, allocatable, used in nodes:
        offered.update(allocatable)
        requested.update(used)
    rows = [machine for machine, _, _ in nodes]
    return NodeOrDomainRow(
        name,
        len(rows),
        sum(row.closed for row in rows),
        sum(row.pods for row in rows),
        _shares(offered, requested, resources),
        tuple(rows[:MAX_NODES_PER_DOMAIN]),
    )


def _shares(
    offered: Mapping[str, int], requested: Mapping[str, int], resources: tuple[str, ...]
) -> tuple[ResourceUse, ...]:
    return tuple(
        ResourceUse(
            _short(resource, requested.get(resource, 0)),
            _short(resource, offered.get(resource, 0)),
            min(1.0, requested.get(resource, 0) / offered[resource]) if offered.get(resource) else 0.0,
        )
        for resource in resources
    )


class StatusPage:
    """The HTTP handler that renders the status page.

    Args:
      service: The scheduler.
      observation: The latest refusals and sessions of the scheduler.
    """

    def __init__(self, service: SchedulerApp, observation: ActivityRecorder) -> None:
        self._service = service
        self._observation = observation

    async def handle_request(self, request: web.Request) -> web.Response:
        """Return the status page as the response to an HTTP request."""
        return web.Response(text=await self.render(), content_type="text/html", headers=_headers())

    async def render(self) -> str:
        """Return the status page as HTML for the present state of the cluster."""
        service, observation = self._service, self._observation
        snapshot = service.cache.snapshot()
        wall_offset = wall_clock_offset(service.clock)
        pending = build_pending_gang_rows(service.profile_schedulers, observation.refusals, wall_offset)
        # Usage and pod counts change with every event, so the thread gets copies.
        usage = service.cache.queue_usage.usage_and_demand_by_queue_and_resource()
        counts = bound_and_total_pods_by_gang(service.cache.gangs)
        view_of_cluster = await asyncio.to_thread(build_cluster_view, snapshot, pending, usage, counts)
        now = dt.datetime.fromtimestamp(service.clock.now(), dt.UTC)
        return _template().render(
            version=__version__,
            leads=service.is_leading,
            profiles=", ".join(profile.scheduler_name for profile in service.profiles),
            now=f"{now:%Y-%m-%d %H:%M:%S} UTC",
            cluster=view_of_cluster,
            refusal_text=refusal_text,
            sessions=observation.sessions.summaries(),
            **template_values_of_table_pages(),
        )


@cache
def _headers() -> dict[str, str]:
    return page_headers(content_security_policy([reload_script()], in_file=False))


@cache
def _template() -> "Template":
    from jinja2 import Environment, StrictUndefined  # imported on first use: the import takes 60 ms

    environment = Environment(autoescape=True, undefined=StrictUndefined)
    return environment.from_string(files(__package__).joinpath("page.html.j2").read_text(encoding="utf-8"))
