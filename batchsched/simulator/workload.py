"""A workload: a cluster, and what arrives there when.

Readers of traces and the generator make one; the run plays it. Times are whole seconds since 1970, so that what
pods and PodGroups say of themselves (RFC 3339, whole seconds) is exact.
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
PODS_A_NODE: Final = 110
"""Kubernetes' own limit of pods on a node, where a trace says nothing."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A gang, and when it comes.

    Args:
      at: seconds since 1970.
      runtime: seconds that it runs from the moment at which its minimum is bound.
      group: its PodGroup; None for a pod that is a gang of one.
      pods: its pods as they arrive, in order. Those that are bound already run: the gang was there before.
    """

    at: int
    runtime: int
    group: PodGroup | None
    pods: tuple[Pod, ...]

    @property
    def key(self) -> str:
        """`namespace/name` of the PodGroup, or of the pod that is a gang of one."""
        return self.group.key if self.group is not None else self.pods[0].key

    @property
    def queue(self) -> str:
        """The queue it belongs to."""
        if self.group is not None:
            return self.group.spec.queue
        return self.pods[0].labels.get(QUEUE_LABEL, DEFAULT_QUEUE)

    @property
    def minimum(self) -> int:
        """Pods that must be bound before it runs."""
        return self.group.min_member if self.group is not None else 1


@dataclass(frozen=True, slots=True)
class Outage:
    """A node that fails, and comes back, or never where `until` is None. Seconds since 1970."""

    node: str
    at: int
    until: int | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """A cluster and what happens to it.

    Args:
      name: how reports call it.
      cluster: nodes, queues, classes and topologies, and pods that stay for good; no PodGroups.
      arrivals: by time; gangs that come at the same time stand in their order.
      outages: nodes that fail.
    """

    name: str
    cluster: Snapshot
    arrivals: tuple[Arrival, ...]
    outages: tuple[Outage, ...] = ()


def nodes(count: int, resources: Mapping[str, str], *, prefix: str = "node") -> tuple[Node, ...]:
    """Make equal nodes; their names sort as they are numbered."""
    width = len(str(max(0, count - 1)))
    status = NodeStatus(allocatable={"pods": str(PODS_A_NODE), **resources})
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
    """Make the spec of a pod with one container. Pods that share the object are worked out once."""
    return PodSpec(
        scheduler_name=SCHEDULER_NAME,
        containers=(Container(name="main", resources=ResourceRequirements(requests=dict(resources))),),
        priority_class_name=priority_class,
    )


@dataclass(frozen=True, slots=True)
class GangShape:
    """What a trace tells of a gang.

    Args:
      name: of the PodGroup.
      pods: specs, and how many pods of each.
      estimate: seconds that it says it runs; None where nobody said.
      queue, priority_class: as in the PodGroup.
    """

    name: str
    pods: tuple[tuple[PodSpec, int], ...]
    estimate: int | None
    queue: str = DEFAULT_QUEUE
    priority_class: str = ""


def rigid(shape: GangShape, at: int, runtime: int) -> Arrival:
    """Make a gang that runs with all of its pods or not at all."""
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
