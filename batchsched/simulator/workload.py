"""The input of a simulation: a cluster, the gangs that arrive over time, and outages of nodes.

Trace readers, the generator and snapshots of clusters are sources of workloads. Times are whole seconds since 1970, so
that the RFC 3339 times of pods and PodGroups are exact.

Source: Schroeder and Gibson, A Large-Scale Study of Failures in High-Performance Computing Systems, DSN 2006, for
rates of node failures; exponential times are the simplification that most simulators share.
"""

import gzip
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import ceil, floor
from pathlib import Path
from typing import Final, TextIO

import numpy as np

from batchsched.api.core.metadata import ObjectMeta, format_timestamp, parse_timestamp
from batchsched.api.core.node import HOSTNAME_LABEL, Node, NodeStatus
from batchsched.api.core.pod import (
    POD_GROUP_LABEL,
    SCHEDULER_NAME,
    Container,
    Pod,
    PodSpec,
    ResourceRequirements,
)
from batchsched.api.crd.base import CustomMeta
from batchsched.api.crd.podgroup import DEFAULT_QUEUE, PodGroup, PodGroupSpec
from batchsched.api.queue_access import QueueAccess, stated_queue_name
from batchsched.api.snapshot import Snapshot
from batchsched.errors import InvalidInput

_GZIP_MAGIC: Final = b"\x1f\x8b"
NAMESPACE: Final = "default"
DEFAULT_PODS_PER_NODE: Final = 110
"""Maximum number of pods per node, the default of Kubernetes, for traces without one."""


@dataclass(frozen=True, slots=True)
class GangArrival:
    """The arrival of one gang in a simulation, with its PodGroup, its pods and its run time.

    Args:
      time: seconds since 1970.
      runtime: seconds for which the gang runs after its minimum was bound.
      group: the PodGroup of the gang; None for a single pod.
      pods: the pods of the gang, in order. If its minimum is already bound, the gang started before the simulation.
      queue: the queue to which the gang belongs.
      elapsed: seconds of the run time that elapsed before the arrival. A gang that is killed runs them again.
    """

    time: int
    runtime: int
    group: PodGroup | None
    pods: tuple[Pod, ...]
    queue: str
    elapsed: int = 0

    @property
    def key(self) -> str:
        """`namespace/name` of the arriving gang's PodGroup, or of the arriving single pod."""
        return self.group.key if self.group is not None else self.pods[0].key

    @property
    def min_member(self) -> int:
        """The number of pods that must be bound before the gang runs."""
        return self.group.effective_min_member if self.group is not None else 1

    @property
    def remaining(self) -> int:
        """Seconds of the run time that are left at the arrival."""
        return max(0, self.runtime - self.elapsed)


@dataclass(frozen=True, slots=True)
class NodeOutage:
    """A failure of a simulated node and its repair, in seconds since 1970.

    The node is not repaired if `until` is None.
    """

    node: str
    time: int
    until: int | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """A cluster, the gangs that arrive in it, and the outages of its nodes.

    Args:
      name: name of the workload in reports.
      cluster: nodes, queues, priority classes, topologies and permanent pods; no PodGroups.
      arrivals: arrivals ordered by time; simultaneous arrivals keep their order.
      outages: node failures.
    """

    name: str
    cluster: Snapshot
    arrivals: tuple[GangArrival, ...]
    outages: tuple[NodeOutage, ...] = ()


def create_nodes(count: int, resources: Mapping[str, str], *, prefix: str = "node") -> tuple[Node, ...]:
    """Create `count` equal nodes with the given resources; their names end in numbers with leading zeros."""
    width = len(str(max(0, count - 1)))
    status = NodeStatus(allocatable={"pods": str(DEFAULT_PODS_PER_NODE), **resources})
    return tuple(
        Node(
            metadata=ObjectMeta(
                name=f"{prefix}-{number:0{width}d}",
                labels={HOSTNAME_LABEL: f"{prefix}-{number:0{width}d}"},
            ),
            status=status,
        )
        for number in range(count)
    )


def create_pod_spec(resources: Mapping[str, str], *, priority_class: str = "") -> PodSpec:
    """Create the spec of a pod with one container that requests the given resources.

    Use the same object for equal pods: their requests are then computed only once.
    """
    return PodSpec(
        scheduler_name=SCHEDULER_NAME,
        containers=(Container(name="main", resources=ResourceRequirements(requests=dict(resources))),),
        priority_class_name=priority_class,
    )


@dataclass(frozen=True, slots=True)
class TraceGang:
    """The data of one gang in a trace: its pods, its queue and its expected run time.

    Args:
      name: name of the PodGroup.
      pods: pairs of a spec and the number of pods with it.
      estimate: expected run time in seconds, or None.
      queue, priority_class: as in the PodGroup.
    """

    name: str
    pods: tuple[tuple[PodSpec, int], ...]
    estimate: int | None
    queue: str = DEFAULT_QUEUE
    priority_class: str = ""


def create_rigid_arrival(shape: TraceGang, time: int, runtime: int) -> GangArrival:
    """Create the arrival of a gang that cannot start without all of its pods."""
    created = format_timestamp(time)
    size = sum(count for _, count in shape.pods)
    group = PodGroup(
        metadata=CustomMeta(name=shape.name, namespace=NAMESPACE, creation_timestamp=created),
        spec=PodGroupSpec(
            min_member=size,
            queue=shape.queue,
            priority_class_name=shape.priority_class,
            expected_runtime_seconds=shape.estimate,
        ),
    )
    labels = {POD_GROUP_LABEL: shape.name}
    pods: list[Pod] = []
    for spec, count in shape.pods:
        for _ in range(count):
            meta = ObjectMeta(
                name=f"{shape.name}-{len(pods)}",
                namespace=NAMESPACE,
                labels=labels,
                creation_timestamp=created,
            )
            pods.append(Pod(metadata=meta, spec=spec))
    return GangArrival(time, runtime, group, tuple(pods), shape.queue)


def split_gpus_into_pods(gpus: int, gpus_per_node: int) -> tuple[tuple[int, int], ...]:
    """Divide the GPUs of a job among pods; return pairs of (GPUs per pod, number of such pods).

    As many pods as possible use all GPUs of a node, and one more pod uses the remainder.
    """
    whole, rest = divmod(gpus, gpus_per_node)
    return tuple((size, count) for size, count in ((gpus_per_node, whole), (rest, 1)) if size and count)


def workload_of_snapshot(
    snapshot: Snapshot, scheduler_name: str, start: float, runtime: int, name: str
) -> Workload:
    """Create a workload from a snapshot of a cluster, for a simulation that begins at `start`.

    Gangs run for their expectedRuntimeSeconds. Running gangs are present from the start, and end after the rest of
    their run time; if they are killed, they run again for the whole of it. Pending gangs are present from the start,
    or arrive at the creation time of their PodGroup, if that is later. Bound pods that belong to no gang of the
    scheduler remain forever.

    Args:
      snapshot: the cluster.
      scheduler_name: the scheduler name of the profile. Bound single pods with another one are pods of other
        schedulers.
      start: start of the simulation in seconds since 1970.
      runtime: run time in seconds of gangs without an expected run time.
      name: name of the workload in reports.
    """
    begin = floor(start)
    groups = {group.key: group for group in snapshot.pod_groups}
    pods_of: dict[str, list[Pod]] = {key: [] for key in groups}
    lasting = []
    alone = []
    for pod in snapshot.pods:
        key = f"{pod.namespace}/{pod.labels.get(POD_GROUP_LABEL, '')}"
        if key in groups:
            pods_of[key].append(pod)
        elif pod.node_name and pod.spec.scheduler_name != scheduler_name:
            lasting.append(pod)
        else:
            alone.append(pod)
    gangs: list[tuple[PodGroup | None, list[Pod]]] = [
        (group, pods_of[key]) for key, group in groups.items() if pods_of[key]
    ]
    gangs += [(None, [pod]) for pod in alone]
    access = QueueAccess(snapshot.queues, snapshot.namespaces)
    arrivals = [_present_gang(group, pods, access, begin, runtime) for group, pods in gangs]
    arrivals.sort(key=lambda arrival: arrival.time)
    return Workload(name, _cluster_without_gangs(snapshot, lasting), tuple(arrivals))


def _cluster_without_gangs(snapshot: Snapshot, lasting: Sequence[Pod]) -> Snapshot:
    """Return a cluster with the given pods and no gangs.

    What earlier sessions decided about gangs is left out, except the devices that they reserved for bound pods: the
    claims of these pods do not show the devices yet.
    """
    bound = {pod.key for pod in snapshot.pods if pod.node_name}
    return replace(
        snapshot,
        pods=tuple(lasting),
        pod_groups=(),
        held=(),
        resting=(),
        rejected=(),
        reservations=(),
        refused_evictions=(),
        pod_devices=tuple(reserved for reserved in snapshot.pod_devices if reserved.pod in bound),
    )


def _present_gang(
    group: PodGroup | None, pods: list[Pod], access: QueueAccess, begin: int, runtime: int
) -> GangArrival:
    queue = stated_queue_name(group, pods[0]) or access.default_queue_name(pods[0].namespace)
    expected_runtime = group.spec.expected_runtime_seconds if group is not None else None
    whole = runtime if expected_runtime is None else expected_runtime
    bound = [pod for pod in pods if pod.node_name]
    if bound:
        present = GangArrival(begin, whole, group, tuple(pods), queue)
        if len(bound) < present.min_member:
            return present
        since = min(parse_timestamp(pod.status.start_time, float(begin)) for pod in bound)
        return replace(present, elapsed=max(0, floor(begin - since)))
    created = (
        group.creation_time if group is not None else parse_timestamp(pods[0].metadata.creation_timestamp)
    )
    return GangArrival(max(begin, ceil(created)), whole, group, tuple(pods), queue)


def sample_outages(
    nodes: Sequence[Node], between: float, repair: float, period: tuple[int, int], seed: int
) -> tuple[NodeOutage, ...]:
    """Return random outages of nodes in a period, ordered by time.

    Nodes fail independently, at exponential intervals.

    Args:
      nodes: the nodes that may fail.
      between: mean seconds from the repair of a node to its next failure.
      repair: mean seconds until a node is repaired.
      period: the first and the last second in which nodes fail; repairs may be later.
      seed: seed of the draws.

    Raises:
      InvalidInput: a mean is not above 0.
    """
    if between <= 0 or repair <= 0:
        raise InvalidInput("expected a mean time of more than 0 seconds", object="outages")
    random = np.random.default_rng(seed)
    first, last = period
    outages = []
    for node in nodes:
        failure = first + random.exponential(between)
        while failure <= last:
            repaired = failure + max(1.0, random.exponential(repair))
            outages.append(NodeOutage(node.name, int(failure), int(np.ceil(repaired))))
            failure = np.ceil(repaired) + random.exponential(between)
    return tuple(sorted(outages, key=lambda outage: (outage.time, outage.node)))


@contextmanager
def open_trace_file(path: Path) -> Iterator[TextIO]:
    """Context manager: open a trace file, gzipped or not, for reading as text.

    gzip is recognized by content. Invalid UTF-8 is replaced.

    Raises:
      InvalidInput: the file cannot be read, or its gzip data is broken.
    """
    try:
        with path.open("rb") as raw:
            packed = raw.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
        with (
            gzip.open(path, "rt", encoding="utf-8", errors="replace", newline="")
            if packed
            else path.open(encoding="utf-8", errors="replace", newline="")
        ) as text:
            yield text
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InvalidInput(f"is a broken gzip file: {error}; copy it again", file=str(path)) from error
    except OSError as error:
        raise InvalidInput(
            f"cannot be read: {error.strerror}; expected a trace file", file=str(path)
        ) from error
