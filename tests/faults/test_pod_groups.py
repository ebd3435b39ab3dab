"""PodGroups with a status that a tenant wrote, and objects that an earlier version of the CRDs stored."""

import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from batchsched.api.crd.base import API_VERSION
from tests.controlplane.fixtures import QUEUES, TOPOLOGIES, Namespace, eventually
from tests.controlplane.objects import custom, pod_group
from tests.controlplane.plane import DEFINITIONS, ControlPlane, install_definitions
from tests.e2e.running import all_bound, bound, group, never
from tests.faults.replicas import Replica, running
from tests.faults.witness import Witness

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
EARLIER_CRDS = Path(__file__).with_name("earlier_crds.yaml")
CPUS = 8
LEVEL = {"name": "host", "nodeLabel": "kubernetes.io/hostname"}
LONG_AGO = "2001-01-01T00:00:00Z"
FORGED: dict[str, Any] = {
    "phase": "Running",
    "placed": 4,
    "running": 4,
    "wholeSince": LONG_AGO,
    "partiallyBoundSince": LONG_AGO,
    "conditions": [
        {
            "type": "Scheduled",
            "status": "True",
            "reason": "Forged",
            "message": "",
            "lastTransitionTime": LONG_AGO,
        }
    ],
}

pytestmark = pytest.mark.slow


def path(namespace: Namespace, name: str = "", subresource: str = "") -> str:
    return namespace.path("podgroups", name + subresource, group=API_VERSION)


def status_of(namespace: Namespace, name: str) -> dict[str, Any]:
    status: dict[str, Any] = namespace.api.get(path(namespace, name)).get("status", {})
    return status


def is_rewritten(namespace: Namespace, name: str) -> bool:
    return bool(status_of(namespace, name).get("wholeSince", LONG_AGO) != LONG_AGO)


def forge_status(namespace: Namespace, name: str) -> None:
    namespace.api.merge(path(namespace, name, "/status"), {"status": FORGED})


def gang(namespace: Namespace, name: str, size: int, **spec: Any) -> None:
    group(namespace, name, size, **spec)
    namespace.pods(size, prefix=name, gang=name, cpu=1)


# A status that a tenant wrote


def test_gang_with_a_forged_status_waits_for_its_minimum(scheduler, namespace):
    """The status is forged when the PodGroup is created, and before its pods exist."""
    namespace.nodes(1, cpu=3)
    namespace.api.create(path(namespace), pod_group("created", 4) | {"status": FORGED})
    group(namespace, "patched", 4)
    forge_status(namespace, "patched")
    for name in ("created", "patched"):
        namespace.pods(4, prefix=name, gang=name, cpu=1)
    never(lambda: bound(namespace))
    names = ("created", "patched")
    eventually(lambda: {status_of(namespace, name).get("phase") for name in names} == {"Pending"}, 10)
    namespace.nodes(2, prefix="more", cpu=CPUS)
    for name in names:
        all_bound(namespace, name, 4, 20)
        eventually(partial(is_rewritten, namespace, name), 10)
        assert status_of(namespace, name)["phase"] in ("Scheduled", "Running")


def test_status_that_is_forged_while_the_pods_are_pending_is_written_again(scheduler, namespace):
    namespace.nodes(1, cpu=3)
    gang(namespace, "pending", 4)
    eventually(lambda: status_of(namespace, "pending").get("conditions"))
    forge_status(namespace, "pending")
    eventually(lambda: status_of(namespace, "pending").get("phase") == "Pending", 10)


def test_new_leader_evicts_no_pod_of_a_whole_gang_with_a_forged_status(plane, namespace):
    namespace.nodes(2, cpu=CPUS)
    scheduler = Replica(plane, name="forged")
    with Witness(plane.admin, CPUS).watching() as witness, running(scheduler):
        for name in ("whole", "shrunk"):
            gang(namespace, name, 4, scheduleTimeoutSeconds=1, strandedPolicy="Rollback")
            all_bound(namespace, name, 4)
        eventually(lambda: "wholeSince" in status_of(namespace, "shrunk"), 10)
        scheduler.end(signal.SIGKILL)
        namespace.api.delete(namespace.path("pods", "shrunk-0"))
        for name in ("whole", "shrunk"):
            forge_status(namespace, name)
        scheduler.start()
        gang(namespace, "next", 4)
        all_bound(namespace, "next", 4)
        time.sleep(3)
        assert witness.gone == {f"{namespace.name}/shrunk-0": 1}


# Stored objects


def earlier_crds() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(EARLIER_CRDS.read_text()))


def apply_present_crds(plane: ControlPlane) -> None:
    """Apply the CRDs as `kubectl apply --server-side` does."""
    for file in sorted(DEFINITIONS.glob("*.yaml")):
        body = yaml.safe_load(file.read_text())
        name = body["metadata"]["name"]
        where = f"{CRDS}/{name}?fieldManager=tests&force=true"
        plane.admin.call("PATCH", where, body, "application/apply-patch+yaml")


def test_gangs_of_stored_objects_are_bound_after_the_crds_are_upgraded(own_plane):
    """A scheduler follows the objects meanwhile, and keeps in their status what the earlier version could not keep."""
    plane, namespace = own_plane, Namespace(own_plane.admin, "default")
    install_definitions(plane.admin, earlier_crds())
    namespace.nodes(2, cpu=CPUS)
    plane.admin.create(QUEUES, custom("Queue", "root", limit={"cpu": 16}, userLimits={"cpu": 16}))
    leaf = {"parent": "root", "weight": 2, "guarantee": {"cpu": 8}, "lendingLimit": {"cpu": 4}}
    plane.admin.create(QUEUES, custom("Queue", "leaf", **leaf, policy={"name": "drf"}))
    plane.admin.create(TOPOLOGIES, custom("Topology", "default", levels=[LEVEL]))
    parts = [{"name": "head", "minMember": 1}, {"name": "workers", "minMember": 2}]
    stored = {"queue": "leaf", "topology": {"required": "host"}, "minResources": {"cpu": "4"}}
    gang(namespace, "whole", 4, **stored, disruptionMode="Elastic", preemptible=False)
    group(namespace, "pending", 4, **stored, subGroups=parts, strandedPolicy="Rollback")
    written = {"phase": "Pending", "placed": 0, "running": 0, "queuePosition": 1}
    namespace.api.merge(path(namespace, "pending", "/status"), {"status": written})

    scheduler = Replica(plane, name="upgraded")
    with Witness(plane.admin, CPUS).watching(), running(scheduler):
        all_bound(namespace, "whole", 4)
        apply_present_crds(plane)
        labels = "scheduling.batchsched.dev/sub-group"
        namespace.pod("head", gang="pending", labels={labels: "head"}, cpu=1)
        for number in range(3):
            namespace.pod(f"worker-{number}", gang="pending", labels={labels: "workers"}, cpu=1)
        assert len(set(all_bound(namespace, "pending", 4).values())) == 1
        eventually(lambda: "wholeSince" in status_of(namespace, "pending"), 20)
        namespace.pod("lone", labels={"scheduling.batchsched.dev/queue": "leaf"}, cpu=1)
        eventually(lambda: "lone" in bound(namespace), 20)
        scheduler.end()
        scheduler.start()
        gang(namespace, "next", 2, queue="leaf")
        all_bound(namespace, "next", 2)
        eventually(lambda: "wholeSince" in status_of(namespace, "whole"), 20)
