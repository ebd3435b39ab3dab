"""The labels of gangs are written to pods only if batchsched may do so."""

import logging
from typing import Any

import pytest

from batchsched.errors import ApiError
from batchsched.podgrouper.projection import LABEL_DELAY_SECONDS, RETRY_SECONDS, PodGroupWriter
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


def group_writer(world: World, writer: Any, **settings: bool) -> PodGroupWriter:
    return PodGroupWriter(world.grouper.groups, world.grouper.members, writer, Clock(), **settings)


async def run_for(written: PodGroupWriter, seconds: float) -> None:
    for moment in range(int(2 * seconds)):
        await written.run_once(moment / 2)


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
