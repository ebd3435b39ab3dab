"""An instance as Kubernetes manifests that `batchsched decide` reads: one List in JSON."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.solver.instances import LEVELS, MAX_PODS, MIB, Gang, Instance, Node, Queue

GROUP = "scheduling.batchsched.dev"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LABELS = ("topology.kubernetes.io/zone", "example.com/block", "example.com/rack")
TAINT = {"key": "example.com/dedicated", "value": "research", "effect": "NoSchedule"}

Manifest = dict[str, object]


def write(instance: Instance, path: Path) -> None:
    """Write an instance as a Kubernetes List in JSON."""
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items(instance)}))


def items(instance: Instance) -> list[Manifest]:
    """Yield the objects of an instance."""
    found: list[Manifest] = [_topology(), *(_priority(p) for p in range(instance.tiers))]
    found += [_queue(queue, instance.queues) for queue in instance.queues]
    for node in instance.nodes:
        found.append(_node(node))
        if node.used[0]:
            found.append(_filler(node))
    for gang in instance.gangs:
        found.append(_pod_group(gang, instance))
        found += _pods(gang)
    return found


def _custom(kind: str, name: str, spec: Manifest) -> Manifest:
    return {"apiVersion": f"{GROUP}/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def _topology() -> Manifest:
    levels = [{"name": name, "nodeLabel": label} for name, label in zip(LEVELS, LABELS, strict=True)]
    return _custom("Topology", "default", {"levels": levels})


def _priority(tier: int) -> Manifest:
    name, value = f"tier-{tier}", 1000 - 100 * tier
    return {
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value
    }  # fmt: skip


def _queue(queue: Queue, queues: tuple[Queue, ...]) -> Manifest:
    spec: Manifest = {"limit": {"cpu": f"{queue.cpu}m", "nvidia.com/gpu": str(queue.gpu)}}
    if queue.parent >= 0:
        spec["parent"] = queues[queue.parent].name
    return _custom("Queue", queue.name, spec)


def _amounts(cpu: int, memory: int, gpu: int) -> dict[str, str]:
    found = {"cpu": f"{cpu}m", "memory": f"{memory // MIB}Mi"}
    return found | ({"nvidia.com/gpu": str(gpu)} if gpu else {})


def _node(node: Node) -> Manifest:
    labels = {
        LABELS[0]: f"zone-{node.zone}",
        LABELS[1]: f"block-{node.block}",
        LABELS[2]: f"rack-{node.rack}",
        "kubernetes.io/hostname": node.name,
        "example.com/type": node.type.name,
    }
    if node.group >= 0:
        labels["example.com/group"] = f"group-{node.group}"
    room = _amounts(node.type.cpu, node.type.memory, node.type.gpu) | {"pods": str(MAX_PODS)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": labels},
        "spec": {"taints": [TAINT]} if node.tainted else {},
        "status": {
            "allocatable": room,
            "capacity": room,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _filler(node: Node) -> Manifest:
    container = {
        "name": "main",
        "image": "example.com/filler:1",
        "resources": {"requests": _amounts(*node.used), "limits": _amounts(*node.used)},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"filler-{node.name}", "namespace": "system", "uid": f"filler-{node.name}"},
        "spec": {
            "nodeName": node.name,
            "schedulerName": "default-scheduler",
            "containers": [container],
            "tolerations": [{"operator": "Exists"}],
        },
        "status": {"phase": "Running"},
    }


def _in_groups(groups: tuple[int, ...]) -> Manifest:
    names = [f"group-{group}" for group in groups]
    expression = {"key": "example.com/group", "operator": "In", "values": names}
    terms = [{"matchExpressions": [expression]}]
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}


def _created(gang: Gang) -> str:
    return (NOW - timedelta(seconds=gang.age)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _pod_group(gang: Gang, instance: Instance) -> Manifest:
    topology: Manifest = {"name": "default"}
    if gang.required >= 0:
        topology["required"] = LEVELS[gang.required]
    if gang.preferred >= 0:
        topology["preferred"] = LEVELS[gang.preferred]
    spec: Manifest = {
        "minMember": gang.min_member,
        "queue": instance.queues[gang.queue].name,
        "priorityClassName": f"tier-{gang.tier}",
    }
    if len(topology) > 1:
        spec["topology"] = topology
    found = _custom("PodGroup", gang.name, spec)
    found["metadata"] = {"name": gang.name, "namespace": "bench", "creationTimestamp": _created(gang)}
    return found


def _pods(gang: Gang) -> list[Manifest]:
    """Yield the pods of a gang by template."""
    found: list[Manifest] = []
    for number, template in enumerate(gang.templates):
        amounts = _amounts(template.cpu, template.memory, template.gpu)
        spec: Manifest = {
            "schedulerName": "batchsched",
            "priorityClassName": f"tier-{gang.tier}",
            "priority": 1000 - 100 * gang.tier,
            "containers": [
                {
                    "name": "main",
                    "image": "example.com/train:1",
                    "resources": {"requests": amounts, "limits": amounts},
                }
            ],
        }
        if gang.tolerates:
            spec["tolerations"] = [{**TAINT, "operator": "Equal"}]
        if gang.selects:
            spec["nodeSelector"] = {"example.com/type": gang.selects}
        if gang.groups:
            spec["affinity"] = {"nodeAffinity": _in_groups(gang.groups)}
        for index in range(template.count):
            name = f"{gang.name}-{number}-{index}"
            metadata = {
                "name": name,
                "namespace": "bench",
                "uid": name,
                "creationTimestamp": _created(gang),
                "labels": {f"{GROUP}/pod-group": gang.name},
            }
            pod: Manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            found.append(pod | {"status": {"phase": "Pending"}})
    return found
