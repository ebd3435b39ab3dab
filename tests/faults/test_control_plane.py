"""Faults of the control plane: the API server restarts, and etcd pauses for longer than a Lease lasts."""

import itertools
import os
import random
import signal
import time
from collections.abc import Iterator

import pytest

from batchsched.api.crd.base import API_VERSION as GROUPS
from tests.controlplane.fixtures import Namespace, eventually, start
from tests.controlplane.plane import ApiFault, ControlPlane
from tests.controlplane.process import LEASE_PATH
from tests.faults.load import Load
from tests.faults.replicas import Replicas, pair, running
from tests.faults.witness import Witness

CPUS = 16
PODS = 60
TAKES = 120.0
NUMBERS = itertools.count(1)
PAUSE = float(os.environ.get("BATCHSCHED_PAUSE", "7"))
"""Seconds for which etcd is paused: longer than the Leases of these tests. `make soak` takes 20."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane that may be broken."""
    with start(tmp_path_factory.mktemp("broken")) as plane:
        plane.install_definitions()
        yield plane


@pytest.fixture
def busy(broken: ControlPlane) -> Iterator[tuple[Replicas, Load, Witness]]:
    """Two replicas, and work for them."""
    name = f"busy-{next(NUMBERS)}"
    broken.admin.create("/api/v1/namespaces", {"metadata": {"name": name}})
    namespace = Namespace(broken.admin, name)
    namespace.nodes(2 * PODS // CPUS + 1, prefix=name, cpu=CPUS)
    load = Load(namespace, random.Random(8))
    with Witness(broken.admin, CPUS).watching() as witness, running(*pair(broken, name)) as replicas:
        replicas.ready()
        yield replicas, load, witness


def test_all_gangs_are_bound_completely_after_a_restart_of_the_api_server(broken, busy, record_property):
    replicas, load, witness = busy
    first, second = load.batch(PODS), load.batch(PODS)
    load.submit(first)
    eventually(lambda: witness.bound(load.namespace.name, first.pods), TAKES)
    restart_api_server(broken, load.namespace)
    recovered(replicas, load, witness, [first, second], record_property)


def test_all_gangs_are_bound_completely_after_a_pause_of_etcd(broken, busy, record_property):
    """Requests hang meanwhile, and the Lease is lost."""
    replicas, load, witness = busy
    first, second = load.batch(PODS), load.batch(PODS)
    led = lease_holder(broken)
    load.submit(first)
    eventually(lambda: witness.bound(load.namespace.name, first.pods), TAKES)
    pause_etcd(broken, load.namespace)
    recovered(replicas, load, witness, [first, second], record_property)
    print(f"led by {led}, then by {lease_holder(broken)}")


def restart_api_server(plane: ControlPlane, namespace: Namespace) -> None:
    """Kill the API server, start it again, and wait until it serves custom resources."""
    plane.kill("kube-apiserver", signal.SIGKILL)
    time.sleep(1)
    plane.start_apiserver()
    eventually(lambda: serves(plane, namespace.path("podgroups", group=GROUPS)), TAKES)


def pause_etcd(plane: ControlPlane, namespace: Namespace) -> None:
    """Pause etcd for longer than a Lease lasts, and wait until the API server answers."""
    with plane.paused("etcd"):
        time.sleep(PAUSE)
    eventually(lambda: serves(plane, namespace.path("podgroups", group=GROUPS)), TAKES)


def recovered(replicas, load, witness, batches, record_property):
    """Submit more work, and wait until everything is bound."""
    begun = time.monotonic()
    load.submit(batches[-1])
    eventually(lambda: replicas.tend() and all(load.whole(one, witness) for one in batches), TAKES)
    took = time.monotonic() - begun
    print(f"all bound after {took:.2f} s")
    record_property("recovery_seconds", took)
    load.check(batches, witness)


def serves(plane, path):
    """Whether a custom resource is served already: the API server is ready before its custom resources."""
    try:
        return plane.admin.get(path)
    except ApiFault:
        return None


def lease_holder(plane):
    return plane.admin.get(LEASE_PATH)["spec"].get("holderIdentity")
