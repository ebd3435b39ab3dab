"""The cache: one event, a Snapshot after it, and memory, at 10,000 nodes and 100,000 pods."""

import argparse
import gc
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count, cycle, islice
from statistics import median
from typing import Any

import msgspec

from batchsched.api.core.node import Node
from batchsched.api.core.pod import SCHEDULER_NAME, Pod
from batchsched.state.cluster_state import ClusterState
from batchsched.state.debugger import compare_snapshots

SHAPES = 40
"""Templates of pods; the pods of one share nothing in memory here, as a decoder leaves them that shares nothing."""
BATCH = 1000
ROUNDS = 50
VERSIONS = count(1)


def node(at: int) -> Node:
    """Return a Node as the API server sends it."""
    meta = {"name": f"node-{at:05}", "uid": f"node-{at}", "labels": {"zone": f"z{at % 10}"}}
    offered = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    content = {"metadata": meta | version(), "status": {"allocatable": offered}}
    return msgspec.convert(content, Node)


def pod(at: int, on: str = "", label: str = "") -> Pod:
    """Return a Pod of one of the templates, with the volume of a service account that every pod has."""
    meta = {
        "name": f"pod-{at:06}",
        "namespace": f"team-{at % 20}",
        "uid": f"pod-{at}",
        "labels": {"run": label},
    }
    requests = {"cpu": f"{100 * (1 + at % SHAPES)}m", "memory": "1Gi"}
    spec = {
        "schedulerName": SCHEDULER_NAME,
        "nodeName": on,
        "containers": [{"name": "main", "image": "registry/app:1", "resources": {"requests": requests}}],
        "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}],
        "volumes": [{"name": f"kube-api-access-{at}"}],
    }
    status = {"phase": "Running" if on else "Pending"}
    return msgspec.convert({"metadata": meta | version(), "spec": spec, "status": status}, Pod)


def version() -> dict[str, str]:
    """Return the next resourceVersion."""
    return {"resourceVersion": str(next(VERSIONS))}


def resident() -> float:
    """Return the peak resident memory of this process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def spent(work: Callable[[], object]) -> float:
    """Return the CPU seconds of a call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def each(do: Callable[[Any], object], some: Sequence[Any]) -> None:
    """Call a function with each item."""
    for one in some:
        do(one)


def rounds(cache: ClusterState, events: Iterator[Any]) -> tuple[float, float, float]:
    """Return CPU seconds: of one event, of the changes that follow from it, and of a Snapshot after it (median)."""
    some = list(islice(events, BATCH))
    reader = cache.create_change_reader()
    reader.read_changes()
    put = spent(lambda: each(cache.put, some)) / BATCH
    told = spent(reader.read_changes) / BATCH
    frozen = []
    for event in islice(events, ROUNDS):
        cache.put(event)
        frozen.append(spent(cache.snapshot))
    return put, told, median(frozen)


def main(arguments: list[str]) -> int:
    """Fill a cluster state, and measure it."""
    parser = argparse.ArgumentParser(prog="python -m bench cache", description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--pods", type=int, default=100_000)
    chosen = parser.parse_args(arguments)
    start = resident()
    nodes = [node(at) for at in range(chosen.nodes)]
    pods = [pod(at, on=f"node-{at % chosen.nodes:05}") for at in range(chosen.pods)]
    decoded = resident()
    cache = ClusterState()
    filled = spent(lambda: cache.replace(Node, nodes))
    filled += spent(lambda: cache.replace(Pod, pods)) + spent(cache.snapshot)
    gc.freeze()
    print(
        f"objects {decoded - start:.0f} MiB, the cache {resident() - decoded:.0f} MiB more, all {resident():.0f} MiB"
    )
    print(f"first list and Snapshot {filled:.2f} s")
    fresh = count(chosen.pods)
    kinds = {
        "pod changes": (
            pod(at, on=f"node-{at % chosen.nodes:05}", label="x") for at in cycle(range(chosen.pods))
        ),
        "pod comes": (pod(at) for at in fresh),
        "node comes": (node(at) for at in count(chosen.nodes)),
    }
    for name, events in kinds.items():
        put, told, frozen = rounds(cache, events)
        print(
            f"{name}: event {put * 1e6:.1f} us, changes {told * 1e6:.1f} us, Snapshot {frozen * 1e3:.2f} ms"
        )
    keys = [one.key for one in cache.snapshot().pods if not one.node_name]
    assumed = spent(lambda: each(partial(cache.assume_pod, node="node-00000", now=0.0), keys)) / max(
        1, len(keys)
    )
    compared = spent(
        lambda: compare_snapshots(
            cache.snapshot_without_assumptions(),
            cache.snapshot_without_assumptions(),
            cache.scheduler_names,
        )
    )
    print(f"assume {assumed * 1e6:.1f} us a pod; comparing with a list {compared:.2f} s")
    return 0
