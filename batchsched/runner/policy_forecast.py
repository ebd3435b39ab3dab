"""A forecast of a gang order: the next hours of the cluster, simulated with the sessions of the scheduler.

The forecast starts from the running and the pending gangs. After them, the most recent gangs arrive again, at the
intervals at which they arrived before. The simulated cluster is smaller than the real one: all nodes that offer the
same resources are one node, and a gang is one pod with the requests of all its pods. Order, reservations, backfill,
queues and limits are those of the real sessions; fragmentation, topology and affinities are left out.

Every candidate is simulated on the same gangs, so that scores differ only because of the gang order.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np

from batchsched.api.core.metadata import ObjectMeta, format_timestamp
from batchsched.api.core.node import HOSTNAME_LABEL, Node, NodeStatus
from batchsched.api.core.pod import (
    POD_GROUP_LABEL,
    SCHEDULER_NAME,
    Container,
    Pod,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)
from batchsched.api.core.quantity import format_quantity
from batchsched.api.crd.base import CustomMeta
from batchsched.api.crd.podgroup import DEFAULT_QUEUE, PodGroup, PodGroupSpec
from batchsched.api.gang import gang_namespace
from batchsched.api.snapshot import Snapshot
from batchsched.config.plugins import ALL, DisabledPlugin, EnabledPlugin, Plugins, PluginSet
from batchsched.config.schema import PolicySettings, Profile
from batchsched.framework.status import IntArray
from batchsched.queues.gang_order import (
    DEFAULT_RUNTIME_SECONDS,
    SLOWDOWN_BOUND_SECONDS,
    CandidatePolicy,
)
from batchsched.session.session import Session
from batchsched.session.tables.gang import GangState, PendingGang
from batchsched.session.tables.session_tables import SessionTables
from batchsched.simulator.result import GangRecord
from batchsched.simulator.run import Progress, RunSettings, simulate_workload
from batchsched.simulator.workload import GangArrival, Workload

MAX_PENDING_GANGS: Final = 512
"""Maximum number of pending gangs in a forecast, the first by submission."""
PODS: Final = "pods"
_PLUGINS: Final = ("PrioritySort", "NodeResourcesFit", "DefaultBinder", "GangScheduling")
"""The plugins of a forecast."""
_UNLIMITED_PODS: Final = 1_000_000
_UNFINISHED_SECONDS: Final = 30 * 86400.0
"""Wait in seconds that counts for a gang that never starts in a forecast."""


@dataclass(frozen=True, slots=True)
class ForecastGang:
    """A gang in a forecast, with its requests, queue, submission time and expected run time.

    Args:
      key: `namespace/name` of the gang.
      created: the submission time of the gang, seconds since 1970.
      estimate: the expected run time of the gang in seconds, or None.
      requests: amount by resource that the gang's pending pods request together, in base units.
      queue: the name of the gang's queue.
      priority_class: the PriorityClass of the PodGroup, or of the pods.
      share: the gang's dominant share of the cluster.
    """

    key: str
    created: float
    estimate: int | None
    requests: Mapping[str, int]
    queue: str
    priority_class: str
    share: float

    @property
    def assumed_runtime_seconds(self) -> int:
        """The run time in seconds that a forecast assumes for the gang."""
        return max(1, self.estimate if self.estimate is not None else int(DEFAULT_RUNTIME_SECONDS))


@dataclass(frozen=True, slots=True)
class RunningGangUsage:
    """The resources that a running gang uses on one node of a forecast, and the seconds until it ends."""

    node: str
    remaining: int
    requests: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ForecastInput:
    """The common, immutable input of the forecasts of all candidate gang orders.

    Args:
      profile: the profile; a forecast replaces its gang order by the candidate.
      cluster: the queues, PriorityClasses and Namespaces of the cluster.
      pools: amount by resource, for each node of the forecast.
      running: the resources that running gangs use.
      pending: the pending gangs.
      recent: the most recent gangs, the oldest first.
      now: seconds since 1970.
    """

    profile: Profile
    cluster: Snapshot
    pools: Mapping[str, Mapping[str, int]]
    running: tuple[RunningGangUsage, ...]
    pending: tuple[ForecastGang, ...]
    recent: tuple[ForecastGang, ...]
    now: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """The result of a forecast: the mean slowdown and mean end time of gangs under one candidate gang order.

    Args:
      slowdown: mean bounded slowdown of the pending and the arriving gangs.
      mean_end: mean seconds from now to the end of these gangs, weighted by area: run time · dominant share.
      sessions: the number of simulated sessions.
    """

    slowdown: float
    mean_end: float
    sessions: int


def to_forecast_gang(tables: SessionTables, members: GangState) -> ForecastGang | None:
    """Convert a pending gang to a `ForecastGang`; return None if the gang has no pending pod."""
    gang: PendingGang = tables.pending_gang(members)
    if not gang.parts:
        return None
    group = members.group
    pod_priority_class = gang.parts[0].pods[0].spec.priority_class_name or ""
    total = sum(part.pod_class.requests * len(part.pods) for part in gang.parts)
    return ForecastGang(
        key=members.key,
        created=gang.created,
        estimate=None if math.isnan(gang.estimate) else int(gang.estimate),
        requests=_amounts(tables, np.asarray(total)),
        queue=gang.queue,
        priority_class=(group.spec.priority_class_name if group is not None else "") or pod_priority_class,
        share=gang.share,
    )


def build_forecast_input(
    session: Session, cluster: Snapshot, recent: Sequence[ForecastGang], now: float
) -> ForecastInput:
    """Read the input of forecasts from the tables of a `Session`; call this only between two sessions."""
    tables = session.tables
    free = np.maximum(0, tables.free_resources())
    pool_of_node, count = _pools(tables.node_table.allocatable)
    capacity = np.zeros((count, free.shape[1]), np.int64)
    np.add.at(capacity, pool_of_node, free)
    running: list[RunningGangUsage] = []
    for identity in sorted(tables.running):
        gang = tables.running_gang(tables.running[identity])
        # The time of the tables is that of the last session.
        end = tables.running[identity].expected_end(now)
        # A gang without an expected end keeps its resources; its nodes offer only what is free.
        if not math.isfinite(end):
            continue
        held = np.zeros_like(capacity)
        np.add.at(held, pool_of_node[gang.nodes], gang.requests)
        capacity += held
        remaining = max(1, math.ceil(end - now))
        running += [
            RunningGangUsage(f"pool-{pool}", remaining, _amounts(tables, held[pool]))
            for pool in np.flatnonzero(held.any(axis=1)).tolist()
        ]
    pending = (to_forecast_gang(tables, members) for members in tables.pending_gangs)
    first = sorted((gang for gang in pending if gang), key=lambda gang: (gang.created, gang.key))
    return ForecastInput(
        profile=_forecast_profile(session.profile),
        cluster=Snapshot(
            queues=cluster.queues, priority_classes=cluster.priority_classes, namespaces=cluster.namespaces
        ),
        pools={f"pool-{pool}": _amounts(tables, capacity[pool]) for pool in range(count)},
        running=tuple(running),
        pending=tuple(first[:MAX_PENDING_GANGS]),
        recent=tuple(recent),
        now=math.ceil(now),
    )


def forecast_candidate(
    frozen: ForecastInput, candidate: CandidatePolicy, progress: Progress | None = None
) -> Forecast:
    """Simulate the next hours of the cluster under one candidate gang order, and return the forecast."""
    demands = {gang.key: gang for gang in frozen.pending}
    arrivals = [
        *_running_arrivals(frozen),
        *(_arrival(gang, gang.key, frozen.now, gang.created) for gang in frozen.pending),
    ]
    first = frozen.recent[0].created if frozen.recent else 0.0
    for number, gang in enumerate(frozen.recent):
        time = frozen.now + 1 + max(0, math.floor(gang.created - first))
        key = f"{gang_namespace(gang.key)}/forecast-{number:05d}"
        demands[key] = replace(gang, created=float(time))
        arrivals.append(_arrival(gang, key, time, float(time)))
    changes: dict[str, Any] = {"policy": PolicySettings(name=candidate.name, args=candidate.args)}
    if candidate.backfill is not None:
        changes |= {"backfill": candidate.backfill, "blocking": False}
    profile = frozen.profile.model_copy(update=changes)
    workload = Workload("forecast", replace(frozen.cluster, nodes=tuple(_nodes(frozen))), tuple(arrivals))
    window = profile.session_window if profile.selection == "ordered" else None
    result = simulate_workload(
        workload,
        lambda snapshot: Session.for_forecast(snapshot, profile),
        RunSettings(candidate.name_with_arguments, window=window),
        progress,
    )
    records = [(demands[gang.key], gang) for gang in result.gangs if gang.key in demands]
    return Forecast(_mean_slowdown(records), _mean_end(records, frozen.now), result.sessions)


GangResult = tuple[ForecastGang, GangRecord]


def _mean_slowdown(records: Sequence[GangResult]) -> float:
    slowdowns = [
        max(
            1.0,
            (_wait(demand, record) + demand.assumed_runtime_seconds)
            / max(demand.assumed_runtime_seconds, SLOWDOWN_BOUND_SECONDS),
        )
        for demand, record in records
    ]
    return math.fsum(slowdowns) / max(1, len(slowdowns))


def _mean_end(records: Sequence[GangResult], now: int) -> float:
    areas = [demand.share * demand.assumed_runtime_seconds for demand, _ in records]
    ends = [
        demand.created + _wait(demand, record) + demand.assumed_runtime_seconds - now
        for demand, record in records
    ]
    total = math.fsum(areas)
    return math.fsum(area * end for area, end in zip(areas, ends, strict=True)) / total if total else 0.0


def _wait(demand: ForecastGang, record: GangRecord) -> float:
    return _UNFINISHED_SECONDS if record.started is None else record.started - demand.created


def _forecast_profile(profile: Profile) -> Profile:
    """Return the profile for forecasts: only requests decide where pods fit, and no pod is evicted."""
    plugins = Plugins(
        multi_point=PluginSet(
            enabled=tuple(EnabledPlugin(name=name) for name in _PLUGINS),
            disabled=(DisabledPlugin(name=ALL),),
        )
    )
    return profile.model_copy(
        update={
            "plugins": plugins,
            "plugin_config": (),
            "extenders": (),
            "scheduler_name": SCHEDULER_NAME,
        }
    )


def _pools(allocatable: IntArray) -> tuple[IntArray, int]:
    """Return the pool index of each node [N], and the number of pools.

    The nodes of a pool offer the same kinds of resources, in any amounts.
    """
    if not len(allocatable):
        return np.zeros(0, np.int64), 0
    _, pool_of_node = np.unique(allocatable > 0, axis=0, return_inverse=True)
    pool_of_node = np.asarray(pool_of_node, np.int64).reshape(-1)
    return pool_of_node, int(pool_of_node.max()) + 1


def _amounts(tables: SessionTables, row: IntArray) -> dict[str, int]:
    """Convert amounts [R] to a mapping from resources to amounts, without zeros and the resource `pods`."""
    names = tables.node_table.resources
    return {
        name: amount for name, amount in zip(names, row.tolist(), strict=True) if amount > 0 and name != PODS
    }


def _quantities(amounts: Mapping[str, int]) -> dict[str, str | int | float]:
    return {name: format_quantity(name, amount) for name, amount in amounts.items()}


def _nodes(frozen: ForecastInput) -> Iterator[Node]:
    for name, amounts in frozen.pools.items():
        yield Node(
            metadata=ObjectMeta(name=name, labels={HOSTNAME_LABEL: name}),
            status=NodeStatus(allocatable={PODS: str(_UNLIMITED_PODS), **_quantities(amounts)}),
        )


def _running_arrivals(frozen: ForecastInput) -> Iterator[GangArrival]:
    for number, gang in enumerate(frozen.running):
        demand = ForecastGang(
            f"default/running-{number:05d}", frozen.now, gang.remaining, gang.requests, "", "", 0.0
        )
        arrival = _arrival(demand, demand.key, frozen.now, float(frozen.now))
        yield replace(arrival, pods=tuple(_bound_pod(pod, gang.node, frozen.now) for pod in arrival.pods))


def _bound_pod(pod: Pod, node: str, now: int) -> Pod:
    """Return a pod that has been running on a node since now."""
    return msgspec.structs.replace(
        pod,
        spec=msgspec.structs.replace(pod.spec, node_name=node),
        status=PodStatus(phase="Running", start_time=format_timestamp(now)),
    )


def _arrival(gang: ForecastGang, key: str, time: int, created: float) -> GangArrival:
    """Return the simulated arrival of a gang, as one pod with the requests of all its pods."""
    namespace, _, name = key.partition("/")
    timestamp = format_timestamp(created)
    spec: dict[str, Any] = {"expected_runtime_seconds": gang.estimate}
    if gang.queue:
        spec["queue"] = gang.queue
    group = PodGroup(
        metadata=CustomMeta(name=name, namespace=namespace, creation_timestamp=timestamp),
        spec=PodGroupSpec(min_member=1, priority_class_name=gang.priority_class, **spec),
    )
    pod = Pod(
        metadata=ObjectMeta(
            name=name, namespace=namespace, labels={POD_GROUP_LABEL: name}, creation_timestamp=timestamp
        ),
        spec=PodSpec(
            scheduler_name=SCHEDULER_NAME,
            containers=(
                Container(name="main", resources=ResourceRequirements(requests=_quantities(gang.requests))),
            ),
            priority_class_name=gang.priority_class,
        ),
    )
    return GangArrival(time, gang.assumed_runtime_seconds, group, (pod,), gang.queue or DEFAULT_QUEUE)
