"""A dry run of an eviction asks the API server whether it would refuse, and changes nothing."""

from typing import Any

import msgspec
import pytest

from batchsched.errors import ApiError
from batchsched.kube.writer import Writer
from tests.kube.virtual import Skewed
from tests.state.objects import pod

pytestmark = pytest.mark.virtual_time
VICTIM = pod("low", 1, "uid-low", on="n0")
SIDE_EFFECTS = ApiError(400, "BadRequest", 'admission webhook "audit" does not support dry run')


class Recorder:
    """As a `Connection`: keeps the queries and bodies of evictions.

    Args:
      fault: what evictions end in.
    """

    def __init__(self, fault: ApiError | None = None) -> None:
        self.fault = fault
        self.evictions: list[tuple[Any, Any]] = []

    async def request(self, method: str, path: str, **more: Any) -> bytes:
        if method == "GET":
            return msgspec.json.encode(VICTIM)
        assert path == "/api/v1/namespaces/team/pods/low/eviction"
        self.evictions.append((more["query"], msgspec.json.decode(more["body"])["deleteOptions"]))
        if self.fault is not None:
            raise self.fault
        return b"{}"


def writer_to(server: Any) -> Writer:
    return Writer(server, Skewed())


async def test_dry_run_is_in_the_query_and_in_the_options():
    server = Recorder()
    await writer_to(server).evict(VICTIM, dry_run=True)
    assert server.evictions == [({"dryRun": "All"}, {"preconditions": {"uid": "uid-low"}, "dryRun": ["All"]})]


async def test_eviction_without_dry_run_has_neither():
    server = Recorder()
    await writer_to(server).evict(VICTIM)
    assert server.evictions == [(None, {"preconditions": {"uid": "uid-low"}})]


async def test_webhook_without_support_for_dry_runs_is_no_refusal():
    await writer_to(Recorder(SIDE_EFFECTS)).evict(VICTIM, dry_run=True)
    with pytest.raises(ApiError, match="does not support"):
        await writer_to(Recorder(SIDE_EFFECTS)).evict(VICTIM)


@pytest.mark.parametrize("status", [400, 403, 429, 500])
async def test_refusal_of_a_dry_run_is_an_error(status):
    with pytest.raises(ApiError):
        await writer_to(Recorder(ApiError(status, "Forbidden", "no"))).evict(VICTIM, dry_run=True)
