"""Requests end in time, with an answer or with an error that states the cause."""

import asyncio
import gc
import json
import time

import pytest

from batchsched.errors import ApiError, Unreachable
from batchsched.kube import connection as wire
from batchsched.kube.connection import (
    LEASES,
    POD_RESOURCE,
    Connection,
    api_resources_of_snapshot,
    plural_of_kind,
)
from batchsched.kube.credentials import CredentialsReader
from tests.controlplane.plane import ADMIN
from tests.controlplane.proxy import Ending, cut, hung, lost, page, refused, says, status
from tests.kube.test_credentials import kubeconfig, later, plugin
from tests.kube.virtual import Hurried

PODS = "/api/v1/pods"


def opened(plane, proxy=None, clock=None):
    config = plane.kubeconfig(server=proxy.url if proxy else None)
    return Connection(CredentialsReader(config), clock or Hurried())


async def test_a_request_is_made_as_the_kubeconfig_says_over_tls(plane):
    async with opened(plane) as connection:
        found = json.loads(await connection.request("GET", "/api/v1/namespaces/default"))
    assert found["metadata"]["name"] == "default"


async def test_error_contains_the_message_of_the_server(plane):
    async with opened(plane) as connection:
        with pytest.raises(ApiError, match='404 NotFound: pods "missing" not found') as caught:
            await connection.request("GET", "/api/v1/namespaces/default/pods/missing")
    assert (caught.value.status, caught.value.reason) == (404, "NotFound")


async def test_refused_request_leaves_no_reference_cycle(plane):
    """Kinds that are not installed are refused again and again; the answer of each refusal would stay in memory."""
    async with opened(plane) as connection:
        gc.collect()
        # Errors of earlier tests of the process, which it may still hold.
        earlier = [entry for entry in gc.get_objects() if type(entry) is ApiError]
        gc.disable()
        try:
            for path in ("/api/v1/namespaces/default/pods/missing", "/apis/example.com/v1/missing"):
                with pytest.raises(ApiError):
                    await connection.request("GET", path)
            errors = [entry for entry in gc.get_objects() if type(entry) is ApiError]
            assert [error for error in errors if not any(error is other for other in earlier)] == []
        finally:
            gc.enable()


async def test_cancelled_requests_leave_no_connection_open(plane, monkeypatch):
    """The event loop ends with the test: a connection that is still open causes a warning when it is collected."""
    made, make = [], wire._socket

    def noted(address):
        made.append(make(address))
        return made[-1]

    monkeypatch.setattr(wire, "_socket", noted)
    async with opened(plane) as connection:
        asking = [asyncio.create_task(connection.request("GET", PODS)) for _ in range(20)]
        await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
        for one in asking:
            one.cancel()
        await asyncio.wait(asking)
    assert len(made) == 20
    assert [one for one in made if one.fileno() >= 0] == []


async def test_a_response_that_is_not_a_status_object_is_an_api_error(plane, proxy):
    proxy.on(page(502))
    async with opened(plane, proxy) as connection:
        with pytest.raises(ApiError, match=r"502.*Bad Gateway") as caught:
            await connection.request("GET", PODS)
    assert caught.value.status == 502


async def test_error_contains_the_retry_after_of_the_server(plane, proxy):
    proxy.on(status(429, "TooManyRequests", retry_after=7))
    async with opened(plane, proxy) as connection:
        with pytest.raises(ApiError) as caught:
            await connection.request("GET", PODS)
    assert (caught.value.status, caught.value.retry_after) == (429, 7.0)


@pytest.mark.parametrize(
    "fault", [hung(), lost(Ending.STALL), cut(10, Ending.STALL)], ids=["hung", "lost", "cut"]
)
async def test_a_request_to_a_hanging_server_ends_at_the_deadline(plane, proxy, fault):
    proxy.on(fault)
    async with opened(plane, proxy) as connection:
        begun = time.monotonic()
        with pytest.raises(Unreachable, match="no answer within the deadline"):
            await connection.request("GET", PODS, deadline=0.3)
        assert 0.3 <= time.monotonic() - begun < 2


@pytest.mark.parametrize("fault", [refused(), lost(), cut(10)], ids=["refused", "lost", "cut"])
async def test_a_broken_connection_is_reported_as_no_answer(plane, proxy, fault):
    proxy.on(fault)
    async with opened(plane, proxy) as connection:
        with pytest.raises(Unreachable, match="POST"):
            await connection.request("POST", "/api/v1/namespaces/default/pods", body=b"{}")


async def test_refused_connection_is_reported_as_unreachable(tmp_path):
    async with Connection(CredentialsReader(kubeconfig(tmp_path, token="x")), Hurried()) as connection:
        with pytest.raises(Unreachable):
            await connection.request("GET", PODS)


async def test_descriptor_that_an_ended_connection_still_uses_is_reported_as_unreachable(plane, monkeypatch):
    async with opened(plane) as connection:

        def refuse(*_: object, **__: object) -> None:
            raise RuntimeError(message)

        monkeypatch.setattr(connection, "_open", refuse)
        message = "File descriptor 13 is used by transport <TCPTransport closed=False>"
        with pytest.raises(Unreachable, match="GET /api/v1/pods: File descriptor 13"):
            await connection.request("GET", PODS)
        with pytest.raises(Unreachable, match="GET /api/v1/pods: File descriptor 13"):
            await anext(connection.watch_lines(PODS, {}, 1.0))
        message = "another defect"
        with pytest.raises(RuntimeError, match="another defect"):
            await connection.request("GET", PODS)


async def test_rejected_token_is_renewed_once_for_all_requests(plane, proxy, tmp_path):
    config = kubeconfig(tmp_path, proxy.url, exec=tokens(tmp_path, "stale", ADMIN))
    async with Connection(CredentialsReader(config), Hurried()) as connection:
        answers = await asyncio.gather(*(connection.request("GET", "/api/v1/nodes") for _ in range(20)))
    assert {json.loads(one)["kind"] for one in answers} == {"NodeList"}
    assert (tmp_path / "runs").read_text().count(".") == 2


async def test_second_401_is_raised(plane, proxy, tmp_path):
    config = kubeconfig(tmp_path, proxy.url, exec=tokens(tmp_path, "stale", "stale too"))
    async with Connection(CredentialsReader(config), Hurried()) as connection:
        with pytest.raises(ApiError, match="401"):
            await connection.request("GET", PODS)
    assert proxy.count("GET") == 2


async def test_watch_with_a_rejected_token_renews_it_for_the_next_attempt(plane, proxy, tmp_path):
    config = kubeconfig(tmp_path, proxy.url, exec=tokens(tmp_path, "stale", ADMIN))
    async with Connection(CredentialsReader(config), Hurried()) as connection:
        with pytest.raises(ApiError, match="401"):
            await anext(connection.watch_lines(PODS, {"watch": "true"}, 5))
        assert await connection.request("GET", "/version")
    assert proxy.count("GET") == 2


async def test_connection_keeps_its_credentials_if_the_kubeconfig_is_deleted(plane, proxy, tmp_path):
    config = kubeconfig(tmp_path, proxy.url, token="stale")
    async with Connection(CredentialsReader(config), Hurried()) as connection:
        config.unlink()
        with pytest.raises(ApiError, match="401"):
            await connection.request("GET", PODS)


async def test_connection_reloads_a_changed_kubeconfig(plane, proxy, tmp_path):
    config = kubeconfig(tmp_path, proxy.url, token="unused")
    async with Connection(CredentialsReader(config), Hurried(times=1000)) as connection:
        kubeconfig(tmp_path, proxy.url, token=ADMIN)
        later(config)
        await asyncio.sleep(0.3)
        assert await connection.request("GET", "/version")
    assert proxy.count() == 1


def tokens(folder, *each):
    """A plugin that gives one token after the other, and the last for ever."""
    for number, token in enumerate(each, start=1):
        (folder / f"token{number}").write_text(token)
    answer = (
        '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"%s"}}'
    )
    return plugin(
        folder,
        f"""
        echo . >> {folder}/runs
        n=$(wc -l < {folder}/runs); [ $n -gt {len(each)} ] && n={len(each)}
        printf '{answer}' "$(cat {folder}/token$n)"
        """,
    )


async def watched(connection, silence=5.0):
    return [
        line async for lines in connection.watch_lines(PODS, {"watch": "true"}, silence) for line in lines
    ]


async def test_watch_yields_complete_lines(plane, proxy):
    proxy.on(says({"type": "ADDED"}, {"type": "DELETED"}))
    async with opened(plane, proxy) as connection:
        assert [json.loads(line)["type"] for line in await watched(connection)] == ["ADDED", "DELETED"]


async def test_a_watch_that_ends_in_the_middle_of_a_line_is_no_end(plane, proxy, namespace):
    namespace.pod("lone")
    proxy.on(cut(100, Ending.END))
    async with opened(plane, proxy) as connection:
        with pytest.raises(Unreachable, match="inside an event"):
            await watched(connection)


async def test_a_watch_that_is_silent_too_long_counts_as_dead(plane, proxy, namespace):
    namespace.pod("lone")
    proxy.on(cut(100, Ending.STALL))
    async with opened(plane, proxy) as connection:
        with pytest.raises(Unreachable, match="deadline"):
            await watched(connection, silence=0.3)


async def test_watch_that_does_not_start_is_lost_before_one_that_is_silent(plane, proxy, monkeypatch):
    monkeypatch.setattr("batchsched.kube.connection._OPENING_SECONDS", 0.3)
    proxy.on(hung())
    async with opened(plane, proxy) as connection:
        with pytest.raises(Unreachable, match="deadline"):
            async with asyncio.timeout(30):
                await anext(connection.watch_lines(PODS, {"watch": "true"}, silence=90))


async def test_a_watch_that_is_refused_is_not_read_as_events(plane, proxy):
    proxy.on(page(502))
    async with opened(plane, proxy) as connection:
        with pytest.raises(ApiError, match="502"):
            await watched(connection)


def test_characters_of_a_name_do_not_change_the_request():
    assert POD_RESOURCE.path("a\nb", "x/../y?z") == "/api/v1/namespaces/a%0Ab/pods/x%2F..%2Fy%3Fz"


def test_paths_of_a_collection_an_object_and_a_subresource():
    assert POD_RESOURCE.path() == "/api/v1/pods"
    assert POD_RESOURCE.path("batch") == "/api/v1/namespaces/batch/pods"
    assert POD_RESOURCE.path("batch", "one", "binding") == "/api/v1/namespaces/batch/pods/one/binding"
    assert LEASES.path("batch", "one") == "/apis/coordination.k8s.io/v1/namespaces/batch/leases/one"


@pytest.mark.parametrize(
    "kind, many",
    [
        ("Pod", "pods"),
        ("PriorityClass", "priorityclasses"),
        ("Topology", "topologies"),
        ("CSIStorageCapacity", "csistoragecapacities"),
        ("Ingress", "ingresses"),
    ],
)
def test_kinds_have_the_plural_that_the_api_gives_them(kind, many):
    assert plural_of_kind(kind) == many


def test_every_kind_of_a_snapshot_has_the_path_of_the_api_server(plane):
    for kind, resource in api_resources_of_snapshot():
        if "batchsched" in kind.group or kind.group == "topology.node.k8s.io":
            continue  # a custom resource: it is there when its CRD is
        assert plane.admin.get(resource.path() + "?limit=1")["kind"] == f"{kind.name}List"
