"""Gangs that owners and other schedulers' objects state, on a real API server."""

import pytest

from tests.controlplane.build import VERSIONS
from tests.controlplane.fixtures import Namespace, eventually, start
from tests.e2e.owners import TEMPLATE, install, job, make, members
from tests.e2e.running import Scheduler, all_bound, bound, never, pods, running

pytestmark = pytest.mark.usefixtures("scheduler")

POD_GROUPS = "scheduling.batchsched.dev/v1alpha1"
LABEL = "scheduling.batchsched.dev/pod-group"
ALPHA_GANGS = (
    "--feature-gates=GenericWorkload=true,GangScheduling=true",
    "--runtime-config=scheduling.k8s.io/v1alpha2=true",
)


def groups(namespace):
    return namespace.api.get(namespace.path("podgroups", group=POD_GROUPS))["items"]


def only_group(namespace):
    (found,) = eventually(lambda: groups(namespace))
    return found


def test_the_pods_of_a_job_bind_together_and_its_pod_group_is_its_own(namespace):
    namespace.nodes(2)
    owner = job(namespace, "train", 4)
    members(namespace, owner, range(3))
    never(lambda: bound(namespace), 1.5)
    members(namespace, owner, [3])
    eventually(lambda: len(bound(namespace)) == 4)
    group = only_group(namespace)
    assert group["spec"]["minMember"] == 4
    (ref,) = group["metadata"]["ownerReferences"]
    assert (ref["kind"], ref["uid"]) == ("Job", owner["metadata"]["uid"])
    # The binding carried the label: no separate patch is needed for a pod that is bound at once.
    assert {one["metadata"]["labels"].get(LABEL) for one in pods(namespace).values()} == {
        group["metadata"]["name"]
    }


def test_a_pod_that_waits_for_its_gang_gets_its_label_later(namespace):
    namespace.nodes(1)
    members(namespace, job(namespace, "train", 2), [0])
    eventually(lambda: LABEL in pods(namespace)["train-0"]["metadata"].get("labels", {}))
    assert bound(namespace) == {}


def test_scaling_suspending_and_resuming_a_job_shows_in_its_pod_group(namespace):
    owner = job(namespace, "train", 4)
    members(namespace, owner, [0])
    assert only_group(namespace)["spec"]["minMember"] == 4
    path = namespace.path("jobs", "train", group="batch/v1")
    namespace.api.merge(path, {"spec": {"parallelism": 3, "completions": 3}})
    eventually(lambda: only_group(namespace)["spec"]["minMember"] == 3)
    namespace.api.merge(path, {"spec": {"suspend": True}})
    eventually(lambda: not groups(namespace))
    namespace.api.merge(path, {"spec": {"suspend": False}})
    assert only_group(namespace)["spec"]["minMember"] == 3


def test_a_pod_group_that_a_user_took_over_is_left_as_it_is(namespace):
    owner = job(namespace, "train", 4)
    members(namespace, owner, [0])
    path = namespace.path("podgroups", only_group(namespace)["metadata"]["name"], group=POD_GROUPS)
    label = {"scheduling.batchsched.dev/owner": None}
    namespace.api.merge(path, {"metadata": {"labels": label}, "spec": {"minMember": 1}})
    namespace.nodes(1)
    eventually(lambda: len(bound(namespace)) == 1)
    assert only_group(namespace)["spec"]["minMember"] == 1


def test_a_jobset_is_one_gang_with_a_subgroup_for_each_job(namespace):
    install(namespace.api, "jobset.x-k8s.io", "v1alpha2", "JobSet")
    namespace.nodes(2)
    parts = {"driver": 1, "workers": 2}
    jobs = [
        {"name": name, "replicas": 1, "template": {"spec": {"parallelism": count, "template": TEMPLATE}}}
        for name, count in parts.items()
    ]
    whole = make(namespace, "jobset.x-k8s.io/v1alpha2", "JobSet", "train", replicatedJobs=jobs)
    for name, count in parts.items():
        assert bound(namespace) == {}
        owner = job(namespace, f"train-{name}", count, whole)
        members(namespace, owner, range(count), {"jobset.sigs.k8s.io/replicatedjob-name": name})
    eventually(lambda: len(bound(namespace)) == 3)
    group = only_group(namespace)
    assert group["spec"]["minMember"] == 3
    assert {one["name"]: one["minMember"] for one in group["spec"]["subGroups"]} == parts


def test_a_pytorch_job_keeps_to_its_scheduling_policy(namespace):
    install(namespace.api, "kubeflow.org", "v1", "PyTorchJob")
    namespace.nodes(1)
    specs = {
        name: {"replicas": count, "template": TEMPLATE} for name, count in (("Master", 1), ("Worker", 3))
    }
    policy = {"schedulingPolicy": {"minAvailable": 2}}
    owner = make(
        namespace,
        "kubeflow.org/v1",
        "PyTorchJob",
        "train",
        pytorchReplicaSpecs=specs,
        runPolicy=policy,
    )
    role = "training.kubeflow.org/replica-type"
    members(namespace, owner, ["master-0"], {role: "master"})
    never(lambda: bound(namespace), 1.0)
    members(namespace, owner, ["worker-0"], {role: "worker"})
    eventually(lambda: len(bound(namespace)) == 2)


def test_a_gang_of_coscheduling_is_bound_completely(namespace):
    install(namespace.api, "scheduling.x-k8s.io", "v1alpha1", "PodGroup")
    namespace.nodes(1)
    make(namespace, "scheduling.x-k8s.io/v1alpha1", "PodGroup", "bert", minMember=3)
    label = {"scheduling.x-k8s.io/pod-group": "bert"}
    namespace.pods(2, prefix="bert", labels=label)
    never(lambda: bound(namespace), 1.5)
    namespace.pod("bert-last", labels=label)
    eventually(lambda: len(bound(namespace)) == 3)
    assert groups(namespace) == []


@pytest.mark.slow
def test_a_kubernetes_pod_group_is_bound_completely_by_an_api_server_of_1_36(tmp_path):
    with start(tmp_path / "plane", *ALPHA_GANGS, version="1.36") as plane:
        assert plane.admin.get("/version")["gitVersion"] == VERSIONS["1.36"]
        plane.start_kwok()
        plane.install_definitions()
        plane.admin.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
        namespace = Namespace(plane.admin, "team")
        with running(Scheduler(plane, ("--no-leader-elect",))):
            namespace.nodes(1)
            policy = {"gang": {"minCount": 2}}
            make(namespace, "scheduling.k8s.io/v1alpha2", "PodGroup", "bert", schedulingPolicy=policy)
            spec = {"schedulingGroup": {"podGroupName": "bert"}}
            namespace.pod("bert-0", spec=spec)
            eventually(lambda: upstream_condition(namespace, "bert").get("reason") == "Unschedulable")
            assert "1 of the 2 pods" in upstream_condition(namespace, "bert")["message"]
            assert bound(namespace) == {}
            namespace.pod("bert-1", spec=spec)
            all_bound(namespace, "bert", 2)
            eventually(lambda: upstream_condition(namespace, "bert").get("reason") == "Scheduled")
            assert upstream_condition(namespace, "bert")["status"] == "True"


def upstream_condition(namespace, name):
    """The condition of a PodGroup of Kubernetes itself."""
    group = namespace.api.get(namespace.path("podgroups", name, group="scheduling.k8s.io/v1alpha2"))
    stated = group.get("status", {}).get("conditions", ())
    return next((one for one in stated if one["type"] == "PodGroupScheduled"), {})
