"""The Workload API of Kubernetes 1.37 on a real API server: Jobs with `spec.scheduling`, and trees of groups."""

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.controlplane import devices
from tests.controlplane.fixtures import WORKLOAD_API, WORKLOAD_GATES, Namespace, eventually, start
from tests.controlplane.objects import node
from tests.controlplane.plane import ControlPlane
from tests.docs.test_workloads import manifests
from tests.e2e.running import bound, never, pods

ALPHA, BETA = "scheduling.k8s.io/v1alpha3", "scheduling.k8s.io/v1beta1"
PLURALS = {"PodGroup": ("podgroups", BETA), "CompositePodGroup": ("compositepodgroups", ALPHA)}
ENDS = {"tests/ends": "Succeeded"}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with the Workload API and the controller of Jobs."""
    with start(tmp_path_factory.mktemp("workload"), *WORKLOAD_API) as plane:
        plane.start_kwok()
        plane.install_definitions()
        plane.start_controller_manager(
            "job-controller",
            "resourceclaim-controller",
            "podgroup-protection-controller",
            "garbage-collector-controller",
            gates=WORKLOAD_GATES,
        )
        devices.device_class(plane.admin)
        yield plane


def job(namespace: Namespace, name: str, parallelism: int, scheduling: dict[str, Any], **more: Any) -> None:
    template = {
        "metadata": {"annotations": ENDS},
        "spec": {
            "schedulerName": "batchsched",
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}],
            **more,
        },
    }
    spec = {"parallelism": parallelism, "completions": parallelism, "completionMode": "Indexed"}
    manifest = {"metadata": {"name": name}, "spec": {**spec, "template": template, "scheduling": scheduling}}
    namespace.api.create(namespace.path("jobs", group="batch/v1") + "?fieldValidation=Strict", manifest)


def make(namespace: Namespace, kind: str, name: str, parent: str = "", minimum: int = 1, **spec: Any) -> None:
    """A group of the Workload API, as a controller makes it."""
    plural, version = PLURALS[kind]
    count = "minCount" if kind == "PodGroup" else "minGroupCount"
    stated = {
        "schedulingPolicy": {"gang": {count: minimum}},
        "workloadRef": {"workloadName": "train", "templateName": name},
        **({"parentCompositePodGroupName": parent} if parent else {}),
        **spec,
    }
    path = namespace.path(plural, group=version) + "?fieldValidation=Strict"
    namespace.api.create(path, {"metadata": {"name": name}, "spec": stated})


def members(namespace: Namespace, group: str, count: int, **more: Any) -> None:
    spec = {"schedulingGroup": {"podGroupName": group}, **more.pop("spec", {})}
    namespace.pods(count, prefix=group, spec=spec, **more)


def condition(namespace: Namespace, kind: str, name: str, type_: str) -> dict[str, Any]:
    plural, version = PLURALS[kind]
    stated = namespace.api.get(namespace.path(plural, name, group=version)).get("status", {})
    return next((one for one in stated.get("conditions", ()) if one["type"] == type_), {})


def test_a_job_with_spec_scheduling_is_bound_finished_and_released(team):
    team.nodes(1, cpu=3)
    job(team, "train", 4, {"schedulingPolicy": {"gang": {"minCount": 4}}})
    (group,) = eventually(lambda: team.api.get(team.path("podgroups", group=BETA))["items"])
    name = group["metadata"]["name"]
    scheduled = eventually(lambda: condition(team, "PodGroup", name, "PodGroupInitiallyScheduled"))
    assert (scheduled["status"], scheduled["reason"]) == ("False", "Unschedulable")
    assert bound(team) == {}
    team.nodes(1, prefix="more", cpu=1)
    eventually(lambda: condition(team, "PodGroup", name, "PodGroupInitiallyScheduled")["status"] == "True")
    eventually(lambda: finished(team, "train"))
    assert team.api.get(team.path("podgroups", group="scheduling.batchsched.dev/v1alpha1"))["items"] == []
    job(team, "next", 4, {"schedulingPolicy": {"gang": {"minCount": 4}}})
    eventually(lambda: finished(team, "next"))


def finished(namespace: Namespace, name: str) -> bool:
    """Whether the controller of Jobs counts all pods of a Job as succeeded."""
    seen = namespace.api.get(namespace.path("jobs", name, group="batch/v1"))
    return bool(seen.get("status", {}).get("succeeded") == seen["spec"]["completions"])


def tree(namespace: Namespace, workers: int = 3, **spec: Any) -> None:
    """A CompositePodGroup with two PodGroups."""
    make(namespace, "CompositePodGroup", "train", minimum=2, **spec)
    make(namespace, "PodGroup", "driver", "train", **spec)
    make(namespace, "PodGroup", "workers", "train", workers, **spec)


def test_a_composite_pod_group_is_bound_finished_and_released(team):
    team.nodes(2, cpu=2)
    members(team, "driver", 1, cpu=1)
    members(team, "workers", 3, cpu=1)
    never(lambda: bound(team), 1.0)
    tree(team)
    eventually(lambda: len(bound(team)) == 4)
    scheduled = {"PodGroupInitiallyScheduled": ("driver", "workers")}
    for type_, names in scheduled.items():
        for name in names:
            eventually(lambda: condition(team, "PodGroup", name, type_).get("status") == "True")  # noqa: B023
    composite = "CompositePodGroupInitiallyScheduled"
    eventually(lambda: condition(team, "CompositePodGroup", "train", composite).get("status") == "True")
    for name in pods(team):
        team.api.merge(team.path("pods", name), {"metadata": {"annotations": ENDS}})
    eventually(lambda: {one["status"]["phase"] for one in pods(team).values()} == {"Succeeded"})
    team.pods(4, prefix="later", cpu=1)
    eventually(lambda: {"later-0", "later-1", "later-2", "later-3"} <= bound(team).keys())


def test_a_composite_pod_group_is_not_bound_in_part(team):
    team.nodes(1, cpu=3)
    tree(team)
    members(team, "driver", 1, cpu=1)
    members(team, "workers", 3, cpu=1)
    composite = "CompositePodGroupInitiallyScheduled"
    refused = eventually(lambda: condition(team, "CompositePodGroup", "train", composite))
    assert (refused["status"], refused["reason"]) == ("False", "Unschedulable")
    assert condition(team, "PodGroup", "workers", "PodGroupInitiallyScheduled")["status"] == "False"
    assert bound(team) == {}
    team.nodes(1, prefix="more", cpu=1)
    eventually(lambda: len(bound(team)) == 4)


def test_groups_that_are_evicted_are_disruption_targets(team):
    for name, value in (("low", 1), ("high", 1000)):
        team.priority_class(name, value)
    team.nodes(1, cpu=4)
    tree(team, priorityClassName="low", disruptionMode={"all": {}})
    for name, count in (("driver", 1), ("workers", 3)):
        members(team, name, count, cpu=1, spec={"priorityClassName": "low"})
    eventually(lambda: len(bound(team)) == 4)
    composite = "CompositePodGroupInitiallyScheduled"
    eventually(lambda: condition(team, "CompositePodGroup", "train", composite).get("status") == "True")
    team.pod("urgent", cpu=4, spec={"priorityClassName": "high"})
    eventually(lambda: "urgent" in bound(team))
    for kind, name in (("CompositePodGroup", "train"), ("PodGroup", "driver"), ("PodGroup", "workers")):
        found = eventually(lambda: condition(team, kind, name, "DisruptionTarget"))  # noqa: B023
        assert (found["status"], found["reason"]) == ("True", "PreemptionByScheduler")
    assert condition(team, "CompositePodGroup", "train", composite)["status"] == "True"


def test_a_tree_that_a_leader_left_in_part_is_completed_by_the_next_leader(plane, scheduler, team):
    team.nodes(2, cpu=60, pods=200)
    members(team, "driver", 1, cpu="100m")
    members(team, "workers", 149, cpu="100m")
    tree(team, workers=149)
    eventually(lambda: bound(team))
    scheduler.end(signal.SIGKILL)
    there = len(bound(team))
    print(f"{there} of 150 pods of the tree are bound when the leader is killed")
    scheduler.start()
    eventually(lambda: len(bound(team)) == 150)
    composite = "CompositePodGroupInitiallyScheduled"
    eventually(lambda: condition(team, "CompositePodGroup", "train", composite).get("status") == "True")


def test_the_manifest_of_the_documentation_is_bound_completely(team):
    team.nodes(1)
    for manifest in manifests("workload-api"):
        kind, version = manifest["kind"], manifest["apiVersion"]
        group = "" if version == "v1" else version
        path = team.path(f"{kind.lower()}s", group=group) + "?fieldValidation=Strict"
        team.api.create(path, manifest)
    eventually(lambda: bound(team).keys() == {"solver-coordinator", "solver-worker-0"})


def test_a_tree_of_three_levels_is_bound_with_one_of_its_groups_in_one_rack(team):
    for number in range(2):
        labels = {"example.com/rack": f"r{number}"}
        team.api.create("/api/v1/nodes", node(f"node-{number}", labels, cpu=4 + 4 * number))
    within = {"schedulingConstraints": {"topology": [{"key": "example.com/rack"}]}}
    make(team, "CompositePodGroup", "train", minimum=1)
    for side in ("left", "right"):
        make(team, "CompositePodGroup", side, "train", minimum=2, **within)
        for name in (f"{side}-driver", f"{side}-workers"):
            make(team, "PodGroup", name, side, 2)
            members(team, name, 2, cpu=2)
    eventually(lambda: len(bound(team)) == 4)
    never(lambda: len(bound(team)) != 4, 1.0)
    assert set(bound(team).values()) == {"node-1"}
    assert len({name.partition("-")[0] for name in bound(team)}) == 1


def test_the_pods_of_a_job_get_devices_and_release_them(team):
    team.nodes(1, cpu=8)
    devices.publish(team.api, "node-0", 2)
    devices.template(team)
    for name in ("train", "next"):
        job(team, name, 2, {"schedulingPolicy": {"gang": {"minCount": 2}}}, **devices.with_template())
    for name in ("train", "next"):
        eventually(lambda: finished(team, name))  # noqa: B023
    eventually(lambda: devices.used(team) == [])


def test_a_tree_with_a_claim_for_each_pod_and_a_claim_for_a_group_is_bound_and_releases_the_devices(team):
    team.nodes(2, cpu=8)
    for number in range(2):
        devices.publish(team.api, f"node-{number}", 2)
    devices.template(team)
    devices.template(team, "of-the-group")
    make(team, "CompositePodGroup", "train", minimum=2)
    make(team, "PodGroup", "driver", "train", 1)
    shared = {"name": "gpu", "resourceClaimTemplateName": "of-the-group"}
    make(team, "PodGroup", "workers", "train", 3, resourceClaims=[shared])
    members(team, "driver", 1, cpu=1, spec=devices.with_template())
    members(team, "workers", 3, cpu=1, spec=devices.with_template("of-the-group"))
    eventually(lambda: len(bound(team)) == 4)
    # The controller of claims may replace the pods by their group, to which the claim then belongs until it is deleted.
    workers = [f"workers-{number}" for number in range(3)]
    assert consumers(team) in ([["driver-0"], workers], [["driver-0"], ["workers"]])
    assert len(set(devices.used(team))) == len(devices.used(team)) == 2
    assert len({node for name, node in bound(team).items() if name.startswith("workers")}) == 1
    for name in pods(team):
        team.api.merge(team.path("pods", name), {"metadata": {"annotations": ENDS}})
    eventually(lambda: {one["status"]["phase"] for one in pods(team).values()} == {"Succeeded"})
    team.api.delete(team.path("podgroups", "workers", group=BETA))
    eventually(lambda: devices.used(team) == [])


def consumers(namespace: Namespace) -> list[list[str]]:
    """For what each claim with devices is reserved."""
    allocated = [one for one in devices.claims(namespace) if devices.devices_of(one)]
    return sorted(sorted(devices.consumers(one)) for one in allocated)
