"""etcd is restored from a backup while replicas run: they schedule with the objects of the backup, and no others."""

import itertools
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
import urllib3

from batchsched.api.crd.base import API_VERSION
from tests.controlplane import audit
from tests.controlplane.devices import RESOURCES, claim, device_class, publish, sharing, used
from tests.controlplane.fixtures import Namespace, eventually, start
from tests.controlplane.plane import ApiFault, ControlPlane
from tests.controlplane.process import LEASE, LEASE_PATH, Terms, leader
from tests.e2e.running import TERMS, all_bound, bound, group
from tests.e2e.serving import Served
from tests.faults.test_claims import faults
from tests.faults.test_control_plane import serves
from tests.faults.witness import Witness

CPUS = 16
NUMBERS = itertools.count(1)
WITHIN = 30.0
"""Seconds after which everything must be bound."""
LONG_TERMS = Terms(duration=60.0, renew=50.0)
"""A Lease that outlasts the restore."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def plane_with_backup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of which etcd is restored."""
    with start(tmp_path_factory.mktemp("restored")) as plane:
        plane.install_definitions()
        yield plane


@pytest.fixture
def cluster(plane_with_backup: ControlPlane) -> Iterator[tuple[ControlPlane, Namespace]]:
    """The control plane, and a namespace; its pods, and all nodes, are deleted afterwards."""
    plane, name = plane_with_backup, f"restored-{next(NUMBERS)}"
    plane.admin.create("/api/v1/namespaces", {"metadata": {"name": name}})
    namespace = Namespace(plane.admin, name)
    yield plane, namespace
    for path in (
        *(namespace.path("pods"), namespace.path("podgroups", group=API_VERSION), "/api/v1/nodes"),
        *(f"{RESOURCES}/resourceslices", f"{RESOURCES}/deviceclasses"),
    ):
        plane.admin.delete(path)


def two_replicas(plane: ControlPlane, name: str, folder: Path, terms: Terms) -> list[Served]:
    with suppress(ApiFault):  # a replica killed in another test may still hold the Lease
        plane.admin.delete(LEASE_PATH)
    return [
        Served(plane, f"{name}-{number}", folder / f"{number}.yaml", ("--lease", LEASE), terms)
        for number in range(2)
    ]


@contextmanager
def running(pair: list[Served]) -> Iterator[None]:
    """Run replicas. Requests may be forbidden: an API server that starts has not loaded the roles yet."""
    with ExitStack() as stack:
        for replica in pair:
            replica.scheduler.start()
            stack.callback(replica.scheduler.stop)
        eventually(lambda: all(replica.ready for replica in pair))
        yield


def gang_of_four(namespace: Namespace, name: str, cpu: int, *, with_claims: bool) -> None:
    group(namespace, name, 4)
    for pod in (f"{name}-{number}" for number in range(4)):
        if with_claims:
            claim(namespace, pod)
        namespace.pod(pod, gang=name, cpu=cpu, spec=sharing(pod) if with_claims else None)


def nodes_with_devices(namespace: Namespace, count: int, prefix: str, *, with_claims: bool) -> None:
    for made in namespace.nodes(count, prefix=prefix, cpu=CPUS):
        if with_claims:
            publish(namespace.api, made["metadata"]["name"], 2)


def agrees(replica: Served) -> bool:
    """Whether the cache of a replica agrees with the API server."""
    try:
        return replica.ask("/debug/cache/drift")[1] == b"the cache agrees with the API\n"
    except urllib3.exceptions.HTTPError:
        return False


@pytest.mark.parametrize(
    "survivors, with_claims",
    [(2, False), (1, False), (0, False), (2, True)],
    ids=["leader and standby survive", "standby survives", "both restart", "both survive, with claims"],
)
def test_all_pods_are_bound_to_existing_nodes_after_etcd_is_restored(
    cluster, survivors, with_claims, tmp_path, record_property
):
    """The replicas saw nodes, pods and a deletion that the backup does not have, and UIDs of names that are reused."""
    plane, namespace = cluster
    pair = two_replicas(plane, namespace.name, tmp_path, LONG_TERMS if survivors == 2 else TERMS)
    with running(pair):
        if with_claims:
            device_class(plane.admin)
        nodes_with_devices(namespace, 4, "kept", with_claims=with_claims)
        gang_of_four(namespace, "running", 9, with_claims=with_claims)
        all_bound(namespace, "running", 4)
        gang_of_four(namespace, "waiting", 8, with_claims=with_claims)
        plane.back_up_etcd()
        eventually(lambda: serves(plane, namespace.path("podgroups", group=API_VERSION)))
        nodes_with_devices(namespace, 4, "lost", with_claims=with_claims)
        gang_of_four(namespace, "reused", 7, with_claims=with_claims)
        all_bound(namespace, "waiting", 4)
        all_bound(namespace, "reused", 4)
        for number in range(4):
            namespace.api.delete(namespace.path("pods", f"running-{number}"))
        # The version must not overtake that of the lost future before the replicas are connected again.
        for number in range(300):
            namespace.api.merge(
                f"/api/v1/namespaces/{namespace.name}", {"metadata": {"labels": {"n": str(number)}}}
            )
        eventually(lambda: all(map(agrees, pair)))

        lead = eventually(lambda: leader(plane.admin, [one.scheduler for one in pair]))
        ended = [
            one.scheduler for one in pair if survivors == 0 or (survivors == 1 and one.scheduler is lead)
        ]
        for one in ended:
            one.end(signal.SIGKILL)
        plane.restore_etcd()
        eventually(lambda: serves(plane, namespace.path("podgroups", group=API_VERSION)))
        began = time.monotonic()
        with Witness(plane.admin, CPUS).watching(), audit.nothing_bound_twice(plane.home):
            for one in ended:
                one.start()
            gang_of_four(namespace, "reused", 7, with_claims=with_claims)
            # An added node must not exist yet: with two pods of this gang there, the waiting gang fits nowhere.
            eventually(lambda: len(bound(namespace)) == 8, 2 * WITHIN)
            nodes_with_devices(namespace, 2, "added", with_claims=with_claims)
            eventually(lambda: len(bound(namespace)) == 12, WITHIN)
            seconds = time.monotonic() - began
            eventually(lambda: all(map(agrees, pair)), WITHIN)
        assert all(one.scheduler.runs for one in pair)
    print(f"all bound {seconds:.1f} s after the restore")
    record_property("recovery_seconds", seconds)
    existing = {f"kept-{number}" for number in range(4)} | {"added-0", "added-1"}
    assert set(bound(namespace).values()) <= existing
    if with_claims:
        assert faults(namespace) == []
        assert len(used(namespace)) == 12
    assert seconds < WITHIN
