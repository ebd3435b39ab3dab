"""A scheduler with missing permissions reports them, and schedules what it can without them."""

import re
from pathlib import Path
from typing import Any

import pytest
import urllib3

from batchsched.podgrouper.pod_group_writer import LABEL_DELAY_SECONDS
from tests.controlplane.fixtures import Namespace, eventually
from tests.controlplane.installed import cluster_role
from tests.controlplane.plane import ControlPlane
from tests.deploy.test_manifests import charted
from tests.e2e.owners import install, job, make, members
from tests.e2e.running import all_bound, bound, never, pods, running
from tests.e2e.serving import WITHIN, Served, bind_a_gang, serving

RBAC = "/apis/rbac.authorization.k8s.io/v1"
NAME = "poor"


def rules(*without: str) -> list[dict[str, Any]]:
    """The rules of `deploy/`, but for some resources."""
    found = [
        {**rule, "resources": [one for one in rule["resources"] if one not in without]}
        for rule in cluster_role()["rules"]
    ]
    return [rule for rule in found if rule["resources"]]


def give(plane: ControlPlane, allowed: list[dict[str, Any]], name: str = NAME) -> None:
    plane.admin.merge(f"{RBAC}/clusterroles/{name}", {"rules": allowed})


def rules_of_chart(**pod_grouper: bool) -> list[dict[str, Any]]:
    """The rules of the chart for a configuration of the pod grouper, and the Lease of the scheduler name."""
    values = [f"configuration.podGrouper.{key}={str(value).lower()}" for key, value in pod_grouper.items()]
    role = next(
        one
        for one in charted("--set", ",".join(values))
        if (one["kind"], one["metadata"]["name"]) == ("ClusterRole", "batchsched")
    )
    leases = {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["create", "get", "update"],
    }
    found: list[dict[str, Any]] = [*role["rules"], leases]
    return found


@pytest.fixture
def poor(plane: ControlPlane, tmp_path: Any) -> Served:
    """A scheduler with a ServiceAccount that has no permissions at first."""
    return scheduler_without_rights(plane, tmp_path, NAME)


def scheduler_without_rights(plane: ControlPlane, folder: Path, name: str, **configuration: Any) -> Served:
    subject = {"kind": "ServiceAccount", "namespace": "default", "name": name}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    plane.admin.create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": name}})
    plane.admin.create(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": []})
    plane.admin.create(
        f"{RBAC}/clusterrolebindings",
        {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]},
    )
    one = Served(plane, name, folder / "batchsched.yaml", more=configuration)
    one.scheduler.token = plane.token_of("default", name)
    return one


def unready(served: Served) -> str:
    """Why it is not ready; nothing while it does not answer."""
    try:
        status, body = served.ask("/readyz", "")
    except urllib3.exceptions.HTTPError:
        return ""
    return body.decode() if status == 500 else ""


def test_without_pods_it_waits_and_without_owners_and_volumes_it_schedules_the_rest(
    plane: ControlPlane, poor: Served, namespace: Namespace
) -> None:
    install(plane.admin, "jobset.x-k8s.io", "v1alpha2", "JobSet")
    namespace.nodes(2)
    give(plane, rules("pods", "jobsets", "persistentvolumes"))
    with running(poor.scheduler):
        eventually(lambda: "no right to list and watch pods" in unready(poor), WITHIN)
        said = poor.scheduler.said
        assert (
            'the rule that gives it: {apiGroups: [\\"\\"], resources: [pods], verbs: [list, watch]}' in said
        )

        give(plane, rules("jobsets", "persistentvolumes"))
        eventually(lambda: poor.ready, WITHIN)
        bind_a_gang(namespace)
        assert poor.metric("batchsched_reflector_forbidden", resource="jobsets.jobset.x-k8s.io") == 1

        template = {"spec": {"parallelism": 2, "template": {"spec": {"schedulerName": "batchsched"}}}}
        jobs = [{"name": "workers", "replicas": 1, "template": template}]
        owner = make(namespace, "jobset.x-k8s.io/v1alpha2", "JobSet", "train", replicatedJobs=jobs)
        members(namespace, owner, ["workers-0", "workers-1"])
        never(lambda: "train-workers-0" in bound(namespace))

        give(plane, rules())
        eventually(lambda: "train-workers-0" in bound(namespace), WITHIN)
        assert "jobsets.jobset.x-k8s.io: may be listed and watched now" in poor.scheduler.said
        assert all_bound(namespace, "bert", 3)
        assert poor.metric("batchsched_reflector_forbidden", resource="jobsets.jobset.x-k8s.io") == 0
    assert poor.scheduler.said.count("the rule that gives it") == 3


LABEL = "scheduling.batchsched.dev/pod-group"


def test_without_permission_to_patch_pods_the_binding_labels_the_pods_of_a_job(
    plane: ControlPlane, namespace: Namespace, tmp_path: Path
) -> None:
    served = scheduler_without_rights(plane, tmp_path, "unpatching", podGrouper={"patchPods": False})
    give(plane, rules_of_chart(patchPods=False), "unpatching")
    namespace.nodes(1, cpu=4)
    with serving(served):
        owner = job(namespace, "train", 2)
        members(namespace, owner, [0])
        never(lambda: "train-0" in bound(namespace), LABEL_DELAY_SECONDS + 1)
        assert LABEL not in pods(namespace)["train-0"]["metadata"].get("labels", {})
        members(namespace, owner, [1])
        eventually(lambda: len(bound(namespace)) == 2, WITHIN)
        assert len({one["metadata"]["labels"][LABEL] for one in pods(namespace).values()}) == 1
    assert not re.search(r"\b403\b", served.scheduler.said)


def test_without_the_pod_grouper_the_pods_of_a_job_are_scheduled_one_by_one(
    plane: ControlPlane, namespace: Namespace, tmp_path: Path
) -> None:
    served = scheduler_without_rights(plane, tmp_path, "ungrouping", podGrouper={"enabled": False})
    give(plane, rules_of_chart(enabled=False), "ungrouping")
    namespace.nodes(1, cpu=4)
    with serving(served):
        members(namespace, job(namespace, "train", 2), [0])
        eventually(lambda: "train-0" in bound(namespace), WITHIN)
        bind_a_gang(namespace)
        assert served.ask("/debug/cache/drift")[1] == b"the cache agrees with the API\n"
    path = namespace.path("podgroups", group="scheduling.batchsched.dev/v1alpha1")
    assert [one["metadata"]["name"] for one in namespace.api.get(path)["items"]] == ["bert"]
    assert LABEL not in pods(namespace)["train-0"]["metadata"].get("labels", {})
    assert not re.search(r"\b403\b", served.scheduler.said)
