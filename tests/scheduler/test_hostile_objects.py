"""Objects of users reach the running scheduler as they are: one bad object costs only itself, and is named."""

import asyncio
import copy
import logging
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchsched.api.core.pod import SUB_GROUP_LABEL
from batchsched.config.schema import Profile
from batchsched.errors import Unreachable
from batchsched.kube.clock import SystemClock
from batchsched.observability.activity_recorder import ActivityRecorder
from batchsched.observability.collector import MetricsCollector
from batchsched.scheduler.app import SchedulerApp
from batchsched.scheduler.live_snapshot import list_set_aside_objects
from batchsched.session.session import decide
from tests.controlplane.objects import custom, node, pod
from tests.podgrouper.owners import API, job, jobset, owner, reference, replicated
from tests.scheduler.watched_manifests import COUNTERS, MANIFESTS, NAME

NOW = 1_767_225_600.0


class Listing:
    """Answers lists with the given objects as JSON, by the path of the collection."""

    def __init__(self):
        self.objects = {}

    async def request(self, method, path, query=None, deadline=None):
        if path not in self.objects:
            raise Unreachable("nothing is served there")
        items = b",".join(self.objects[path])
        return b'{"metadata":{"resourceVersion":"1"},"items":[' + items + b"]}"


class Service:
    """The scheduler's state, groupers and sinks behind their reflectors."""

    def __init__(self):
        self.listing = Listing()
        connection: Any = self.listing
        self.app = SchedulerApp(connection, SystemClock(), [Profile()])
        self.reflectors = {reflector.resource.kind: reflector for reflector in self.app.reflectors}

    def event(self, kind, raw, change="MODIFIED"):
        line = b'{"type":"' + change.encode() + b'","object":' + raw + b"}"
        self.reflectors[kind]._take_line(line)

    def put(self, manifest):
        self.event(manifest["kind"], msgspec.json.encode(manifest))

    def list(self, kind, *manifests):
        reflector = self.reflectors[kind]
        encoded = [one if isinstance(one, bytes) else msgspec.json.encode(one) for one in manifests]
        self.listing.objects[reflector.resource.path()] = encoded
        asyncio.run(reflector._list())

    @property
    def set_aside(self):
        return [entry.object for entry in list_set_aside_objects(self.app)]

    def pods(self):
        return [one.name for one in self.app.cache.snapshot().pods]


def named(manifest, name, **meta):
    meta = {"namespace": "team", **manifest["metadata"], "name": name, "uid": f"uid-{name}", **meta}
    return {**manifest, "metadata": meta}


def owning_itself(manifest):
    manifest = copy.deepcopy(manifest)
    manifest["metadata"]["ownerReferences"] = [reference(manifest)]
    return manifest


@pytest.mark.parametrize(
    "owners",
    [
        pytest.param([owning_itself(job(4))], id="job-that-owns-itself"),
        pytest.param(
            [owning_itself(owner("StatefulSet", replicas=0, podManagementPolicy="Parallel"))],
            id="stateful-set-without-replicas",
        ),
        pytest.param(
            [job(4, name="a", owned_by=job(4, name="b")), job(4, name="b", owned_by=job(4, name="a"))],
            id="jobs-that-own-each-other",
        ),
        pytest.param(
            [
                job(2, name=f"j{index}", owned_by=job(2, name=f"j{index + 1}"))
                for index in reversed(range(3000))
            ],
            id="long-chain",
        ),
        pytest.param(
            [job(4, annotations={"scheduling.batchsched.dev/min-member": "9" * 5000})], id="endless-number"
        ),
        pytest.param([job(4, status={"failedIndexes": "1-" + "9" * 5000 + ",²"})], id="endless-index"),
        pytest.param(
            [jobset(replicated("w", jobs=2**31 - 1, parallelism=2**31 - 1, completions=2**31 - 1))],
            id="more-pods-than-32-bits-count",
        ),
    ],
)
def test_owner_written_by_a_hostile_user_does_not_stop_the_service(owners):
    service = Service()
    owned = named(pod("member"), "member", ownerReferences=[reference(owners[0])])
    service.put(owned)
    for manifest in owners:
        service.put(manifest)
    service.list(owners[0]["kind"], *owners)
    service.put(named(pod("other"), "other"))
    assert service.pods() == ["member", "other"]
    assert len(service.app.cache.snapshot().pod_groups) <= 1


def test_owner_reference_does_not_reach_into_another_namespace():
    service = Service()
    service.put(job(4))
    stranger = named(pod("p"), "p", namespace="other", ownerReferences=[reference(job(4))])
    service.put(stranger)
    assert service.app.cache.snapshot().pod_groups == ()


class Failing:
    """A store that raises for objects of some names, as a defect would."""

    def __init__(self, store, *names):
        self._store, self._names = store, names

    def put(self, changed):
        self._check(changed)
        self._store.put(changed)

    def remove(self, deleted):
        self._store.remove(deleted)

    def replace(self, kind, listed):
        listed = list(listed)
        for one in listed:
            self._check(one)
        self._store.replace(kind, listed)

    def _check(self, one):
        if one.metadata.name in self._names:
            raise ZeroDivisionError("a defect")


@pytest.fixture
def failing():
    service = Service()
    handler = service.app.followed.event_handlers["pods"]
    handler._cache = Failing(handler._cache, "bad", "worse")
    return service


PODS = [named(pod(name), name) for name in ("a", "bad", "c", "worse")]


def test_pod_that_a_defect_hits_is_set_aside_by_name_and_the_others_are_listed(failing, caplog):
    with caplog.at_level(logging.WARNING):
        failing.put(named(pod("gone"), "gone"))
        failing.list("Pod", *PODS)
    assert failing.pods() == ["a", "c"]
    assert failing.set_aside == ["Pod team/bad", "Pod team/worse"]
    assert "Pod team/bad is set aside" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_event_about_a_pod_that_a_defect_hits_is_reported_once_and_events_continue(failing, caplog):
    with caplog.at_level(logging.WARNING):
        for manifest in (*PODS, *PODS):
            failing.put(manifest)
    assert failing.pods() == ["a", "c"]
    assert failing.set_aside == ["Pod team/bad", "Pod team/worse"]
    assert caplog.text.count("Pod team/bad is set aside") == 1
    failing.event("Pod", msgspec.json.encode(PODS[1]), "DELETED")
    assert failing.set_aside == ["Pod team/worse"]


async def test_metric_counts_the_objects_that_were_set_aside(failing):
    for manifest in PODS:
        failing.put(manifest)
    failing.event("Job", b'{"metadata":{"name":"j","namespace":"team","labels":7}}')
    observer = ActivityRecorder(SystemClock(), 0)
    gauges = MetricsCollector(observer.metrics, failing.app.cache, failing.app.reflectors)
    await observer.update_and_export_metrics(failing.app, gauges)
    assert observer.metrics.registry.get_sample_value("batchsched_set_aside") == 3


def test_owner_that_cannot_be_read_is_set_aside_until_it_can():
    service = Service()
    raw = msgspec.json.encode(job(4))
    service.put(named(pod("p"), "p", ownerReferences=[reference(job(4))]))
    service.put(job(4))
    service.event("Job", raw.replace(b'"labels":{}', b'"labels":{"x":"\xff"}'))
    assert service.set_aside == ["Job team/train"]
    assert service.app.cache.snapshot().pod_groups == ()
    service.event("Job", raw)
    assert service.set_aside == []
    assert len(service.app.cache.snapshot().pod_groups) == 1


def test_owner_with_invalid_json_is_bad_input_and_no_defect(caplog):
    service = Service()
    service.event("TFJob", b'{"metadata":{"namespace":"team","name":"a"},"spec":"\xff"}')
    service.event("TFJob", b'{"metadata":{"namespace":"team","name":"b","uid":7}}')
    assert "TFJob team/a is set aside: contains bytes that are not UTF-8 text" in caplog.text
    assert (
        "TFJob team/b is set aside: metadata.uid: expected text, found a whole number; put it in quotes"
        in caplog.text
    )


def test_owner_that_stays_set_aside_is_logged_once_however_often_it_is_listed(caplog):
    service = Service()
    broken = b'{"metadata":{"namespace":"team","name":"b","uid":7}}'
    for _ in range(3):
        service.list("TFJob", broken)
    assert caplog.text.count("TFJob team/b is set aside") == 1
    service.list("TFJob", broken.replace(b"7", b'"u"'))
    service.list("TFJob", broken)
    assert caplog.text.count("TFJob team/b is set aside") == 2
    assert service.set_aside == ["TFJob team/b"]


def test_object_that_is_nested_too_deeply_does_not_end_the_watch():
    service = Service()
    deep = b"[" * 100_000 + b"]" * 100_000
    service.event("RayCluster", b'{"metadata":{"name":"deep"},"spec":' + deep + b"}")
    service.put(named(pod("p"), "p"))
    assert service.pods() == ["p"]


# Every watched kind, with values that no schema would let through.

NASTY_VALUES: list[Any] = [
    None,
    True,
    -1,
    2**31,
    2**63,
    10**30,
    1.5,
    1e308,
    "",
    "9" * 5000,
    "-9223372036854775809",
    "9e18",
    "1e999",
    "²",
    "\x00",
    "0001-01-01T00:00:00+23:59",
    [],
    {},
    [None],
    {"": None},
    [[[]]],
    {"a": {"b": [1]}},
]
NASTY: st.SearchStrategy[Any] = st.sampled_from(NASTY_VALUES)
SCALARS = NASTY | st.text(max_size=8) | st.integers()
FLAT = SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(st.text(max_size=8), SCALARS, max_size=3)
JSON = FLAT | st.lists(FLAT, max_size=2) | st.dictionaries(st.text(max_size=8), FLAT, max_size=2)


def places(value, path=()):
    """The paths of all values of a manifest, except those of its name."""
    if path and path[-2:] not in (("metadata", "name"), ("metadata",)):
        yield path
    if isinstance(value, dict):
        for key, part in value.items():
            yield from places(part, (*path, key))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from places(part, (*path, index))


def changed(manifest, path, value):
    manifest = copy.deepcopy(manifest)
    target = manifest
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    return manifest


KINDS = sorted(Service().reflectors)


def test_each_watched_kind_has_an_object_that_the_service_reads():
    service = Service()
    assert sorted(MANIFESTS) == KINDS
    for manifest in MANIFESTS.values():
        service.put(named(manifest, "good"))
    assert service.set_aside == []


@st.composite
def mutated(draw, kinds=KINDS):
    """The kind and the JSON of an object with one or two foreign values, sometimes with a byte that is not UTF-8."""
    kind = draw(st.sampled_from(kinds))
    manifest = named(MANIFESTS[kind], NAME, resourceVersion="7")
    manifest["metadata"]["annotations"] = {**manifest["metadata"].get("annotations", {}), "note": "y"}
    manifest["metadata"]["ownerReferences"] = draw(
        st.sampled_from([[], [reference(job(4))], [reference(owning_itself(named(job(4), NAME)))]])
    )
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from(list(places(manifest))))
        manifest = changed(manifest, path, draw(JSON))
    raw = msgspec.json.encode(manifest)
    if draw(st.booleans()):
        raw = raw.replace(b'"note":"y"', b'"note":"\xff"')
    return kind, raw


@settings(max_examples=400, deadline=None)
@given(objects=st.lists(mutated(), min_size=1, max_size=4), listed=st.booleans())
def test_any_json_of_any_kind_is_handled_or_set_aside_by_name(objects, listed):
    service = Service()
    service.put(named(pod("p"), "p", ownerReferences=[reference(job(4))]))
    for kind, raw in objects:
        if listed:
            service.list(kind, raw)
        else:
            service.event(kind, raw, "ADDED")
            service.event(kind, raw)
    assert all(NAME in entry for entry in service.set_aside)
    service.app.cache.snapshot()
    for kind, raw in objects:
        service.event(kind, raw, "DELETED")
    service.put(named(node("healthy"), "healthy"))
    service.put(named(pod("later"), "later", ownerReferences=[reference(job(4))]))
    assert service.app.cache.get("nodes", "healthy") is not None
    assert service.app.cache.get("pods", "team/later") is not None


DECIDED = sorted(set(KINDS) - {"Namespace", *API})
"""Kinds that a session reads."""


def users():
    """Pods that use the objects that are mutated: the claims and the volume, and the PodGroup."""
    spec = {
        "resourceClaims": [
            {"name": "allocated", "resourceClaimName": NAME},
            {"name": "pending", "resourceClaimName": "pending"},
        ],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": NAME}}],
        "priorityClassName": NAME,
    }
    return [
        named(pod("user", spec=spec), "user"),
        named(pod("member", gang=NAME, labels={SUB_GROUP_LABEL: "a"}), "member"),
    ]


@settings(max_examples=150, deadline=None)
@given(objects=st.lists(mutated(DECIDED), max_size=3))
def test_a_session_over_any_json_places_the_pod_of_another_namespace(objects):
    service = Service()
    pending = {key: value for key, value in MANIFESTS["ResourceClaim"].items() if key != "status"}
    team, counters = named(MANIFESTS["Namespace"], "team"), named(COUNTERS, "counters")
    for manifest in (team, counters, custom("Queue", "root"), named(pending, "pending"), *users()):
        service.put(manifest)
    for kind in DECIDED:
        service.put(named(MANIFESTS[kind], NAME))
    for kind, raw in objects:
        service.event(kind, raw)
    # The mutated pod may fill one node.
    for manifest in (node("n"), node("m"), named(pod("other"), "other", namespace="others")):
        service.put(manifest)
    decision = decide(service.app.cache.snapshot(), Profile(), NOW, 0)
    assert "other" in {assignment.pod for assignment in decision.assignments}, decision.refusals
    assert [aside for aside in decision.set_aside if aside.object.startswith("plugin")] == []
