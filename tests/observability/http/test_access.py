"""Access to paths: reviewed by a real API server, or by one fixed token."""

import base64
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from typing_extensions import override

from batchsched.config.schema import HttpsServerSettings
from batchsched.errors import CommandError
from batchsched.kube.connection import Connection
from batchsched.kube.credentials import CredentialsReader
from batchsched.observability.http.access import DelegatedAccess, StaticTokenAccess, read_token
from batchsched.observability.http.self_signed_certificate import self_signed_tls_context
from batchsched.observability.http.server import HttpServer
from tests.controlplane.fixtures import eventually
from tests.controlplane.plane import ADMIN
from tests.controlplane.proxy import lost
from tests.kube.virtual import Hurried

OPEN = HttpsServerSettings().authorization_always_allow_paths


async def say(request):
    return web.Response(text="here you are")


class Turned(Hurried):
    """A clock that is put forward."""

    ahead = 0.0

    @override
    def monotonic(self):
        return super().monotonic() + self.ahead


@asynccontextmanager
async def server(plane, network=None, clock=None):
    config = plane.kubeconfig(server=network.url if network else None)
    clock = clock or Turned()
    async with Connection(CredentialsReader(config), clock) as connection:
        routes = [web.get("/metrics", say), web.get("/livez", say), web.get("/livez/{name}", say)]
        served = HttpServer(
            DelegatedAccess(connection, clock, lambda: OPEN),
            routes,
            "127.0.0.1",
            0,
            self_signed_tls_context("127.0.0.1", clock.now()),
        )
        await served.start()
        async with aiohttp.ClientSession(f"https://127.0.0.1:{served.port}") as client:
            yield client
        await served.stop()


async def ask(client, path, token=None):
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with client.get(path, headers=headers, ssl=False) as answer:
        return answer.status, await answer.text()


@pytest.fixture
def account(plane, namespace):
    """A service account that may read nothing yet, and a function that lets it read a path."""
    plane.admin.create(namespace.path("serviceaccounts"), {"metadata": {"name": "prometheus"}})
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    made = []

    def let(path):
        name = {"metadata": {"name": namespace.name}}
        rules = {"rules": [{"nonResourceURLs": [path], "verbs": ["get"]}]}
        plane.admin.create(f"{rbac}/clusterroles", name | rules)
        subject = {"kind": "ServiceAccount", "name": "prometheus", "namespace": namespace.name}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": namespace.name}
        plane.admin.create(f"{rbac}/clusterrolebindings", name | {"subjects": [subject], "roleRef": role})
        made.append(namespace.name)
        # The API server authorizes from a cache that follows these objects.
        user = f"system:serviceaccount:{namespace.name}:prometheus"
        review = {"spec": {"user": user, "nonResourceAttributes": {"path": path, "verb": "get"}}}
        reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        eventually(lambda: plane.admin.create(reviews, review)["status"]["allowed"])

    yield plane.token_of(namespace.name, "prometheus"), let
    for name in made:
        for plural in ("clusterrolebindings", "clusterroles"):
            plane.admin.delete(f"{rbac}/{plural}/{name}")


async def test_health_needs_no_authorization_and_metrics_do(plane):
    async with server(plane) as client:
        assert await ask(client, "/livez") == (200, "here you are")
        assert (await ask(client, "/livez/ping"))[0] == 200
        status, text = await ask(client, "/metrics")
        assert status == 403
        assert 'User \\"system:anonymous\\" cannot get path \\"/metrics\\"' in text
        assert (await ask(client, "/metrics", "unknown"))[0] == 401
        assert await ask(client, "/metrics", ADMIN) == (200, "here you are")


async def test_a_service_account_is_allowed_by_its_role_and_the_review_is_cached_for_ten_seconds(
    plane, account
):
    token, let = account
    clock = Turned()
    async with server(plane, clock=clock) as client:
        assert (await ask(client, "/metrics", token))[0] == 403
        let("/metrics")
        assert (await ask(client, "/metrics", token))[0] == 403
        clock.ahead = 11.0
        assert (await ask(client, "/metrics", token))[0] == 200


async def test_no_request_passes_while_the_api_server_does_not_review_it(plane, proxy):
    async with server(plane, proxy) as client:
        proxy.on(lost(), path="reviews")
        assert (await ask(client, "/metrics", ADMIN))[0] == 500
        assert (await ask(client, "/livez"))[0] == 200


async def test_browser_is_prompted_and_sends_a_token_as_the_password(plane):
    async with server(plane) as client:
        async with client.get("/metrics", headers={"Accept": "text/html,*/*"}, ssl=False) as answer:
            assert answer.status == 401
            assert answer.headers["WWW-Authenticate"].startswith("Basic ")
        for password, status in ((ADMIN, 200), ("unknown", 401), ("", 401)):
            assert await status_of(client, basic(password), "/metrics") == status
        assert await status_of(client, "Basic no-base-64", "/metrics") == 401


@asynccontextmanager
async def token_server(token, tls=None):
    served = HttpServer(StaticTokenAccess(token), [web.get("/", say)], "127.0.0.1", 0, tls)
    await served.start()
    async with aiohttp.ClientSession(served.url) as client:
        yield client
    await served.stop()


async def status_of(client, authorization=None, path="/"):
    headers = {"Authorization": authorization} if authorization else {}
    async with client.get(path, headers=headers, ssl=False) as answer:
        return answer.status


def basic(password):
    return "Basic " + base64.b64encode(f"reader:{password}".encode()).decode()


async def test_the_token_is_shown_as_a_bearer_or_as_the_password_of_a_browser():
    async with token_server("s3cret") as client:
        assert await status_of(client, "Bearer s3cret") == 200
        assert await status_of(client, basic("s3cret")) == 200


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "Bearer",
        "Bearer s3cre",
        "Bearer s3crets",
        "Digest s3cret",
        "s3cret",
        basic(""),
        "Basic no-base-64",
    ],
    ids=["none", "empty", "shorter", "longer", "scheme", "bare", "no-password", "no-base64"],
)
async def test_request_with_another_token_or_none_is_refused_with_a_prompt(authorization):
    async with token_server("s3cret") as client:
        headers = {"Authorization": authorization} if authorization else {}
        async with client.get("/", headers=headers) as answer:
            assert answer.status == 401
            assert answer.headers["WWW-Authenticate"].startswith("Basic ")
            assert "here you are" not in await answer.text()


async def test_request_without_the_token_does_not_reveal_which_paths_exist():
    async with token_server("s3cret") as client:
        assert await status_of(client, path="/absent") == 401
        assert await status_of(client, "Bearer s3cret", "/absent") == 404
        async with client.post("/") as answer:
            assert answer.status == 401


async def test_every_request_passes_if_no_token_is_set():
    async with token_server(None) as client:
        assert await status_of(client) == 200


async def test_the_token_is_sent_over_tls_if_a_certificate_is_set():
    async with token_server("s3cret", self_signed_tls_context("127.0.0.1", 1_767_225_600.0)) as client:
        assert client._base_url.scheme == "https"
        assert await status_of(client, "Bearer s3cret") == 200


def test_a_token_is_read_without_the_line_end_of_an_editor(tmp_path):
    file = tmp_path / "token"
    file.write_text("s3cret\n")
    assert read_token(file) == "s3cret"


@pytest.mark.parametrize(
    "content, complaint",
    [(b" \n", "holds no token"), (None, "cannot be read"), (b"\xff\xfe", "cannot be read")],
    ids=["empty", "absent", "binary"],
)
def test_a_file_without_a_token_is_no_token(tmp_path, content, complaint):
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(CommandError, match=complaint):
        read_token(file)
