"""kill -9 at any moment while devices are allocated: each bound pod has its claim, and no device is given out twice."""

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import settings

from tests.controlplane.devices import (
    claims,
    consumers,
    device_class,
    devices_of,
    publish,
    template,
    used,
    with_template,
)
from tests.controlplane.fixtures import Namespace, eventually, start
from tests.controlplane.plane import ControlPlane
from tests.controlplane.process import Terms
from tests.controlplane.proxy import Proxy, lost, status
from tests.e2e.running import bound, pods
from tests.faults.kills import CPUS, Rounds, table
from tests.faults.load import Load
from tests.faults.replicas import Replica, pair, running
from tests.faults.test_control_plane import pause_etcd, recovered, restart_api_server
from tests.faults.test_partition import Apart, cut_off, lose_responses, silence_watch_of_pods
from tests.faults.witness import Witness

WRITE_FAULTS = (
    ("answers are lost", lost(), 6),
    ("the server answers 500", status(500), 6),
    ("the server is busy", status(429, retry_after=1), 4),
    ("every write fails, so that PreBind is undone", status(500), 60),
)
"""What happens to writes of claims, and to how many of them."""
FULL = settings().max_examples >= 500
"""`make test-full` repeats every fault with claims."""
CONTROL_PLANE_FAULTS = (restart_api_server, pause_etcd) if FULL else (restart_api_server,)
LEADER_FAULTS = (cut_off, lose_responses, silence_watch_of_pods) if FULL else (cut_off,)
KILLS = int(os.environ.get("BATCHSCHED_CLAIM_KILLS", "3"))
PODS = 32


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane with the controllers that create and release claims."""
    with start(tmp_path / "plane") as plane:
        plane.start_kwok()
        plane.install_definitions()
        plane.start_controller_manager("resourceclaim-controller", "garbage-collector-controller")
        device_class(plane.admin)
        yield plane


@pytest.fixture
def namespace(cluster: ControlPlane) -> Namespace:
    """A namespace with a template for claims."""
    cluster.admin.create("/api/v1/namespaces", {"metadata": {"name": "devices"}})
    namespace = Namespace(cluster.admin, "devices")
    template(namespace)
    return namespace


def publish_on_all_nodes(cluster: ControlPlane) -> None:
    """As many devices on each node as it has CPUs."""
    for node in cluster.admin.get("/api/v1/nodes")["items"]:
        publish(cluster.admin, node["metadata"]["name"], CPUS)


def unfinished(namespace: Namespace) -> dict[str, str]:
    """The bound pods with their nodes, without finished ones, whose claims a controller releases."""
    there = pods(namespace)
    return {
        name: node
        for name, node in bound(namespace).items()
        if name in there and there[name]["status"].get("phase") not in {"Succeeded", "Failed"}
    }


def faults(namespace: Namespace) -> list[str]:
    """Pods that are bound without a claim that is reserved for them, and devices with several claims."""
    places = unfinished(namespace)
    there = claims(namespace)
    reserved = {name for one in there if devices_of(one) for name in consumers(one)}
    gone = places.keys() - unfinished(namespace).keys()
    found = [f"{name} is bound without its devices" for name in places.keys() - reserved - gone]
    taken = Counter(device for one in there for device in devices_of(one))
    found += [f"{device} has {times} claims" for device, times in taken.items() if times > 1]
    return found + [
        f"{name} is on {places[name]} and has {devices_of(one)}"
        for one in there
        for name in consumers(one) & places.keys()
        if any(not device.startswith(f"{places[name]}/") for device in devices_of(one))
    ]


@contextmanager
def watched(namespace: Namespace) -> Iterator[list[str]]:
    """Look for faults again and again, as long as this lasts."""
    complaints: list[str] = []
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.2):
            complaints.extend(faults(namespace))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield complaints
    finally:
        over.set()
        thread.join(30)
    assert complaints == []


@pytest.mark.slow
def test_claims_and_pods_of_gangs_are_complete_whenever_leaders_are_killed(
    cluster, namespace, record_property
):
    with (
        Witness(cluster.admin, CPUS).watching() as witness,
        running(*pair(cluster, "killed", Terms())) as replicas,
    ):
        rounds = Rounds(replicas, namespace, witness, seed=7, pods=PODS, spec=with_template())
        publish_on_all_nodes(cluster)
        with watched(namespace):
            while sum(one.kills for one in rounds.done) < KILLS:
                print(rounds.run())
        eventually(lambda: len(used(namespace)) == len(bound(namespace)) == PODS)
    print("\n".join(table(rounds.done)))
    record_property("recovery_seconds", max(one.whole for one in rounds.done))


@pytest.mark.slow
@pytest.mark.parametrize("fault", LEADER_FAULTS, ids=lambda fault: fault.__name__)
def test_devices_are_given_out_once_if_the_network_of_the_leader_or_the_standby_fails(
    cluster, namespace, fault
):
    with (
        Proxy(cluster.server, cluster.certificate) as left,
        Proxy(cluster.server, cluster.certificate) as right,
        Witness(cluster.admin, CPUS).watching() as witness,
    ):
        apart = Apart(cluster, namespace, (left, right), witness, with_template())
        publish_on_all_nodes(cluster)
        with running(*apart.pair), watched(namespace):
            fault(apart, *apart.led())
            eventually(lambda: len(used(namespace)) == len(bound(namespace)))


@pytest.mark.slow
@pytest.mark.parametrize("fault", CONTROL_PLANE_FAULTS, ids=lambda fault: fault.__name__)
def test_gangs_have_their_devices_after_a_fault_of_the_control_plane(
    cluster, namespace, record_property, fault
):
    namespace.nodes(2 * PODS // CPUS + 1, cpu=CPUS)
    publish_on_all_nodes(cluster)
    load = Load(namespace, random.Random(8), spec=with_template())
    with (
        Witness(cluster.admin, CPUS).watching() as witness,
        running(*pair(cluster, "broken")) as replicas,
    ):
        replicas.ready()
        first, second = load.batch(PODS), load.batch(PODS)
        load.submit(first)
        eventually(lambda: witness.bound(namespace.name, first.pods))
        fault(cluster, namespace)
        with watched(namespace):
            recovered(replicas, load, witness, [first, second], record_property)
            eventually(lambda: len(used(namespace)) == len(bound(namespace)) == 2 * PODS)


@pytest.mark.slow
def test_a_gang_gets_its_devices_once_whatever_happens_to_the_writes_of_its_claims(cluster, namespace):
    namespace.nodes(2, cpu=CPUS)
    for number in range(2):
        publish(cluster.admin, f"node-{number}", 8)
    with Proxy(cluster.server, cluster.certificate, seed=3) as proxy:
        scheduler = Replica(cluster, name="proxied", server=proxy.url)
        with running(scheduler), watched(namespace):
            for number, (name, fault, count) in enumerate(WRITE_FAULTS):
                proxy.on(fault, method="PATCH", path="/resourceclaims/", count=count)
                begun = time.monotonic()
                namespace.gang(f"gang-{number}", 4, cpu=1, spec=with_template())
                eventually(lambda: len(bound(namespace, f"gang-{number}")) == 4, 90)  # noqa: B023
                print(f"{name}: all bound after {time.monotonic() - begun:.1f} s")
                proxy.calm()
        assert len(used(namespace)) == 4 * len(WRITE_FAULTS)
