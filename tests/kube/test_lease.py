"""At most one replica leads, whatever the clocks and the network do."""

import asyncio
import itertools
import json
import random
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.errors import ApiError, Unreachable
from batchsched.kube.clock import SystemClock
from batchsched.kube.connection import Connection
from batchsched.kube.credentials import CredentialsReader
from batchsched.kube.lease import LeaderElector, LeaseTimes
from tests.controlplane.proxy import hung, lost, page, status
from tests.kube.virtual import Skewed, run

SHORT = LeaseTimes(duration=1.6, renew=1.0, retry=0.1)
NUMBERS = itertools.count(1)
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


@pytest.mark.parametrize("terms", [(10, 15, 2), (15, 10, 10), (15, 10, 0)], ids=str)
def test_durations_that_would_allow_two_leaders_are_refused(terms):
    with pytest.raises(ValueError, match="leaseDuration > renewDeadline > retryPeriod"):
        LeaseTimes(*terms)


# On a real API server


@pytest.fixture
def name():
    return f"lease-{next(NUMBERS)}"


@asynccontextmanager
async def contender(plane, name, identity, network=None):
    config = plane.kubeconfig(server=network.url if network else None)
    clock = SystemClock()
    async with Connection(CredentialsReader(config), clock) as connection:
        yield LeaderElector(connection, clock, ("default", name), identity, SHORT)


def spec(plane, name):
    return plane.admin.get(f"{LEASES}/{name}")["spec"]


async def test_released_lease_is_acquired_by_the_next_replica_at_once(plane, name):
    async with contender(plane, name, "ada") as ada, contender(plane, name, "bob") as bob:
        await ada.acquire()
        assert 0 < ada.remaining_seconds() <= 1
        assert spec(plane, name)["holderIdentity"] == "ada"
        second = asyncio.create_task(bob.acquire())
        await asyncio.sleep(0.3)
        assert not second.done()
        await ada.release()
        assert ada.remaining_seconds() <= 0
        async with asyncio.timeout(1):
            await second
        assert spec(plane, name) | {"renewTime": "", "acquireTime": ""} == {
            "holderIdentity": "bob",
            "leaseDurationSeconds": 2,
            "leaseTransitions": 1,
            "renewTime": "",
            "acquireTime": "",
        }


async def test_leader_keeps_the_lease_until_it_stops_renewing_it(plane, name):
    async with contender(plane, name, "ada") as ada, contender(plane, name, "bob") as bob:
        await ada.acquire()
        keeping = asyncio.create_task(ada.renew_until_lost())
        second = asyncio.create_task(bob.acquire())
        await asyncio.sleep(2.2)
        assert ada.remaining_seconds() > 0
        assert not second.done()
        keeping.cancel()  # as if it had been killed
        killed = time.monotonic()
        await second
        assert 1 <= time.monotonic() - killed < 4
        assert ada.remaining_seconds() <= 0


async def test_labels_of_other_clients_on_the_lease_are_kept(plane, name):
    body = {"metadata": {"name": name, "labels": {"team": "ml"}}}
    plane.admin.create(LEASES, body)
    async with contender(plane, name, "ada") as ada:
        await ada.acquire()
    assert plane.admin.get(f"{LEASES}/{name}")["metadata"]["labels"] == {"team": "ml"}
    assert spec(plane, name)["holderIdentity"] == "ada"


@pytest.mark.parametrize("fault", [hung(), page(502), status(403, "Forbidden")], ids=["hung", "502", "403"])
async def test_leader_that_cannot_renew_stops_in_time(plane, proxy, name, fault):
    async with contender(plane, name, "ada", proxy) as ada:
        await ada.acquire()
        keeping = asyncio.create_task(ada.renew_until_lost())
        proxy.on(fault)
        await asyncio.sleep(1.1)
        assert ada.remaining_seconds() <= 0
        async with asyncio.timeout(3):
            await keeping
        await ada.release()


async def test_leader_survives_single_faults_and_lost_answers(plane, proxy, name):
    async with contender(plane, name, "ada", proxy) as ada:
        proxy.on(lost(), method="POST", count=1)
        proxy.on(lost(), method="PUT", count=1, skip=1)
        proxy.on(page(502), method="PUT", count=1, skip=2)
        await ada.acquire()
        keeping = asyncio.create_task(ada.renew_until_lost())
        for _ in range(20):
            await asyncio.sleep(0.05)
            assert ada.remaining_seconds() > 0
        keeping.cancel()


async def test_partitioned_leader_stops_before_the_next_replica_leads(plane, proxy, name):
    async with contender(plane, name, "ada", proxy) as ada, contender(plane, name, "bob") as bob:
        await ada.acquire()
        keeping = asyncio.create_task(ada.renew_until_lost())
        second = asyncio.create_task(bob.acquire())
        await asyncio.sleep(0.3)
        with proxy.partitioned():
            while not second.done():
                await asyncio.sleep(0.01)
                assert not (ada.remaining_seconds() > 0 and bob.remaining_seconds() > 0)
        await keeping
        assert ada.remaining_seconds() <= 0
        before = proxy.count("PUT")
        await ada.release()
        assert proxy.count("PUT") == before
        assert spec(plane, name)["holderIdentity"] == "bob"


async def test_a_leader_that_sees_another_holder_stops_and_does_not_release_the_lease(plane, proxy, name):
    async with contender(plane, name, "ada", proxy) as ada:
        await ada.acquire()
        found = plane.admin.get(f"{LEASES}/{name}")
        found["spec"]["holderIdentity"] = "other"
        plane.admin.call("PUT", f"{LEASES}/{name}", found)
        async with asyncio.timeout(0.5):
            await ada.renew_until_lost()
        requests = proxy.count()
        await ada.release()
        assert proxy.count() == requests


async def test_deleted_lease_is_not_acquired_before_its_holder_stops(plane, name):
    async with contender(plane, name, "ada") as ada, contender(plane, name, "bob") as bob:
        await ada.acquire()
        second = asyncio.create_task(bob.acquire())
        await asyncio.sleep(0.3)
        plane.admin.delete(f"{LEASES}/{name}")
        while not second.done():
            await asyncio.sleep(0.01)
            assert not (ada.remaining_seconds() > 0 and bob.remaining_seconds() > 0)
        assert bob.remaining_seconds() > 0


# In virtual time


@dataclass
class Server:
    """An API server with one Lease."""

    lease: dict | None = None
    version: int = 0

    def answer(self, method, body):
        if method == "GET":
            if self.lease is None:
                raise ApiError(404, "NotFound", "")
            return json.dumps(self.lease).encode()
        sent = json.loads(body)
        if (method == "POST") != (self.lease is None):
            raise ApiError(409, "Conflict", "")
        if self.lease is not None and sent["metadata"].get("resourceVersion") != str(self.version):
            raise ApiError(409, "Conflict", "")
        self.version += 1
        self.lease = {**sent, "metadata": {**sent["metadata"], "resourceVersion": str(self.version)}}
        return b""


@dataclass
class Wire:
    """The way of one contender to it: what is sent arrives late, not at all, or after the sender gave up."""

    server: Server
    clock: Skewed
    draw: random.Random
    bad: list[tuple[float, float]]
    late: set = field(default_factory=set)

    async def request(self, method, path, *, body=None, deadline=10.0):
        exchange = asyncio.ensure_future(self._exchange(method, body))
        self.late.add(exchange)
        exchange.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            async with asyncio.timeout(deadline / self.clock.rate):
                return await asyncio.shield(exchange)
        except TimeoutError as error:
            raise Unreachable(path) from error

    async def _exchange(self, method, body):
        await self._way()
        answered = self.server.answer(method, body)
        await self._way()
        return answered

    async def _way(self):
        """Half a way: milliseconds, or until the trouble is over, or for ever."""
        now = asyncio.get_running_loop().time()
        end = max((end for begin, end in self.bad if begin <= now < end), default=now)
        if end > now and self.draw.random() < 0.3:
            raise Unreachable("reset")
        await asyncio.sleep(end - now + self.draw.choice([0.001, 0.01, 0.2]))


SPANS = st.lists(
    st.tuples(st.floats(0, 60), st.floats(0.1, 20)).map(lambda span: (span[0], span[0] + span[1])), max_size=4
)
CONTENDERS = st.lists(
    st.tuples(st.floats(0.85, 1.15), st.floats(-3600, 3600), SPANS, st.none() | st.floats(5, 60)),
    min_size=2,
    max_size=3,
)


async def life(lease, death):
    """Lead, lose, and lead again; die where it is said, without a word."""

    async def living():
        while True:
            await lease.acquire()
            await lease.renew_until_lost()

    task = asyncio.create_task(living())
    await asyncio.sleep(1e9 if death is None else death)
    task.cancel()


@pytest.mark.properties
@given(contenders=CONTENDERS, seed=st.integers(0, 2**32))
def test_two_replicas_never_lead_at_once_and_one_leads_in_the_end(contenders, seed):
    async def story():
        server = Server()
        leases, tasks, alive = [], [], []
        for number, (rate, offset, bad, death) in enumerate(contenders):
            draw = random.Random(f"{seed} {number}")
            clock = Skewed(rate, offset, draw)
            lease = LeaderElector(
                cast(Connection, Wire(server, clock, draw, bad)),
                clock,
                ("system", "batchsched"),
                f"p{number}",
            )
            leases.append(lease)
            tasks.append(asyncio.create_task(life(lease, death)))
            if death is None:
                alive.append(lease)
        for _ in range(1200):
            await asyncio.sleep(0.1)
            leading = [lease.identity for lease in leases if lease.remaining_seconds() > 0]
            assert len(leading) <= 1, (asyncio.get_running_loop().time(), leading)
        assert not alive or any(lease.remaining_seconds() > 0 for lease in alive)
        for task in tasks:
            task.cancel()

    run(story())
