"""The faults of bindings, with ResourceClaims: pods are bound with their devices, and no device is given out twice."""

import itertools
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings

from tests.controlplane.background import repeating
from tests.controlplane.devices import RESOURCES, device_class, publish, template, used, with_template
from tests.controlplane.fixtures import Namespace, eventually, start
from tests.controlplane.objects import node
from tests.controlplane.plane import ControlPlane
from tests.controlplane.proxy import Proxy, delayed
from tests.e2e.owners import TEMPLATE, job
from tests.e2e.running import all_bound, bound, pods
from tests.faults import test_network
from tests.faults.load import Batch, Load
from tests.faults.policies import policy_denies
from tests.faults.replicas import Replica, running
from tests.faults.test_claims import watched
from tests.faults.test_nodes import delete_nodes, set_ready
from tests.faults.test_pods import reject_pods_on, running_indexes
from tests.faults.witness import Witness

CPUS = 8
"""Of each node, and its number of devices."""
NODES = 6
PODS = 24
HOUR = 3600.0
SPAN = 1.0
NUMBERS = itertools.count(1)
BINDING = "/binding$"
NETWORK_FAULTS = (
    (*test_network.FAULTS, test_network.busy_server)
    if settings().max_examples >= 500
    else (test_network.internal_errors, test_network.lost_answers)
)
"""All of them in `make test-full`."""

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Site:
    """A scheduler between a proxy and a clock that can be set, and a control plane with the controllers of claims."""

    plane: ControlPlane
    proxy: Proxy
    clock: Path


@dataclass(frozen=True)
class Town:
    """A namespace with nodes and devices for one test."""

    site: Site
    namespace: Namespace
    nodes: tuple[str, ...]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("claims")
    clock = home / "error"
    clock.write_text("0")
    with start(home / "plane") as plane:
        plane.start_kwok()
        plane.install_definitions()
        plane.start_controller_manager(
            "resourceclaim-controller", "garbage-collector-controller", "job-controller"
        )
        device_class(plane.admin)
        with Proxy(plane.server, plane.certificate, seed=7) as proxy:
            program = (sys.executable, "-m", "tests.faults.skewed", str(clock))
            scheduler = Replica(plane, name="proxied", server=proxy.url, program=program)
            with running(scheduler):
                yield Site(plane, proxy, clock)
                assert scheduler.runs
                assert scheduler.starts == 1


@pytest.fixture
def town(site: Site) -> Iterator[Town]:
    """Nodes with devices; nothing of it is left afterwards."""
    name = f"claims-{next(NUMBERS)}"
    site.plane.admin.create("/api/v1/namespaces", {"metadata": {"name": name}})
    namespace = Namespace(site.plane.admin, name)
    template(namespace)
    names = tuple(one["metadata"]["name"] for one in namespace.nodes(NODES, prefix=name, cpu=CPUS))
    for place in names:
        publish(site.plane.admin, place, CPUS)
    yield Town(site, namespace, names)
    site.proxy.calm()
    site.clock.write_text("0")
    namespace.api.delete(namespace.path("pods"))
    eventually(lambda: used(namespace) == [])  # the controllers release what no pod uses
    for path in ("/api/v1/nodes", f"{RESOURCES}/resourceslices"):
        namespace.api.delete(path)


@contextmanager
def network_is_cut(town: Town) -> Iterator[None]:
    with town.site.proxy.partitioned():
        yield
        time.sleep(6.0)


@contextmanager
def clock_is_set(town: Town, seconds: float) -> Iterator[None]:
    yield
    town.site.clock.write_text(str(seconds))


@contextmanager
def nodes_flap(town: Town) -> Iterator[None]:
    """Two nodes become unready again and again, and two are deleted and created again; two do not change."""
    unready, deleted = list(town.nodes[:2]), list(town.nodes[2:4])
    with (
        repeating(
            lambda: set_ready(town.namespace, unready, ready=False),
            lambda: set_ready(town.namespace, unready, ready=True),
            seconds=0.1,
        ),
        repeating(
            lambda: delete_nodes(town.namespace, deleted),
            lambda: [town.namespace.api.create("/api/v1/nodes", node(name, cpu=CPUS)) for name in deleted],
            seconds=0.1,
        ),
    ):
        yield
        time.sleep(3.0)


def network_fault(town: Town, fault: Callable[[Proxy], None]) -> AbstractContextManager[None]:
    """A fault of the network, which lasts until the proxy is calmed at the end of the test."""
    fault(town.site.proxy)
    return nullcontext()


@pytest.mark.parametrize("fault", NETWORK_FAULTS, ids=lambda fault: fault.__name__)
def test_gangs_are_bound_with_their_devices_despite(town, fault, record_property):
    whole_with_devices(town, lambda town: network_fault(town, fault), record_property)
    assert sum(rule.hits for rule in town.site.proxy.rules) > 0


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(network_is_cut, id="no network for six seconds"),
        pytest.param(lambda town: clock_is_set(town, HOUR), id="the clock is set forward"),
        pytest.param(lambda town: clock_is_set(town, -HOUR), id="the clock is set back"),
        pytest.param(nodes_flap, id="nodes flap and are deleted"),
    ],
)
def test_gangs_are_bound_with_their_devices_after_a_fault(town, fault, record_property):
    whole_with_devices(town, fault, record_property)


def whole_with_devices(
    town: Town, fault: Callable[[Town], AbstractContextManager[None]], record_property: Callable[..., None]
) -> None:
    """Submit gangs before and after a fault, and wait until each has all its devices."""
    namespace = town.namespace
    load = Load(namespace, random.Random(19), spec=with_template())
    batches: list[Batch] = [load.batch(PODS // 2), load.batch(PODS // 2)]
    with Witness(town.site.plane.admin, CPUS).watching() as witness, watched(namespace):
        with load.submitting(batches[0], SPAN), fault(town), load.submitting(batches[1], SPAN):
            time.sleep(SPAN)
        began = time.monotonic()
        eventually(lambda: all(load.whole(batch, witness) for batch in batches), 90)
        seconds = time.monotonic() - began
        record_property("recovery_seconds", seconds)
        print(f"all bound {seconds:.1f} s after the fault")
        eventually(lambda: len(used(namespace)) == PODS)
        load.check(batches, witness)


def test_a_gang_has_all_its_devices_after_admission_denied_the_binding_of_one_pod(town):
    namespace = town.namespace
    with watched(namespace):
        held = town.site.proxy.on(delayed(2.0), path=BINDING, count=4)
        namespace.gang("bert", 4, cpu=1, spec=with_template())
        with policy_denies(namespace, "binding", "bert-2"):
            eventually(lambda: held.hits)
            eventually(lambda: len(bound(namespace, "bert")) == 3)
            # Its devices are released, since the pod could not be bound.
            eventually(lambda: len(used(namespace)) <= 4)
        all_bound(namespace, "bert", 4, 60)
        eventually(lambda: len(used(namespace)) == 4)


def test_a_gang_has_its_devices_after_pods_are_created_again_under_their_names_during_the_bindings(town):
    namespace = town.namespace
    with watched(namespace):
        delay = town.site.proxy.on(delayed(1.0), path=BINDING, count=6)
        namespace.gang("bert", 6, cpu=1, spec=with_template())
        eventually(lambda: delay.hits)
        for name in ("bert-0", "bert-1", "bert-2"):
            namespace.api.delete(namespace.path("pods", name))
            namespace.pod(name, gang="bert", cpu=1, spec=with_template())
        uids = {name: pod["metadata"]["uid"] for name, pod in pods(namespace).items()}
        all_bound(namespace, "bert", 6, 60)
        eventually(lambda: len(used(namespace)) == 6)
        assert {name: pod["metadata"]["uid"] for name, pod in pods(namespace).items()} == uids


def test_devices_of_a_gang_that_terminates_with_its_namespace_are_free_for_others(town):
    """The API server refuses bindings and new claims there."""
    doomed = Namespace(town.site.plane.admin, f"{town.namespace.name}-doomed")
    doomed.api.create("/api/v1/namespaces", {"metadata": {"name": doomed.name}})
    template(doomed)
    total = NODES * CPUS
    with watched(town.namespace), watched(doomed):
        town.site.proxy.on(delayed(1.0), path=BINDING, skip=3, count=9)
        doomed.gang("bert", 12, cpu=1, spec=with_template())
        eventually(lambda: bound(doomed))
        doomed.api.delete(f"/api/v1/namespaces/{doomed.name}")
        town.namespace.gang("other", 4, cpu=1, spec=with_template())
        all_bound(town.namespace, "other", 4, 60)
        doomed.api.delete(doomed.path("pods"))  # as the namespace controller does
        eventually(lambda: used(doomed) == [])
        town.namespace.gang("next", total - 4, cpu=1, spec=with_template())
        all_bound(town.namespace, "next", total - 4, 60)
        eventually(lambda: len(set(used(town.namespace))) == total)


def test_gang_of_a_job_has_its_devices_after_the_kubelet_rejects_its_first_pods(town):
    """The devices of a failed pod are released; the pod that the Job controller creates for it gets others."""
    namespace = town.namespace
    town.site.proxy.on(delayed(1.0), path=BINDING, skip=1, count=3)
    rejected: list[str] = []

    def reject_first_pods() -> None:
        for name in town.nodes:
            reject_pods_on(namespace, name, rejected, 2)

    with watched(namespace), repeating(reject_first_pods, seconds=0.05):
        job(namespace, "train", 4, backoffLimit=6, template={"spec": TEMPLATE["spec"] | with_template()})
        eventually(lambda: running_indexes(namespace) == ["0", "1", "2", "3"] and len(rejected) == 2, 60)
        eventually(lambda: len(used(namespace)) == 4)
