"""Two replicas: when the leader ends or is killed, the other continues, with partially bound gangs first."""

import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

import pytest

from tests.controlplane.background import repeating
from tests.controlplane.fixtures import Namespace, eventually
from tests.controlplane.plane import ApiFault, ControlPlane
from tests.controlplane.process import LEASE, LEASE_PATH, leader
from tests.controlplane.proxy import hung
from tests.e2e.running import (
    TERMS,
    Scheduler,
    all_bound,
    bound,
    group,
    make,
    pods,
    running,
)

ROUNDS = int(os.environ.get("BATCHSCHED_TAKEOVERS", "3"))
"""`make soak` takes over more often."""
GRACEFUL = 5.0
"""Seconds for which nothing may be bound when a leader leaves."""


class Pair:
    """Two schedulers for one Lease; a scheduler that ends is restarted."""

    def __init__(self, plane: ControlPlane, name: str, server: str | None = None) -> None:
        self.plane = plane
        self.schedulers = tuple(
            Scheduler(plane, ("--lease", LEASE), name=f"{name}-{at}", server=server) for at in range(2)
        )

    def leader(self) -> Scheduler:
        found: Scheduler = eventually(lambda: leader(self.plane.admin, self.schedulers), 60)
        return found

    def ready(self) -> Scheduler:
        """Wait until one leads and the other waits; return the leader."""
        lead = self.leader()
        for one in self.schedulers:
            if one is not lead:
                eventually(partial(getattr, one, "follows"), 60)
        return lead


@contextmanager
def pair(plane: ControlPlane, name: str, server: str | None = None) -> Iterator[Pair]:
    made = Pair(plane, name, server)
    with suppress(ApiFault):  # a replica killed in another test may still hold the Lease
        plane.admin.delete(LEASE_PATH)
    with running(*made.schedulers):
        yield made


class Watcher:
    """Notes when pods of a namespace get their nodes."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self.times: list[float] = []
        self.nodes: dict[str, str] = {}

    @contextmanager
    def watching(self) -> Iterator["Watcher"]:
        over = threading.Event()

        def run() -> None:
            while not over.wait(0.05):
                for name, node in bound(self.namespace).items():
                    if name not in self.nodes:
                        self.times.append(time.monotonic())
                    assert self.nodes.setdefault(name, node) == node, "a pod was bound twice"

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield self
        finally:
            over.set()
            thread.join()

    def bound_since(self, moment: float) -> bool:
        """Whether anything was bound after a moment."""
        return any(one > moment for one in self.times)

    def gap(self, since: float) -> float:
        """The longest time without a binding, from a moment on."""
        times = [since, *(one for one in self.times if one > since)]
        assert len(times) > 1, "nothing was bound any more"
        return max(after - before for before, after in itertools.pairwise(times))


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["graceful", "killed"])
def test_binding_continues_after_the_leader_ends(plane, namespace, how):
    allowed = GRACEFUL if how is signal.SIGTERM else TERMS.duration + 5
    namespace.nodes(20)
    gaps = []
    with pair(plane, f"ends-{how.name.lower()}") as two, Watcher(namespace).watching() as watcher:
        two.ready()
        names = (f"lone-{number}" for number in itertools.count())
        with repeating(lambda: namespace.pod(next(names), cpu="10m"), seconds=0.1):
            eventually(lambda: watcher.times)
            for _ in range(ROUNDS):
                old = two.ready()
                before = time.monotonic()
                code = old.end(how)
                assert how is signal.SIGKILL or code == 0
                eventually(partial(watcher.bound_since, before + 0.5), 60)
                time.sleep(0.5)
                gaps.append(watcher.gap(before))
                old.start()
        eventually(lambda: len(bound(namespace)) == len(pods(namespace)), 60)
    print(f"{how.name}: gaps of {', '.join(f'{gap:.2f}' for gap in gaps)} s, {allowed} s allowed")
    assert max(gaps) <= allowed


def test_gang_of_200_pods_is_completed_after_its_leader_is_killed_during_the_binds(plane, namespace, proxy):
    namespace.nodes(10)
    with pair(plane, "half-bound", proxy.url) as two, Watcher(namespace).watching() as watcher:
        lead = two.ready()
        proxy.on(hung(), method="POST", path="/binding$", skip=100)
        group(namespace, "bert", 200)
        make(namespace, "bert", 200)
        eventually(lambda: len(bound(namespace, "bert")) == 100)
        lead.end(signal.SIGKILL)
        assert len(bound(namespace, "bert")) == 100
        proxy.calm()
        killed = time.monotonic()
        all_bound(namespace, "bert", 200, 60)
        print(f"killed with 100 of 200 bound; whole {time.monotonic() - killed:.1f} s later")
        assert len(watcher.nodes) >= 100


def test_new_leader_rolls_back_partially_bound_gangs_at_once_if_the_policy_requires_it(plane, namespace):
    namespace.nodes(2, cpu=1)
    group(namespace, "half", 3, strandedPolicy="Rollback")
    namespace.pods(3, prefix="half", gang="half", cpu=1)
    namespace.bind("half-0", "node-0")
    with pair(plane, "rollback"):
        eventually(lambda: "half-0" not in pods(namespace), 60)


def _is_bound(namespace: Namespace, name: str) -> bool:
    return "nodeName" in namespace.get(name)["spec"]


def test_lone_pod_on_an_idle_cluster_is_bound_at_once(plane, namespace):
    namespace.nodes(20)
    times = []
    with pair(plane, "lone") as two:
        two.ready()
        for number in range(20):
            begun = time.monotonic()
            namespace.pod(f"lone-{number}")
            eventually(partial(_is_bound, namespace, f"lone-{number}"))
            times.append(time.monotonic() - begun)
    median = sorted(times)[len(times) // 2]
    print(f"a lone pod is bound after {1000 * median:.0f} ms (median of {len(times)})")
    assert median < 1.0
