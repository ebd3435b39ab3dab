"""A new leader evicts and binds the same pods as a leader that stays, whatever it finds in progress."""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from batchsched.api.crd.base import API_VERSION
from tests.controlplane.fixtures import Namespace, eventually
from tests.controlplane.objects import node
from tests.controlplane.plane import ApiFault, ControlPlane
from tests.controlplane.process import LEASE, LEASE_PATH, Terms, leader
from tests.e2e.running import Scheduler, bound, group, pods
from tests.e2e.serving import Served, serving
from tests.faults.hold import LABEL, PLUGINS, program_with_plugin
from tests.faults.witness import Witness

ROUNDS = int(os.environ.get("BATCHSCHED_TAKEOVERS", "1"))
"""Of each signal. `make soak` takes over more often."""
CPUS = 8
FINALIZER = "tests/slow-shutdown"
SPAN = 1.5
"""Seconds after the first request within which the leader is replaced."""
SETTLED = 4.0
"""Seconds for which a leader must do nothing more: longer than the timeouts of the gangs and of the plugin."""
TERMS = Terms()

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@dataclass(frozen=True, slots=True)
class Actions:
    """The actions of one leader, or of two.

    Args:
      evicted: The number of evicted pods of each gang.
      bound: The number of bound pods of each gang at the end.
    """

    evicted: dict[str, int]
    bound: dict[str, int]


EXPECTED = Actions(evicted={"low": 8, "partial": 2}, bound={"low": 8, "high": 2, "held": 2, "shrunk": 3})


class Replicas:
    """Two replicas with the plugin `Hold`."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        with suppress(ApiFault):  # a replica killed in another test may still hold the Lease
            plane.admin.delete(LEASE_PATH)
        self.plane = plane
        program = program_with_plugin(folder)
        arguments = ("--lease", LEASE)
        self.served = [
            Served(plane, f"new-leader-{number}", folder / f"{number}.yaml", arguments, TERMS, program)
            for number in range(2)
        ]
        for one in self.served:
            one.configure(plugins=PLUGINS)

    def ready(self) -> Scheduler:
        """Wait until a replica leads and the other one follows the cluster, and return the leader."""
        processes = [one.scheduler for one in self.served]
        lead: Scheduler = eventually(lambda: leader(self.plane.admin, processes))
        eventually(lambda: all(one.ready for one in self.served))
        return lead


@pytest.fixture
def replicas(plane: ControlPlane, tmp_path: Path) -> Iterator[Replicas]:
    created = Replicas(plane, tmp_path)
    with serving(*created.served):
        yield created


def terminating(namespace: Namespace) -> set[str]:
    return {name for name, pod in pods(namespace).items() if "deletionTimestamp" in pod["metadata"]}


def by_gang(names: Sequence[str]) -> dict[str, int]:
    return dict(Counter(name.rpartition("-")[0] for name in names))


def prepare(namespace: Namespace) -> None:
    """Fill two nodes with pods that end slowly, and bind a gang that is never evicted to a third node."""
    for name, role in (("node-0", "gangs"), ("node-1", "victims"), ("node-2", "victims")):
        namespace.api.create("/api/v1/nodes", node(name, {"role": role}, cpu=CPUS))
    group(namespace, "shrunk", 4, scheduleTimeoutSeconds=1)
    namespace.pods(4, prefix="shrunk", gang="shrunk", spec=on("gangs"), cpu=1)
    for number in range(2 * CPUS):
        slow = namespace.pod(f"low-{number}", spec=on("victims"), cpu=1)
        path = namespace.path("pods", slow["metadata"]["name"])
        namespace.api.merge(path, {"metadata": {"finalizers": [FINALIZER]}})
    eventually(lambda: len(bound(namespace)) == 4 + 2 * CPUS)
    status = namespace.path("podgroups", "shrunk", group=API_VERSION)
    eventually(lambda: "wholeSince" in namespace.api.get(status).get("status", {}))


def on(role: str) -> dict[str, object]:
    return {"nodeSelector": {"role": role}}


def disturb(namespace: Namespace) -> None:
    """Delete a member of the whole gang, bind a gang in part, and create a gang to be held and one that preempts."""
    namespace.api.delete(namespace.path("pods", "shrunk-0"))
    group(namespace, "partial", 3, scheduleTimeoutSeconds=2)
    namespace.pods(2, prefix="partial", gang="partial", spec=on("gangs"), cpu=1)
    for number in range(2):
        namespace.bind(f"partial-{number}", "node-0")
    namespace.pod("partial-2", gang="partial", spec=on("gangs"), cpu=2 * CPUS)
    group(namespace, "held", 2, scheduleTimeoutSeconds=2)
    namespace.pods(2, prefix="held", gang="held", labels={LABEL: "yes"}, spec=on("gangs"), cpu=1)
    group(namespace, "high", 2)
    urgent = on("victims") | {"priorityClassName": f"{namespace.name}-high"}
    namespace.pods(2, prefix="high", gang="high", spec=urgent, cpu=CPUS // 2)


def settle(namespace: Namespace) -> list[str]:
    """Wait until the leader evicts and binds no more pods; return the evicted pods."""

    def state() -> tuple[object, ...]:
        return tuple(sorted(pods(namespace))), tuple(sorted(terminating(namespace))), str(bound(namespace))

    before, since = state(), time.monotonic()
    while time.monotonic() - since < SETTLED:
        time.sleep(0.2)
        present = state()
        if present != before:
            before, since = present, time.monotonic()
    ended = [name for name in ("partial-0", "partial-1") if name not in pods(namespace)]
    return [*ended, *terminating(namespace)]


def release(namespace: Namespace) -> None:
    """Let the victims end and the held gang start."""
    for name in terminating(namespace):
        namespace.api.merge(namespace.path("pods", name), {"metadata": {"finalizers": None}})
    for name in ("held-0", "held-1"):
        namespace.api.merge(namespace.path("pods", name), {"metadata": {"labels": {LABEL: None}}})


def clear(namespace: Namespace) -> None:
    for name in pods(namespace):
        namespace.api.merge(namespace.path("pods", name), {"metadata": {"finalizers": None}})
    for path in (namespace.path("pods"), namespace.path("podgroups", group=API_VERSION), "/api/v1/nodes"):
        namespace.api.delete(path)
    eventually(lambda: not pods(namespace))


def actions(namespace: Namespace, replace_leader: Callable[[], None]) -> Actions:
    """Return the actions of the replicas in one round."""
    prepare(namespace)
    disturb(namespace)
    replace_leader()
    evicted = settle(namespace)
    release(namespace)
    eventually(lambda: {"high-0", "high-1", "held-0", "held-1"} <= set(bound(namespace)))
    taken = Actions(by_gang(sorted(evicted)), by_gang(sorted(bound(namespace))))
    clear(namespace)
    return taken


def test_new_leader_evicts_and_binds_the_same_pods_as_a_leader_that_stays(plane, namespace, replicas):
    """A gang lost a pod, one is partially bound, one is held at Permit, and the victims of another one terminate."""
    draw = random.Random(ROUNDS)
    namespace.priority_class(f"{namespace.name}-high", 1000)
    with Witness(plane.admin, CPUS).watching():
        replicas.ready()
        assert actions(namespace, lambda: None) == EXPECTED
        for number in range(ROUNDS):
            for how in (signal.SIGTERM, signal.SIGKILL):
                lead, moment = replicas.ready(), draw.uniform(0, SPAN)

                def replace_leader(lead=lead, moment=moment, how=how) -> None:
                    time.sleep(moment)
                    lead.end(how)
                    lead.start()
                    replicas.ready()

                taken = actions(namespace, replace_leader)
                print(f"round {number}, {how.name} after {moment:.2f} s: {taken}")
                assert taken == EXPECTED
