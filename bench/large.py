"""Seconds and memory of one session over clusters of 1,000 to 65,000 nodes, and the exponent of growth.

Each size runs in a process of its own, so that the peak of its memory is its own. Nodes have 8 GPUs, 96 CPUs and 1 TiB,
in racks of 16. Running pods, of the stated number, use up to eight CPUs and two GPUs each. Pending gangs of 8 to 256
pods request 1 to 8 GPUs for each pod; a quarter prefers a rack. CPU seconds count all threads.
"""

import argparse
import json
import math
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from batchsched.api.core.metadata import ObjectMeta
from batchsched.api.core.node import Node, NodeStatus
from batchsched.api.core.pod import (
    POD_GROUP_LABEL,
    SCHEDULER_NAME,
    Container,
    Pod,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)
from batchsched.api.core.requests import pod_requests
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.crd.topology import Topology
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.session.session import Session

NOW: Final = 1767225600.0
CREATED: Final = "2025-12-31T00:00:00Z"
GPU: Final = "nvidia.com/gpu"
RACK_LABEL: Final = "example.com/rack"
RACK: Final = 16
SIZES: Final = (
    "1000:7500:500",
    "5000:38000:500",
    "20000:150000:500",
    "65000:500000:500",
    "65000:500000:2000",
)
COLUMNS: Final = (
    "nodes",
    "bound pods",
    "gangs (pods)",
    "tables, CPU s",
    "first session",
    "next session",
    "peak MiB",
    "pods placed",
    "gap",
)
GANG_PODS: Final = (8, 16, 32, 64, 128, 256)
RUNNING_GPUS: Final = (0, 0, 0, 1, 1, 2)
"""GPUs of a running pod; a node has about eight of them, and six of its GPUs are used."""


def cluster(nodes: int, bound: int, gangs: int, seed: int) -> Snapshot:
    """Return a cluster with bound pods and pending gangs."""
    draw = random.Random(seed)
    free = [8] * nodes
    pods = [*_running(nodes, bound, free, draw)]
    groups: list[PodGroup] = []
    for number in range(gangs):
        group, members = _gang(number, draw)
        groups.append(group)
        pods += members
    topology = Topology.model_validate(
        {"metadata": {"name": "default"}, "spec": {"levels": [{"name": "rack", "nodeLabel": RACK_LABEL}]}}
    )
    made = tuple(_node(number) for number in range(nodes))
    return Snapshot(nodes=made, pods=tuple(pods), pod_groups=tuple(groups), topologies=(topology,))


def _node(number: int) -> Node:
    name = f"n{number:05d}"
    labels = {"kubernetes.io/hostname": name, RACK_LABEL: f"rack-{number // RACK}"}
    amounts: dict[str, str | int | float] = {"cpu": "96", "memory": "1Ti", GPU: "8", "pods": "110"}
    return Node(metadata=ObjectMeta(name=name, labels=labels), status=NodeStatus(allocatable=amounts))


def _spec(gpus: int, cpus: int, node: str = "") -> PodSpec:
    requests: dict[str, str | int | float] = {"cpu": str(cpus), "memory": f"{8 * cpus}Gi"}
    if gpus:
        requests[GPU] = str(gpus)
    container = Container(name="main", resources=ResourceRequirements(requests=requests))
    return PodSpec(scheduler_name=SCHEDULER_NAME, containers=(container,), node_name=node)


def _running(nodes: int, bound: int, free: list[int], draw: random.Random) -> Iterator[Pod]:
    """Yield bound pods, each with a spec of its own, as the API server sends them."""
    status = PodStatus(phase="Running", start_time=CREATED)
    for number in range(bound):
        node = number % nodes
        gpus = min(free[node], draw.choice(RUNNING_GPUS))
        free[node] -= gpus
        meta = ObjectMeta(name=f"run-{number}", namespace="default", creation_timestamp=CREATED, labels={})
        yield Pod(metadata=meta, spec=_spec(gpus, draw.randint(1, 8), f"n{node:05d}"), status=status)


def _gang(number: int, draw: random.Random) -> tuple[PodGroup, list[Pod]]:
    name, size, gpus = f"gang-{number:04d}", draw.choice(GANG_PODS), draw.choice((1, 2, 4, 8))
    spec: dict[str, Any] = {"minMember": size}
    if draw.random() < 0.25:
        spec["topology"] = {"preferred": "rack"}
    meta = {"name": name, "namespace": "default", "creationTimestamp": CREATED}
    group = PodGroup.model_validate({"metadata": meta, "spec": spec})
    shared = _spec(gpus, 4 * gpus)
    labels = {POD_GROUP_LABEL: name}
    return group, [
        Pod(
            metadata=ObjectMeta(
                name=f"{name}-{at}", namespace="default", labels=labels, creation_timestamp=CREATED
            ),
            spec=shared,
        )
        for at in range(size)
    ]


def measure(nodes: int, bound: int, gangs: int, seed: int) -> dict[str, float]:
    """Build the tables of a cluster and decide two sessions; return CPU seconds, gap, placed pods and peak memory."""
    there = cluster(nodes, bound, gangs, seed)
    objects = _peak_mib()
    begun = time.process_time()
    session = Session(there, Profile(session_window=max(gangs, 1)))
    built = time.process_time()
    decision = session.decide(NOW, seed)
    first = time.process_time()
    session.decide(NOW, seed)
    second = time.process_time()
    return {
        "build": built - begun,
        "first": first - built,
        "again": second - first,
        "objectsMiB": objects,
        "peakMiB": _peak_mib(),
        "gap": decision.solver.gap,
        "placed": len(decision.assignments),
        "pending": sum(1 for pod in there.pods if not pod.node_name),
    }


def compare_partitions(nodes: int, bound: int, gangs: int, seed: int, parts: int) -> str:
    """Return what is placed in the whole cluster, and in parts of it that are solved separately."""
    there = cluster(nodes, bound, gangs, seed)
    whole = _gpus_placed(there, gangs)
    size = -(-nodes // parts)
    part_of_node = {node.name: number // size for number, node in enumerate(there.nodes)}
    part_of_gang = {group.name: number % parts for number, group in enumerate(there.pod_groups)}

    def part_of(pod: Pod) -> int:
        return part_of_node[pod.node_name] if pod.node_name else part_of_gang[pod.labels[POD_GROUP_LABEL]]

    gpus = pods = 0
    for part in range(parts):
        inside = replace(
            there,
            nodes=tuple(node for node in there.nodes if part_of_node[node.name] == part),
            pods=tuple(pod for pod in there.pods if part_of(pod) == part),
            pod_groups=tuple(group for group in there.pod_groups if part_of_gang[group.name] == part),
        )
        placed = _gpus_placed(inside, gangs)
        gpus, pods = gpus + placed[0], pods + placed[1]
    return (
        f"{nodes:,} nodes, {gangs:,} gangs: together {whole[0]:,} GPUs in {whole[1]:,} pods, in {parts} parts "
        f"{gpus:,} GPUs in {pods:,} pods: {1 - gpus / whole[0]:.2%} fewer GPUs"
    )


def _gpus_placed(there: Snapshot, gangs: int) -> tuple[int, int]:
    """Return the GPUs and the pods that one session places."""
    decision = Session(there, Profile(session_window=max(gangs, 1))).decide(NOW, 0)
    gpus = {pod.key: pod_requests(pod).get(GPU, 0) for pod in there.pods if not pod.node_name}
    return sum(gpus[entry.pod_key] for entry in decision.assignments), len(decision.assignments)


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(arguments: Sequence[str]) -> int:
    """Measure each size in a process of its own, and print a table and the exponents of growth."""
    parser = argparse.ArgumentParser(prog="python -m bench large", description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), metavar="NODES:PODS:GANGS")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--partitions",
        type=int,
        default=0,
        help="decide each size also in parts of equal numbers of nodes, with the gangs dealt out in turn",
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.one:
        print(json.dumps(measure(*_size(chosen.one), chosen.seed)))
        return 0
    if chosen.partitions:
        for text in chosen.sizes:
            print(compare_partitions(*_size(text), chosen.seed, chosen.partitions))
        return 0
    print(f"| {' | '.join(COLUMNS)} |")
    print("|---" * len(COLUMNS) + "|")
    rows = []
    for text in chosen.sizes:
        command = [sys.executable, "-m", "bench", "large", "--one", text, "--seed", str(chosen.seed)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        row = json.loads(done.stdout.splitlines()[-1])
        nodes, bound, gangs = _size(text)
        rows.append((nodes, gangs, row))
        print(
            f"| {nodes:,} | {bound:,} | {gangs:,} ({row['pending']:,}) | {row['build']:.1f} | {row['first']:.1f} | "
            f"{row['again']:.1f} | {row['peakMiB']:,.0f} | {row['placed']:,} | {row['gap']:.2%} |",
            flush=True,
        )
    _print_exponents(rows)
    return 0


def _print_exponents(rows: Sequence[tuple[int, int, dict[str, float]]]) -> None:
    """Print the exponents between the smallest and the largest cluster with equal gangs."""
    same = [row for row in rows if row[1] == rows[0][1]]
    (few, _, small), (many, _, large) = min(same, key=_nodes_of), max(same, key=_nodes_of)
    if few == many:
        return
    said = (
        f"{name} {math.log(large[name] / small[name]) / math.log(many / few):.2f}"
        for name in ("build", "first", "again", "peakMiB")
        if small[name] > 0 and large[name] > 0
    )
    print(f"exponents of growth from {few:,} to {many:,} nodes: {', '.join(said)}")


def _nodes_of(row: tuple[int, int, dict[str, float]]) -> int:
    return row[0]


def _size(text: str) -> tuple[int, int, int]:
    nodes, bound, gangs = (int(part) for part in text.split(":"))
    return nodes, bound, gangs
