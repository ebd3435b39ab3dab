"""Relaxations, carried out on the snapshot as a person would: more nodes, another level, a higher limit."""

from dataclasses import replace
from functools import reduce
from typing import Any

import msgspec

from batchsched.api.core.node import Node
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.crd.queue import Queue
from batchsched.api.snapshot import Snapshot
from batchsched.session.joint.formulation import Formulation, SessionContext
from batchsched.solver.problem import NONE
from batchsched.solver.relaxation.changes import (
    AddedPods,
    CombinedChange,
    LevelChange,
    NodeChange,
    QuotaChange,
    Relaxation,
)
from tests.session.clusters import HOST


def relaxed(
    cluster: Snapshot, change: Relaxation, context: SessionContext, formulation: Formulation
) -> Snapshot:
    """The cluster after the change."""
    match change:
        case LevelChange():
            return _level(cluster, change, context, formulation)
        case NodeChange():
            return _nodes(cluster, change, context, formulation)
        case QuotaChange():
            return _quota(cluster, change, context)
        case AddedPods(pod_class, count):
            (first, *_) = formulation.parts[pod_class][1].pods
            more = (
                msgspec.structs.replace(
                    first, metadata=msgspec.structs.replace(first.metadata, name=f"{first.name}-more-{at}")
                )
                for at in range(count)
            )
            return replace(cluster, pods=(*cluster.pods, *more))
        case CombinedChange(parts):
            return reduce(lambda one, part: relaxed(one, part, context, formulation), parts, cluster)
    raise AssertionError(f"unknown change: {change}")


def _level(
    cluster: Snapshot, change: LevelChange, context: SessionContext, formulation: Formulation
) -> Snapshot:
    key = formulation.gangs[change.gang].key
    name = None if change.level == NONE else context.levels.names[change.level][1]

    def changed(group: PodGroup) -> PodGroup:
        if group.key != key:
            return group
        stated: dict[str, Any] = group.model_dump(by_alias=True, exclude_unset=True, mode="json")
        spec = stated["spec"]
        if change.subgroup != NONE:
            first = int((formulation.problem.subgroups.gang < change.gang).sum())
            spec = spec["subGroups"][change.subgroup - first]
        spec["topology"] = (spec["topology"] or {}) | {"required": name}
        return PodGroup.model_validate(_without_nothing(stated))

    return replace(cluster, pod_groups=tuple(changed(group) for group in cluster.pod_groups))


def _nodes(
    cluster: Snapshot, change: NodeChange, context: SessionContext, formulation: Formulation
) -> Snapshot:
    table, levels = context.tables.node_table, context.levels
    like = cluster.nodes[change.like]
    labels = dict(like.labels)
    if change.level != NONE and levels.domains[change.level][change.like] != change.domain:
        inside = [at for at, domain in enumerate(levels.domains[change.level]) if domain == change.domain]
        model = max(inside, key=lambda at: (levels.domains[:, at] >= 0).sum(), default=change.like)
        for _, level in levels.names:
            labels.pop(level, None)
            if level in cluster.nodes[model].labels:
                labels[level] = cluster.nodes[model].labels[level]
    if change.level != NONE:
        values = levels.values[change.level]
        new = change.domain >= len(values)
        labels[levels.names[change.level][1]] = "new" if new else values[change.domain]
    size = table.allocatable[change.like] + (change.extra or 0)
    offered = {
        name: f"{amount}m" if name == "cpu" else str(amount)
        for name, amount in zip(table.resources, size.tolist(), strict=True)
    }
    spec = like.spec
    if change.passing != NONE:
        spec = msgspec.structs.replace(spec, taints=None, unschedulable=False)
        for _, part in formulation.parts:
            labels |= part.pod_class.pod.spec.node_selector or {}
    made = (
        Node(
            metadata=msgspec.structs.replace(like.metadata, name=name, labels=labels | {HOST: name}),
            spec=spec,
            status=msgspec.structs.replace(like.status, allocatable=offered),
        )
        for name in (f"new{len(cluster.nodes) + at}" for at in range(change.count))
    )
    return replace(cluster, nodes=(*cluster.nodes, *made))


def _quota(cluster: Snapshot, change: QuotaChange, context: SessionContext) -> Snapshot:
    """Raise the limit by what is named, beginning at what is used where that is above it."""
    limit, quotas = context.quotas.limits[change.quota], context.quotas

    def changed(queue: Queue) -> Queue:
        if queue.name != limit.name:
            return queue
        stated = queue.model_dump(by_alias=True, exclude_unset=True, mode="json")
        for at, amount in enumerate(change.amounts):
            resource = context.tables.node_table.resources[at]
            if amount and resource in limit.resources:
                total = limit.resources[resource] + amount + max(0, -int(quotas.balance[change.quota, at]))
                stated["spec"]["limit"][resource] = f"{total}m" if resource == "cpu" else str(total)
        if change.gangs and limit.pod_groups is not None:
            most = limit.pod_groups + change.gangs + max(0, -int(quotas.gang_balance[change.quota]))
            stated["spec"]["maxRunningPodGroups"] = most
        return Queue.model_validate(_without_nothing(stated))

    return replace(cluster, queues=tuple(changed(queue) for queue in cluster.queues))


def _without_nothing(stated: Any) -> Any:
    if isinstance(stated, dict):
        return {key: _without_nothing(value) for key, value in stated.items() if value is not None}
    return [_without_nothing(value) for value in stated] if isinstance(stated, list) else stated
