"""A workload: a cluster, and the gangs that arrive over time.

Trace readers and the generator create workloads. Times are whole seconds since 1970, so that the RFC 3339 times of
pods and PodGroups are exact.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from batchsched.api.core.metadata import ObjectMeta, timestamp
from batchsched.api.core.node import Node, NodeStatus
from batchsched.api.core.pod import (
    POD_GROUP_LABEL,
    QUEUE_LABEL,
    SCHEDULER_NAME,
    Container,
    Pod,
    PodSpec,
    ResourceRequirements,
)
from batchsched.api.crd.base import CustomMeta
from batchsched.api.crd.podgroup import DEFAULT_QUEUE, PodGroup, PodGroupSpec
from batchsched.api.snapshot import Snapshot

NAMESPACE: Final = "default"
DEFAULT_PODS_PER_NODE: Final = 110
"""Maximum number of pods per node, the default of Kubernetes, for traces without one."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """The arrival of a gang.

    Args:
      at: seconds since 1970.
      runtime: seconds that it runs after its minimum was bound.
      group: its PodGroup; None for a single pod.
      pods: its pods in order. Pods that are already bound are running: the gang started before the simulation.
    """

    at: int
    runtime: int
    group: PodGroup | None
    pods: tuple[Pod, ...]

    @property
    def key(self) -> str:
        """`namespace/name` of the PodGroup or of the single pod."""
        return self.group.key if self.group is not None else self.pods[0].key

    @property
    def queue(self) -> str:
        """Name of its queue."""
        if self.group is not None:
            return self.group.spec.queue
        return self.pods[0].labels.get(QUEUE_LABEL, DEFAULT_QUEUE)

    @property
    def minimum(self) -> int:
        """Number of pods that must be bound before it runs."""
        return self.group.min_member if self.group is not None else 1


@dataclass(frozen=True, slots=True)
class Outage:
    """A failure of a node and its repair, in seconds since 1970; no repair if `until` is None."""

    node: str
    at: int
    until: int | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """A cluster and its events.

    Args:
      name: name of the workload in reports.
      cluster: nodes, queues, priority classes, topologies and permanent pods; no PodGroups.
      arrivals: arrivals ordered by time; simultaneous arrivals keep their order.
      outages: node failures.
    """

    name: str
    cluster: Snapshot
    arrivals: tuple[Arrival, ...]
    outages: tuple[Outage, ...] = ()


def nodes(count: int, resources: Mapping[str, str], *, prefix: str = "node") -> tuple[Node, ...]:
    """Create equal nodes; their names sort by number."""
    width = len(str(max(0, count - 1)))
    status = NodeStatus(allocatable={"pods": str(DEFAULT_PODS_PER_NODE), **resources})
    return tuple(
        Node(
            metadata=ObjectMeta(
                name=f"{prefix}-{number:0{width}d}",
                labels={"kubernetes.io/hostname": f"{prefix}-{number:0{width}d}"},
            ),
            status=status,
        )
        for number in range(count)
    )


def pod_spec(resources: Mapping[str, str], *, priority_class: str = "") -> PodSpec:
    """Create the spec of a pod with one container. Requests are computed once for pods that share the object."""
    return PodSpec(
        scheduler_name=SCHEDULER_NAME,
        containers=(Container(name="main", resources=ResourceRequirements(requests=dict(resources))),),
        priority_class_name=priority_class,
    )


@dataclass(frozen=True, slots=True)
class GangShape:
    """The attributes of a gang in a trace.

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


def rigid(shape: GangShape, at: int, runtime: int) -> Arrival:
    """Create a gang of which all pods are required."""
    created = timestamp(at)
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
    return Arrival(at, runtime, group, tuple(pods))
