"""Nodes that flap, five times a second, while gangs arrive."""

import os
import random
import time

import pytest

from tests.controlplane.background import repeating
from tests.controlplane.fixtures import Namespace, eventually
from tests.controlplane.objects import node
from tests.faults.load import Load
from tests.faults.witness import Witness

CPUS = 16
PODS = 60
STEADY, TAINTED, DELETED = 4, 3, 3
"""Number of nodes that do not change, that become unready, and that are deleted and created again."""
HERTZ = 5
SECONDS = float(os.environ.get("BATCHSCHED_FLAPPING", "6"))
"""`make soak` takes longer."""
NOT_READY = [
    {"key": "node.kubernetes.io/not-ready", "effect": effect, "timeAdded": "2026-01-01T00:00:00Z"}
    for effect in ("NoSchedule", "NoExecute")
]

pytestmark = pytest.mark.slow


def set_ready(namespace: Namespace, names: list[str], *, ready: bool) -> None:
    """Set the condition and the taints of nodes, as a kubelet and the node lifecycle controller do."""
    condition = {"type": "Ready", "status": str(ready), "reason": "Test"}
    for name in names:
        namespace.api.merge(f"/api/v1/nodes/{name}/status", {"status": {"conditions": [condition]}})
        namespace.api.merge(f"/api/v1/nodes/{name}", {"spec": {"taints": None if ready else NOT_READY}})


def delete_nodes(namespace: Namespace, names: list[str]) -> None:
    for name in names:
        namespace.api.delete(f"/api/v1/nodes/{name}")


def create_nodes(namespace: Namespace, names: list[str]) -> None:
    for name in names:
        namespace.api.create("/api/v1/nodes", node(name, cpu=CPUS))


def test_gangs_are_bound_completely_while_nodes_flap(plane, scheduler, namespace, record_property):
    """More than half of the nodes become unready, or are deleted and created again."""
    namespace.nodes(STEADY, prefix="steady", cpu=CPUS)
    tainted = [one["metadata"]["name"] for one in namespace.nodes(TAINTED, prefix="tainted", cpu=CPUS)]
    deleted = [one["metadata"]["name"] for one in namespace.nodes(DELETED, prefix="deleted", cpu=CPUS)]
    load = Load(namespace, random.Random(17))
    with Witness(plane.admin, CPUS).watching() as witness:
        batches = [load.batch(PODS), load.batch(PODS)]
        with (
            repeating(
                lambda: set_ready(namespace, tainted, ready=False),
                lambda: set_ready(namespace, tainted, ready=True),
                seconds=0.5 / HERTZ,
            ),
            repeating(
                lambda: delete_nodes(namespace, deleted),
                lambda: create_nodes(namespace, deleted),
                seconds=0.5 / HERTZ,
            ),
            load.submitting(batches[0], SECONDS / 2),
            load.submitting(batches[1], SECONDS),
        ):
            time.sleep(SECONDS)
        began = time.monotonic()
        eventually(lambda: all(load.whole(batch, witness) for batch in batches))
        seconds = time.monotonic() - began
        print(f"all bound {seconds:.1f} s after the nodes were steady")
        record_property("recovery_seconds", seconds)
        load.check(batches, witness)
