"""A status on a real API server: it is written to the object from which it was computed, and keeps other conditions."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from batchsched.api.crd.base import API_VERSION
from batchsched.api.crd.podgroup import PodGroup
from batchsched.controllers.event_recorder import EventRecorder, WriteDelay
from batchsched.controllers.refusal_history import GangStatusRecords
from batchsched.controllers.status_controller import StatusController
from batchsched.kube.clock import SystemClock
from batchsched.kube.connection import Connection
from batchsched.kube.credentials import CredentialsReader
from batchsched.kube.writer import Writer
from batchsched.podgrouper.pod_group_index import PodGroupIndex, PodGroupStore
from batchsched.state.cluster_state import ClusterState
from tests.controlplane.fixtures import Namespace
from tests.controlplane.plane import ControlPlane

QUOTA = {
    "type": "QuotaReserved",
    "status": "True",
    "reason": "Quota",
    "message": "by another controller",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


@asynccontextmanager
async def controller(plane: ControlPlane, cache: ClusterState) -> AsyncIterator[StatusController]:
    clock, delay = SystemClock(), WriteDelay(SystemClock(), lambda: False)
    async with Connection(CredentialsReader(plane.kubeconfig()), clock) as connection:
        writer = Writer(connection, clock)
        recorder = EventRecorder(writer, clock, delay, "batchsched")
        yield StatusController(cache, GangStatusRecords(), writer, recorder, delay, clock)


def created(namespace: Namespace, path: str) -> dict[str, Any]:
    namespace.gang("bert", 0, 2)
    return namespace.api.get(path)


def watch(cache: ClusterState, stored: dict[str, Any]) -> None:
    shown = {name: part for name, part in stored.items() if name in ("metadata", "spec", "status")}
    PodGroupStore(PodGroupIndex(cache)).put(PodGroup.model_validate(shown))


async def test_new_pod_group_does_not_get_the_status_of_a_deleted_one_of_its_name(plane, namespace):
    path, cache = namespace.path("podgroups", "bert", group=API_VERSION), ClusterState(["batchsched"])
    watch(cache, created(namespace, path))
    namespace.api.delete(path)
    recreated = created(namespace, path)
    async with controller(plane, cache) as status:
        await status.run_once()
        assert "status" not in namespace.api.get(path)
        watch(cache, recreated)
        await status.run_once()
    assert namespace.api.get(path)["status"]["phase"] == "Pending"


async def test_condition_that_another_client_writes_meanwhile_stays(plane, namespace):
    path, cache = namespace.path("podgroups", "bert", group=API_VERSION), ClusterState(["batchsched"])
    watch(cache, created(namespace, path))
    namespace.api.merge(f"{path}/status", {"status": {"conditions": [QUOTA]}})
    async with controller(plane, cache) as status:
        await status.run_once()
        watch(cache, namespace.api.get(path))
        await status.run_once()
    conditions = namespace.api.get(path)["status"]["conditions"]
    assert sorted(one["type"] for one in conditions) == ["QuotaReserved", "Scheduled"]


async def test_status_that_another_client_overwrites_is_written_again(plane, namespace):
    path, cache = namespace.path("podgroups", "bert", group=API_VERSION), ClusterState(["batchsched"])
    watch(cache, created(namespace, path))
    async with controller(plane, cache) as status:
        await status.run_once()
        namespace.api.merge(f"{path}/status", {"status": {"phase": "Succeeded"}})
        watch(cache, namespace.api.get(path))
        await status.run_once()
    assert namespace.api.get(path)["status"]["phase"] == "Pending"
