"""Answers of the API server to evictions: a conflict is no eviction unless the pod is gone or terminating."""

from typing import Any

import msgspec
import pytest

from batchsched.errors import ApiError
from batchsched.kube.clock import SystemClock
from batchsched.kube.writer import Writer
from tests.session.scenario import pod

CONFLICT = ApiError(409, "Conflict", "the object has been modified")


class Server:
    """An API server that refuses an eviction with a conflict; `reads` are the pods that it returns, in order."""

    def __init__(self, *reads: dict[str, Any] | ApiError) -> None:
        self._reads = list(reads)

    async def request(self, method: str, path: str, **_: Any) -> bytes:
        answer = self._reads.pop(0) if method == "GET" else CONFLICT
        if isinstance(answer, ApiError):
            raise answer
        return msgspec.json.encode({"metadata": answer, "spec": {"nodeName": "n"}})


async def evict(*reads: dict[str, Any] | ApiError) -> None:
    victim = pod("low", on="n")
    metadata = msgspec.structs.replace(victim.metadata, uid="own")
    server: Any = Server({"uid": "own"}, *reads)
    await Writer(server, SystemClock()).evict(msgspec.structs.replace(victim, metadata=metadata))


@pytest.mark.parametrize(
    "read",
    [
        {"uid": "own", "deletionTimestamp": "2026-01-01T00:00:00Z"},
        {"uid": "another"},
        ApiError(404, "NotFound", "no such pod"),
    ],
    ids=["terminating", "replaced", "deleted"],
)
async def test_conflict_about_a_pod_that_leaves_is_an_eviction(read):
    await evict(read)


async def test_conflict_about_a_pod_that_stays_is_an_error():
    with pytest.raises(ApiError, match="the object has been modified"):
        await evict({"uid": "own"})
