"""Small clusters for sessions, said in few words: cluster in, decisions out."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec

from batchsched.api.core.cluster_objects import PriorityClass
from batchsched.api.core.metadata import ObjectMeta, format_timestamp
from batchsched.api.core.node import Node, NodeStatus
from batchsched.api.core.pod import (
    POD_GROUP_LABEL,
    SUB_GROUP_LABEL,
    Amounts,
    Container,
    Pod,
    PodSpec,
    ResourceRequirements,
)
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.crd.queue import Queue
from batchsched.api.crd.topology import Topology
from batchsched.api.decision import Decision
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.session.session import decide

NOW = 1_700_000_000.0
GPU = "nvidia.com/gpu"


def amounts(**requests: Any) -> Amounts:
    return {GPU if name == "gpu" else name: str(amount) for name, amount in requests.items()}


def node(name: str, labels: dict[str, str] | None = None, **allocatable: Any) -> Node:
    offered: Amounts = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    offered |= amounts(**allocatable)
    return Node(
        metadata=ObjectMeta(name=name, labels={"kubernetes.io/hostname": name} | (labels or {})),
        status=NodeStatus(allocatable=offered),
    )


def nodes(count: int, **allocatable: Any) -> tuple[Node, ...]:
    return tuple(node(f"n{at}", **allocatable) for at in range(count))


def pod(
    name: str,
    *,
    group: str = "",
    sub: str = "",
    on: str = "",
    age: float = 0,
    priority: int | None = None,
    spec: dict[str, Any] | None = None,
    labels: dict[str, str] | None = None,
    **requests: Any,
) -> Pod:
    own = dict(labels or {})
    if group:
        own[POD_GROUP_LABEL] = group
    if sub:
        own[SUB_GROUP_LABEL] = sub
    container = Container(name="main", resources=ResourceRequirements(requests=amounts(**requests)))
    return Pod(
        metadata=ObjectMeta(
            name=name, namespace="team", labels=own or None, creation_timestamp=format_timestamp(NOW - age)
        ),
        spec=PodSpec(
            scheduler_name="batchsched",
            node_name=on,
            priority=priority,
            containers=(container,),
            **(spec or {}),
        ),
    )


def group(name: str, minimum: int | None = None, *, age: float = 0, **spec: Any) -> PodGroup:
    stated = spec | ({} if minimum is None else {"minMember": minimum})
    return PodGroup.model_validate(
        {
            "metadata": {"name": name, "namespace": "team", "creationTimestamp": format_timestamp(NOW - age)},
            "spec": stated,
        }
    )


def gang(
    name: str,
    count: int,
    minimum: int | None = None,
    *,
    age: float = 0,
    requests: dict[str, Any] | None = None,
    **spec: Any,
) -> Snapshot:
    """A PodGroup of equal pods, `minimum` of them (all by default) together."""
    template = {"priority_class_name": spec.get("priorityClassName", "")}
    members = tuple(
        pod(f"{name}-{at}", group=name, age=age, spec=template, **(requests or {"gpu": 1}))
        for at in range(count)
    )
    return Snapshot(pods=members, pod_groups=(group(name, minimum or count, age=age, **spec),))


def alone(count: int, prefix: str = "solo", **requests: Any) -> Snapshot:
    return Snapshot(pods=tuple(pod(f"{prefix}-{at}", **requests) for at in range(count)))


def queue(name: str, **spec: Any) -> Queue:
    return Queue.model_validate({"metadata": {"name": name}, "spec": spec})


def topology(*levels: str, name: str = "default") -> Topology:
    return Topology.model_validate(
        {"metadata": {"name": name}, "spec": {"levels": [{"name": one, "nodeLabel": one} for one in levels]}}
    )


def priority_class(name: str, value: int) -> PriorityClass:
    return PriorityClass(metadata=ObjectMeta(name=name), value=value)


def cluster(some: Iterable[Node], *parts: Snapshot, **more: Any) -> Snapshot:
    """Put nodes and gangs together; `more` are further fields of the snapshot."""
    return Snapshot(
        nodes=tuple(some),
        pods=tuple(pod for part in parts for pod in part.pods) + tuple(more.pop("pods", ())),
        pod_groups=tuple(one for part in parts for one in part.pod_groups),
        **more,
    )


def profile(**settings: Any) -> Profile:
    return Profile.model_validate(settings)


def schedule(
    snapshot: Snapshot, settings: Profile | None = None, now: float = NOW, seed: int = 0
) -> Decision:
    return decide(snapshot, settings or Profile(), now, seed)


def bound(snapshot: Snapshot, decision: Decision) -> Snapshot:
    """Return the cluster with the decision's assignments carried out."""
    places = {(one.namespace, one.pod): one.node for one in decision.assignments}
    return replace(
        snapshot, pods=tuple(_on(one, places.get((one.namespace, one.name))) for one in snapshot.pods)
    )


def _on(one: Pod, place: str | None) -> Pod:
    if place is None:
        return one
    return msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, node_name=place))


def placed(decision: Decision) -> dict[str, str]:
    return {one.pod: one.node for one in decision.assignments}


def reasons(decision: Decision) -> dict[str, str]:
    return {one.pod_group: one.reason for one in decision.refusals}
