"""A reflector lists again if the API server was restored from a backup: its resourceVersion goes back."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import msgspec
import pytest

from batchsched.errors import ApiError, Unreachable
from batchsched.kube.connection import ApiResource
from batchsched.kube.reflector import Reflector
from tests.kube.virtual import Skewed

pytestmark = pytest.mark.virtual_time
PODS = ApiResource("v1", "pods", "Pod", namespaced=True)
BACKUP = 100


class RestorableServer:
    """An API server with one collection, as a `Connection`. Watches from a version of the future deliver nothing."""

    def __init__(self) -> None:
        self.version = 1000
        self.names = {"old", "new"}
        self.lists = self.checks = 0
        self.failing: list[Exception] = []
        """What the next consistent reads end in."""
        self.failing_lists: list[Exception] = []
        self.watches: list[tuple[int, asyncio.Queue[bytes | Exception]]] = []

    def send(self, *events: bytes | Exception) -> None:
        for _, queue in self.watches:
            for event in events:
                queue.put_nowait(event)

    def restore(self) -> None:
        """Go back to a backup. Open watches stay open and say nothing more."""
        self.version, self.names = BACKUP, {"old"}

    def add(self, name: str) -> None:
        self.version += 1
        self.names.add(name)
        for since, queue in self.watches:
            if since < self.version:
                queue.put_nowait(event("ADDED", name, self.version))

    async def request(self, method: str, path: str, *, query: Mapping[str, str], deadline: float) -> bytes:
        metadata = {"resourceVersion": str(self.version)}
        if "fieldSelector" in query:
            self.checks += 1
            if self.failing:
                raise self.failing.pop(0)
            return msgspec.json.encode({"metadata": metadata, "items": []})
        self.lists += 1
        if self.failing_lists:
            raise self.failing_lists.pop(0)
        items = [{"metadata": {"name": name, "resourceVersion": "1"}} for name in sorted(self.names)]
        return msgspec.json.encode({"metadata": metadata, "items": items})

    async def watch_lines(
        self, path: str, query: Mapping[str, str], silence: float
    ) -> AsyncGenerator[list[bytes], None]:
        queue: asyncio.Queue[bytes | Exception] = asyncio.Queue()
        watch = (int(query["resourceVersion"]), queue)
        self.watches.append(watch)
        end = asyncio.get_running_loop().time() + float(query["timeoutSeconds"])
        try:
            while True:
                try:
                    async with asyncio.timeout(min(silence, end - asyncio.get_running_loop().time())):
                        event = await queue.get()
                except TimeoutError:
                    if asyncio.get_running_loop().time() >= end:
                        return
                    raise Unreachable("no byte for too long") from None
                if isinstance(event, Exception):
                    raise event
                yield [event]
        finally:
            self.watches.remove(watch)


def event(kind: str, name: str, version: int | str) -> bytes:
    found = {"metadata": {"name": name, "resourceVersion": str(version)}}
    return msgspec.json.encode({"type": kind, "object": found})


class Names:
    """A sink that keeps the names of the objects."""

    def __init__(self) -> None:
        self.there: set[str] = set()

    def on_replace(self, objects: Any) -> None:
        self.there = set(map(self._name, objects))

    def on_add_or_update(self, raw: bytes) -> None:
        self.there.add(self._name(raw))

    def on_delete(self, raw: bytes) -> None:
        self.there.discard(self._name(raw))

    def _name(self, raw: bytes) -> str:
        name: str = msgspec.json.decode(raw)["metadata"]["name"]
        return name


class Follower:
    """A reflector at work."""

    def __init__(self) -> None:
        self.server, self.names = RestorableServer(), Names()
        server: Any = self.server
        sink: Any = self.names
        self.reflector = Reflector(server, PODS, sink, Skewed())

    async def __aenter__(self) -> "Follower":
        self.task = asyncio.create_task(self.reflector.run())
        await self.reflector.synced.wait()
        await asyncio.sleep(5)
        return self

    async def __aexit__(self, *raised: object) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


async def test_standby_verifies_its_objects_before_it_leads():
    async with Follower() as follower:
        follower.server.restore()
        await follower.reflector.verify_resource_version()
        assert follower.names.there == {"old"}
        follower.server.add("later")
        await asyncio.sleep(1)
        assert follower.names.there == {"old", "later"}


async def test_new_leader_that_catches_up_lists_again_if_the_version_went_back():
    async with Follower() as follower:
        follower.server.restore()
        await follower.reflector.wait_until_up_to_date()
        assert follower.names.there == {"old"}


async def test_verifying_lists_nothing_if_the_version_did_not_go_back():
    async with Follower() as follower:
        follower.server.add("later")
        await follower.reflector.verify_resource_version()
        assert (follower.server.lists, follower.server.checks) == (1, 1)


async def test_failed_watch_is_resumed_only_after_the_version_was_compared():
    async with Follower() as follower:
        follower.server.restore()
        follower.server.send(Unreachable("the API server restarts"))
        await asyncio.sleep(5)
        assert follower.names.there == {"old"}
        assert follower.server.lists == 2


async def test_failed_watch_is_resumed_without_a_list_if_the_version_did_not_go_back():
    async with Follower() as follower:
        follower.server.send(Unreachable("the network is down"))
        await asyncio.sleep(5)
        follower.server.add("later")
        await asyncio.sleep(1)
        assert follower.names.there == {"old", "new", "later"}
        assert follower.server.lists == 1


async def test_silent_watch_of_a_restored_server_ends_in_a_new_list():
    async with Follower() as follower:
        follower.server.restore()
        await asyncio.sleep(100)
        assert follower.names.there == {"old"}


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"])
async def test_event_with_a_lower_version_causes_a_new_list(kind):
    async with Follower() as follower:
        follower.server.restore()
        follower.server.send(event(kind, "old", BACKUP))
        await asyncio.sleep(5)
        assert follower.names.there == {"old"}


async def test_version_of_5000_digits_is_compared_like_any_other():
    async with Follower() as follower:
        follower.server.send(event("ADDED", "large", "9" * 5000))
        await asyncio.sleep(5)
        assert "large" in follower.names.there
        lists = follower.server.lists
        follower.server.send(event("ADDED", "old", "9" * 4999))
        await asyncio.sleep(5)
        assert follower.server.lists > lists


TOO_LARGE = ApiError(504, "Timeout", "Timeout: Too large resource version: 1000, current: 100")


async def test_answer_that_the_version_is_too_large_causes_a_new_list():
    async with Follower() as follower:
        follower.server.restore()
        follower.server.send(TOO_LARGE)
        await asyncio.sleep(5)
        assert follower.names.there == {"old"}


async def test_verifying_gives_up_after_some_attempts_and_keeps_the_known_objects(caplog):
    async with Follower() as follower:
        follower.server.failing = [Unreachable("no answer")] * 3
        await follower.reflector.verify_resource_version()
        assert follower.names.there == {"old", "new"}
        assert "could not be verified" in caplog.text


@pytest.mark.parametrize("status", [403, 404])
async def test_verifying_does_not_wait_for_a_kind_that_cannot_be_listed(status):
    async with Follower() as follower:
        follower.server.failing = [ApiError(status, "", "")]
        await follower.reflector.verify_resource_version()
        assert follower.server.checks == 1


async def test_refused_comparison_does_not_keep_a_watch_from_being_resumed():
    async with Follower() as follower:
        follower.server.failing = [ApiError(403, "Forbidden", "")]
        follower.server.send(Unreachable("the network is down"))
        await asyncio.sleep(10)
        follower.server.add("later")
        await asyncio.sleep(1)
        assert "later" in follower.names.there


@pytest.mark.parametrize("refusals", [1, 2, 6])
async def test_versions_are_compared_after_a_restored_server_that_starts_refused_everything(refusals):
    async with Follower() as follower:
        follower.server.restore()
        follower.server.failing = [ApiError(403, "Forbidden", "RBAC is not loaded yet")] * refusals
        follower.server.send(Unreachable("the API server restarts"))
        await asyncio.sleep(60)
        assert follower.names.there == {"old"}
        assert follower.server.lists == 2


async def test_watch_is_resumed_while_comparisons_are_refused(caplog):
    async with Follower() as follower:
        follower.server.failing = [ApiError(403, "Forbidden", "no permission to list")] * 1000
        follower.server.send(Unreachable("the network is down"))
        await asyncio.sleep(20)
        for number in range(20):
            await asyncio.sleep(29)
            follower.server.add(f"later-{number}")
        await asyncio.sleep(29)
        assert (
            len(follower.names.there) > 5
        )  # this server sends each event once, to the watches that are open
        assert follower.server.checks < 100
    assert caplog.text.count("no permission to list") == 1


async def test_verifying_waits_for_a_list_that_has_begun():
    async with Follower() as follower:
        follower.server.restore()
        follower.server.failing_lists = [Unreachable("the API server restarts")] * 3
        follower.server.send(ApiError(410, "Expired", "too old"))
        await asyncio.sleep(0.1)
        await follower.reflector.verify_resource_version()
        assert follower.names.there == {"old"}


@pytest.mark.parametrize("wait", [Reflector.wait_until_up_to_date, Reflector.verify_resource_version])
async def test_new_leader_does_not_wait_for_a_kind_that_is_not_installed(wait):
    async with Follower() as follower:
        follower.server.failing_lists = [ApiError(404, "NotFound", "no such kind")] * 100
        follower.server.send(ApiError(404, "NotFound", "no such kind"))
        await asyncio.sleep(60)
        begun = asyncio.get_running_loop().time()
        await wait(follower.reflector)
        assert asyncio.get_running_loop().time() == begun
        assert follower.names.there == set()


async def test_restore_is_reported_once_and_a_requested_list_shows_it_where_the_version_has_advanced():
    """Events of a kind that changes rarely have low versions, which those of the restored server exceed soon."""
    async with Follower() as follower:
        reports: list[bool] = []
        follower.reflector.on_rewound = lambda: reports.append(True)
        follower.server.restore()
        follower.server.version = 2000
        follower.server.send(Unreachable("the API server restarts"))
        await asyncio.sleep(5)
        assert (follower.names.there, reports) == ({"old", "new"}, [])
        follower.reflector.request_relist()
        before = follower.reflector.is_relist_requested
        await follower.reflector.wait_for_list()
        assert (before, follower.reflector.is_relist_requested) == (True, False)
        assert follower.names.there == {"old"}
        follower.server.restore()
        follower.server.send(Unreachable("the API server restarts"))
        await asyncio.sleep(5)
        assert reports == [True]
        assert follower.server.lists == 3


async def test_requested_list_does_not_wait_for_the_end_of_a_backoff():
    async with Follower() as follower:
        follower.server.failing = [Unreachable("the API server restarts")] * 6
        follower.server.send(Unreachable("the API server restarts"))
        await asyncio.sleep(15)
        follower.server.restore()
        begun = asyncio.get_running_loop().time()
        follower.reflector.request_relist()
        await follower.reflector.wait_for_list()
        assert asyncio.get_running_loop().time() - begun < 0.1
        assert follower.names.there == {"old"}
