"""The recorded cases of kube-scheduler, decoded, asked of our plugins one by one, and compared.

A case file is a JSON list; `tests/conformance/cases/` holds copies. `mismatches(case, plugin)` asks one plugin
class every recorded question and returns what differs, in words; an empty list is full agreement.
"""

import gzip
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from batchsched.api.core.cluster_objects import (
    Namespace,
    PodDisruptionBudget,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)
from batchsched.api.core.device import (
    AllocationResult,
    DeviceClass,
    DeviceRequestAllocationResult,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from batchsched.api.core.metadata import parse_timestamp
from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.api.core.quantity import parse_quantity
from batchsched.api.core.requests import pod_requests
from batchsched.api.core.volume import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from batchsched.api.snapshot import Snapshot
from batchsched.config.kubernetes_release import (
    DEFAULT_RELEASE,
    DEFAULT_VERSION,
    RELEASES,
    KubernetesRelease,
    KubernetesVersion,
)
from batchsched.errors import PluginError
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.interface import (
    FilterPlugin,
    NormalizeScorePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    ReservePlugin,
    ScorePlugin,
)
from batchsched.framework.nodes.node_table import LEADING, Nodes, NodeTable
from batchsched.framework.pod_class import PodClass
from batchsched.framework.status import Code, IntArray, Verdict
from batchsched.plugins.dynamic_resources import DynamicResources

CASES = Path(__file__).parent / "cases"
RECORDINGS: Mapping[KubernetesVersion, Path] = {"1.36": CASES, "1.37": CASES / "1.37"}
"""Copies of the recordings by release of kube-scheduler."""
ERROR = "Error"
RECORDED = parse_timestamp("2026-11-20T00:00:00Z")
"""About when the cases were recorded: timeouts of claims in them have passed, in seconds since 1970."""


class Answer(msgspec.Struct, frozen=True, rename="camel"):
    """A recorded status."""

    code: str = Code.SUCCESS.value
    reasons: tuple[str, ...] = ()
    nodes: tuple[str, ...] | None = None
    plugin: str = ""


class RecordedRoom(msgspec.Struct, frozen=True, rename="camel"):
    """A recorded candidate for preemption."""

    victims: tuple[str, ...] = ()
    pdb_violations: int = 0


class Preemption(msgspec.Struct, frozen=True, rename="camel"):
    """What PostFilter was recorded to answer."""

    code: str = Code.SUCCESS.value
    message: str = ""
    nominated_node: str = ""
    victims: tuple[str, ...] = ()
    candidates: dict[str, RecordedRoom] = {}
    rejected: dict[str, Answer] = {}
    tied: tuple[str, ...] = ()


class Expected(msgspec.Struct, frozen=True, rename="camel"):
    """The recorded answers of the plugins by themselves, and of the whole cycle."""

    pre_filter: dict[str, Answer] = {}
    filter: dict[str, dict[str, Answer]] = {}
    pre_score: dict[str, Answer] = {}
    feasible: tuple[str, ...] | None = None
    raw: dict[str, tuple[int, ...]] = {}
    normalized: dict[str, tuple[int, ...]] = {}
    total: tuple[int, ...] = ()
    node_status: dict[str, Answer] = {}
    fit_error: str = ""
    fit_error_full: str = ""
    weights: dict[str, int] = {}
    best: tuple[str, ...] = ()
    preemption: Preemption | None = None
    error: str = ""
    allocations: dict[str, dict[str, tuple[DeviceRequestAllocationResult, ...]]] = {}
    allocation_results: dict[str, dict[str, AllocationResult]] = {}


class Case(msgspec.Struct, frozen=True, rename="camel"):
    """One pod against one frozen cluster."""

    name: str
    nodes: tuple[Node, ...]
    pod: Pod
    expected: Expected
    note: str = ""
    pods: tuple[Pod, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    services: tuple[Service, ...] = ()
    replication_controllers: tuple[ReplicationController, ...] = ()
    replica_sets: tuple[ReplicaSet, ...] = ()
    stateful_sets: tuple[StatefulSet, ...] = ()
    persistent_volumes: tuple[PersistentVolume, ...] = ()
    persistent_volume_claims: tuple[PersistentVolumeClaim, ...] = ()
    storage_classes: tuple[StorageClass, ...] = ()
    csi_nodes: tuple[CSINode, ...] = ()
    csi_drivers: tuple[CSIDriver, ...] = ()
    csi_storage_capacities: tuple[CSIStorageCapacity, ...] = ()
    volume_attachments: tuple[VolumeAttachment, ...] = ()
    pod_disruption_budgets: tuple[PodDisruptionBudget, ...] = ()
    device_classes: tuple[DeviceClass, ...] = ()
    resource_slices: tuple[ResourceSlice, ...] = ()
    resource_claims: tuple[ResourceClaim, ...] = ()
    device_taint_rules: tuple[DeviceTaintRule, ...] = ()
    nominated_pods: tuple[Pod, ...] = ()
    config: dict[str, Any] | None = None
    kubernetes_version: KubernetesVersion = DEFAULT_VERSION

    @property
    def release(self) -> KubernetesRelease:
        """The release of kube-scheduler that was recorded."""
        return RELEASES[self.kubernetes_version]


@dataclass(frozen=True, slots=True)
class Cluster:
    """A case made ready: the table with its pods, and the pod as a class."""

    table: NodeTable
    pod: PodClass


@lru_cache
def cases(area: str, version: KubernetesVersion = DEFAULT_VERSION) -> tuple[Case, ...]:
    """Read the copied cases of an area."""
    return read(RECORDINGS[version] / f"{area}.json.gz", version)


def read(path: Path, version: KubernetesVersion = DEFAULT_VERSION) -> tuple[Case, ...]:
    """Read a case file that was recorded from a release of kube-scheduler; cases may name another release."""
    raw = [{"kubernetesVersion": version, **case} for case in msgspec.json.decode(content(path))]
    return msgspec.convert(raw, tuple[Case, ...])


def content(path: Path) -> bytes:
    """Read a file, plain or gzipped."""
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def snapshot_of(case: Case) -> Snapshot:
    """Return the case's cluster, the pod to place included."""
    pods = (*(pod for pod in case.pods if not pod.finished), *case.nominated_pods, case.pod)
    shared = {
        field.name: getattr(case, field.name) for field in fields(Snapshot) if hasattr(case, field.name)
    }
    return Snapshot(**(shared | {"pods": pods}))


def cluster_of(
    snapshot: Snapshot, pod: Pod, later: Iterable[Pod] = (), release: KubernetesRelease = DEFAULT_RELEASE
) -> Cluster:
    """Make a table of a snapshot with its bound pods on it, and a class of the pod; `later` pods only add resources."""
    table = NodeTable(snapshot, resource_names(snapshot.nodes, (*snapshot.pods, pod, *later)), release)
    table.now = RECORDED
    for other in snapshot.pods:
        if other.key != pod.key and other.node_name in table.index:
            table.add_pods([(other, table.index[other.node_name])], *table.request_vectors(other))
    vector, nonzero = table.request_vectors(pod)
    return Cluster(
        table, PodClass.from_pod(pod, vector, (int(nonzero[0]), int(nonzero[1])), pod.spec.priority or 0)
    )


def resource_names(nodes: Iterable[Node], pods: Iterable[Pod]) -> tuple[str, ...]:
    """Name the resources of a table: the leading ones, then all others that a node has or a pod requests."""
    named = {name for node in nodes for name in node.parse_allocatable_in_base_units()}
    named |= {name for pod in pods for name in pod_requests(pod)}
    return (*LEADING, *sorted(named - set(LEADING)))


def arguments(case: Case) -> Mapping[str, Mapping[str, Any]]:
    """Return the arguments of the case's first profile by plugin."""
    profiles = (case.config or {}).get("profiles") or [{}]
    return {entry["name"]: entry.get("args") or {} for entry in profiles[0].get("pluginConfig") or ()}


def made(plugin: type, case: Case) -> Any:
    """Make a plugin with the arguments that the case states for it."""
    stated = arguments(case).get(plugin.name)  # type: ignore[attr-defined]
    if stated is None:
        return plugin()
    return plugin(plugin.Args.model_validate(dict(stated)))  # type: ignore[attr-defined]


def mismatches(case: Case, plugin: type) -> list[str]:
    """Ask a plugin class what was asked of its original; return what differs."""
    one: Any = made(plugin, case)
    name: str = plugin.name  # type: ignore[attr-defined]
    cluster = cluster_of(snapshot_of(case), case.pod, release=case.release)
    nodes = cluster.table.all_nodes_view()
    state = CycleState()
    found: list[str] = []
    asked_on = True
    if isinstance(one, PreFilterPlugin):
        found += _prefilter(case, one, cluster, nodes, state)
        recorded = case.expected.pre_filter.get(name)
        asked_on = recorded is None or recorded.code == Code.SUCCESS
    if isinstance(one, FilterPlugin) and asked_on:
        found += _filter(case, one, cluster, nodes, state)
    if isinstance(one, ScorePlugin) and case.expected.feasible:
        found += _score(case, one, cluster, state)
    if name == DynamicResources.name:
        found += _allocations(case, one, cluster, state)
    return [f"{case.name} {name} {line}" for line in found]


def _allocations(case: Case, one: ReservePlugin, cluster: Cluster, state: CycleState) -> list[str]:
    """Reserve the pod on each node that was recorded to fit, and compare the allocations of its claims.

    Earlier recordings have only the devices.
    """
    found = []
    for name, recorded in case.expected.allocations.items():
        ours = _reserved(case, one, cluster, state, name)
        devices = {
            claim: [_device(device) for device in result.devices.results] for claim, result in ours.items()
        }
        theirs = {claim: [_device(device) for device in given] for claim, given in recorded.items()}
        if devices != theirs:
            found.append(f"Reserve on {name}: ours {devices}, recorded {theirs}")
    for name, results in case.expected.allocation_results.items():
        ours = _reserved(case, one, cluster, state, name)
        compared = [
            {claim: _comparable(result) for claim, result in given.items()} for given in (ours, results)
        ]
        if compared[0] != compared[1]:
            found.append(f"Reserve on {name}: ours {compared[0]}, recorded {compared[1]}")
    return found


def _reserved(
    case: Case, one: ReservePlugin, cluster: Cluster, state: CycleState, node: str
) -> dict[str, AllocationResult]:
    """Reserve the pod on a node and undo it; return what each claim without allocation would get."""
    index = cluster.table.index[node]
    one.reserve(case.pod, index, cluster.table, state)
    reserved = cluster.table.device_ledger.devices_reserved_for_pod(case.pod.key)
    one.unreserve(case.pod, index, cluster.table, state)
    return {
        allocation.claim.rpartition("/")[2]: allocation.allocation
        for allocation in (reserved.allocations if reserved is not None else ())
    }


def _comparable(result: AllocationResult) -> AllocationResult:
    """Return an allocation without the identities of shares, and with amounts as numbers."""
    devices = tuple(
        msgspec.structs.replace(
            device,
            share_id=None,
            admin_access=device.admin_access or None,
            consumed_capacity={
                name: str(parse_quantity(amount).normalize())
                for name, amount in (device.consumed_capacity or {}).items()
            },
        )
        for device in result.devices.results
    )
    return msgspec.structs.replace(result, devices=msgspec.structs.replace(result.devices, results=devices))


def _device(device: DeviceRequestAllocationResult) -> tuple[object, ...]:
    consumed = {name: parse_quantity(amount) for name, amount in (device.consumed_capacity or {}).items()}
    return device.request, device.driver, device.pool, device.device, bool(device.admin_access), consumed


def _prefilter(case: Case, one: Any, cluster: Cluster, nodes: Nodes, state: CycleState) -> list[str]:
    answer = one.prefilter(cluster.pod, nodes, state)
    recorded = case.expected.pre_filter.get(one.name)
    if recorded is None:
        return []
    ours = (answer.status.code.value, tuple(sorted(answer.status.reasons)), _sorted(answer.nodes))
    theirs = (recorded.code, tuple(sorted(recorded.reasons)), _sorted(recorded.nodes))
    return [] if ours == theirs else [f"PreFilter: ours {ours}, recorded {theirs}"]


def _sorted(names: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(sorted(names))


def _filter(case: Case, one: Any, cluster: Cluster, nodes: Nodes, state: CycleState) -> list[str]:
    recorded = case.expected.filter.get(one.name)
    if recorded is None:
        return []
    if any(answer.code == ERROR for answer in recorded.values()):
        return _error(one, cluster, nodes, state)
    verdict = one.filter(cluster.pod, nodes, state)
    found = []
    for at, name in enumerate(cluster.table.names):
        theirs = _refusal(recorded.get(name))
        ours = _at(verdict, at)
        alone = _at(one.filter(cluster.pod, cluster.table.node_view(at), state), 0)
        if ours != theirs:
            found.append(f"Filter on {name}: ours {ours}, recorded {theirs}")
        if alone != ours:
            found.append(f"Filter on {name}: alone {alone}, among all {ours}")
    return found


def _error(one: Any, cluster: Cluster, nodes: Nodes, state: CycleState) -> list[str]:
    """If kube-scheduler returns an error, batchsched must raise; messages are not compared."""
    try:
        one.filter(cluster.pod, nodes, state)
    except PluginError:
        return []
    return ["Filter: ours answers, recorded is an error"]


def _refusal(answer: Answer | None) -> tuple[str, tuple[str, ...]]:
    return (answer.code, tuple(sorted(answer.reasons))) if answer else (Code.SUCCESS.value, ())


def _at(verdict: Verdict, node: int) -> tuple[str, tuple[str, ...]]:
    reasons = tuple(sorted(verdict.reasons_at(node)))
    if not reasons:
        return (Code.SUCCESS.value, ())
    return ((Code.UNRESOLVABLE if verdict.unresolvable[node] else Code.UNSCHEDULABLE).value, reasons)


def _score(case: Case, one: Any, cluster: Cluster, state: CycleState) -> list[str]:
    feasible = case.expected.feasible or ()
    nodes = cluster.table.selected_nodes_view(
        np.asarray([cluster.table.index[name] for name in feasible], np.int32)
    )
    found = []
    name: str = one.name
    code = Code.SUCCESS
    if isinstance(one, PreScorePlugin):
        code = one.prescore(cluster.pod, nodes, state).code
        recorded = case.expected.pre_score.get(name)
        if recorded is not None and recorded.code != code:
            found.append(f"PreScore: ours {code.value}, recorded {recorded.code}")
    if code is Code.SKIP or name not in case.expected.raw:
        return found
    raw = one.score(cluster.pod, nodes, state)
    found += _compared("raw", raw, case.expected.raw[name], feasible)
    normal = raw
    if isinstance(one, NormalizeScorePlugin):
        normal = one.normalize(raw, cluster.pod, nodes, state)
    return found + _compared("normalized", normal, case.expected.normalized[name], feasible)


def _compared(what: str, ours: IntArray, theirs: tuple[int, ...], names: tuple[str, ...]) -> list[str]:
    return [
        f"{what} of {name}: ours {mine}, recorded {right}"
        for name, mine, right in zip(names, ours.tolist(), theirs, strict=True)
        if mine != right
    ]
