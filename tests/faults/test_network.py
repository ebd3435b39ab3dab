"""A bad network between the scheduler and the API server: what was asked for is bound whole, once, and soon after."""

import itertools
import random
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import pytest

from tests.controlplane.fixtures import Namespace, eventually
from tests.controlplane.plane import ControlPlane
from tests.controlplane.proxy import Ending, Proxy, cut, delayed, hung, lost, page, refused, says, status
from tests.faults.load import Load
from tests.faults.replicas import Replica, running
from tests.faults.witness import Witness

CPUS = 16
PODS = 60
BINDING = "/binding$"
FOLLOWED = "/(pods|nodes|podgroups|resourceclaims|resourceslices)"
"""Paths of the watches and lists that are disturbed."""
GONE = {"kind": "Status", "apiVersion": "v1", "code": 410, "reason": "Expired", "message": "too old"}
NOTHING = nullcontext()
TAKES = 120.0
"""Seconds that it may take on the busiest machine."""

pytestmark = pytest.mark.slow


@dataclass
class Scene:
    """A scheduler behind a proxy, which keeps running from fault to fault."""

    plane: ControlPlane
    proxy: Proxy
    scheduler: Replica

    def survives(
        self, namespace: Namespace, during: AbstractContextManager[None] = NOTHING, lasts: float = 0.0
    ) -> float:
        """Submit work during a fault and after it, and return the seconds until all was bound after that."""
        namespace.nodes(PODS // CPUS + 1, cpu=CPUS)
        load = Load(namespace, random.Random(3))
        with Witness(self.plane.admin, CPUS).watching() as witness:
            first, second = load.batch(PODS // 2), load.batch(PODS // 2)
            with during:
                load.submit(first)
                time.sleep(lasts)
            begun = time.monotonic()
            load.submit(second)
            eventually(lambda: load.whole(first, witness) and load.whole(second, witness), TAKES)
            took = time.monotonic() - begun
            struck = sum(rule.hits for rule in self.proxy.rules)
            self.proxy.calm()
            load.check([first, second], witness)
        assert self.scheduler.starts == 1
        assert self.scheduler.runs
        print(f"{struck} faults; all bound after {took:.2f} s")
        return took


@pytest.fixture(scope="module")
def scene(plane: ControlPlane) -> Iterator[Scene]:
    """A scheduler that is alone, and a network that is good so far."""
    with Proxy(plane.server, plane.certificate, seed=7) as proxy:
        scheduler = Replica(plane, name="network", server=proxy.url)
        with running(scheduler):
            yield Scene(plane, proxy, scheduler)


def gone_watches(proxy: Proxy) -> None:
    proxy.on(says({"type": "ERROR", "object": GONE}), watch=True, path=FOLLOWED, count=6)
    proxy.on(status(410, "Expired"), watch=True, path=FOLLOWED, count=3)
    proxy.sever()


def gone_pages(proxy: Proxy) -> None:
    proxy.on(status(410, "Expired"), method="GET", watch=True, path="/pods", count=1)
    proxy.on(status(410, "Expired"), method="GET", watch=False, path="/pods", count=2)
    proxy.sever()


def internal_errors(proxy: Proxy) -> None:
    proxy.on(status(500, "InternalError"), method="POST", path=BINDING, chance=0.3)
    proxy.on(page(502), method="POST", path=BINDING, chance=0.2)
    proxy.on(status(500, "InternalError"), method="GET", count=40)
    proxy.sever()


def resets(proxy: Proxy) -> None:
    for after in (0, 100, 700, 2000, 5000):
        proxy.on(cut(after), watch=True, path=FOLLOWED, count=3)
    proxy.on(refused(), method="POST", path=BINDING, chance=0.2)
    proxy.sever()


def truncated_lines(proxy: Proxy) -> None:
    for after in (100, 333, 1500, 4000):
        proxy.on(cut(after, Ending.END), watch=True, path=FOLLOWED, count=3)
    proxy.on(cut(50, Ending.END), method="GET", watch=False, path=FOLLOWED, count=3)
    proxy.sever()


def lost_answers(proxy: Proxy) -> None:
    proxy.on(lost(), method="POST", path=BINDING, chance=0.3)


def hung_requests(proxy: Proxy) -> None:
    proxy.on(hung(), method="POST", path=BINDING, count=3)
    proxy.on(lost(Ending.STALL), method="POST", path=BINDING, count=3)


def busy_server(proxy: Proxy) -> None:
    proxy.on(status(429, "TooManyRequests", retry_after=2), method="POST", path=BINDING, count=25)


def slow_requests(proxy: Proxy) -> None:
    proxy.on(delayed(0.7))
    proxy.sever()


FAULTS = (
    gone_watches,
    gone_pages,
    internal_errors,
    resets,
    truncated_lines,
    lost_answers,
    hung_requests,
    slow_requests,
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_every_gang_is_bound_completely_and_once_despite(scene, namespace, record_property, fault):
    fault(scene.proxy)
    record_property("recovery_seconds", scene.survives(namespace))


def test_no_request_is_sent_to_a_busy_server_before_retry_after(scene, namespace, record_property):
    since = len(scene.proxy.seen)
    busy_server(scene.proxy)
    record_property("recovery_seconds", scene.survives(namespace))
    binds: dict[str, list[float]] = {}
    for one in scene.proxy.seen[since:]:
        if one.path.endswith("/binding"):
            binds.setdefault(one.path, []).append(one.at)
    again = [after - before for times in binds.values() for before, after in itertools.pairwise(times)]
    assert len(again) == 25
    assert min(again) >= 2.0


def test_pods_created_during_a_partition_are_bound_after_it(scene, namespace, record_property):
    """Longer than a request may take: nothing that was asked before it is answered."""
    record_property("recovery_seconds", scene.survives(namespace, scene.proxy.partitioned(), lasts=12.0))
