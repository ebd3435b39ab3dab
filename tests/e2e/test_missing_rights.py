"""A scheduler with missing permissions reports them, and schedules what it can without them."""

from typing import Any

import pytest
import urllib3

from tests.controlplane.fixtures import Namespace, eventually
from tests.controlplane.installed import cluster_role
from tests.controlplane.plane import ControlPlane
from tests.e2e.owners import install, make, members
from tests.e2e.running import all_bound, bound, never, running
from tests.e2e.serving import WITHIN, Served, bind_a_gang

RBAC = "/apis/rbac.authorization.k8s.io/v1"
NAME = "poor"


def rules(*without: str) -> list[dict[str, Any]]:
    """The rules of `deploy/`, but for some resources."""
    found = [
        {**rule, "resources": [one for one in rule["resources"] if one not in without]}
        for rule in cluster_role()["rules"]
    ]
    return [rule for rule in found if rule["resources"]]


def give(plane: ControlPlane, allowed: list[dict[str, Any]]) -> None:
    plane.admin.merge(f"{RBAC}/clusterroles/{NAME}", {"rules": allowed})


@pytest.fixture
def poor(plane: ControlPlane, tmp_path: Any) -> Served:
    """A scheduler with a ServiceAccount that has no permissions at first."""
    subject = {"kind": "ServiceAccount", "namespace": "default", "name": NAME}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME}
    plane.admin.create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": NAME}})
    plane.admin.create(f"{RBAC}/clusterroles", {"metadata": {"name": NAME}, "rules": []})
    plane.admin.create(
        f"{RBAC}/clusterrolebindings",
        {"metadata": {"name": NAME}, "roleRef": role, "subjects": [subject]},
    )
    one = Served(plane, NAME, tmp_path / "batchsched.yaml")
    one.scheduler.token = plane.token_of("default", NAME)
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
