"""Pods placed per second of `decide` in the topology-aware workloads of scheduler_perf, one rack for each gang."""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.manifests.reader import read_manifests
from batchsched.ports.external import NoTelemetry
from batchsched.session.session import decide

NOW = 1767225600.0
CREATED = "2026-01-01T00:00:00Z"
RACK = "topology.kubernetes.io/rack"
NODES_PER_RACK = 100
WORKLOADS = {
    "750 gangs of 4": (750, 4),
    "1500 gangs of 4": (1500, 4),
    "2250 gangs of 4": (2250, 4),
    "3 gangs of 1000": (3, 1000),
    "6 gangs of 1000": (6, 1000),
    "9 gangs of 1000": (9, 1000),
}
"""Number of gangs and pods of each gang.

Source: test/integration/scheduler_perf/podgroup/tas of Kubernetes 1.37.2.
"""


def manifests(nodes: int, gangs: int, size: int) -> list[dict[str, Any]]:
    """Return the objects of a workload: empty nodes in racks of 100, and gangs that require one rack."""
    offered = {"cpu": "4", "memory": "32Gi", "pods": "110"}
    objects: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": f"node-{number}",
                "labels": {
                    "kubernetes.io/hostname": f"node-{number}",
                    RACK: f"rack-{number // NODES_PER_RACK}",
                },
            },
            "status": {"capacity": offered, "allocatable": offered},
        }
        for number in range(nodes)
    ]
    objects += [
        {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": f"gang-{number}", "namespace": "tas", "creationTimestamp": CREATED},
            "spec": {
                "schedulingPolicy": {"gang": {"minCount": size}},
                "schedulingConstraints": {"topology": [{"key": RACK}]},
            },
        }
        for number in range(gangs)
    ]
    requests = {"cpu": "100m", "memory": "100Mi"}
    objects += [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"pod-{number}", "namespace": "tas", "creationTimestamp": CREATED},
            "spec": {
                "schedulerName": "batchsched",
                "schedulingGroup": {"podGroupName": f"gang-{number // size}"},
                "containers": [{"name": "pause", "image": "pause", "resources": {"requests": requests}}],
            },
        }
        for number in range(gangs * size)
    ]
    return objects


def read_workload(nodes: int, gangs: int, size: int) -> Snapshot:
    """Return a workload as a Snapshot, read from a file as users' manifests are."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "workload.json"
        items = manifests(nodes, gangs, size)
        file.write_bytes(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items}))
        return read_manifests([file], NoTelemetry()).snapshot


def main(arguments: list[str]) -> int:
    """Print one row for each workload; return 1 if a gang got no place, or nodes of two racks."""
    parser = argparse.ArgumentParser(prog="python -m bench topology_aware", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000, help="number of nodes (default: %(default)s)")
    parser.add_argument(
        "--repeat", type=int, default=3, help="runs, of which the median counts (default: %(default)s)"
    )
    parser.add_argument("--workload", choices=WORKLOADS, action="append", help="a workload (default: all)")
    options = parser.parse_args(arguments)
    if options.nodes < 1 or options.repeat < 1:
        parser.error("--nodes and --repeat: expected 1 or more")
    print(f"{'workload':18} {'placed':>7} {'CPU s':>7} {'pods/s':>8}")
    code = 0
    for name in options.workload or WORKLOADS:
        gangs, size = WORKLOADS[name]
        snapshot = read_workload(options.nodes, gangs, size)
        seconds = []
        for _ in range(options.repeat):
            start = time.process_time()
            decision = decide(snapshot, Profile(), NOW, 0)
            seconds.append(time.process_time() - start)
        median = sorted(seconds)[len(seconds) // 2]
        racks: dict[int, set[int]] = {}
        for entry in decision.assignments:
            gang = int(entry.pod.removeprefix("pod-")) // size
            racks.setdefault(gang, set()).add(int(entry.node.removeprefix("node-")) // NODES_PER_RACK)
        placed = len(decision.assignments)
        if placed < gangs * size or any(len(used) > 1 for used in racks.values()):
            code = 1
        print(f"{name:18} {placed:7} {median:7.2f} {placed / median:8.0f}", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
