"""The scheduling queue in a storm of events: 100,000 updates of nodes and pods, with the default plugins' hints."""

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec

from batchsched.api.core.node import Node
from batchsched.api.core.pod import POD_GROUP_LABEL, SCHEDULER_NAME, Pod
from batchsched.config.schema import Profile
from batchsched.framework.events import EventResource
from batchsched.framework.runtime.registry import standard_registry
from batchsched.scheduling_queue.queue import SchedulingQueue

ZONES = 10
CPU_SIZES = ("1", "2", "4", "8")
NAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def node(at: int, random: Random, cpu: str = "8") -> Node:
    """Return a node with random labels, taints, conditions and size."""
    labels = {NAME: f"n{at}", ZONE: f"z{at % ZONES}", "pool": random.choice("ab")}
    taints = [{"key": "drain", "effect": "NoSchedule"}] if random.random() < 0.1 else []
    status = {
        "allocatable": {"cpu": cpu, "memory": "64Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": random.choice(("True", "False"))}],
    }
    content = {"metadata": {"name": f"n{at}", "labels": labels}, "spec": {"taints": taints}, "status": status}
    return msgspec.convert(content, Node)


def pod(name: str, kind: int, gang: str = "", on: str = "") -> Pod:
    """Return a pod of one of forty kinds that differ in size, selectors, ports, spreading and affinity."""
    app = {"app": f"a{kind % 8}"}
    member = {POD_GROUP_LABEL: gang} if gang else {}
    selector = {"matchLabels": app}
    spec: dict[str, Any] = {"schedulerName": SCHEDULER_NAME, "nodeName": on}
    ports = [{"containerPort": 80, "hostPort": 8000 + kind}] if kind % 5 == 0 else []
    requests = {"cpu": CPU_SIZES[kind % 4], "memory": f"{1 + kind % 3}Gi"}
    spec["containers"] = [{"name": "c", "resources": {"requests": requests}, "ports": ports}]
    if kind % 5 == 1:
        spec["nodeSelector"] = {"pool": "abcd"[kind // 5 % 4]}
    if kind % 5 == 2:
        spread = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
        spec["topologySpreadConstraints"] = [spread | {"labelSelector": selector}]
    if kind % 5 == 3:
        term = {"topologyKey": ZONE, "labelSelector": selector}
        named = "requiredDuringSchedulingIgnoredDuringExecution"
        spec["affinity"] = {"podAntiAffinity": {named: [term]}}
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": app | member}
    return msgspec.convert({"metadata": metadata, "spec": spec}, Pod)


def refusing(one: Pod) -> tuple[str, ...]:
    """Return the plugins that refuse a pod of this kind."""
    if one.spec.containers[0].ports:
        return ("NodePorts",)
    if one.spec.node_selector:
        return ("NodeAffinity",)
    if one.spec.topology_spread_constraints:
        return ("PodTopologySpread",)
    return ("InterPodAffinity" if one.spec.affinity else "NodeResourcesFit"), "TaintToleration"


def storm(random: Random, events: int, nodes: int) -> Iterator[tuple[EventResource, Any, Any]]:
    """Yield the events: heartbeats, labels, cordons and sizes of nodes; pods that are bound, changed and deleted."""
    there = [node(at, random) for at in range(nodes)]
    bound: list[Pod] = []
    for count in range(events):
        if random.random() < 0.5:
            at = random.randrange(nodes)
            old, there[at] = there[at], node(at, random, random.choice(CPU_SIZES))
            yield EventResource.NODE, old, there[at]
        elif bound and random.random() < 0.5:
            yield EventResource.ASSIGNED_POD, bound.pop(random.randrange(len(bound))), None
        else:
            bound.append(pod(f"b{count}", random.randrange(40), on=f"n{random.randrange(nodes)}"))
            yield EventResource.ASSIGNED_POD, None, bound[-1]


def fill(queue: SchedulingQueue, pods: int, gangs: int) -> None:
    """Add single pods and gangs of ten pods, and refuse them."""
    for at in range(pods):
        queue.add_pod(pod(f"p{at}", at % 40), 0.0)
    for at in range(gangs):
        for member in range(10):
            queue.add_pod(pod(f"g{at}-{member}", at % 40, f"g{at}"), 0.0)
    refuse(queue, 0.0)


def refuse(queue: SchedulingQueue, now: float, *, early: bool = False) -> int:
    """Refuse all active entities, and with `early` also those that back off, by the plugins of their kind."""
    began = []
    while (entity := queue.pop(now, early=early)) is not None:
        began.append(entity)
    for entity in began:
        queue.add_unschedulable(entity, refusing(entity.popped[0]), now)
    return len(began)


def main(arguments: list[str]) -> int:
    """Send all events to the queue and print the duration; the virtual clock advances 1 ms for each event."""
    parser = argparse.ArgumentParser(prog="python -m bench event_storm", description=__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=5_000, help="pending single pods")
    parser.add_argument("--gangs", type=int, default=500, help="pending gangs of ten")
    chosen = parser.parse_args(arguments)
    queue = SchedulingQueue(standard_registry().create_pipeline(Profile()))
    fill(queue, chosen.pods, chosen.gangs)
    entities = sum(queue.pending_pod_counts().values())
    happened = list(storm(Random(0), chosen.events, chosen.nodes))
    cycles, unschedulable, began = 0, 0, time.process_time()
    for at, (resource, old, new) in enumerate(happened):
        queue.process_object_change(resource, old, new, at / 1000)
        if at % 1000 == 0:
            queue.flush_expired_entities(at / 1000)
            unschedulable += queue.pending_pod_counts()["unschedulable"]
            cycles += refuse(queue, at / 1000)
    took = time.process_time() - began
    left, each = sum(queue.pending_pod_counts().values()), took / chosen.events * 1e6
    asked = unschedulable * 1000 // chosen.events
    print(f"{chosen.events} events, {entities} pods waiting: {took:.1f} s of CPU, {each:.0f} µs each")
    print(f"{asked} pods were unschedulable on average; {cycles} cycles of gangs and pods meanwhile")
    print(f"{left} pods wait still; hints that broke: {sum(queue.hint_failure_counts().values())}")
    by_queue: Counter[str] = Counter()
    for (place, _), count in queue.moved_pod_counts().items():
        by_queue[place] += count
    print("moves of pods: " + ", ".join(f"{place} {count}" for place, count in sorted(by_queue.items())))
    return int(left != entities)


if __name__ == "__main__":
    import sys

    sys.exit(main(sys.argv[1:]))
