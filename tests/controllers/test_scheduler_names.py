"""Deployments with the same scheduler name notice each other by a Lease for the name."""

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from batchsched.controllers import scheduler_names
from batchsched.controllers.event_recorder import PendingEvent
from batchsched.controllers.scheduler_names import SchedulerNameLeases, lease_name_of_scheduler_name
from batchsched.kube.clock import SystemClock
from batchsched.kube.connection import Connection
from batchsched.kube.credentials import CredentialsReader
from batchsched.kube.lease import LeaseTimes
from tests.controlplane.plane import ControlPlane


@pytest.mark.parametrize(
    "scheduler_name, suffix",
    [
        ("batchsched", "batchsched"),
        ("team-a.gpu", "team-a.gpu"),
        ("GPU", None),
        ("a..b", None),
        ("x" * 201, None),
    ],
)
def test_lease_has_the_scheduler_name_in_its_name_if_an_object_may_have_it(scheduler_name, suffix):
    name = lease_name_of_scheduler_name(scheduler_name)
    assert name.startswith("scheduler-name-")
    assert len(name) < 253
    if suffix:
        assert name == f"scheduler-name-{suffix}"
    else:
        assert re.fullmatch("[-a-z0-9]+", name)


@dataclass
class Deployment:
    """A deployment as far as its scheduler names matter."""

    claims: SchedulerNameLeases = field(init=False)
    events: list[PendingEvent] = field(default_factory=list)


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_names, "LEASE_TIMES", LeaseTimes(duration=2.0, renew=1.0, retry=0.1))


@asynccontextmanager
async def running(
    plane: ControlPlane, identity: str, names: Sequence[str], token: str = ""
) -> AsyncIterator[Deployment]:
    clock, deployment = SystemClock(), Deployment()
    config = plane.kubeconfig(token) if token else plane.kubeconfig()
    async with Connection(CredentialsReader(config), clock) as connection:
        deployment.claims = SchedulerNameLeases(connection, clock, identity, names, deployment.events.append)
        task = asyncio.create_task(deployment.claims.run())
        try:
            yield deployment
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def until(true) -> None:
    async with asyncio.timeout(30):
        while not true():
            await asyncio.sleep(0.02)


async def test_second_deployment_with_the_same_scheduler_name_is_reported_until_the_first_is_gone(
    plane, caplog
):
    caplog.set_level(logging.INFO)
    async with running(plane, "two/batchsched", ["shared", "second"]) as second:
        async with running(plane, "one/batchsched", ["shared", "first"]) as first:
            await until(lambda: first.claims.conflicts or second.claims.conflicts)
            loser, other = (first, "two") if first.claims.conflicts else (second, "one")
            assert loser.claims.conflicts == {"shared": f"{other}/batchsched"}
            await until(lambda: len(loser.events) > 1)
            event = loser.events[0]
            assert (event.target.kind, event.target.name) == ("Lease", "scheduler-name-shared")
            assert (event.reason, event.warning) == ("SchedulerNameConflict", True)
            assert "one/batchsched" in event.note
            assert "two/batchsched" in event.note
            assert len({event.note for event in loser.events}) == 1
        errors = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert len(errors) == 1
        await until(lambda: not second.claims.conflicts)


async def test_replicas_of_one_deployment_are_no_conflict(plane):
    async with (
        running(plane, "one/batchsched", ["mine"]) as leader,
        running(plane, "one/batchsched", ["mine"]) as next_leader,
    ):
        await asyncio.sleep(1.0)
        assert leader.claims.conflicts == next_leader.claims.conflicts == {}


async def test_deployment_that_has_ended_is_no_conflict(plane):
    async with running(plane, "former", ["inherited"]):
        await asyncio.sleep(0.5)
    async with running(plane, "present", ["inherited"]) as present:
        await asyncio.sleep(3.0)
        assert present.claims.conflicts == {}
        assert present.events == []
    lease = plane.admin.get(
        "/apis/coordination.k8s.io/v1/namespaces/kube-public/leases/scheduler-name-inherited"
    )
    assert lease["spec"]["holderIdentity"] == "present"


async def test_missing_permission_is_logged_once(plane, caplog):
    plane.admin.create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "claimless"}})
    token = plane.token_of("default", "claimless")
    async with running(plane, "one/batchsched", ["unreadable"], token) as deployment:
        await asyncio.sleep(1.0)
        assert deployment.claims.conflicts == {}
    (message,) = [record.getMessage() for record in caplog.records if record.name == scheduler_names.__name__]
    assert "it is unknown whether another deployment uses the schedulerName unreadable" in message
    assert "kube-public/scheduler-name-unreadable" in message
    assert "403" in message
