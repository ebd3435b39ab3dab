"""The configuration is read again when its file changes or on request; an invalid file changes nothing."""

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pydantic import BaseModel

from batchsched.config.load import load_configuration
from batchsched.config.schema import BatchSchedulerConfiguration
from batchsched.errors import InvalidInput
from batchsched.service.reload import CHECK_SECONDS, RELOADABLE_FIELDS, ConfigReloader
from tests.service.town import Clock

PROFILE = "profiles: [{schedulerName: batchsched, sessionWindow: %s}]\n"


class Followed:
    """A watched file, and the results of its reloads."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.clock = Clock()
        self.applied: list[int] = []
        self.told: list[bool] = []
        self.refuse = False
        self.reload = ConfigReloader(
            file, load_configuration(file), self._apply, self.clock, self.told.append
        )

    def _apply(self, found):
        if self.refuse:
            raise InvalidInput("there is no plugin of that name")
        self.applied.append(found.profiles[0].session_window)

    @property
    def window(self) -> int:
        return self.reload.configuration.profiles[0].session_window

    async def settle(self, times: int) -> None:
        """Wait for the stated number of results, or long enough to see that there is none."""
        for _ in range(200):
            self.clock.turn(CHECK_SECONDS)
            await asyncio.sleep(0.005)
            if len(self.told) >= times > 0:
                return


@asynccontextmanager
async def followed(tmp_path, text=PROFILE % 10):
    file = tmp_path / "batchsched.yaml"
    file.write_text(text)
    one = Followed(file)
    running = asyncio.create_task(one.reload.run())
    yield one
    running.cancel()
    await asyncio.wait([running])


async def test_change_of_the_file_is_taken_up(tmp_path):
    async with followed(tmp_path) as one:
        one.file.write_text(PROFILE % 200)
        await one.settle(1)
        assert (one.applied, one.told, one.window) == ([200], [True], 200)


async def test_file_that_is_replaced_as_kubelet_replaces_a_config_map_is_taken_up(tmp_path):
    """What is mounted is a link to a link to a folder, and only the one in the middle changes."""
    for name, window in (("one", 10), ("two", 20)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "batchsched.yaml").write_text(PROFILE % window)
    (tmp_path / "data").symlink_to("one")
    mounted = tmp_path / "batchsched.yaml"
    mounted.symlink_to("data/batchsched.yaml")
    one = Followed(mounted)
    running = asyncio.create_task(one.reload.run())
    (tmp_path / "next").symlink_to("two")
    (tmp_path / "next").replace(tmp_path / "data")
    await one.settle(1)
    running.cancel()
    assert one.applied == [20]


async def test_requested_reload_reads_an_unchanged_file(tmp_path):
    async with followed(tmp_path) as one:
        one.reload.request_reload()
        await one.settle(1)
        assert (one.applied, one.told) == ([], [True])


@pytest.mark.parametrize(
    "text",
    ["profiles: 5\n", "profiles: [", "profiles: [{schedulerName: batchsched, sesionWindow: 3}]\n"],
    ids=["of another type", "no YAML", "misspelt"],
)
async def test_invalid_file_is_refused_and_a_later_valid_one_applied(tmp_path, text, caplog):
    async with followed(tmp_path) as one:
        one.file.write_text(text)
        await one.settle(1)
        assert (one.applied, one.told, one.window) == ([], [False], 10)
        assert "the configuration is refused, and the old one kept" in caplog.text
        one.file.write_text(PROFILE % 30)
        await one.settle(2)
        assert (one.applied, one.told, one.window) == ([30], [False, True], 30)


async def test_profile_that_cannot_be_built_is_refused(tmp_path):
    async with followed(tmp_path) as one:
        one.refuse = True
        one.file.write_text(PROFILE % 30)
        await one.settle(1)
        assert (one.told, one.window) == ([False], 10)


async def test_missing_file_changes_nothing(tmp_path):
    async with followed(tmp_path) as one:
        one.file.unlink()
        await one.settle(0)
        assert (one.applied, one.told) == ([], [])


async def test_fields_read_only_at_the_start_are_named_and_the_others_applied(tmp_path, caplog):
    text = "serving: {securePort: 0, authorizationAlwaysAllowPaths: [/metrics]}\nsessionsKept: 3\n"
    async with followed(tmp_path) as one:
        before = one.reload.configuration
        one.file.write_text(PROFILE % 10 + text)
        await one.settle(1)
        one.reload.request_reload()
        await one.settle(2)
        found = one.reload.configuration
    assert (one.told, one.applied) == ([True, True], [10])
    assert (found.sessions_kept, found.serving.authorization_always_allow_paths) == (3, ("/metrics",))
    assert found.serving.secure_port == before.serving.secure_port != 0
    warnings = [each for each in caplog.records if each.levelname == "WARNING"]
    assert [each.getMessage() for each in warnings] == ["Takes effect at the next start"] * 2
    assert [each.fields for each in warnings] == [{"fields": ["serving.securePort"]}] * 2


def test_reloadable_fields_exist_in_the_configuration():
    every = set(paths(BatchSchedulerConfiguration()))
    assert every >= RELOADABLE_FIELDS


def paths(model, above=""):
    for name, field in type(model).model_fields.items():
        path = above + (field.alias or name)
        yield path
        if isinstance(getattr(model, name), BaseModel):
            yield from paths(getattr(model, name), f"{path}.")
