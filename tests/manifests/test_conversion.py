"""Queues and topologies of Volcano, KAI and Kueue become Queues and Topologies, by their documented examples."""

import contextlib
import json
import re
import time
from typing import Any

import msgspec
import pytest
import yaml

from batchsched.errors import InvalidInput
from batchsched.manifests.conversion.convert import Conversion, convert_objects_of_other_schedulers
from batchsched.manifests.documents import split_documents


def converted(text: str) -> Conversion:
    documents = list(yaml.safe_load_all(text))
    content = "\n".join(msgspec.json.encode(document).decode() for document in documents if document)
    return convert_objects_of_other_schedulers(split_documents(content.encode(), "queues.yaml"))


def specs(conversion: Conversion, kind: str = "Queue") -> dict[str, Any]:
    return {one["metadata"]["name"]: one["spec"] for one in conversion.objects if one["kind"] == kind}


def test_misspelt_field_without_counterpart_is_answered_with_the_similar_name():
    queue = "{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: q}, spec: {weigth: 3}}"
    (warning,) = converted(queue).warnings
    assert warning.endswith("Queue q: spec.weigth: batchsched has no counterpart (did you mean weight?)")


def test_kai_queue_without_its_parent_in_the_input_is_converted_with_a_warning():
    queue = "{apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {name: q}, spec: {parentQueue: dept}}"
    conversion = converted(queue)
    assert specs(conversion) == {"q": {"parent": "dept"}}
    (warning,) = conversion.warnings
    assert "Queue q: spec.parentQueue: there is no Queue 'dept' in the input" in warning


# volcano-sh/volcano: docs/user-guide/how_to_use_capacity_plugin.md
VOLCANO_CAPACITY = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata:
  name: queue1
spec:
  reclaimable: true
  deserved: # set the deserved field.
    cpu: 2
    memory: 8Gi
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata:
  name: queue2
spec:
  reclaimable: true
  deserved: # set the deserved field.
    cpu: 6
    memory: 24Gi
"""
# volcano-sh/volcano: example/deployment/queue.yaml
VOLCANO_LIMIT = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata:
  name: test
spec:
  weight: 1
  reclaimable: false
  capability:
    cpu: 2
"""
# volcano-sh/volcano: example/hierarchical-jobs/queues.yaml (two of its queues)
VOLCANO_HIERARCHY = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata:
  name: root-eng-prod
  annotations:
    "volcano.sh/hierarchy": "root/eng/prod"
    "volcano.sh/hierarchy-weights": "1/2/8"
spec:
  weight: 1
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata:
  name: root-sci-dev
  annotations:
    "volcano.sh/hierarchy": "root/sci/dev"
    "volcano.sh/hierarchy-weights": "1/8/2"
spec:
  weight: 1
"""


def test_what_volcano_calls_deserved_is_a_guarantee_that_is_lent():
    conversion = converted(VOLCANO_CAPACITY)
    assert specs(conversion) == {
        "queue1": {"guarantee": {"cpu": "2", "memory": "8Gi"}},
        "queue2": {"guarantee": {"cpu": "6", "memory": "24Gi"}},
    }
    assert conversion.warnings == ()


def test_capability_of_volcano_is_a_limit_and_reclaimable_is_named():
    conversion = converted(VOLCANO_LIMIT)
    assert specs(conversion) == {"test": {"limit": {"cpu": "2"}}}
    (warning,) = conversion.warnings
    assert warning.startswith("queues.yaml: Queue test: spec.reclaimable: ")
    assert "preemptible: false" in warning


def test_guarantee_of_volcano_is_never_lent_and_the_rest_of_deserved_is():
    queue = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: q}
spec:
  parent: root
  priority: 5
  guarantee: {resource: {cpu: 2, "nvidia.com/gpu": 1}}
  deserved: {cpu: 6}
  affinity: {nodeGroupAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [a]}}
"""
    conversion = converted(queue)
    assert specs(conversion)["q"] == {
        "priority": 5,
        "guarantee": {"cpu": "6", "nvidia.com/gpu": "1"},
        "lendingLimit": {"cpu": "4", "nvidia.com/gpu": "0"},
    }
    (warning,) = conversion.warnings
    assert "spec.affinity: a Queue selects no nodes" in warning


def test_annotations_of_hierarchical_queues_of_volcano_become_a_tree():
    assert specs(converted(VOLCANO_HIERARCHY)) == {
        "eng": {"weight": 2.0},
        "sci": {"weight": 8.0},
        "root-eng-prod": {"parent": "eng", "weight": 8.0},
        "root-sci-dev": {"parent": "sci", "weight": 2.0},
    }


# NVIDIA/KAI-Scheduler: docs/priority/example/limited-queue.yaml
KAI = """
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata:
  name: default
spec:
  resources:
    cpu:
      quota: -1
      limit: -1
      overQuotaWeight: 1
    gpu:
      quota: -1
      limit: -1
      overQuotaWeight: 1
    memory:
      quota: -1
      limit: -1
      overQuotaWeight: 1
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata:
  name: test
spec:
  parentQueue: default
  resources:
    cpu:
      quota: -1
      limit: -1
      overQuotaWeight: 1
    gpu:
      quota: 1
      limit: 1
      overQuotaWeight: 1
    memory:
      quota: -1
      limit: -1
      overQuotaWeight: 1
"""


def test_queues_of_kai_keep_their_tree_quota_and_limit():
    conversion = converted(KAI)
    gpu = {"nvidia.com/gpu": "1"}
    assert specs(conversion) == {"default": {}, "test": {"parent": "default", "guarantee": gpu, "limit": gpu}}
    assert len(conversion.warnings) == 5
    assert all("quota: an unlimited guarantee has no counterpart" in one for one in conversion.warnings)


def test_units_of_kai_are_millicores_megabytes_and_devices():
    queue = """
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: q}
spec:
  displayName: Team
  priority: 100
  reclaimMinRuntime: 2m
  preemptMinRuntime: 1m
  resources:
    cpu: {quota: 1500, limit: -1, overQuotaWeight: 2}
    memory: {quota: 64, limit: -1, overQuotaWeight: 2}
    gpu: {quota: 2.5, limit: 4, overQuotaWeight: 3}
"""
    conversion = converted(queue)
    assert specs(conversion)["q"] == {
        "weight": 3.0,
        "priority": 100,
        "guarantee": {"cpu": "1500m", "memory": "62500Ki", "nvidia.com/gpu": "2"},
        "limit": {"nvidia.com/gpu": "4"},
        "reclaimMinRuntimeSeconds": 120,
    }
    named = {warning.split(": ")[2] for warning in conversion.warnings}
    assert named == {
        "spec.displayName",
        "spec.preemptMinRuntime",
        "spec.resources.gpu.quota",
        "spec.resources.*.overQuotaWeight",
    }


# kubernetes-sigs/kueue: site/static/examples/admin/single-clusterqueue-setup.yaml
KUEUE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata:
  name: "default-flavor"
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata:
  name: "cluster-queue"
spec:
  namespaceSelector: {} # match all.
  resourceGroups:
  - coveredResources: ["cpu", "memory"]
    flavors:
    - name: "default-flavor"
      resources:
      - name: "cpu"
        nominalQuota: 9
      - name: "memory"
        nominalQuota: 36Gi
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata:
  namespace: "default"
  name: "user-queue"
spec:
  clusterQueue: "cluster-queue"
"""


def test_a_cluster_queue_without_a_cohort_neither_borrows_nor_lends():
    conversion = converted(KUEUE)
    quota = {"cpu": "9", "memory": "36Gi"}
    none = {"cpu": "0", "memory": "0"}
    assert specs(conversion) == {"cluster-queue": {"guarantee": quota, "limit": quota, "lendingLimit": none}}
    preemption, local = conversion.warnings
    assert "ClusterQueue cluster-queue: spec.preemption.withinClusterQueue: " in preemption
    assert "LocalQueue default/user-queue: metadata.name: jobs name the Queue itself" in local
    assert "scheduling.batchsched.dev/queue: cluster-queue" in local


COHORTS = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: org}
spec:
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - {name: f, resources: [{name: cpu, nominalQuota: 12}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: team}
spec: {parentName: org, fairSharing: {weight: "0.75"}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: a}
spec:
  cohortName: team
  namespaceSelector: {matchLabels: {team: a}}
  preemption: {reclaimWithinCohort: Any, withinClusterQueue: LowerPriority}
  fairSharing: {weight: 2}
  stopPolicy: Hold
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - {name: f, resources: [{name: cpu, nominalQuota: 4, borrowingLimit: 2, lendingLimit: 1}]}
    - {name: g, resources: [{name: cpu, nominalQuota: 4, borrowingLimit: 1}]}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: b}
spec: {cohort: other, preemption: {withinClusterQueue: LowerPriority}, flavorFungibility: {whenCanBorrow: Borrow}}
"""


def test_cohorts_are_parents_and_the_root_has_the_quota_of_its_whole_tree():
    conversion = converted(COHORTS)
    assert specs(conversion) == {
        "org": {"guarantee": {"cpu": "20"}, "limit": {"cpu": "20"}, "lendingLimit": {"cpu": "0"}},
        "team": {"parent": "org", "weight": 0.75, "guarantee": {"cpu": "8"}},
        "other": {},
        "a": {
            "parent": "team",
            "weight": 2.0,
            "guarantee": {"cpu": "8"},
            "namespaceSelector": {"matchLabels": {"team": "a"}},
            "maxRunningPodGroups": 0,
            "borrowingLimit": {"cpu": "3"},
            "lendingLimit": {"cpu": "5"},
        },
        "b": {
            "parent": "other",
            "namespaceSelector": {
                "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "DoesNotExist"}]
            },
        },
    }
    named = [": ".join(warning.split(": ")[1:3]) for warning in conversion.warnings]
    assert named == [
        "ClusterQueue a: spec.resourceGroups",
        "ClusterQueue b: spec.flavorFungibility",
        "ClusterQueue b: spec.preemption.reclaimWithinCohort",
        "ClusterQueue b: spec.namespaceSelector",
    ]


def test_default_local_queue_becomes_the_label_of_its_namespace():
    conversion = converted(
        "apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {name: default, namespace: team}\n"
        "spec: {clusterQueue: q}"
    )
    (namespace,) = conversion.objects
    assert namespace["metadata"] == {
        "name": "team",
        "labels": {"scheduling.batchsched.dev/default-queue": "q"},
    }


def test_workload_priority_class_becomes_a_priority_class():
    # kubernetes-sigs/kueue: site/content/en/docs/concepts/workload_priority_class.md
    conversion = converted(
        "apiVersion: kueue.x-k8s.io/v1beta2\nkind: WorkloadPriorityClass\nmetadata: {name: sample-priority}\n"
        'value: 10000\ndescription: "Sample priority"'
    )
    assert conversion.objects == (
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "sample-priority"},
            "value": 10000,
            "description": "Sample priority",
        },
    )
    assert "name it in priorityClassName of the pods" in conversion.warnings[0]


@pytest.mark.parametrize("api_version", ["kueue.x-k8s.io/v1beta2", "kai.scheduler/v1alpha1"])
def test_levels_of_topologies_keep_their_node_labels(api_version):
    # kubernetes-sigs/kueue: site/static/examples/tas/sample-queues.yaml; KAI has the same fields.
    labels = [
        "cloud.provider.com/topology-block",
        "cloud.provider.com/topology-rack",
        "kubernetes.io/hostname",
    ]
    topology = {
        "apiVersion": api_version,
        "kind": "Topology",
        "metadata": {"name": "default"},
        "spec": {"levels": [{"nodeLabel": label} for label in labels]},
    }
    levels = [{"name": label, "nodeLabel": label} for label in labels]
    assert specs(converted(yaml.safe_dump(topology)), "Topology") == {"default": {"levels": levels}}


# volcano-sh/volcano: docs/design/Network Topology Aware Scheduling.md (its smallest tree)
HYPER_NODES = """
apiVersion: topology.volcano.sh/v1alpha1
kind: HyperNode
metadata: {name: s0}
spec:
  tier: 1
  members:
  - {type: Node, selector: {exactMatch: {name: node-0}}}
  - {type: Node, selector: {exactMatch: {name: node-1}}}
---
apiVersion: topology.volcano.sh/v1alpha1
kind: HyperNode
metadata: {name: s1}
spec:
  tier: 1
  members:
  - {type: Node, selector: {regexMatch: {pattern: "^node-[2-3]$"}}}
---
apiVersion: topology.volcano.sh/v1alpha1
kind: HyperNode
metadata: {name: s4}
spec:
  tier: 2
  members:
  - {type: HyperNode, selector: {exactMatch: {name: s0}}}
  - {type: HyperNode, selector: {exactMatch: {name: s1}}}
"""


def test_levels_have_the_names_of_tiers_as_if_the_hyper_nodes_were_read():
    conversion = converted(HYPER_NODES.replace("tier: 2", "tier: 2\n  tierName: block"))
    levels = specs(conversion, "Topology")["volcano"]["levels"]
    assert [level["name"] for level in levels] == ["block", "tier-1"]


def test_tiers_of_hyper_nodes_become_levels_and_labels_of_the_nodes_that_they_name():
    conversion = converted(HYPER_NODES)
    label = "hypernode.batchsched.dev/tier-"
    assert specs(conversion, "Topology")["volcano"]["levels"] == [
        {"name": f"tier-{tier}", "nodeLabel": f"{label}{tier}"} for tier in (2, 1)
    ]
    labels = {one["metadata"]["name"]: one["metadata"]["labels"] for one in conversion.objects[1:]}
    tiers = {f"{label}1": "s0", f"{label}2": "s4"}
    assert labels == {"node-0": tiers, "node-1": tiers}
    (warning,) = conversion.warnings
    assert "HyperNode s1: spec.members[0].selector: " in warning


def test_node_outside_of_the_higher_tier_gets_its_label_from_the_tier_below_as_in_a_cluster():
    documents = HYPER_NODES.split("---")
    alone = next(text for text in documents if "name: s0" in text).replace("name: s0", "name: s9")
    alone = alone.replace("node-0", "node-8").replace("node-1", "node-9")
    conversion = converted("---".join((*documents, alone)))
    labels = {one["metadata"]["name"]: one["metadata"]["labels"] for one in conversion.objects[1:]}
    label = "hypernode.batchsched.dev/tier-"
    assert labels["node-9"] == {f"{label}1": "s9", f"{label}2": "s9"}


def test_local_queue_of_an_absent_cluster_queue_causes_a_warning():
    conversion = converted(KUEUE.replace('clusterQueue: "cluster-queue"', 'clusterQueue: "cluster-qeue"'))
    assert any(
        "spec.clusterQueue: there is no ClusterQueue 'cluster-qeue' in the input (did you mean cluster-queue?)"
        in warning
        for warning in conversion.warnings
    )


def test_an_invalid_quantity_is_refused_with_its_object_and_field():
    with pytest.raises(InvalidInput) as refused:
        converted(VOLCANO_LIMIT.replace("cpu: 2", "cpu: two"))
    assert (refused.value.file, refused.value.object) == ("queues.yaml", "Queue test")
    assert refused.value.field == "spec.capability.cpu"


def test_a_guarantee_above_the_limit_is_refused_with_its_field():
    with pytest.raises(InvalidInput, match="can never be used"):
        converted(VOLCANO_LIMIT + "  deserved: {cpu: 3}\n")


def test_two_queues_of_one_name_are_refused():
    with pytest.raises(InvalidInput, match="two objects are converted to this name"):
        converted(f"{VOLCANO_LIMIT}---{KAI}")


def test_other_objects_are_passed_over_with_a_warning():
    conversion = converted("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}")
    assert (conversion.objects, conversion.converted) == ((), 0)
    assert conversion.warnings == ("queues.yaml: ConfigMap is passed over",)


FIELDS: dict[tuple[str, str], tuple[str, ...]] = {
    ("scheduling.volcano.sh/v1beta1", "Queue"): (
        *("spec.weight", "spec.capability", "spec.guarantee", "spec.guarantee.resource", "spec.deserved"),
        *("spec.parent", "spec.priority", "spec.reclaimable", "metadata.annotations", "metadata.name"),
        *("metadata.annotations.volcano.sh/hierarchy", "metadata.annotations.volcano.sh/hierarchy-weights"),
    ),
    ("scheduling.run.ai/v2", "Queue"): (
        *("spec.parentQueue", "spec.resources", "spec.resources.gpu", "spec.resources.gpu.quota"),
        *("spec.resources.gpu.limit", "spec.resources.gpu.overQuotaWeight", "spec.priority"),
        "spec.reclaimMinRuntime",
    ),
    ("kueue.x-k8s.io/v1beta1", "ClusterQueue"): (
        *("spec.cohort", "spec.resourceGroups", "spec.namespaceSelector", "spec.fairSharing.weight"),
        *("spec.preemption", "spec.stopPolicy", "spec"),
    ),
    ("kueue.x-k8s.io/v1beta1", "Cohort"): ("spec.parent", "spec.resourceGroups", "spec.fairSharing"),
    ("kueue.x-k8s.io/v1beta1", "LocalQueue"): ("spec.clusterQueue", "metadata.namespace"),
    ("kueue.x-k8s.io/v1beta1", "WorkloadPriorityClass"): ("value", "description"),
    ("kueue.x-k8s.io/v1beta1", "Topology"): ("spec.levels",),
    ("topology.volcano.sh/v1alpha1", "HyperNode"): ("spec.tier", "spec.members"),
}
STRANGE: tuple[Any, ...] = (
    *(None, True, "x", "", "-1", "1e400", -1, 2**70, 10**400, 1.5, [], [1], ["x"], {}, {"x": 1}, {"cpu": []}),
    *(
        {"resource": {"cpu": "1"}},
        [{"flavors": [{"resources": [{"name": [], "nominalQuota": {}}]}]}],
        "a/" * 500,
    ),
    *([{"nodeLabel": []}], [{"type": "HyperNode", "selector": {"exactMatch": {"name": "x"}}}]),
)


@pytest.mark.parametrize("api_version, kind", FIELDS, ids=[" ".join(name) for name in FIELDS])
def test_a_strange_value_of_any_field_is_converted_or_refused(api_version, kind):
    for path in FIELDS[api_version, kind]:
        for value in STRANGE:
            manifest: dict[str, Any] = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}}
            place = manifest
            *above, last = re.split(r"\.(?!sh/)", path)
            for name in above:
                place = place.setdefault(name, {})
            place[last] = value
            documents = split_documents(json.dumps(manifest).encode(), "queues.json")
            with contextlib.suppress(InvalidInput):
                msgspec.json.encode(convert_objects_of_other_schedulers(documents).objects)


def hyper_nodes(*members: tuple[str, tuple[str, ...]]) -> bytes:
    entries = [
        {
            "apiVersion": "topology.volcano.sh/v1alpha1",
            "kind": "HyperNode",
            "metadata": {"name": name},
            "spec": {
                "tier": 1,
                "members": [
                    {
                        "type": "HyperNode" if inner[0] == "h" else "Node",
                        "selector": {"exactMatch": {"name": inner}},
                    }
                    for inner in inside
                ],
            },
        }
        for name, inside in members
    ]
    return b"\n".join(map(msgspec.json.encode, entries))


def test_each_hyper_node_below_another_is_visited_once():
    diamonds = [
        (f"h{level}-{side}", (f"h{level + 1}-0", f"h{level + 1}-1")) for level in range(40) for side in (0, 1)
    ]
    bottom = [("h40-0", ("n0",)), ("h40-1", ("n1", "h0-0"))]
    chain = [(f"hc{number}", (f"hc{number + 1}",)) for number in range(1100)]
    documents = split_documents(hyper_nodes(*diamonds, *bottom, *chain, ("hc1100", ("n2",))), "nodes.json")
    started = time.process_time()
    conversion = convert_objects_of_other_schedulers(documents)
    assert time.process_time() - started < 10
    labels = {
        one["metadata"]["name"]: one["metadata"]["labels"]
        for one in conversion.objects
        if one["kind"] == "Node"
    }
    assert sorted(labels) == ["n0", "n1", "n2"]


@pytest.mark.parametrize(
    "api_version, kind, spec, message",
    [
        (
            "scheduling.volcano.sh/v1beta1",
            "Queue",
            {"weight": "much"},
            "spec.weight: expected a number, found 'much'",
        ),
        (
            "scheduling.volcano.sh/v1beta1",
            "Queue",
            {"priority": 1.5},
            "spec.priority: expected a whole number of 32 bits, found",
        ),
        (
            "scheduling.run.ai/v2",
            "Queue",
            {"resources": {"gpu": {"quota": 10**400}}},
            "spec.resources.gpu.quota: expected a number",
        ),
    ],
    ids=["weight", "priority", "quota"],
)
def test_a_number_that_cannot_be_used_is_refused_with_its_object_and_field(api_version, kind, spec, message):
    manifest = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, "spec": spec}
    with pytest.raises(InvalidInput, match=f"queues.json: {kind} x: {message}"):
        convert_objects_of_other_schedulers(split_documents(json.dumps(manifest).encode(), "queues.json"))


def test_a_hierarchy_of_very_many_levels_is_refused_at_once():
    meta = {"name": "x", "annotations": {"volcano.sh/hierarchy": "a/" * 100_000}}
    manifest = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": meta}
    started = time.process_time()
    with pytest.raises(InvalidInput, match="has 100001 levels; expected at most 64"):
        convert_objects_of_other_schedulers(split_documents(json.dumps(manifest).encode(), "queues.json"))
    assert time.process_time() - started < 1
