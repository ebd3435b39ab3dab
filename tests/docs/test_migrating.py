"""Documented examples of Kueue, KAI and Volcano are placed as these promise, or refused with the field."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from batchsched.api.decision import Decision
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import PodGrouperSettings, Profile
from batchsched.record.cluster_files import ClusterFiles, SessionSettings
from batchsched.scheduler.cluster_reader import read_snapshot_from_files
from batchsched.session.session import decide

NOW = 1_767_603_600.0
BLOCK, RACK = "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"


def nodes(racks: int = 4, per_rack: int = 2, cpu: int = 4) -> list[dict[str, Any]]:
    """Nodes in racks, with two racks in a block."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": f"node{rack * per_rack + index}",
                "labels": {
                    BLOCK: f"block-{rack // 2}",
                    RACK: f"rack-{rack}",
                    "topology.kubernetes.io/zone": f"zone-{rack // 2}",
                    "topology.kubernetes.io/rack": f"rack-{rack}",
                    "kubernetes.io/hostname": f"node{rack * per_rack + index}",
                },
            },
            "status": {
                "allocatable": {"cpu": str(cpu), "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "8"}
            },
        }
        for rack in range(racks)
        for index in range(per_rack)
    ]


def decided(
    folder: Path, example: str, *objects: dict[str, Any], scheduler: str = "default-scheduler"
) -> tuple[Snapshot, Decision]:
    """Decide over an example as it is documented; its pods name its own scheduler, which the profile replaces."""
    file = folder / "cluster.yaml"
    file.write_text("---\n".join([yaml.safe_dump_all(objects), example]), "utf-8")
    profile = Profile(scheduler_name=scheduler)
    settings = SessionSettings(profile, NOW, PodGrouperSettings())
    reading = read_snapshot_from_files(ClusterFiles((file,)), settings)
    assert not reading.snapshot.set_aside
    return reading.snapshot, decide(reading.snapshot, profile, NOW, 0)


def domains(snapshot: Snapshot, decision: Decision, label: str, pods: str = "") -> set[str]:
    """The values of a node label over the nodes of all placed pods with a name that starts so."""
    labels = {node.name: node.metadata.labels or {} for node in snapshot.nodes}
    return {labels[one.node][label] for one in decision.assignments if one.pod.startswith(pods)}


def pod(name: str, group: str, sub_group: str = "", cpu: str = "1") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "annotations": {"pod-group-name": group},
            "labels": {"kai.scheduler/subgroup-name": sub_group} if sub_group else {},
        },
        "spec": {
            "schedulerName": "kai-scheduler",
            "containers": [{"name": "worker", "image": "ubuntu", "resources": {"requests": {"cpu": cpu}}}],
        },
    }


def pods(group: str, sub_groups: Iterable[tuple[str, int]], cpu: str = "1") -> list[dict[str, Any]]:
    return [
        pod(f"{name}-{index}", group, name, cpu) for name, number in sub_groups for index in range(number)
    ]


# kubernetes-sigs/kueue: site/static/examples/tas/sample-queues.yaml (its Topology)
KUEUE_TOPOLOGY = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata:
  name: "default"
spec:
  levels:
  - nodeLabel: "cloud.provider.com/topology-block"
  - nodeLabel: "cloud.provider.com/topology-rack"
  - nodeLabel: "kubernetes.io/hostname"
---
"""


def kueue_job(annotation: str) -> str:
    """kubernetes-sigs/kueue: site/static/examples/tas/sample-job-required.yaml, -preferred and -unconstrained."""
    return f"""
apiVersion: batch/v1
kind: Job
metadata:
  generateName: tas-sample-required
  labels:
    kueue.x-k8s.io/queue-name: tas-user-queue
spec:
  parallelism: 10
  completions: 10
  completionMode: Indexed
  template:
    metadata:
      annotations:
        {annotation}
    spec:
      containers:
      - name: dummy-job
        image: registry.k8s.io/e2e-test-images/agnhost:2.53
        args: ["pause"]
        resources:
          requests:
            cpu: "1"
            memory: "200Mi"
      restartPolicy: Never
"""


REQUIRED = kueue_job('kueue.x-k8s.io/podset-required-topology: "cloud.provider.com/topology-rack"')
PREFERRED = kueue_job('kueue.x-k8s.io/podset-preferred-topology: "cloud.provider.com/topology-rack"')
UNCONSTRAINED = kueue_job('kueue.x-k8s.io/podset-unconstrained-topology: "true"')


def test_required_topology_of_kueue_places_all_pods_in_one_rack(tmp_path):
    snapshot, decision = decided(tmp_path, KUEUE_TOPOLOGY + REQUIRED, *nodes(racks=2, per_rack=3, cpu=4))
    assert len(decision.assignments) == 10
    assert len(domains(snapshot, decision, RACK)) == 1


def test_required_topology_of_kueue_refuses_a_job_that_fits_two_racks_only(tmp_path):
    _, decision = decided(tmp_path, KUEUE_TOPOLOGY + REQUIRED, *nodes(racks=2, per_rack=2, cpu=4))
    assert not decision.assignments
    assert decision.refusals[0].reason == "InsufficientTopologyCapacity"


def test_preferred_topology_of_kueue_uses_few_racks_and_is_no_condition(tmp_path):
    snapshot, decision = decided(tmp_path, KUEUE_TOPOLOGY + PREFERRED, *nodes(racks=4, per_rack=2, cpu=4))
    assert len(decision.assignments) == 10
    assert len(domains(snapshot, decision, RACK)) == 2


def test_unconstrained_topology_of_kueue_places_pods_anywhere(tmp_path):
    _, decision = decided(tmp_path, KUEUE_TOPOLOGY + UNCONSTRAINED, *nodes(racks=4, per_rack=2, cpu=2))
    assert len(decision.assignments) == 10


def test_required_topology_of_kueue_without_its_topology_refuses_the_job_with_the_name(tmp_path):
    _, decision = decided(tmp_path, REQUIRED, *nodes())
    (refusal,) = decision.refusals
    assert refusal.reason == "UnknownTopologyLevel"
    assert "'default'" in refusal.message


# kubernetes-sigs/kueue: site/static/examples/jobs/sample-jobset-tas-combined.yaml
KUEUE_SLICES = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: jobset-tas-combined
  labels:
    kueue.x-k8s.io/queue-name: user-queue
spec:
  replicatedJobs:
    - name: workers
      replicas: 1
      template:
        spec:
          parallelism: 8
          completions: 8
          backoffLimit: 0
          template:
            metadata:
              annotations:
                kueue.x-k8s.io/podset-required-topology: "cloud.provider.com/topology-block"
                kueue.x-k8s.io/podset-slice-required-topology: "cloud.provider.com/topology-rack"
                kueue.x-k8s.io/podset-slice-size: "4"
            spec:
              containers:
                - name: sleep
                  image: busybox
                  resources:
                    requests:
                      cpu: 1
                      memory: "200Mi"
                  command:
                    - sleep
                  args:
                    - 100s
"""


def test_slices_of_kueue_are_slices_of_the_pod_group(tmp_path):
    snapshot, decision = decided(tmp_path, KUEUE_TOPOLOGY + KUEUE_SLICES, *nodes(racks=4, per_rack=2, cpu=2))
    (group,) = snapshot.pod_groups
    assert group.spec.topology is not None
    assert group.spec.topology.required == BLOCK
    assert group.spec.topology.slices is not None
    assert (group.spec.topology.slices.level, group.spec.topology.slices.size) == (RACK, 4)
    assert len(decision.assignments) == 8
    assert len(domains(snapshot, decision, BLOCK)) == 1
    assert len(domains(snapshot, decision, RACK)) == 2


def test_slices_of_kueue_without_a_size_refuse_the_job_with_the_annotation(tmp_path):
    example = KUEUE_SLICES.replace('kueue.x-k8s.io/podset-slice-size: "4"', "")
    _, decision = decided(tmp_path, KUEUE_TOPOLOGY + example, *nodes())
    (refusal,) = decision.refusals
    assert refusal.reason == "UnsupportedField"
    assert "podset-slice-required-topology" in refusal.message


# NVIDIA/KAI-Scheduler: docs/topology/README.md
KAI_TOPOLOGY = """
apiVersion: kai.scheduler/v1alpha1
kind: Topology
metadata:
  name: "cluster-topology"
spec:
  levels:
  - nodeLabel: "topology.kubernetes.io/zone"
  - nodeLabel: "topology.kubernetes.io/rack"
---
"""
KAI_JOB = """
apiVersion: batch/v1
kind: Job
metadata:
  name: distributed-training
  annotations:
    kai.scheduler/topology: "cluster-topology"
    kai.scheduler/topology-required-placement: "topology.kubernetes.io/zone"
    kai.scheduler/topology-preferred-placement: "topology.kubernetes.io/rack"
spec:
  parallelism: 3
  completions: 3
  template:
    spec:
      schedulerName: kai-scheduler
      containers:
      - name: train
        image: ubuntu
        resources: {limits: {nvidia.com/gpu: 1}, requests: {cpu: 3}}
"""


def test_annotations_of_kai_place_a_job_in_one_zone_and_few_racks(tmp_path):
    snapshot, decision = decided(
        tmp_path, KAI_TOPOLOGY + KAI_JOB, *nodes(racks=4, per_rack=2), scheduler="kai-scheduler"
    )
    assert len(decision.assignments) == 3
    assert len(domains(snapshot, decision, "topology.kubernetes.io/zone")) == 1
    assert len(domains(snapshot, decision, "topology.kubernetes.io/rack")) == 2


# NVIDIA/KAI-Scheduler: docs/topology/multilevel.md, with the spelling subGroups of its API
KAI_SUB_GROUPS = """
apiVersion: scheduling.run.ai/v2alpha2
kind: PodGroup
metadata:
  name: sample1
spec:
  queue: test
  priorityClassName: inference
  subGroups:
    - name: subgroup-a
      minMember: 2
      topologyConstraint:
        topology: "cluster-topology"
        requiredTopologyLevel: "topology.kubernetes.io/rack"
    - name: subgroup-b
      minMember: 3
      topologyConstraint:
        topology: "cluster-topology"
        requiredTopologyLevel: "topology.kubernetes.io/rack"
---
"""
QUEUE = {
    "apiVersion": "scheduling.batchsched.dev/v1alpha1",
    "kind": "Queue",
    "metadata": {"name": "test"},
}
CLASS = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "inference"},
    "value": 125,
}


def test_each_subgroup_of_kai_is_in_one_rack(tmp_path):
    members = pods("sample1", [("subgroup-a", 2), ("subgroup-b", 3)], cpu="2")
    snapshot, decision = decided(
        tmp_path,
        KAI_TOPOLOGY + KAI_SUB_GROUPS,
        *nodes(racks=2, per_rack=2),
        QUEUE,
        CLASS,
        *members,
        scheduler="kai-scheduler",
    )
    assert len(decision.assignments) == 5
    for name in ("subgroup-a", "subgroup-b"):
        assert len(domains(snapshot, decision, "topology.kubernetes.io/rack", name)) == 1


# NVIDIA/KAI-Scheduler: docs/developer/designs/min-subgroups/README.md
KAI_TREE = """
apiVersion: scheduling.run.ai/v2alpha2
kind: PodGroup
metadata:
  name: training-job
spec:
  minSubGroup: 2     # Need both decode AND prefill (heterogeneous)
  subGroups:
    - name: decode
      minSubGroup: 2  # Need both leaders and workers
    - name: decode-leaders
      parent: decode
      minMember: 1    # Leaf: uses minMember
    - name: decode-workers
      parent: decode
      minMember: 4

    - name: prefill
      minSubGroup: 2
    - name: prefill-leaders
      parent: prefill
      minMember: 1
    - name: prefill-workers
      parent: prefill
      minMember: 4
---
"""
TREE_PODS = [("decode-leaders", 1), ("decode-workers", 4), ("prefill-leaders", 1), ("prefill-workers", 4)]


def test_a_tree_of_kai_that_needs_all_its_subgroups_is_placed_whole(tmp_path):
    members = pods("training-job", TREE_PODS)
    _, decision = decided(tmp_path, KAI_TREE, *nodes(racks=2), *members, scheduler="kai-scheduler")
    assert len(decision.assignments) == 10
    _, decision = decided(tmp_path, KAI_TREE, *nodes(racks=1, cpu=4), *members, scheduler="kai-scheduler")
    assert not decision.assignments


# NVIDIA/KAI-Scheduler: docs/developer/designs/min-subgroups/README.md
KAI_REPLICAS = """
apiVersion: scheduling.run.ai/v2alpha2
kind: PodGroup
metadata:
  name: inference-service
spec:
  minSubGroup: 3     # Need 3 out of 4 replicas
  subGroups:
    - name: prefill-0
      minMember: 8   # Leaf: uses minMember for pods
    - name: prefill-1
      minMember: 8
    - name: prefill-2
      minMember: 8
    - name: prefill-3
      minMember: 8
---
"""


def test_three_of_four_subgroups_of_kai_are_enough(tmp_path):
    members = pods("inference-service", [(f"prefill-{index}", 8) for index in range(4)])
    snapshot, decision = decided(
        tmp_path, KAI_REPLICAS, *nodes(racks=3, per_rack=2), *members, scheduler="kai-scheduler"
    )
    (group,) = snapshot.pod_groups
    assert (group.spec.min_sub_groups, group.effective_min_member) == (3, 24)
    assert len(decision.assignments) == 24


def hyper_nodes() -> list[dict[str, Any]]:
    """volcano-sh/volcano: docs/design/Network Topology Aware Scheduling.md, in the form of the API."""

    def hyper_node(name: str, tier: int, kind: str, *selectors: dict[str, Any]) -> dict[str, Any]:
        members = [{"type": kind, "selector": selector} for selector in selectors]
        return {
            "apiVersion": "topology.volcano.sh/v1alpha1",
            "kind": "HyperNode",
            "metadata": {"name": name},
            "spec": {"tier": tier, "tierName": {3: "zone"}.get(tier, ""), "members": members},
        }

    def exact(*names: str) -> list[dict[str, Any]]:
        return [{"exactMatch": {"name": name}} for name in names]

    return [
        hyper_node("s0", 1, "Node", *exact("node0", "node1")),
        hyper_node("s1", 1, "Node", {"regexMatch": {"pattern": "^node[2-3]$"}}),
        hyper_node("s2", 1, "Node", {"labelMatch": {"matchLabels": {RACK: "rack-2"}}}),
        hyper_node("s3", 1, "Node", *exact("node6", "node7")),
        hyper_node("s4", 2, "HyperNode", *exact("s0", "s1")),
        hyper_node("s5", 2, "HyperNode", *exact("s2", "s3")),
        hyper_node("s6", 3, "HyperNode", *exact("s4", "s5")),
    ]


def volcano_group(members: int, topology: dict[str, Any] | None, **spec: Any) -> list[dict[str, Any]]:
    """A PodGroup as Volcano's controller creates it for its documented Job, with the pods of the Job."""
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "network-topology-job"},
        "spec": {"minMember": members, "networkTopology": topology, "queue": "test", **spec},
    }
    made = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"t0-{index}",
                "annotations": {"scheduling.k8s.io/group-name": "network-topology-job"},
            },
            "spec": {
                "schedulerName": "volcano",
                "containers": [{"name": "c0", "image": "nginx", "resources": {"requests": {"cpu": "4"}}}],
            },
        }
        for index in range(members)
    ]
    return [QUEUE, group, *made]


@pytest.mark.parametrize(
    "topology, members, tier, spread",
    [
        ({"mode": "hard", "highestTierAllowed": 1}, 2, 1, 1),
        ({"mode": "hard", "highestTierAllowed": 2}, 4, 2, 1),
        ({"mode": "hard", "highestTierName": "zone"}, 8, 3, 1),
        ({"mode": "soft"}, 4, 1, 2),
    ],
    ids=["tier-1", "tier-2", "tier-name", "soft"],
)
def test_network_topology_of_volcano_keeps_a_gang_within_hyper_nodes_of_its_tier(
    tmp_path, topology, members, tier, spread
):
    objects = [*nodes(), *hyper_nodes(), *volcano_group(members, topology)]
    snapshot, decision = decided(tmp_path, "", *objects, scheduler="volcano")
    assert len(decision.assignments) == members
    assert len(domains(snapshot, decision, f"hypernode.batchsched.dev/tier-{tier}")) == spread


def test_a_gang_of_volcano_that_fits_no_hyper_node_of_its_tier_is_refused(tmp_path):
    objects = [*nodes(), *hyper_nodes(), *volcano_group(4, {"mode": "hard", "highestTierAllowed": 1})]
    _, decision = decided(tmp_path, "", *objects, scheduler="volcano")
    assert not decision.assignments
    assert decision.refusals[0].reason == "InsufficientTopologyCapacity"


def test_hard_mode_of_volcano_without_hyper_nodes_or_without_a_tier_is_refused_with_what_is_missing(tmp_path):
    hard = volcano_group(2, {"mode": "hard", "highestTierAllowed": 1})
    _, decision = decided(tmp_path, "", *nodes(), *hard, scheduler="volcano")
    assert decision.refusals[0].reason == "UnknownTopologyLevel"
    _, decision = decided(tmp_path, "", *nodes(), *volcano_group(2, {"mode": "hard"}), scheduler="volcano")
    assert decision.refusals[0].reason == "UnsupportedField"
    assert "spec.networkTopology.highestTierAllowed" in decision.refusals[0].message


def test_soft_mode_of_volcano_without_hyper_nodes_is_no_condition(tmp_path):
    _, decision = decided(tmp_path, "", *nodes(), *volcano_group(2, {"mode": "soft"}), scheduler="volcano")
    assert len(decision.assignments) == 2


def test_partitions_of_volcano_are_refused_with_their_field(tmp_path):
    # The policy of the documented Job: two partitions of 4 pods, each in a HyperNode of tier 1.
    policy = {
        "name": "t0",
        "subGroupSize": 4,
        "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
        "labelSelector": {"matchLabels": {"volcano.sh/task-spec": "t0"}},
        "matchLabelKeys": ["volcano.sh/partition-id"],
    }
    made = volcano_group(8, {"mode": "hard", "highestTierAllowed": 2}, subGroupPolicy=[policy])
    _, decision = decided(tmp_path, "", *nodes(), *hyper_nodes(), *made, scheduler="volcano")
    assert decision.refusals[0].reason == "UnsupportedField"
    assert "spec.subGroupPolicy[0].networkTopology" in decision.refusals[0].message
