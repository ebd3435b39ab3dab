"""Nodes that flap, five times a second, while gangs arrive."""

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from tests.controlplane.fixtures import Namespace, eventually
from tests.controlplane.objects import node
from tests.controlplane.plane import ApiFault
from tests.e2e.running import bound, pods
from tests.faults.load import Batch, Load
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


@contextmanager
def repeating(*steps: Callable[[], None]) -> Iterator[None]:
    """Repeat steps in turn in the background, `2 * HERTZ` in a second, and end with the last one."""
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            for step in steps:
                step()
                time.sleep(0.5 / HERTZ)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


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


def replace_pods_of_missing_nodes(namespace: Namespace, load: Load, batches: list[Batch]) -> None:
    """Delete the pods of nodes that do not exist and create them again, as controllers do."""
    existing = {one["metadata"]["name"] for one in namespace.api.get("/api/v1/nodes")["items"]}
    for name, on in bound(namespace).items():
        if on not in existing:
            with suppress(ApiFault):
                namespace.api.delete(namespace.path("pods", name))
    present = pods(namespace)
    for batch in batches:
        for job in batch.jobs:
            for name in job.pods:
                if name not in present:
                    load.create_pod(job, name)


def test_gangs_are_bound_completely_while_nodes_flap(plane, scheduler, namespace, record_property):
    """Half of the nodes become unready or are deleted and created again; one of the deleted ones does not return."""
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
            ),
            repeating(lambda: delete_nodes(namespace, deleted), lambda: create_nodes(namespace, deleted)),
            load.submitting(batches[0], SECONDS / 2),
            load.submitting(batches[1], SECONDS),
        ):
            time.sleep(SECONDS)
        delete_nodes(namespace, deleted[:1])
        began = time.monotonic()

        def all_bound_to_existing_nodes() -> bool:
            replace_pods_of_missing_nodes(namespace, load, batches)
            places = bound(namespace)
            return len(places) == 2 * PODS and deleted[0] not in places.values()

        eventually(all_bound_to_existing_nodes)
        seconds = time.monotonic() - began
        print(f"all bound {seconds:.1f} s after the nodes were steady")
        record_property("recovery_seconds", seconds)
        assert all(load.whole(batch, witness) for batch in batches)
        assert {name: count for batch in batches for name, count in load.half([batch], witness).items()} == {}
