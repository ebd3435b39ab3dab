"""Pods join the gangs of their owners, in whatever order pods and owners arrive."""

import msgspec
import pytest

from batchsched.api.core.pod import POD_GROUP_LABEL, QUEUE_LABEL, SUB_GROUP_LABEL, Pod
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.external.conversion import EXTERNAL_KINDS
from batchsched.api.snapshot import KIND_BY_GROUP_AND_NAME
from batchsched.api.unsupported_fields import UNSUPPORTED_FIELD
from batchsched.podgrouper.grouper import PodGrouper
from batchsched.podgrouper.owners import OwnerHandler, decode_owner
from batchsched.podgrouper.pod_group_index import OWNER_LABEL, WRITTEN, PodGroupStore
from batchsched.podgrouper.rules import OWNERS
from batchsched.state.cluster_state import ClusterState
from tests.podgrouper.owners import (
    API,
    TEMPLATE,
    app_wrapper,
    clique,
    job,
    jobset,
    owner,
    pod_clique_set,
    pytorch,
    raw,
    ray_spec,
    reference,
    replicas,
    replicated,
    spark,
    workers,
)

KINDS = {(kind.name, kind.api_version): kind for kind in OWNERS}


def seen(one):
    found = decode_owner(KINDS[one["kind"], API[one["kind"]]], raw(one))
    assert found is not None
    return found


class World:
    """A cache behind a grouper, and owners and pods that come and go."""

    def __init__(self):
        self.cache = ClusterState()
        self.grouper = PodGrouper(self.cache, ("batchsched",), lambda: None)
        self.pods = self.grouper.store_for(KIND_BY_GROUP_AND_NAME["", "Pod"])
        self.groups = self.grouper.store_for(KIND_BY_GROUP_AND_NAME["scheduling.batchsched.dev", "PodGroup"])
        self.handlers = {name: OwnerHandler(self.grouper.members.owners, lambda: None) for name in KINDS}
        self.version = 0

    def own(self, *owners):
        for one in owners:
            key = (one["kind"], API[one["kind"]])
            self.handlers[key].on_add_or_update(seen(one))

    def disown(self, one):
        key = (one["kind"], API[one["kind"]])
        self.handlers[key].on_delete(seen(one))

    def pod(self, name="train-0", owned_by=None, labels=None, phase="Pending", namespace="team", **spec):
        self.version += 1
        meta = {"name": name, "namespace": namespace, "uid": f"uid-of-{name}", "labels": labels or {}}
        meta |= {"resourceVersion": str(self.version)}
        meta |= {"ownerReferences": [reference(owned_by)]} if owned_by else {}
        one = {
            "metadata": meta,
            "spec": {"schedulerName": "batchsched", **spec},
            "status": {"phase": phase},
        }
        found = msgspec.convert(one, Pod)
        self.pods.put(found)
        return found

    def of(self, name="train-0"):
        """The PodGroup that a pod names, and its subGroup."""
        found = self.cache.get("pods", f"team/{name}")
        return found.labels.get(POD_GROUP_LABEL), found.labels.get(SUB_GROUP_LABEL)

    def group(self, name="train-0"):
        return self.cache.get("pod_groups", f"team/{self.of(name)[0]}")

    @property
    def all_groups(self):
        return [one.name for one in self.cache.snapshot().pod_groups]


@pytest.fixture
def world():
    return World()


def test_a_pod_whose_owner_is_known_joins_its_gang(world):
    world.own(job(4))
    world.pod(owned_by=job(4))
    name, _ = world.of()
    assert name.startswith("job-train-")
    assert world.group().effective_min_member == 4
    assert world.group().metadata.creation_timestamp == "2026-01-01T00:00:00Z"


def test_a_pod_added_before_its_owner_is_held_until_the_owner_is_known(world):
    world.pod(owned_by=job(4))
    held, _ = world.of()
    assert held
    assert world.group() is None
    world.own(job(4))
    assert world.group().effective_min_member == 4
    world.pod("alone-0", owned_by=owner("Job", name="alone"))
    assert world.group("alone-0") is None
    world.own(owner("Job", name="alone", parallelism=1, template=TEMPLATE))
    assert world.of("alone-0") == (None, None)


def test_a_pod_of_a_jobs_jobset_is_never_a_member_of_the_job(world):
    whole = jobset(replicated("driver"), replicated("workers", jobs=2, parallelism=4))
    part = owner("Job", name="train-workers-0", parallelism=4, owned_by=whole)
    label = {"jobset.sigs.k8s.io/replicatedjob-name": "workers"}
    world.pod(owned_by=part, labels=label)
    world.own(part)
    assert world.group() is None
    world.own(whole)
    assert world.of()[0].startswith("jobset-train-")
    assert world.of()[1] == "workers"
    assert world.group().effective_min_member == 9
    assert len(world.all_groups) == 1


def test_owners_without_a_gang_leave_the_gang_to_their_children(world):
    whole = owner("RayJob", clusterSelector={"there": "yes"})
    part = job(3, owned_by=whole)
    world.own(whole, part)
    world.pod(owned_by=part)
    assert world.of()[0].startswith("job-train-")


@pytest.mark.parametrize(
    "above, below, prefix",
    [
        (("batch/v1", "CronJob"), job(3), "job-train-"),
        (("example.com/v1", "Pipeline"), jobset(replicated("node", parallelism=3)), "jobset-train-"),
    ],
    ids=["CronJob", "Pipeline"],
)
def test_workload_of_an_owner_of_an_unknown_kind_is_a_gang_of_its_own(world, above, below, prefix):
    api_version, kind = above
    metadata = {"name": "train", "uid": f"uid-of-{kind}"}
    below["metadata"]["ownerReferences"] = [
        reference({"apiVersion": api_version, "kind": kind, "metadata": metadata})
    ]
    world.own(below)
    world.pod(owned_by=below)
    assert world.of()[0].startswith(prefix)
    assert world.group().effective_min_member == 3


QUEUE = "scheduling.batchsched.dev/queue"
MIN_MEMBER = "scheduling.batchsched.dev/min-member"


@pytest.mark.parametrize(
    "kind, below, prefix",
    [
        ("TrainJob", jobset(replicated("node", parallelism=3)), "jobset-train-"),
        ("RayService", owner("RayCluster", **ray_spec(workers(minReplicas=2))), "raycluster-train-"),
        ("Workflow", pytorch(pytorchReplicaSpecs=replicas(Worker=3)), "pytorchjob-train-"),
    ],
)
def test_labels_of_an_owner_without_a_gang_apply_to_the_gang_below_it(world, kind, below, prefix):
    whole = owner(kind, labels={QUEUE: "research"}, annotations={MIN_MEMBER: "2"})
    below = {**below, "metadata": {**below["metadata"], "ownerReferences": [reference(whole)]}}
    world.own(below)
    world.pod(owned_by=below)
    assert world.group() is None
    world.own(whole)
    assert world.of()[0].startswith(prefix)
    assert (world.group().spec.queue, world.group().effective_min_member) == ("research", 2)
    world.own(owner(kind, labels={QUEUE: "serving"}))
    assert (world.group().spec.queue, world.group().effective_min_member) == ("serving", 3)


def test_what_the_owner_of_a_gang_states_itself_precedes_the_labels_above_it(world):
    whole = owner("TrainJob", labels={QUEUE: "research"})
    below = owner("JobSet", labels={QUEUE: "own"}, owned_by=whole, replicatedJobs=[replicated("n", 3)])
    world.own(whole, below)
    world.pod(owned_by=below)
    assert world.group().spec.queue == "own"


def test_one_pod_of_an_owner_is_a_gang_if_an_owner_above_it_states_fields(world):
    whole = owner("TrainJob", annotations={"scheduling.batchsched.dev/priority-class": "low"})
    below = owner("JobSet", owned_by=whole, replicatedJobs=[replicated("node")])
    world.own(whole, below)
    world.pod(owned_by=below)
    assert world.group().spec.priority_class_name == "low"


def test_pods_of_a_workflow_have_its_queue_and_no_pod_group(world):
    whole = owner("Workflow", labels={QUEUE: "research"})
    world.pod("step-0", owned_by=whole)
    assert world.group("step-0") is None
    world.own(whole)
    assert world.of("step-0") == (None, None)
    assert world.cache.get("pods", "team/step-0").labels[QUEUE] == "research"
    assert world.grouper.members.labels["team/step-0"] == {QUEUE: "research"}


def test_pods_of_all_replica_sets_of_a_deployment_are_one_gang_if_it_asks_for_one(world):
    whole = owner("Deployment", replicas=3, template=TEMPLATE)
    old, new = (owner("ReplicaSet", name, owned_by=whole, replicas=2) for name in ("old", "new"))
    world.own(whole, old, new)
    world.pod("old-0", owned_by=old)
    world.pod("new-0", owned_by=new)
    assert world.of("old-0") == world.of("new-0") == (None, None)
    world.own(owner("Deployment", replicas=3, template=TEMPLATE, annotations={MIN_MEMBER: "2"}))
    assert world.of("old-0") == world.of("new-0")
    assert world.group("old-0").effective_min_member == 2
    world.own(whole)
    assert world.of("old-0") == (None, None)
    assert world.all_groups == []


def test_pods_of_several_components_of_an_app_wrapper_are_one_gang(world):
    train, serve = job(2), owner("Deployment", replicas=1, template=TEMPLATE)
    whole = app_wrapper(train, serve)
    for component in (train, serve):
        component["metadata"]["ownerReferences"] = [reference(whole)]
    replica_set = owner("ReplicaSet", owned_by=serve, replicas=1)
    world.own(whole, train, serve, replica_set)
    world.pod("train-0", owned_by=train)
    world.pod("serve-0", owned_by=replica_set)
    assert world.of("train-0") == world.of("serve-0")
    assert world.group().effective_min_member == 3


def spark_pod(world, name, role, owned_by, application=""):
    labels = {"spark-role": role, "spark-app-selector": "spark-1"}
    labels |= {"sparkoperator.k8s.io/app-name": application} if application else {}
    return world.pod(name, owned_by=owned_by, labels=labels)


def test_driver_and_executors_of_a_spark_application_are_one_gang(world):
    whole = spark()
    driver = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pi-driver", "uid": "uid-of-pi-driver"}}
    spark_pod(world, "pi-exec-1", "executor", driver, application="pi")
    spark_pod(world, "pi-driver", "driver", whole, application="pi")
    assert world.group("pi-driver") is None
    world.own(whole)
    assert world.of("pi-driver") == (world.of("pi-exec-1")[0], "driver")
    assert world.of("pi-exec-1")[1] == "executor"
    assert world.group("pi-driver").effective_min_member == 1


def test_a_driver_of_spark_submit_and_its_executors_are_one_gang_that_ends_with_the_driver(world):
    owned = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pi-driver", "uid": "uid-of-pi-driver"}}
    spark_pod(world, "pi-exec-1", "executor", owned)
    assert world.of("pi-exec-1") == (None, None)
    driver = spark_pod(world, "pi-driver", "driver", None)
    assert world.of("pi-exec-1") == (world.of("pi-driver")[0], "executor")
    group = world.group("pi-driver")
    assert {sub.name: sub.min_member for sub in group.spec.sub_groups} == {"driver": 1, "executor": 0}
    world.pods.remove(driver)
    assert world.of("pi-exec-1") == (None, None)
    assert world.all_groups == []


def test_executors_of_a_driver_outside_spark_are_placed_one_by_one(world):
    notebook = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "notebook", "uid": "uid-of-notebook"}}
    world.pod("notebook")
    spark_pod(world, "exec-1", "executor", notebook)
    assert world.of("exec-1") == (None, None)


def grove_pod(world, name, gang, clique_name, **marks):
    labels = {
        "app.kubernetes.io/part-of": "llm",
        "grove.io/podcliqueset-replica-index": "0",
        "grove.io/podgang": gang,
        "grove.io/podclique": clique_name,
        **{f"grove.io/{key}": value for key, value in marks.items()},
    }
    pod_clique = {
        "apiVersion": "grove.io/v1alpha1",
        "kind": "PodClique",
        "metadata": {"name": clique_name, "uid": f"uid-of-{clique_name}"},
    }
    return world.pod(name, owned_by=pod_clique, labels=labels)


def test_pods_of_grove_form_the_gangs_of_its_pod_gangs(world):
    groups = [{"name": "decode", "cliqueNames": ["leader", "worker"], "replicas": 2, "minAvailable": 1}]
    world.own(pod_clique_set(clique("front"), clique("leader"), clique("worker", 2), groups=groups))
    grove_pod(world, "front-0", "llm-0", "llm-0-front")
    base = {"podcliquescalinggroup": "llm-0-decode", "podcliquescalinggroup-replica-index": "0"}
    grove_pod(world, "worker-0", "llm-0", "llm-0-decode-0-worker", **base)
    further = {**base, "podcliquescalinggroup-replica-index": "1", "base-podgang": "llm-0"}
    last = grove_pod(world, "worker-1", "llm-0-decode-0", "llm-0-decode-1-worker", **further)
    assert world.of("front-0") == (world.of("worker-0")[0], "front")
    assert world.of("worker-0")[1] == "decode-0-worker"
    assert (world.group("front-0").effective_min_member, world.group("worker-1").effective_min_member) == (
        4,
        3,
    )
    assert world.of("worker-1")[1] == "worker"
    world.pods.remove(last)
    assert len(world.all_groups) == 1


def test_the_pod_that_submits_a_ray_job_is_a_member_beyond_the_minimum(world):
    whole = owner("RayJob", rayClusterSpec=ray_spec(workers(minReplicas=2)))
    cluster = owner("RayCluster", name="train-x", owned_by=whole, **ray_spec(workers(minReplicas=2)))
    submitter = owner("Job", name="train-submit", parallelism=1, owned_by=whole)
    world.own(whole, cluster, submitter)
    world.pod("worker-0", owned_by=cluster, labels={"ray.io/group": "gpu"})
    world.pod("submit-0", owned_by=submitter)
    assert world.of("worker-0") == (world.of("submit-0")[0], "gpu")
    assert world.of("submit-0")[1] is None
    assert world.group("submit-0").effective_min_member == 3


def test_each_group_of_a_leader_worker_set_is_a_gang_and_goes_with_its_last_pod(world):
    whole = owner("LeaderWorkerSet", replicas=2, leaderWorkerTemplate={"size": 2})
    leaders = owner("StatefulSet", owned_by=whole)
    labels = {"leaderworkerset.sigs.k8s.io/name": "train"}
    index = "leaderworkerset.sigs.k8s.io/group-index"
    made = [
        world.pod(name, owned_by=leaders, labels={**labels, index: name[6]})
        for name in ("train-0", "train-1", "train-0-1")
    ]
    assert world.group("train-0") is None
    world.own(whole)
    assert world.of("train-0") == world.of("train-0-1")
    assert world.of("train-0") != world.of("train-1")
    assert len(world.all_groups) == 2
    world.pods.remove(made[1])
    assert len(world.all_groups) == 1


def test_pods_of_deployments_and_of_other_schedulers_are_left_alone(world):
    replica_set = owner("ReplicaSet", "web", replicas=1)
    world.own(replica_set)
    world.pod("web-0", owned_by=replica_set)
    assert world.of("web-0") == (None, None)
    world.own(job(4))
    world.pod("far-0", owned_by=job(4), schedulerName="other", nodeName="n")
    assert world.of("far-0") == (None, None)
    assert world.all_groups == []


def test_labels_set_by_a_user_take_precedence(world):
    world.own(job(4))
    world.pod(owned_by=job(4), labels={POD_GROUP_LABEL: "mine"})
    assert world.of() == ("mine", None)
    world.pod("co-0", owned_by=job(4), labels={"scheduling.x-k8s.io/pod-group": "theirs"})
    assert world.of("co-0") == ("theirs", None)
    assert world.all_groups == []
    assert world.grouper.members.labels == {}


def test_scaling_an_owner_changes_its_pod_group(world):
    world.own(job(4))
    world.pod(owned_by=job(4))
    world.own(job(6))
    assert world.group().effective_min_member == 6
    world.own(job(6, 6, status={"succeeded": 5}))
    assert world.group().effective_min_member == 1


def test_a_suspended_owner_has_no_gang_and_a_resumed_one_has_it_again(world):
    world.own(job(4))
    world.pod(owned_by=job(4))
    world.own(job(4, suspend=True))
    assert world.all_groups == []
    assert world.of() == (None, None)
    world.own(job(5))
    assert world.group().effective_min_member == 5


@pytest.mark.parametrize("namespace", ["team", "another"])
def test_pod_that_changed_its_controller_has_no_part_in_its_former_owner(world, namespace):
    world.own(job(4))
    world.pod(owned_by=job(4))
    world.pod("moved", owned_by=job(4), namespace=namespace)
    moved = world.pod("moved", owned_by=owner("Job", name="other"), namespace=namespace)
    world.pods.remove(moved)
    world.own(job(4, suspend=True), job(4))
    assert world.group().effective_min_member == 4
    assert world.of()[0].startswith("job-train-")


def test_the_last_pod_of_a_shrunk_owner_is_a_single_pod_whatever_its_label(world):
    world.own(job(2))
    world.pod(owned_by=job(2))
    name, _ = world.of()
    world.pod(owned_by=job(2), labels={POD_GROUP_LABEL: name})
    world.own(job(1))
    assert world.of() == (None, None)
    assert world.grouper.members.labels == {"team/train-0": {POD_GROUP_LABEL: None}}


def test_a_gang_goes_with_its_owner_and_its_pods_are_held(world):
    world.own(job(4))
    world.pod(owned_by=job(4))
    world.disown(job(4))
    assert world.all_groups == []
    assert world.of()[0].startswith("job-train-")


def test_an_assumed_pod_keeps_its_node_when_its_owner_is_added_later(world):
    world.cache.put(msgspec.convert({"metadata": {"name": "n"}}, KIND_BY_GROUP_AND_NAME["", "Node"].type))
    world.pod(owned_by=job(4))
    assert world.cache.assume_pod("team/train-0", "n", 0.0)
    world.own(job(4))
    assert world.cache.get("pods", "team/train-0").node_name == "n"
    assert world.group().effective_min_member == 4


def test_labels_are_missing_until_the_api_server_has_them(world):
    world.own(pytorch())
    role = {"training.kubeflow.org/replica-type": "worker"}
    world.pod(owned_by=pytorch(), labels=role)
    wanted = world.grouper.members.labels["team/train-0"]
    assert wanted == dict(zip((POD_GROUP_LABEL, SUB_GROUP_LABEL), world.of(), strict=True))
    world.pod(owned_by=pytorch(), labels=role | wanted)
    assert world.grouper.members.labels == {}


def test_the_written_copy_of_a_pod_group_provides_its_uid_and_not_its_spec(world):
    world.own(job(4))
    world.pod(owned_by=job(4))
    name, _ = world.of()
    meta = {"name": name, "namespace": "team", "uid": "in-the-api", "labels": {OWNER_LABEL: "some"}}
    stale = PodGroup.model_validate({"metadata": meta, "spec": {"minMember": 2}})
    world.groups.put(stale)
    assert (world.group().effective_min_member, world.group().metadata.uid) == (4, "in-the-api")
    taken_over = PodGroup.model_validate({"metadata": meta | {"labels": {}}, "spec": {"minMember": 3}})
    world.groups.put(taken_over)
    assert world.group().effective_min_member == 3
    assert world.grouper.groups.groups_of_origin(WRITTEN) == {}
    world.groups.remove(taken_over)
    assert (world.group().effective_min_member, world.group().metadata.uid) == (4, "")


def test_gang_keeps_its_queue_until_none_of_its_pods_has_a_node(world):
    def written(placed):
        meta = {"name": world.of()[0], "namespace": "team", "uid": "u", "labels": {OWNER_LABEL: "some"}}
        stated = {"spec": {"minMember": 4, "queue": "research"}, "status": {"placed": placed}}
        return PodGroup.model_validate({"metadata": meta, **stated})

    world.own(job(4, labels={QUEUE_LABEL: "research"}))
    world.pod(owned_by=job(4))
    world.groups.put(written(placed=1))
    world.own(job(2, labels={QUEUE_LABEL: "product"}))
    assert (world.group().spec.queue, world.group().spec.min_member) == ("research", 2)
    world.groups.put(written(placed=0))
    assert world.group().spec.queue == "product"
    world.groups.put(written(placed=1))
    world.own(job(2))
    assert world.group().spec.queue == "research"


def test_replica_that_writes_no_pod_groups_remembers_only_those_that_exist(world):
    foreign = PodGroupStore(world.grouper.groups, 0)
    for number in range(3):
        one = owner("Job", name=f"train-{number}", parallelism=2, template=TEMPLATE)
        world.own(one)
        pod = world.pod(f"train-{number}-0", owned_by=one)
        group = world.group(pod.name)
        foreign.put(group)
        assert world.grouper.groups.touched == {group.key}
        world.pods.remove(pod)
        world.disown(one)
        foreign.remove(group)
    assert world.grouper.groups.touched == set()


def test_a_batchsched_pod_group_overrides_one_of_the_same_name_of_another_scheduler(world):
    theirs = PodGroup.model_validate(
        {"metadata": {"name": "g", "namespace": "team"}, "spec": {"minMember": 2}}
    )
    ours = PodGroup.model_validate(
        {"metadata": {"name": "g", "namespace": "team", "uid": "u"}, "spec": {"minMember": 3}}
    )
    first = PodGroupStore(world.grouper.groups, 0)
    for numbers in (range(len(EXTERNAL_KINDS)), (0,)):
        for number in numbers:
            PodGroupStore(world.grouper.groups, number).put(theirs)
        world.groups.put(ours)
        assert world.cache.get("pod_groups", "team/g").effective_min_member == 3
        world.groups.remove(ours)
        assert world.cache.get("pod_groups", "team/g").effective_min_member == 2
    for number in range(len(EXTERNAL_KINDS)):
        PodGroupStore(world.grouper.groups, number).replace(PodGroup, [])
    assert world.cache.get("pod_groups", "team/g") is None
    first.replace(PodGroup, [theirs])
    assert world.cache.get("pod_groups", "team/g").effective_min_member == 2


def test_a_fresh_list_of_owners_removes_those_that_are_missing(world):
    world.own(job(4))
    world.pod(owned_by=job(4))
    world.handlers["Job", "batch/v1"].on_replace([])
    assert world.all_groups == []


def test_a_fresh_list_of_pods_removes_those_that_are_missing(world):
    world.own(job(4))
    one = world.pod(owned_by=job(4))
    world.pods.replace(Pod, [one])
    assert world.group().effective_min_member == 4
    world.pods.replace(Pod, [])
    assert world.grouper.members.labels == {}
    assert world.cache.get("pods", "team/train-0") is None


def test_names_of_pod_groups_fit_in_a_label_and_no_two_owners_share_one():
    long = [seen(job(4, name="x" * 70 + suffix)) for suffix in "ab"]
    names = {one.ref.pod_group_name() for one in long}
    assert len(names) == 2
    assert all(len(name) <= 63 for name in names)


def test_topology_that_kai_states_on_an_owner_is_that_of_its_pod_group(world):
    kai = "kai.scheduler/topology"
    made = job(
        4, annotations={kai: "net", f"{kai}-required-placement": "zone", f"{kai}-preferred-placement": "rack"}
    )
    world.own(made)
    world.pod(owned_by=made)
    topology = world.group().spec.topology
    assert (topology.name, topology.required, topology.preferred) == ("net", "zone", "rack")
    own = {"scheduling.batchsched.dev/required-topology": "block"}
    world.own(job(4, annotations=own | made["metadata"]["annotations"]))
    assert world.group().spec.topology.required == "block"


def test_segments_of_kai_mark_the_derived_pod_group_as_unsupported(world):
    segment = "kai.scheduler/segment-topology-required-placement"
    made = job(4, annotations={segment: "rack"})
    world.own(made)
    world.pod(owned_by=made)
    mark = world.group().metadata.annotations[UNSUPPORTED_FIELD]
    assert mark.startswith(f"metadata.annotations[{segment}] of the owner: ")


def test_topology_that_kueue_states_on_pod_templates_is_that_of_the_subgroups(world):
    kueue = "kueue.x-k8s.io/podset"
    roles = replicas(Master=1, Worker=4)
    annotations = {f"{kueue}-required-topology": "block", f"{kueue}-slice-required-topology": "rack"}
    annotations |= {f"{kueue}-slice-size": "2"}
    roles["Worker"]["template"] = {**TEMPLATE, "metadata": {"annotations": annotations}}
    made = pytorch(pytorchReplicaSpecs=roles)
    world.own(made)
    world.pod(owned_by=made, labels={"training.kubeflow.org/replica-type": "worker"})
    master, worker = world.group().spec.sub_groups
    assert master.topology is None
    assert worker.topology.required == "block"
    assert (worker.topology.slices.level, worker.topology.slices.size) == ("rack", 2)


def test_podsets_of_one_group_of_kueue_are_in_one_domain_together(world):
    annotations = {"kueue.x-k8s.io/podset-required-topology": "rack", "kueue.x-k8s.io/podset-group-name": "g"}
    roles = {
        name: {"replicas": 1, "template": {**TEMPLATE, "metadata": {"annotations": annotations}}}
        for name in ("Master", "Worker")
    }
    made = pytorch(pytorchReplicaSpecs=roles)
    world.own(made)
    world.pod(owned_by=made)
    subs = {
        sub.name: (sub.parent, sub.topology and sub.topology.required)
        for sub in world.group().spec.sub_groups
    }
    assert subs == {"g": (None, "rack"), "master": ("g", None), "worker": ("g", None)}


def test_an_invalid_topology_of_an_owner_is_never_dropped(world):
    kueue = "kueue.x-k8s.io/podset"
    annotations = {f"{kueue}-slice-required-topology": "rack", f"{kueue}-slice-size": "3"}
    made = job(4)
    made["spec"]["template"] = {**TEMPLATE, "metadata": {"annotations": annotations}}
    world.own(made)
    world.pod(owned_by=made)
    mark = world.group().metadata.annotations[UNSUPPORTED_FIELD]
    assert "topology.slices.size: 3 does not divide minMember 4" in mark


def test_warnings_of_an_owner_are_logged_once_although_it_changes_with_each_of_its_pods(world, caplog):
    misspelt = job(4)
    misspelt["metadata"]["labels"] = {"scheduling.batchsched.dev/que": "a"}
    for _ in range(3):
        world.own(misspelt)
    (message,) = (record.getMessage() for record in caplog.records)
    assert message.startswith(
        "Job team/train: metadata.labels: unknown label 'scheduling.batchsched.dev/que'"
    )


# Outdated pods: answers of the API server to other requests may overtake watch events, or come after a deletion


def later(one, version, **changes):
    metadata = msgspec.structs.replace(one.metadata, resource_version=str(version))
    return msgspec.structs.replace(one, metadata=metadata, **changes)


def nominated(one, version):
    return later(one, version, status=msgspec.structs.replace(one.status, nominated_node_name="n1"))


def test_answer_that_comes_after_the_deletion_of_its_pod_is_ignored(world):
    world.own(job(4))
    one = world.pod(owned_by=job(4))
    world.pods.remove(one)
    world.pods.put(nominated(one, 5))
    assert world.cache.get("pods", "team/train-0") is None
    assert world.grouper.members.pod_without_gang_labels("team/train-0") is None
    assert world.grouper.members.labels == {}


def test_watch_event_that_an_answer_has_overtaken_is_not_shown_when_the_owner_becomes_known(world):
    one = world.pod(owned_by=job(4))
    world.pods.put(nominated(one, 5))
    world.pods.put(later(one, 4))
    world.own(job(4))
    assert world.cache.get("pods", "team/train-0").status.nominated_node_name == "n1"
