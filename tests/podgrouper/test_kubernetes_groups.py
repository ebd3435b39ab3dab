"""Groups and pods of the Workload API become one gang a tree, in whatever order they arrive."""

from typing import Any

import msgspec
import pytest

from batchsched.api.core.pod import POD_GROUP_LABEL, SUB_GROUP_LABEL, Pod
from batchsched.api.external.conversion import EXTERNAL_KINDS
from batchsched.api.snapshot import KIND_BY_GROUP_AND_NAME
from batchsched.kube.clock import SystemClock
from batchsched.kube.connection import Connection
from batchsched.kube.credentials import CredentialsReader
from batchsched.manifests.decode import Decoder
from batchsched.podgrouper.grouper import PodGrouper
from batchsched.state.cluster_state import ClusterState

ALPHA, BETA = "scheduling.k8s.io/v1alpha3", "scheduling.k8s.io/v1beta1"
KINDS = {(kind.name, kind.api_version): kind for kind in EXTERNAL_KINDS}


class World:
    """A cluster state behind the pod grouper, and objects of the Workload API that come and go."""

    def __init__(self):
        self.cache = ClusterState()
        self.grouper = PodGrouper(self.cache, ("batchsched",), lambda: None)
        self.pods: Any = self.grouper.store_for(KIND_BY_GROUP_AND_NAME["", "Pod"])
        connection = Connection(CredentialsReader(), SystemClock())
        self.reflectors = {
            (reflector.resource.kind, reflector.resource.api_version): reflector
            for reflector in self.grouper.create_reflectors(connection, SystemClock(), Decoder())
        }
        self.version = 0

    def raw(self, kind, name, parent, minimum, spec):
        self.version += 1
        meta = {
            "name": name,
            "namespace": "team",
            "uid": f"{kind}-{name}",
            "resourceVersion": str(self.version),
        }
        count = "minGroupCount" if kind == "CompositePodGroup" else "minCount"
        stated = {"schedulingPolicy": {"gang": {count: minimum}}, **spec}
        if parent:
            stated["parentCompositePodGroupName"] = parent
        return msgspec.json.encode({"metadata": meta, "spec": stated})

    def group(self, name, parent="", minimum=1, version=BETA, **spec):
        self.reflectors["PodGroup", version].add_or_update_from_json(
            self.raw("PodGroup", name, parent, minimum, spec)
        )

    def composite(self, name, parent="", minimum=1, **spec):
        raw = self.raw("CompositePodGroup", name, parent, minimum, spec)
        self.reflectors["CompositePodGroup", ALPHA].add_or_update_from_json(raw)

    def pod(self, name, group, scheduler="batchsched", labels=None):
        self.version += 1
        meta = {"name": name, "namespace": "team", "uid": name, "resourceVersion": str(self.version)}
        spec = {"schedulerName": scheduler, "nodeName": "n0"}
        spec |= {"schedulingGroup": {"podGroupName": group}} if group else {}
        if scheduler == "batchsched":
            del spec["nodeName"]
        found = msgspec.convert({"metadata": {**meta, "labels": labels or {}}, "spec": spec}, Pod)
        self.pods.put(found)
        return found

    def of(self, name):
        found = self.cache.get("pods", f"team/{name}")
        return found.labels.get(POD_GROUP_LABEL), found.labels.get(SUB_GROUP_LABEL)

    @property
    def gangs(self):
        return {gang.name: gang.effective_min_member for gang in self.cache.snapshot().pod_groups}


@pytest.fixture
def world():
    return World()


def test_pods_that_arrive_before_their_tree_join_it(world):
    world.pod("worker-0", "workers")
    assert (world.of("worker-0"), world.gangs) == (("workers", None), {})
    world.group("workers", "rack", 4)
    assert (world.of("worker-0"), world.gangs) == (("rack", "workers"), {})
    world.composite("rack", "train")
    assert (world.of("worker-0"), world.gangs) == (("train", "workers"), {})
    world.composite("train")
    assert (world.of("worker-0"), world.gangs) == (("train", "workers"), {"train": 4})


def test_a_pod_group_without_a_parent_stays_a_gang_of_its_own(world):
    world.group("alone", minimum=3)
    world.pod("alone-0", "alone")
    assert (world.of("alone-0"), world.gangs) == (("alone", None), {"alone": 3})


def test_a_tree_that_loses_its_root_is_no_gang(world):
    world.composite("train")
    world.group("workers", "train", 4)
    world.pod("worker-0", "workers")
    trees = world.cache.group_trees
    (root, _) = trees.groups_of_tree("team/train")
    store = world.grouper._external_store(
        EXTERNAL_KINDS.index(KINDS["CompositePodGroup", ALPHA]), KINDS["CompositePodGroup", ALPHA]
    )
    store.remove(root)
    assert (world.of("worker-0"), world.gangs) == (("train", "workers"), {})


def test_a_minimum_that_changes_changes_the_gang(world):
    world.composite("train")
    world.group("workers", "train", 4)
    world.group("workers", "train", 2)
    assert world.gangs == {"train": 2}


def test_a_pod_group_that_two_versions_serve_counts_once(world):
    world.composite("train")
    for version in (ALPHA, BETA):
        world.group("workers", "train", 4, version)
    world.pod("worker-0", "workers")
    assert (world.of("worker-0"), world.gangs) == (("train", "workers"), {"train": 4})


def test_pods_of_other_schedulers_get_no_labels(world):
    world.composite("train")
    world.group("workers", "train")
    world.pod("theirs-0", "workers", scheduler="default-scheduler")
    assert world.of("theirs-0") == (None, None)


def test_labels_of_batchsched_take_precedence_over_the_tree(world):
    world.composite("train")
    world.group("workers", "train")
    world.pod("worker-0", "workers", labels={POD_GROUP_LABEL: "mine"})
    assert world.of("worker-0") == ("mine", None)


def test_an_invalid_group_leaves_its_tree_waiting(world):
    world.composite("train")
    world.group("workers", "train", 4)
    world.pod("worker-0", "workers")
    world.reflectors["PodGroup", BETA].add_or_update_from_json(
        b'{"metadata": {"name": "workers", "namespace": "team", "uid": "x"}, "spec": {"schedulingPolicy": 3}}'
    )
    assert (world.of("worker-0"), world.gangs) == (("workers", None), {"train": 1})
    assert [sub.name for sub in world.cache.get("pod_groups", "team/train").spec.sub_groups] == [
        "train/missing"
    ]


def test_new_pod_of_the_same_name_outside_of_a_tree_does_not_join_it_again(world):
    world.pod("a", "workers")
    world.pod("a", "")
    world.composite("root")
    world.group("workers", "root")
    assert POD_GROUP_LABEL not in world.cache.get("pods", "team/a").labels
