"""The dump of a cluster lists what the scheduler watches, and says what it could not list."""

import asyncio
from typing import Any

import msgspec
import pytest

from batchsched.config.schema import Profile
from batchsched.errors import ApiError, CommandError
from batchsched.scheduler.app import SchedulerApp
from batchsched.scheduler.cluster_dump import dump_live_cluster
from tests.service.town import Clock

NODE = {"metadata": {"name": "n1", "annotations": {"vault.example.com/token": "s3cret"}}, "spec": {"x": 1}}


class Server:
    """A connection that answers lists from a table: objects, or errors that are raised once each."""

    def __init__(self, listed: dict[str, Any]) -> None:
        self.listed = listed
        self.paths: list[str] = []

    async def request(self, method: str, path: str, **more: Any) -> bytes:
        self.paths.append(path)
        answer = self.listed.get(path, ApiError(404, "NotFound", "no such kind"))
        if isinstance(answer, list) and answer and isinstance(answer[0], ApiError):
            raise answer.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return msgspec.json.encode({"metadata": {"resourceVersion": "1"}, "items": answer})


def dump_of(listed: dict[str, Any]) -> Any:
    server: Any = Server(listed)
    return asyncio.run(dump_live_cluster(server, Clock())), server


def test_every_kind_that_the_scheduler_watches_is_listed_once():
    nowhere: Any = None
    watched = {
        reflector.resource.path() for reflector in SchedulerApp(nowhere, Clock(), [Profile()]).reflectors
    }
    dump, server = dump_of({path: [{"metadata": {"name": "x"}}] for path in watched})
    assert sorted(server.paths) == sorted(watched)
    items = [msgspec.json.decode(item) for item in dump.items]
    assert len(items) == len(watched)
    assert all(item["metadata"] == {"name": "x"} and item["kind"] and item["apiVersion"] for item in items)


def test_kind_that_is_not_installed_is_left_out():
    dump, _ = dump_of({"/api/v1/nodes": [NODE]})
    assert len(dump.items) == 1
    assert dump.warnings == ()


def test_objects_of_the_dump_have_no_fields_that_decisions_do_not_read():
    dump, _ = dump_of({"/api/v1/nodes": [NODE]})
    assert msgspec.json.decode(dump.items[0]) == {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1", "annotations": {}},
        "spec": {},
    }


def test_list_that_expires_is_started_again():
    dump, _ = dump_of({"/api/v1/nodes": [ApiError(410, "Expired", "the token is too old")]})
    assert dump.warnings == ()


def test_refused_list_of_an_optional_kind_causes_a_warning():
    dump, _ = dump_of({"/apis/batch/v1/jobs": ApiError(403, "Forbidden", "may not list")})
    (warning,) = dump.warnings
    assert "jobs.batch are not in the dump" in warning


@pytest.mark.parametrize("status", [403, 500])
def test_refused_list_of_a_required_kind_ends_the_command(status):
    with pytest.raises(CommandError, match="the cluster does not list nodes"):
        dump_of({"/api/v1/nodes": ApiError(status, "No", "no")})


def test_object_that_is_nested_too_deeply_costs_no_other_object():
    deep: Any = {}
    for _ in range(800):
        deep = {"spec": deep}
    deep = {"metadata": {"name": "deep", "namespace": "team"}, "spec": deep}
    well = {"metadata": {"name": "well", "namespace": "team"}, "spec": {"suspend": True}}
    dump, _ = dump_of({"/apis/batch/v1/jobs": [deep, well]})
    assert len(dump.items) == 1
    (warning,) = dump.warnings
    assert "Job team/deep is not in the dump" in warning
