"""What gangs need, from their owners alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.errors import InvalidInput
from batchsched.podgrouper.grove_rules import pod_clique_set_child_manifests
from batchsched.podgrouper.rules import OWNERS, read_owner_gang_settings
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
    ray_spec,
    replicas,
    replicated,
    spark,
    workers,
)

RULES = {(kind.name, kind.api_version): kind.rule for kind in OWNERS}
QUEUE = "scheduling.batchsched.dev/queue"
MIN_MEMBER = "scheduling.batchsched.dev/min-member"


def grouped(one):
    return read_owner_gang_settings(RULES[one["kind"], API[one["kind"]]], one).build_pod_group_template({})


def needs(one):
    """minMember, and the minimum of each subGroup."""
    found = grouped(one)
    return found.spec.min_member, {sub.name: sub.min_member for sub in found.spec.sub_groups}


@pytest.mark.parametrize(
    "one, minimum",
    [
        pytest.param(job(4), 4, id="parallelism"),
        pytest.param(job(4, 10), 4, id="more-completions"),
        pytest.param(job(8, 3), 3, id="fewer-completions"),
        pytest.param(job(4, 4, completionMode="Indexed"), 4, id="indexed"),
        pytest.param(job(4, 4, status={"succeeded": 3}), 1, id="last-one"),
        pytest.param(job(4, 8, status={"succeeded": 6}), 2, id="tail"),
        pytest.param(job(4, 4, status={"succeeded": 1, "failedIndexes": "0,2-3"}), 1, id="failed-indexes"),
        pytest.param(job(4, status={"succeeded": 1}), 1, id="work-queue-drains"),
        pytest.param(job(4, 4, status={"succeeded": 4}), 1, id="complete"),
    ],
)
def test_a_job_needs_the_pods_that_run_at_once_and_are_not_done(one, minimum):
    assert needs(one) == (minimum, {})


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(job(), id="job"),
        pytest.param(job(1, 5), id="one-after-the-other"),
        pytest.param(job(4, suspend=True), id="suspended-job"),
        pytest.param(job(0), id="no-pods"),
        pytest.param(owner("StatefulSet", replicas=3, template=TEMPLATE), id="ordered-stateful-set"),
        pytest.param(owner("StatefulSet", replicas=1, podManagementPolicy="Parallel"), id="one-replica"),
        pytest.param(pytorch(runPolicy={"suspend": True}), id="suspended-training-job"),
        pytest.param(jobset(replicated("a", parallelism=4), suspend=True), id="suspended-jobset"),
        pytest.param(
            owner("RayJob", suspend=True, rayClusterSpec=ray_spec(workers(minReplicas=2))),
            id="suspended-ray-job",
        ),
        pytest.param(owner("RayJob", clusterSelector={"ray.io/cluster": "there"}), id="ray-job-on-a-cluster"),
        pytest.param(owner("RayCluster"), id="headless-ray-cluster"),
        pytest.param(owner("JobSet"), id="empty-jobset"),
    ],
)
def test_an_owner_of_one_pod_at_a_time_or_of_none_has_no_gang(one):
    assert grouped(one) is None


def test_one_pod_is_a_gang_if_its_owner_has_scheduling_annotations():
    found = grouped(job(annotations={QUEUE: "research"}))
    assert (found.spec.min_member, found.spec.queue) == (1, "research")


def test_a_jobset_is_the_sum_of_its_jobs_and_each_is_a_subgroup():
    one = jobset(replicated("driver", parallelism=1), replicated("workers", jobs=2, parallelism=4))
    assert needs(one) == (9, {"driver": 1, "workers": 8})
    assert grouped(one).sub_group_labels == ("jobset.sigs.k8s.io/replicatedjob-name",)
    one["status"] = {"replicatedJobsStatus": [{"name": "workers", "succeeded": 1}]}
    assert needs(one) == (5, {"driver": 1, "workers": 4})


@pytest.mark.parametrize(
    "one",
    [
        jobset(
            replicated("driver", parallelism=2),
            replicated("workers", parallelism=4),
            startupPolicy={"startupPolicyOrder": "InOrder"},
        ),
        jobset(
            replicated("driver", parallelism=2),
            replicated("workers", parallelism=4, dependsOn=[{"name": "driver", "status": "Ready"}]),
        ),
    ],
    ids=["in-order", "depends-on"],
)
def test_jobs_that_start_only_after_others_are_not_waited_for(one):
    assert needs(one) == (2, {"driver": 2, "workers": 0})
    assert grouped(one).pods == 6


def test_a_training_job_has_a_subgroup_for_each_type_of_replica():
    assert needs(pytorch()) == (4, {"master": 1, "worker": 3})
    tensorflow = owner("TFJob", tfReplicaSpecs=replicas(Worker=4, PS=2, Chief=1))
    assert needs(tensorflow) == (7, {"chief": 1, "ps": 2, "worker": 4})
    one = pytorch(status={"replicaStatuses": {"Worker": {"succeeded": 2}}})
    assert needs(one) == (2, {"master": 1, "worker": 1})


def test_an_mpi_job_has_a_launcher_and_workers_and_a_launcher_that_waits_is_not_waited_for():
    specs = replicas(Launcher=1, Worker=8)
    assert needs(owner("MPIJob", mpiReplicaSpecs=specs)) == (9, {"launcher": 1, "worker": 8})
    late = owner("MPIJob", mpiReplicaSpecs=specs, launcherCreationPolicy="WaitForWorkersReady")
    assert needs(late) == (8, {"launcher": 0, "worker": 8})


def test_of_elastic_workers_the_least_number_is_needed():
    assert needs(pytorch(elasticPolicy={"minReplicas": 1})) == (2, {"master": 1, "worker": 1})


def test_the_scheduling_policy_of_a_training_job_wins():
    policy = {"minAvailable": 2, "queue": "q", "priorityClass": "high", "scheduleTimeoutSeconds": 60}
    found = grouped(pytorch(runPolicy={"schedulingPolicy": policy})).spec
    assert (found.min_member, found.queue, found.priority_class_name) == (2, "q", "high")
    assert found.schedule_timeout_seconds == 60
    assert {sub.name: sub.min_member for sub in found.sub_groups} == {"master": 1, "worker": 1}


def test_a_ray_cluster_needs_its_head_and_the_least_of_each_group():
    groups = (
        workers("gpu", replicas=4, minReplicas=2, numOfHosts=2),
        workers("cpu", replicas=3),
        workers("off", minReplicas=3, suspend=True),
    )
    one = owner("RayCluster", **ray_spec(*groups))
    assert needs(one) == (5, {"headgroup": 1, "gpu": 4, "cpu": 0})
    assert grouped(one).pods == 12
    assert needs(owner("RayJob", rayClusterSpec=ray_spec(*groups)))[0] == 5


def test_a_leader_worker_set_has_a_gang_for_each_group():
    found = grouped(owner("LeaderWorkerSet", replicas=3, leaderWorkerTemplate={"size": 4}))
    assert (found.spec.min_member, found.pods) == (4, 4)
    assert found.gang_label == "leaderworkerset.sigs.k8s.io/group-index"
    late = owner("LeaderWorkerSet", leaderWorkerTemplate={"size": 4}, startupPolicy="LeaderReady")
    assert needs(late)[0] == 1
    exclusive = {"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"}
    one = owner("LeaderWorkerSet", leaderWorkerTemplate={"size": 4}, annotations=exclusive)
    assert needs(one)[0] == 1


def test_a_stateful_set_that_starts_its_pods_together_is_a_gang():
    assert needs(owner("StatefulSet", replicas=3, podManagementPolicy="Parallel")) == (3, {})


def test_annotations_override_labels_and_the_fields_of_pods():
    asked = {"template": {"metadata": {"labels": {QUEUE: "of-pods"}}}}
    assert grouped(owner("Job", parallelism=2, **asked)).spec.queue == "of-pods"
    assert grouped(owner("Job", parallelism=2, labels={QUEUE: "a"}, **asked)).spec.queue == "a"
    both = {"labels": {QUEUE: "a"}, "annotations": {QUEUE: "b", MIN_MEMBER: "1"}}
    found = grouped(owner("Job", parallelism=2, **both, **asked)).spec
    assert (found.queue, found.min_member) == ("b", 1)


def test_an_owner_may_ask_for_a_topology_and_a_priority():
    marks = {
        "scheduling.batchsched.dev/required-topology": "block",
        "scheduling.batchsched.dev/preferred-topology": "rack",
        "scheduling.batchsched.dev/priority-class": "high",
    }
    found = grouped(job(4, annotations=marks)).spec
    assert (found.topology.name, found.topology.required) == ("default", "block")
    assert (found.topology.preferred, found.priority_class_name) == ("rack", "high")


def test_an_invalid_minimum_is_reported_and_ignored():
    found = grouped(job(4, annotations={MIN_MEMBER: "most"}))
    assert found.spec.min_member == 4
    assert "min-member: expected a whole number" in found.problem


def test_invalid_pod_group_fields_are_reported_and_the_gang_keeps_its_minimum():
    found = grouped(job(4, annotations={QUEUE: "q" * 300}))
    assert found.spec.min_member == 4
    assert found.problem.startswith("queue:")


NUMBERS = st.none() | st.integers(0, 40)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda deeper: st.lists(deeper, max_size=3) | st.dictionaries(st.text(max_size=3), deeper, max_size=3),
    max_leaves=8,
)


def stated(**fields):
    return st.fixed_dictionaries({}, optional=fields)


PARTS = st.lists(
    st.builds(
        replicated,
        st.sampled_from("abc"),
        st.integers(0, 4),
        parallelism=st.integers(0, 9),
        completions=st.integers(0, 9),
    ),
    max_size=3,
    unique_by=lambda one: one["name"],
)
SHAPES = st.one_of(
    st.builds(job, NUMBERS, NUMBERS, status=stated(succeeded=NUMBERS)),
    st.builds(lambda jobs, more: jobset(*jobs, **more), PARTS, stated(startupPolicy=ANYTHING)),
    st.builds(
        lambda master, worker, least, done: pytorch(
            pytorchReplicaSpecs=replicas(Master=master, Worker=worker),
            elasticPolicy={"minReplicas": least},
            status={"replicaStatuses": {"Worker": {"succeeded": done}}},
        ),
        *([NUMBERS] * 4),
    ),
    st.builds(
        lambda least, wanted, hosts: owner(
            "RayCluster", **ray_spec(workers(minReplicas=least, replicas=wanted, numOfHosts=hosts))
        ),
        *([NUMBERS] * 3),
    ),
    st.builds(lambda size: owner("LeaderWorkerSet", leaderWorkerTemplate={"size": size}), NUMBERS),
)


@pytest.mark.properties
@given(one=SHAPES, least=NUMBERS)
def test_no_gang_needs_more_pods_than_its_owner_makes(one, least):
    if least is not None:
        one["metadata"]["annotations"] = {MIN_MEMBER: str(least)}
    found = grouped(one)
    if found is not None:
        assert 1 <= found.spec.min_member <= max(1, found.pods)
        assert sum(sub.min_member for sub in found.spec.sub_groups) <= found.spec.min_member


@pytest.mark.properties
@pytest.mark.parametrize(
    "kind, field, minimums",
    [
        ("JAXJob", "jaxReplicaSpecs", {"Worker": 4}),
        ("XGBoostJob", "xgbReplicaSpecs", {"Master": 1, "Worker": 2}),
        ("PaddleJob", "paddleReplicaSpecs", {"Master": 1, "Worker": 2}),
    ],
)
def test_training_jobs_of_all_frameworks_need_their_replicas(kind, field, minimums):
    made = owner(kind, **{field: replicas(**minimums)})
    parts = {name.lower(): pods for name, pods in minimums.items()} if len(minimums) > 1 else {}
    assert needs(made) == (sum(minimums.values()), parts)


def test_a_spark_application_needs_its_driver_which_creates_the_executors():
    assert needs(spark()) == (1, {"driver": 1, "executor": 0})
    assert grouped(spark()).spec.disruption_mode == "Elastic"
    assert grouped(spark()).pods == 3
    options = {"queue": "q", "priorityClassName": "high"}
    found = grouped(spark(batchSchedulerOptions=options)).spec
    assert (found.queue, found.priority_class_name) == ("q", "high")
    assert grouped(spark(suspend=True)) is None


def test_a_spark_application_never_waits_for_executors_that_no_driver_has_created():
    assert needs(owner("SparkApplication", annotations={MIN_MEMBER: "3"}, executor={"instances": 4}))[0] == 1


def test_spark_adds_an_overhead_to_the_memory_of_its_pods():
    # spark.kubernetes.memoryOverheadFactor: 0.1, or 0.4 without a JVM, and at least 384 MiB.
    def memory(**spec):
        shape = RULES["SparkApplication", API["SparkApplication"]](spark(**spec))
        assert shape is not None
        (driver, _) = shape.parts
        return int(driver.template["spec"]["containers"][0]["resources"]["requests"]["memory"]) // 2**20

    assert memory() == 1024 + 384
    assert memory(driver={"memory": "10g"}) == 10240 + 1024
    assert memory(driver={"memory": "10g"}, type="Python") == 10240 + 4096
    assert memory(driver={"memory": "512m", "memoryOverhead": "1g"}) == 512 + 1024
    assert memory(driver={"memory": "2048"}, memoryOverheadFactor="0.5") == 2048 + 1024
    for invalid in ("much", "nan", "inf", "1e308"):
        assert memory(memoryOverheadFactor=invalid) == 1024 + 384


def test_pods_of_a_deployment_are_a_gang_only_if_an_annotation_says_so():
    assert grouped(owner("Deployment", replicas=3, template=TEMPLATE)) is None
    asked = owner("Deployment", replicas=3, template=TEMPLATE, annotations={MIN_MEMBER: "2"})
    assert needs(asked) == (2, {})
    found = grouped(owner("Deployment", replicas=3, template=TEMPLATE, labels={QUEUE: "serving"})).spec
    assert (found.min_member, found.queue, found.disruption_mode) == (1, "serving", "Elastic")


def test_an_app_wrapper_is_one_gang_of_all_its_components():
    assert needs(app_wrapper(pytorch())) == (4, {"master": 1, "worker": 3})
    assert needs(app_wrapper(pytorch(), job(3), {"apiVersion": "v1", "kind": "Service"})) == (7, {})
    deployed = owner("Deployment", replicas=3, template=TEMPLATE)
    assert needs(app_wrapper(deployed)) == (3, {})
    pod = {"apiVersion": "v1", "kind": "Pod", **TEMPLATE}
    assert needs(app_wrapper(pod, pod)) == (2, {})
    assert grouped(app_wrapper(job(3), suspend=True)) is None
    assert grouped(app_wrapper({"apiVersion": "v1", "kind": "ConfigMap"})) is None


SCALED = {"name": "decode", "cliqueNames": ["leader", "worker"], "replicas": 3, "minAvailable": 2}


def test_a_pod_clique_set_has_a_gang_of_its_cliques_and_one_of_each_further_replica_of_a_scaling_group():
    # computeExpectedPodGangs of Grove: the base PodGang has the first minAvailable replicas of a scaling group.
    made = pod_clique_set(
        clique("front"), clique("leader"), clique("worker", 4, minAvailable=3), groups=[SCALED]
    )
    parts = {"front": 1} | {
        f"decode-{replica}-{name}": pods
        for replica in (0, 1)
        for name, pods in (("leader", 1), ("worker", 3))
    }
    assert needs(made) == (9, parts)
    further = grouped(made).pod_group_spec_of_variant("decode")
    assert {sub.name: sub.min_member for sub in further.sub_groups} == {"leader": 1, "worker": 3}
    assert further.min_member == 4


def test_a_pod_clique_set_with_more_parts_than_subgroups_is_refused():
    huge = {**SCALED, "minAvailable": 2147483647}
    made = pod_clique_set(clique("leader"), clique("worker"), groups=[huge])
    assert "minAvailable 2147483647 needs more than 1000 subgroups" in grouped(made).problem
    with pytest.raises(InvalidInput, match="minAvailable 2147483647 needs more than 1000 subgroups"):
        pod_clique_set_child_manifests(made)


def test_a_pod_clique_set_of_files_adds_all_its_pods_or_is_refused_with_their_number():
    assert len(pod_clique_set_child_manifests(pod_clique_set(clique("front"), replicas=1500))) == 1500
    further = pod_clique_set(clique("leader"), clique("worker"), groups=[{**SCALED, "replicas": 2147483647}])
    for made, number in (
        (pod_clique_set(clique("front"), replicas=2147483647), "2,147,483,647"),
        (pod_clique_set(clique("front", 2147483647)), "2,147,483,647"),
        (pod_clique_set(clique("front", 1000), replicas=1000), "1,000,000"),
        (further, "4,294,967,294"),
    ):
        with pytest.raises(InvalidInput, match=f"makes {number} pods; expected at most 100,000"):
            pod_clique_set_child_manifests(made)


def test_topology_constraints_of_grove_apply_to_the_gang_to_replicas_of_scaling_groups_and_to_cliques():
    rack, block = {"pack": {"required": "rack"}}, {"topologyName": "net", "pack": {"preferred": "block"}}
    made = pod_clique_set(
        clique("front", topologyConstraint={"packDomain": "host"}),
        clique("leader"),
        clique("worker"),
        groups=[{**SCALED, "minAvailable": 1, "topologyConstraint": rack}],
        topologyConstraint=block,
    )
    found = grouped(made)
    spec = found.spec
    assert (spec.topology.name, spec.topology.preferred) == ("net", "block")
    subs = {sub.name: (sub.parent, sub.topology and sub.topology.required) for sub in spec.sub_groups}
    assert subs == {
        "decode-0": (None, "rack"),
        "front": (None, "host"),
        "decode-0-leader": ("decode-0", None),
        "decode-0-worker": ("decode-0", None),
    }
    assert found.pod_group_spec_of_variant("decode").topology.required == "rack"
    (alone,) = [grouped(pod_clique_set(clique("one", 3, topologyConstraint=rack)))]
    assert alone.spec.topology.required == "rack"


@given(kind=st.sampled_from(OWNERS), spec=ANYTHING, status=ANYTHING, replaced=ANYTHING)
def test_invalid_owners_never_cause_an_error(kind, spec, status, replaced):
    read_owner_gang_settings(
        kind.rule, {"metadata": {"annotations": replaced}, "spec": spec, "status": status}
    ).build_pod_group_template({})
    fields = ("replicatedJobs", "tfReplicaSpecs", "leaderWorkerTemplate", "headGroupSpec", "completions")
    read_owner_gang_settings(
        kind.rule, {"spec": dict.fromkeys((*fields, "parallelism", "replicas"), replaced)}
    ).build_pod_group_template({})
