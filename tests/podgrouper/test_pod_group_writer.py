"""Derived PodGroups and the labels of gangs are written when they are due, to pods only if batchsched may do so."""

import asyncio
import logging
from typing import Any

import pytest

from batchsched.api.core.pod import QUEUE_LABEL
from batchsched.api.crd.podgroup import PodGroup
from batchsched.errors import ApiError
from batchsched.kube.clock import SystemClock
from batchsched.kube.writer import Writer
from batchsched.podgrouper.pod_group_index import DERIVED, OWNER_LABEL
from batchsched.podgrouper.pod_group_writer import (
    LABEL_DELAY_SECONDS,
    REFUSED_SECONDS,
    RETRY_SECONDS,
    PodGroupWriter,
)
from tests.podgrouper.owners import job
from tests.podgrouper.test_grouper import World
from tests.service.town import Clock


class Forbidding:
    """A writer that may write PodGroups, but no pods."""

    def __init__(self) -> None:
        self.forbidden = True
        self.patched: list[str] = []

    async def create(self, *_: Any) -> None:
        """Accept a PodGroup."""

    async def patch(self, resource: Any, namespace: str, name: str, change: Any) -> None:
        self.patched.append(name)
        if self.forbidden:
            raise ApiError(403, "Forbidden", "cannot patch resource pods")


def world_with_pods(count: int) -> World:
    world, owner = World(), job(count)
    world.own(owner)
    for number in range(count):
        world.pod(f"train-{number}", owned_by=owner)
    return world


def group_writer(world: World, writer: Any, **settings: Any) -> PodGroupWriter:
    return PodGroupWriter(world.grouper.groups, world.grouper.members, writer, Clock(), **settings)


async def run_for(written: PodGroupWriter, seconds: float) -> None:
    for moment in range(int(2 * seconds)):
        await written.write_due_groups_and_labels(moment / 2)


async def test_missing_permission_to_patch_pods_is_logged_once_for_all_pods(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING)
    writer = Forbidding()
    await run_for(group_writer(world_with_pods(5), writer), LABEL_DELAY_SECONDS + 3 * RETRY_SECONDS)
    assert len(writer.patched) > 5
    (message,) = [record.getMessage() for record in caplog.records]
    assert "cannot patch resource pods" in message
    assert "set podGrouper.patchPods to false" in message


async def test_no_pod_is_patched_if_the_configuration_forbids_it():
    writer = Forbidding()
    await run_for(group_writer(world_with_pods(5), writer, patch_pods=False), LABEL_DELAY_SECONDS + 5)
    assert writer.patched == []


class Failing:
    """A writer with requests that fail with a status, or succeed if it is 0."""

    def __init__(self, status: int = 0) -> None:
        self.status = status
        self.message = "the test refuses the write"
        self.created: list[str] = []
        self.patched: list[str] = []

    async def create(self, resource: Any, namespace: str, body: Any) -> None:
        self.created.append(body["metadata"]["name"])
        self.fail()

    async def patch(self, resource: Any, namespace: str, name: str, change: Any) -> None:
        self.patched.append(name)
        self.fail()

    def fail(self) -> None:
        if self.status:
            raise ApiError(self.status, "Failed", self.message)


async def test_a_derived_pod_group_is_written_once_and_again_only_after_a_failure():
    world, writer = world_with_pods(4), Failing(status=500)
    written = group_writer(world, writer, patch_pods=False)
    (name,) = (key.partition("/")[2] for key in world.grouper.groups.groups_of_origin(DERIVED))
    await written.write_due_groups_and_labels(0.0)
    await written.write_due_groups_and_labels(RETRY_SECONDS - 1)
    assert writer.created == [name]
    writer.status = 0
    for _ in range(2):
        await written.write_due_groups_and_labels(RETRY_SECONDS)
    assert writer.created == [name, name]


async def test_refused_pod_group_is_tried_rarely_and_each_message_is_logged_once(caplog):
    caplog.set_level(logging.WARNING)
    world, writer = world_with_pods(4), Failing(status=422)
    written = group_writer(world, writer, patch_pods=False)
    await run_for(written, 3 * REFUSED_SECONDS)
    assert len(writer.created) == 3
    assert caplog.text.count("the test refuses the write") == 1
    writer.message = "for another reason"
    await written.write_due_groups_and_labels(3 * REFUSED_SECONDS)
    assert caplog.text.count("for another reason") == 1


async def test_queue_that_a_gang_keeps_is_reported_once_and_written_when_no_pod_has_a_node():
    world, writer = World(), Failing()
    reports: list[tuple[str, str | None]] = []

    def report(key: str, queue_of_owner: str | None) -> None:
        reports.append((key, queue_of_owner))

    written = group_writer(world, writer, patch_pods=False, on_kept_queue=report)
    world.own(job(4, labels={QUEUE_LABEL: "research"}))
    world.pod(owned_by=job(4))
    meta = {"name": world.of()[0], "namespace": "team", "uid": "u", "labels": {OWNER_LABEL: "some"}}
    spec = {"minMember": 4, "queue": "research"}
    world.groups.put(PodGroup.model_validate({"metadata": meta, "spec": spec, "status": {"placed": 1}}))
    for moment, queue in enumerate(("product", "product", "other")):
        world.own(job(4, labels={QUEUE_LABEL: queue}))
        world.groups.put(PodGroup.model_validate({"metadata": meta, "spec": spec, "status": {"placed": 2}}))
        await written.write_due_groups_and_labels(float(moment))
    key = f"team/{world.of()[0]}"
    assert reports == [(key, "product"), (key, "other")]
    assert writer.patched == []
    world.groups.put(PodGroup.model_validate({"metadata": meta, "spec": spec, "status": {"placed": 0}}))
    await written.write_due_groups_and_labels(9.0)
    assert writer.patched == [world.of()[0]]
    assert len(reports) == 2


@pytest.mark.parametrize("status, warned", [(500, True), (404, False), (409, False)])
async def test_a_failed_write_of_labels_is_logged_unless_the_pod_has_gone(caplog, status, warned):
    caplog.set_level(logging.WARNING)
    writer = Failing()
    written = group_writer(world_with_pods(2), writer)
    await written.write_due_groups_and_labels(0.0)
    assert writer.patched == []
    writer.status = status
    await written.write_due_groups_and_labels(LABEL_DELAY_SECONDS)
    assert set(writer.patched) == {"train-0", "train-1"}
    assert ("labels of team/train-0 were not written" in caplog.text) is warned


class Slow:
    """A connection that answers when it may."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.begun = self.answered = 0

    async def request(self, *_: Any, **__: Any) -> bytes:
        self.begun += 1
        await self.may_answer.wait()
        self.answered += 1
        return b"{}"


async def test_writes_under_way_are_not_cancelled_with_the_writer_and_can_be_waited_for():
    connection: Any = Slow()
    writer = Writer(connection, SystemClock())
    running = asyncio.create_task(group_writer(world_with_pods(2), writer).run())
    await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.wait([running])
    idle = asyncio.create_task(writer.wait_until_idle())
    await asyncio.sleep(0.01)
    assert not idle.done()
    connection.may_answer.set()
    await idle
    assert connection.begun == connection.answered >= 1
