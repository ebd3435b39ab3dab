"""Two replicas, and between one of them and the API server a network that lets nothing through: never do both write."""

import random
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.controlplane.fixtures import Namespace, eventually
from tests.controlplane.objects import pod_group
from tests.controlplane.plane import ControlPlane
from tests.controlplane.process import Terms
from tests.controlplane.proxy import Ending, Exchange, Proxy, cut, lost
from tests.faults.load import Job, Load
from tests.faults.replicas import Replica, Replicas, running
from tests.faults.witness import Witness

CPUS = 16
PODS = 80
NODES = 3 * PODS // CPUS
TAKES = 120.0
TERMS = Terms()

pytestmark = pytest.mark.slow


class Apart:
    """Two replicas, each behind a network of its own; `spec` is of every pod, more than usual."""

    def __init__(
        self,
        plane: ControlPlane,
        namespace: Namespace,
        proxies: tuple[Proxy, Proxy],
        witness: Witness,
        spec: dict[str, Any] | None = None,
    ):
        self.plane = plane
        self.proxies = proxies
        self.witness = witness
        self.load = Load(namespace, random.Random(9), spec=spec)
        self.pair = tuple(
            Replica(plane, name=f"apart-{at}", server=proxy.url, terms=TERMS)
            for at, proxy in enumerate(proxies)
        )
        self.replicas = Replicas(plane, self.pair)
        namespace.nodes(NODES, cpu=CPUS)

    def whole(self, *batches) -> bool:
        return self.replicas.tend() and all(self.load.whole(one, self.witness) for one in batches)

    def led(self) -> tuple[Proxy, Proxy]:
        """Wait until one leads; returns its network, and that of the other."""
        lead = self.replicas.ready()
        own, other = self.proxies if lead is self.pair[0] else reversed(self.proxies)
        return own, other


@pytest.fixture
def apart(plane: ControlPlane, namespace: Namespace) -> Iterator[Apart]:
    with (
        Proxy(plane.server, plane.certificate) as left,
        Proxy(plane.server, plane.certificate) as right,
        Witness(plane.admin, CPUS).watching() as witness,
    ):
        made = Apart(plane, namespace, (left, right), witness)
        with running(*made.pair):
            yield made


def binds(proxy: Proxy, since: float) -> list[Exchange]:
    """The bindings that reached the API server through a network after a moment."""
    return [one for one in list(proxy.passed) if one.path.endswith("/binding") and one.at > since]


def test_partitioned_replica_stops_before_the_other_leads(apart, record_property):
    own, other = apart.led()
    begun, taken = cut_off(apart, own, other)
    record_property("recovery_seconds", taken)
    assert binds(own, binds(other, begun)[0].at) == []


def cut_off(apart: Apart, own: Proxy, other: Proxy) -> tuple[float, float]:
    """Cut the leader off until the other replica has bound all pods; return the moment and the seconds it took."""
    first, second = apart.load.batch(PODS), apart.load.batch(PODS)
    with apart.load.submitting(first, 1.0):
        eventually(lambda: binds(own, 0.0), TAKES)
        with own.partitioned():
            begun = time.monotonic()
            eventually(lambda: binds(other, begun) and apart.whole(first), TAKES)
            taken = time.monotonic() - begun
            apart.load.submit(second)
        # What the other one waited for so long goes through now, if it still waits.
        eventually(lambda: apart.whole(first, second), TAKES)
    time.sleep(1.0)
    print(f"cut off for {taken:.2f} s, until all was bound by the other one")
    apart.load.check([first, second], apart.witness)
    return begun, taken


def test_replica_without_responses_stops_before_the_other_leads(apart, record_property):
    """Its binds are carried out for a while, and it cannot know which."""
    record_property("recovery_seconds", lose_responses(apart, *apart.led()))


def lose_responses(apart: Apart, own: Proxy, other: Proxy) -> float:
    """Lose all responses to the leader; return the seconds until a batch is bound and a replica leads."""
    batch = apart.load.batch(PODS)
    with apart.load.submitting(batch, 1.0):
        eventually(lambda: binds(own, 0.0), TAKES)
        begun = time.monotonic()
        own.on(lost(Ending.STALL), watch=False)
        eventually(lambda: apart.whole(batch), TAKES)
    eventually(lambda: apart.replicas.tend() and apart.replicas.leader() in apart.pair, TAKES)
    taken = time.monotonic() - begun
    print(f"all bound {taken:.2f} s after the answers ceased, {len(binds(own, begun))} of them unheard")
    later = binds(other, begun)
    assert not later or binds(own, later[0].at) == []
    apart.load.check([batch], apart.witness)
    return taken


def test_new_leader_knows_binds_that_its_watch_never_reported_and_assigns_no_room_twice(apart):
    silence_watch_of_pods(apart, *apart.led())


def silence_watch_of_pods(apart: Apart, own: Proxy, other: Proxy) -> None:
    """Let the standby take over with pending pods without a PodGroup in its cache, and without the binds since then."""
    half = NODES * CPUS // 2
    lead, waiting = apart.pair if own is apart.proxies[0] else reversed(apart.pair)
    namespace, late = apart.load.namespace, Job("late", half, half)
    namespace.pods(half, prefix="late", gang="late", cpu="1", spec=apart.load.spec)
    silent = other.on(cut(0, Ending.STALL), watch=True, path=r"/api/v1/pods\?", count=1)
    waiting.end(signal.SIGKILL)
    apart.replicas.ready()
    eventually(lambda: silent.hits, TAKES)
    early = apart.load.batch(half)
    apart.load.submit(early)
    eventually(lambda: apart.load.whole(early, apart.witness), TAKES)
    lead.end(signal.SIGKILL)
    group = pod_group(late.name, late.minimum)
    namespace.api.create(namespace.path("podgroups", group=group["apiVersion"]), group)
    eventually(lambda: apart.witness.bound(namespace.name, frozenset(late.pods)) == half, TAKES)
    assert apart.replicas.leader() is waiting
