"""A reflector loses no event and repeats none, whatever the network does."""

import asyncio
import itertools
import signal
from contextlib import asynccontextmanager, suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.kube.connection import ApiResource, Connection
from batchsched.kube.credentials import CredentialsReader
from batchsched.kube.reflector import Reflector, ReflectorSettings
from tests.controlplane.plane import ApiFault
from tests.controlplane.proxy import Ending, Proxy, cut, delayed, hung, lost, page, refused, says, status
from tests.kube.virtual import Hurried

CONFIG_MAPS = ApiResource("v1", "configmaps", "ConfigMap", namespaced=True)
NUMBERS = itertools.count(1)


class Meta(msgspec.Struct, rename="camel"):
    name: str
    resource_version: str


class Named(msgspec.Struct):
    metadata: Meta


class Mirror:
    """The calls of a sink, and those that were wrong."""

    def __init__(self):
        self.there: dict[str, str] = {}
        self.lists = 0
        self.wrong: list[str] = []
        self.set_aside_objects = {}

    def set_object_aside(self, item, problem):
        self.wrong.append(str(problem))

    def on_replace(self, objects):
        self.there = dict(map(self._read, objects))
        self.lists += 1

    def on_add_or_update(self, raw):
        name, version = self._read(raw)
        if self.there.get(name) == version:
            self.wrong.append(f"{name} {version} was passed twice")
        self.there[name] = version

    def on_delete(self, raw):
        name, _ = self._read(raw)
        if name not in self.there:
            self.wrong.append(f"{name} went twice")
        self.there.pop(name, None)

    def _read(self, raw):
        meta = msgspec.json.decode(raw, type=Named).metadata
        return meta.name, meta.resource_version


class Shelf:
    """Config maps of one test, selected by a label."""

    def __init__(self, api):
        self.api = api
        self.mark = f"shelf-{next(NUMBERS)}"
        self.path = "/api/v1/namespaces/default/configmaps"

    def put(self, name, text="x"):
        body = {
            "metadata": {"name": f"{self.mark}-{name}", "labels": {"shelf": self.mark}},
            "data": {"t": text},
        }
        try:
            self.api.create(self.path, body)
        except ApiFault:
            self.api.call("PUT", f"{self.path}/{self.mark}-{name}", body)

    def drop(self, name):
        with suppress(ApiFault):
            self.api.delete(f"{self.path}/{self.mark}-{name}")

    def there(self):
        found = self.api.get(f"{self.path}?labelSelector=shelf%3D{self.mark}")["items"]
        return {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in found}


@pytest.fixture
def shelf(plane):
    return Shelf(plane.admin)


@asynccontextmanager
async def following(plane, shelf, network=None, clock=None, resource=CONFIG_MAPS, read=bytes, **terms):
    """A reflector at work; it is over at the end, and what killed it is raised."""
    config = plane.kubeconfig(server=network.url if network else None)
    clock = clock or Hurried()
    mirror = Mirror()
    async with Connection(CredentialsReader(config), clock) as connection:
        terms = {"selector": {"labelSelector": f"shelf={shelf.mark}"}, "silence": 5.0, **terms}
        reflector = Reflector(
            connection, resource, mirror, clock, terms=ReflectorSettings(**terms), read=read
        )
        task = asyncio.create_task(reflector.run())
        try:
            yield reflector, mirror
        finally:
            if task.done():
                task.result()
            task.cancel()
            await asyncio.wait([task])


async def until(true, within=10.0):
    async with asyncio.timeout(within):
        while not true():
            await asyncio.sleep(0.005)


async def settled(mirror, shelf, within=10.0):
    wanted = await asyncio.to_thread(shelf.there)
    await until(lambda: mirror.there == wanted, within)
    assert mirror.wrong == []


async def test_long_list_is_read_in_pages_and_passed_to_the_sink_as_one(plane, proxy, shelf):
    for number in range(7):
        shelf.put(number)
    async with following(plane, shelf, proxy, page=3) as (reflector, mirror):
        await reflector.synced.wait()
        assert mirror.there == shelf.there()
    assert mirror.lists == 1
    assert proxy.count("GET", "limit=3", watch=False) == 3


async def test_list_restarts_if_its_next_page_has_expired(plane, proxy, shelf):
    for number in range(7):
        shelf.put(number)
    proxy.on(status(410, "Expired"), path="continue=", skip=1, count=1)
    async with following(plane, shelf, proxy, page=3) as (reflector, mirror):
        await reflector.synced.wait()
        assert mirror.there == shelf.there()
    assert mirror.lists == 1
    assert proxy.count(watch=False) == 6


async def test_sink_receives_changes_after_the_list(plane, shelf):
    shelf.put("kept")
    shelf.put("dropped")
    async with following(plane, shelf) as (reflector, mirror):
        await reflector.synced.wait()
        shelf.put("new")
        shelf.put("kept", "changed")
        shelf.drop("dropped")
        await settled(mirror, shelf)
        assert mirror.lists == 1


async def test_sink_receives_decoded_objects_without_those_decoded_as_none(plane, shelf):
    shelf.put("old")
    shelf.put("hidden")

    def read(raw):
        return None if b"hidden" in raw else raw

    async with following(plane, shelf, read=read) as (reflector, mirror):
        await reflector.synced.wait()
        shelf.put("hidden", "again")
        shelf.put("new")
        await until(lambda: len(mirror.there) == 2)
        assert {name.removeprefix(shelf.mark) for name in mirror.there} == {"-old", "-new"}


def version_of(exchange):
    return exchange.path.partition("resourceVersion=")[2].partition("&")[0]


async def test_watch_resumes_from_the_last_bookmark(plane, proxy, shelf):
    ahead = "999999999"
    mark = {"type": "BOOKMARK", "object": {"kind": "ConfigMap", "metadata": {"resourceVersion": ahead}}}
    proxy.on(says(mark), watch=True, count=1)
    proxy.on(says(), watch=True)
    # The consistent read after the failed watch.
    proxy.on(says({"metadata": {"resourceVersion": ahead}}), path="no-object", watch=False)
    async with following(plane, shelf, proxy):
        await until(lambda: proxy.count(watch=True) >= 2)
    watches = [one for one in proxy.seen if one.watch]
    assert version_of(watches[0]) != ahead
    assert version_of(watches[1]) == ahead
    assert all("allowWatchBookmarks=true" in one.path and "timeoutSeconds=" in one.path for one in watches)


GONE = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}


@pytest.mark.parametrize("fault", [status(410, "Expired"), says(GONE)], ids=["status", "event"])
async def test_expired_resource_version_causes_a_new_list(plane, proxy, shelf, fault):
    shelf.put("old")
    proxy.on(fault, watch=True, count=1)
    async with following(plane, shelf, proxy) as (_, mirror):
        await until(lambda: mirror.lists == 2)
        shelf.put("new")
        await settled(mirror, shelf)
    assert mirror.lists == 2


@pytest.mark.parametrize(
    "fault",
    [
        status(500, "InternalError"),
        status(429, "TooManyRequests", retry_after=1),
        page(502),
        refused(),
        hung(),
        says(),
        cut(0),
        cut(200),
        cut(200, Ending.END),
        cut(200, Ending.STALL),
        says({"type": "ERROR", "object": {"code": 500, "reason": "InternalError"}}),
        says({"type": "NEWS", "object": {}}),
        says({"unheard": "of"}),
    ],
    ids=[
        *("500", "429", "502", "refused", "hung", "empty", "cut at once", "cut", "truncated", "silent"),
        *("error event", "unknown event", "no event"),
    ],
)
async def test_failed_watch_resumes_from_its_last_version(plane, proxy, shelf, fault):
    shelf.put("old")
    rule = proxy.on(fault, watch=True, count=2)
    async with following(plane, shelf, proxy, silence=0.4) as (reflector, mirror):
        await reflector.synced.wait()
        shelf.put("new")
        await until(lambda: rule.hits == 2)
        shelf.drop("old")
        await settled(mirror, shelf)
    assert mirror.lists == 1


# aiohttp itself repeats a GET once when the connection is reset before the answer begins, so that the reflector
# sees one failure for two resets.
@pytest.mark.parametrize(
    "fault, failures",
    [
        (status(500), 2),
        (page(502), 2),
        (refused(), 1),
        (lost(), 1),
        (cut(50), 2),
        (cut(50, Ending.END), 2),
        (says(GONE), 2),
    ],
    ids=["500", "502", "refused", "lost", "cut", "truncated", "no list"],
)
async def test_failed_list_is_retried(plane, proxy, shelf, fault, failures):
    shelf.put("old")
    rule = proxy.on(fault, watch=False, count=2)
    async with following(plane, shelf, proxy) as (reflector, mirror):
        await settled(mirror, shelf)
    assert (rule.hits, mirror.lists, reflector.failures) == (2, 1, failures)


async def test_answer_that_is_no_list_is_logged_without_the_notation_of_the_decoder(
    plane, proxy, shelf, caplog
):
    shelf.put("old")
    proxy.on(says(GONE), watch=False, count=1)
    async with following(plane, shelf, proxy) as (_, mirror):
        await settled(mirror, shelf)
    assert "the answer is invalid: metadata: is required" in caplog.text


@pytest.mark.parametrize(
    "which, fault",
    [
        ({"watch": True}, page(502)),
        ({"watch": True}, says()),
        ({"watch": True}, says(GONE)),
        ({"watch": True}, status(410)),
        ({}, refused()),
    ],
    ids=["502", "empty", "410 event", "410", "refused"],
)
async def test_repeated_failures_are_retried_with_backoff(plane, proxy, shelf, which, fault):
    proxy.on(fault, **which)
    clock = Hurried(times=1000)
    async with following(plane, shelf, proxy, clock):
        await until(lambda: len(clock.slept) >= 12)
    waits = [wait for wait in clock.slept if wait != 30.0][:12]  # the connection's look at its files apart
    assert all(wait >= min(15.0, 0.5 * 2**number) / 2 for number, wait in enumerate(waits))
    assert max(waits) <= 15.0
    assert proxy.count() <= 2 * len(clock.slept) + 2


async def test_reflector_respects_retry_after(plane, proxy, shelf):
    proxy.on(status(429, "TooManyRequests", retry_after=7), count=1)
    clock = Hurried()
    async with following(plane, shelf, proxy, clock) as (reflector, _):
        await reflector.synced.wait()
    assert max(clock.slept[1:]) >= 7


async def test_up_to_date_reads_changes_that_a_silent_watch_missed(plane, proxy, shelf):
    shelf.put("old")
    proxy.on(cut(0, Ending.STALL), watch=True, count=1)
    async with following(plane, shelf, proxy, silence=60.0) as (reflector, mirror):
        await until(lambda: proxy.count(watch=True) == 1)
        shelf.put("new")
        shelf.drop("old")
        await asyncio.sleep(0.2)
        assert mirror.there != shelf.there()
        await reflector.wait_until_up_to_date()
        assert mirror.there == shelf.there()
        shelf.put("newer")
        await settled(mirror, shelf)
    assert mirror.lists == 1


@pytest.mark.parametrize(
    "fault", [status(500), refused(), says(), status(410)], ids=["500", "refused", "empty", "410"]
)
@pytest.mark.parametrize("watch", [False, True], ids=["read", "watch"])
async def test_up_to_date_waits_until_the_catch_up_is_complete(plane, proxy, shelf, fault, watch):
    async with following(plane, shelf, proxy) as (reflector, mirror):
        await until(lambda: proxy.count(watch=True) == 1)
        proxy.on(fault, watch=watch, count=2)
        shelf.put("new")
        await asyncio.gather(reflector.wait_until_up_to_date(), reflector.wait_until_up_to_date())
        assert mirror.there == shelf.there()


FORBIDDEN = status(403, "Forbidden")


async def test_missing_permission_is_logged_once_with_its_rule_and_retried(plane, proxy, shelf, caplog):
    shelf.put(1)
    proxy.on(FORBIDDEN, count=8)
    async with following(plane, shelf, proxy) as (reflector, mirror):
        await until(lambda: reflector.forbidden)
        assert not reflector.synced.is_set()
        await settled(mirror, shelf)
        assert reflector.synced.is_set()
        assert not reflector.forbidden
    (told,) = (one.getMessage() for one in caplog.records if one.levelname == "WARNING")
    assert '{apiGroups: [""], resources: [configmaps], verbs: [list, watch]}; until then nothing' in told


async def test_optional_kind_without_permission_counts_as_synced(plane, proxy, shelf, caplog):
    shelf.put(1)
    proxy.on(FORBIDDEN, count=30)
    async with following(plane, shelf, proxy, without="some wait") as (reflector, mirror):
        await until(reflector.synced.is_set)
        assert reflector.forbidden
        assert mirror.there == {}
        await settled(mirror, shelf)
        assert not reflector.forbidden
    assert "until then some wait" in caplog.text


async def test_one_or_two_refusals_are_not_a_missing_permission(plane, proxy, shelf, caplog):
    proxy.on(FORBIDDEN, count=2)
    async with following(plane, shelf, proxy, without="some wait") as (reflector, _):
        await reflector.synced.wait()
        assert not reflector.forbidden
    assert "the rule that gives it" not in caplog.text


async def test_listed_objects_are_kept_if_watching_is_forbidden(plane, proxy, shelf, caplog):
    shelf.put(1)
    proxy.on(FORBIDDEN, watch=True, count=6)
    async with following(plane, shelf, proxy) as (reflector, mirror):
        await until(lambda: reflector.forbidden)
        assert mirror.there == shelf.there()
        assert reflector.synced.is_set()
        await until(lambda: proxy.count(watch=True) > 6)
        shelf.put(2)
        await settled(mirror, shelf)
        assert not reflector.forbidden
    assert "until then the known objects are used" in caplog.text


async def test_kind_that_is_installed_later_is_followed(plane, shelf):
    group, plural = "tests.batchsched.dev", f"things{next(NUMBERS)}"
    things = ApiResource(f"{group}/v1", plural, "Thing", namespaced=True)
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    schema = {"openAPIV3Schema": {"type": "object"}}
    crd = {
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": plural.capitalize()},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }
    async with following(plane, shelf, resource=things, selector={}) as (reflector, mirror):
        await reflector.synced.wait()
        assert (mirror.there, mirror.lists, reflector.failures) == ({}, 1, 0)
        await asyncio.to_thread(plane.admin.create, crds, crd)
        thing = {"apiVersion": f"{group}/v1", "kind": plural.capitalize(), "metadata": {"name": "first"}}

        async def made():
            try:
                await asyncio.to_thread(plane.admin.create, things.path("default"), thing)
            except ApiFault:
                return False
            return True

        while not await made():
            await asyncio.sleep(0.05)
        await until(lambda: "first" in mirror.there)
        await asyncio.to_thread(plane.admin.delete, f"{crds}/{plural}.{group}")
        await until(lambda: mirror.there == {})


async def test_a_restart_of_the_api_server_is_survived(own_plane):
    shelf = Shelf(own_plane.admin)
    shelf.put("old")
    async with following(own_plane, shelf) as (reflector, mirror):
        await reflector.synced.wait()
        own_plane.kill("kube-apiserver", signal.SIGKILL)
        await asyncio.to_thread(own_plane.start_apiserver)
        shelf.put("new")
        shelf.drop("old")
        await settled(mirror, shelf)


# The invariant

FAULTS = st.one_of(
    st.sampled_from(
        [status(500), status(503), page(502), refused(), lost(), says(), says(GONE), delayed(0.02)]
    ),
    st.just(status(410, "Expired")),
    st.builds(cut, st.integers(0, 3000), st.sampled_from([Ending.RESET, Ending.END])),
)
RULES = st.lists(
    st.tuples(FAULTS, st.sampled_from([True, False, None]), st.integers(0, 3), st.integers(1, 3)), max_size=5
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 4)),
        st.tuples(st.just("drop"), st.integers(0, 4)),
        st.tuples(st.sampled_from(["sever", "wait"]), st.just(0)),
    ),
    max_size=12,
)


def step(shelf, network, what, number):
    match what:
        case "put":
            shelf.put(number, str(next(NUMBERS)))
        case "drop":
            shelf.drop(number)
        case "sever":
            network.sever()


@pytest.fixture(scope="module")
def network(plane):
    with Proxy(plane.server, plane.certificate) as between:
        yield between


@pytest.mark.properties
@given(rules=RULES, steps=STEPS, page=st.integers(1, 4))
def test_sink_equals_the_api_server_after_random_faults_without_repeated_events(
    plane, network, rules, steps, page
):
    shelf = Shelf(plane.admin)
    for number in range(3):
        shelf.put(number)
    network.calm()
    for fault, watch, skip, count in rules:
        network.on(fault, watch=watch, skip=skip, count=count)

    # Each of up to fifteen watches may have lost its response: it ends after a silence.
    silence = 1.5

    async def story():
        clock = Hurried(times=200)
        async with following(plane, shelf, network, clock, page=page, silence=silence) as (_, mirror):
            for what, number in steps:
                if what in ("sever", "wait"):  # after what was put has been heard
                    await asyncio.sleep(0.02)
                await asyncio.to_thread(step, shelf, network, what, number)
            await settled(mirror, shelf, within=10.0 + 15 * silence)

    asyncio.run(story())
    for name in shelf.there():
        plane.admin.delete(f"{shelf.path}/{name}")
