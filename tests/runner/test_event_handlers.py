"""Objects of reflectors reach the state; an invalid version removes the valid one before it."""

import msgspec
import pytest

from batchsched.api.external.conversion import EXTERNAL_KINDS
from batchsched.api.snapshot import OBJECT_KINDS
from batchsched.manifests.decode import Decoder
from batchsched.podgrouper.grouper import PodGrouper
from batchsched.runner.event_handlers import OPTIONAL_KINDS, EventHandler
from batchsched.state.cluster_state import ClusterState
from tests.controlplane.objects import node, pod, pod_group

KINDS = {kind.name: kind for kind in OBJECT_KINDS}


class Desk:
    """An intake before a cache."""

    def __init__(self, kind):
        self.cache = ClusterState()
        self.changes = 0
        self.kind = KINDS[kind]
        store = PodGrouper(self.cache, self.cache.scheduler_names, self.changed).store_for(self.kind)
        self.intake = EventHandler(self.kind, store, Decoder(), self.changed)

    def changed(self):
        self.changes += 1

    def read(self, manifest, uid="u"):
        meta = {"namespace": "team", **manifest["metadata"], "uid": uid}
        return self.intake.decode(msgspec.json.encode({**manifest, "metadata": meta}))

    @property
    def keys(self):
        return [one.metadata.name for one in getattr(self.cache.snapshot(), self.kind.field)]


def broken(manifest):
    """The same with a field that cannot be read."""
    if manifest["kind"] == "PodGroup":
        return {**manifest, "spec": {"minMember": -1}}
    if manifest["kind"] == "Node":
        return {**manifest, "status": {"allocatable": {"cpu": "much"}}}
    return {
        **manifest,
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "much"}}}]},
    }


EACH = [
    pytest.param("Node", node("one"), id="node"),
    pytest.param("Pod", pod("one"), id="pod"),
    pytest.param("PodGroup", pod_group("one", 2), id="podgroup"),
]


@pytest.mark.parametrize("kind, manifest", EACH)
def test_object_that_becomes_invalid_is_removed_and_set_aside(kind, manifest):
    desk = Desk(kind)
    desk.intake.on_add_or_update(desk.read(manifest))
    assert desk.keys == ["one"]
    desk.intake.on_add_or_update(desk.read(broken(manifest)))
    assert desk.keys == []
    (item,) = desk.intake.set_aside_objects.values()
    assert item.name == "one"
    assert item.why.object.startswith(kind)
    assert item.why.field
    desk.intake.on_add_or_update(desk.read(manifest))
    assert (desk.keys, desk.intake.set_aside_objects) == (["one"], {})
    assert desk.changes >= 3


@pytest.mark.parametrize("kind, manifest", EACH)
def test_deleted_invalid_object_is_no_longer_set_aside(kind, manifest):
    desk = Desk(kind)
    desk.intake.on_add_or_update(desk.read(manifest))
    desk.intake.on_delete(desk.read(broken(manifest)))
    assert (desk.keys, desk.intake.set_aside_objects) == ([], {})


@pytest.mark.parametrize("kind, manifest", EACH)
def test_list_replaces_the_invalid_objects(kind, manifest):
    other = {**manifest, "metadata": {**manifest["metadata"], "name": "other"}}
    desk = Desk(kind)
    desk.intake.on_replace([desk.read(broken(manifest)), desk.read(other, "v")])
    assert desk.keys == ["other"]
    assert [key.rpartition("/")[2] for key in desk.intake.set_aside_objects] == ["one"]
    desk.intake.on_replace([desk.read(manifest), desk.read(other, "v")])
    assert sorted(desk.keys) == ["one", "other"]
    assert desk.intake.set_aside_objects == {}


def test_younger_pod_of_the_same_name_stays_if_the_deleted_one_is_invalid():
    desk = Desk("Pod")
    desk.intake.on_add_or_update(desk.read(pod("one"), "young"))
    desk.intake.on_delete(desk.read(broken(pod("one")), "old"))
    assert desk.keys == ["one"]


def test_record_of_an_invalid_object_has_its_first_field_once_and_names_further_ones():
    desk = Desk("PodGroup")
    spec = {"minMember": "many", "queue": 7}
    desk.intake.on_add_or_update(desk.read({**pod_group("one", 2), "spec": spec}))
    (item,) = desk.intake.set_aside_objects.values()
    assert item.why.field == "spec.minMember"
    assert item.why.message == ("expected a whole number, found 'many'; spec.queue: expected text, found 7")
    assert item.why.field_and_message == f"spec.minMember: {item.why.message}"


def test_text_that_is_not_json_is_set_aside():
    desk = Desk("Pod")
    desk.intake.add_or_update_from_json(b"{")
    assert desk.keys == []
    assert len(desk.intake.set_aside_objects) == 1


@pytest.mark.parametrize("number", range(len(EXTERNAL_KINDS)))
def test_pod_group_of_another_scheduler_that_becomes_invalid_is_removed(number):
    kind, seen = EXTERNAL_KINDS[number], []

    class Store:
        def put(self, found):
            seen.append(("put", found.key))

        def remove(self, gone):
            seen.append(("remove", gone.key))

        def replace(self, kind, listed):
            raise AssertionError

    intake = EventHandler(kind, Store(), Decoder(), lambda: None)
    intake.add_or_update_from_json(b'{"metadata":{"name":"bert","namespace":"team","uid":"u"},"spec":17}')
    assert seen == [("remove", "team/bert")]


def test_heartbeat_of_a_kubelet_changes_nothing():
    desk = Desk("Node")

    def beat(time):
        ready = {
            "type": "Ready",
            "status": "True",
            "lastHeartbeatTime": time,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        one = node("one")
        fields = [{"manager": "kubelet", "operation": "Update", "time": time}]
        meta = {
            **one["metadata"],
            "resourceVersion": time.translate({ord(one): "" for one in "-:TZ"}),
            "managedFields": fields,
        }
        return {**one, "metadata": meta, "status": {**one["status"], "conditions": [ready]}}

    desk.intake.on_add_or_update(desk.read(beat("2026-01-01T00:00:00Z")))
    before = desk.cache.generation
    desk.intake.on_add_or_update(desk.read(beat("2026-01-01T00:05:00Z")))
    assert desk.cache.generation == before


def test_optional_kinds_are_fields_of_a_snapshot():
    assert OPTIONAL_KINDS.keys() <= {kind.field for kind in OBJECT_KINDS}


@pytest.mark.parametrize(
    "field",
    ["nodes", "pods", "pod_groups", "queues", "namespaces", "pod_disruption_budgets", "csi_nodes"],
)
def test_kinds_that_limit_a_decision_are_not_optional(field):
    assert field not in OPTIONAL_KINDS
