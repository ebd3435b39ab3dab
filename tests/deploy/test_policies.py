"""The admission policies of `deploy/`, on a real API server: what they refuse, and what they let pass."""

import itertools
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import yaml

from tests.controlplane.fixtures import Namespace, eventually, start
from tests.controlplane.installed import BASE, POLICIES, install_policies, policies, rendered, service_account
from tests.controlplane.objects import Manifest, pod, pod_group
from tests.controlplane.plane import Api, ApiFault, ControlPlane
from tests.deploy.test_manifests import by_name, charted, said

GROUP = "scheduling.batchsched.dev"
OURS = f"{GROUP}/v1alpha1"
NUMBERS = itertools.count(1)
STRATEGIC = "application/strategic-merge-patch+json"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with the policies."""
    with start(tmp_path_factory.mktemp("policies")) as running:
        running.install_definitions()
        service_account(running)
        install_policies(running)
        wait_until_enforced(running)
        yield running


def wait_until_enforced(plane: ControlPlane) -> None:
    """Wait until each policy refuses something: the API server compiles new policies in the background."""
    probe, scheduler = tenant(plane, allowed_queues="some", allowed_users="some"), account(plane)
    labels = {f"{GROUP}/user": "some"}
    make_pod(probe, "probe", labels=labels)
    path = probe.path("pods", "probe")
    for policy, call in {
        "batchsched-priority-classes": lambda: make_group(probe, "system-x", labels, queue="some"),
        "batchsched-queues": lambda: make_group(probe, "", labels, queue="another"),
        "batchsched-users": lambda: make_group(probe, queue="some"),
        "batchsched-pods": lambda: scheduler.merge(path, CHANGES["annotation"]),
        "batchsched-bindings": lambda: bind(scheduler, probe, "probe", annotations={"a": "b"}),
    }.items():
        eventually(partial(is_refused_by, policy, call))


def is_refused_by(policy: str, call: Callable[[], object]) -> bool:
    return policy in refusal(call)


def account(plane: ControlPlane) -> Api:
    """The API as the ServiceAccount of batchsched."""
    return Api(plane.server, plane.certificate, service_account(plane))


def tenant(plane: ControlPlane, **annotations: str) -> Namespace:
    """A namespace with annotations for the policies."""
    name = f"tenant-{next(NUMBERS)}"
    stated = {f"{GROUP}/{key.replace('_', '-')}": text for key, text in annotations.items()}
    plane.admin.create("/api/v1/namespaces", {"metadata": {"name": name, "annotations": stated}})
    return Namespace(plane.admin, name)


@pytest.fixture
def team(plane: ControlPlane) -> Namespace:
    """A namespace without annotations."""
    return tenant(plane)


def refusal(call: Callable[[], object]) -> str:
    """The message with which the API server refuses a call; "" if it does not."""
    try:
        call()
    except ApiFault as fault:
        if fault.status not in (403, 422):
            raise
        return str(fault)
    return ""


def make_group(namespace: Namespace, priority_class: str = "", labels: Any = None, **spec: Any) -> Manifest:
    more = {"priorityClassName": priority_class} if priority_class else {}
    made = pod_group("", 1, **more, **spec)
    made["metadata"] = {"generateName": "group-", "labels": labels or {}}
    return namespace.api.create(namespace.path("podgroups", group=OURS), made)


def make_owner(namespace: Namespace, kind: str, **metadata: Any) -> Manifest:
    restart = "Never" if kind == "Job" else "Always"
    template = {"metadata": {"labels": {"app": "x"}}, "spec": pod("x")["spec"] | {"restartPolicy": restart}}
    spec: Manifest = {"template": template}
    if kind == "Job":
        where = namespace.path("jobs", group="batch/v1")
    else:
        where = namespace.path("statefulsets", group="apps/v1")
        spec |= {"serviceName": "x", "selector": {"matchLabels": {"app": "x"}}}
    return namespace.api.create(where, {"metadata": {"generateName": "owner-", **metadata}, "spec": spec})


def make_pod(namespace: Namespace, name: str, *, scheduler: str = "batchsched", **metadata: Any) -> Manifest:
    made = pod(name, spec={"schedulerName": scheduler})
    made["metadata"] |= metadata
    return namespace.api.create(namespace.path("pods"), made)


def bind(api: Api, namespace: Namespace, name: str, **metadata: Any) -> Manifest:
    target = {"apiVersion": "v1", "kind": "Node", "name": "node-0"}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, **metadata}, "target": target}
    return api.create(namespace.path("pods", name) + "/binding", body)


# PriorityClasses


def test_pod_group_may_not_name_a_priority_class_of_the_system(team):
    message = refusal(lambda: make_group(team, "system-node-critical"))
    assert "PriorityClass system-node-critical: only objects of the namespace kube-system may name" in message
    assert refusal(lambda: make_group(team, "normal")) == ""


def test_priority_class_of_the_system_is_allowed_in_kube_system(plane):
    assert make_group(Namespace(plane.admin, "kube-system"), "system-node-critical")


@pytest.mark.parametrize("where", ["annotations", "labels"])
@pytest.mark.parametrize("kind", ["Job", "StatefulSet"])
def test_owner_may_not_name_a_priority_class_of_the_system(team, kind, where):
    marks = {where: {f"{GROUP}/priority-class": "system-cluster-critical"}}
    assert "PriorityClass system-cluster-critical" in refusal(lambda: make_owner(team, kind, **marks))
    assert refusal(lambda: make_owner(team, kind, **{where: {f"{GROUP}/priority-class": "normal"}})) == ""


def test_priority_class_of_a_pod_group_cannot_be_raised_later(team):
    path = f"{team.path('podgroups', group=OURS)}/{make_group(team)['metadata']['name']}"
    change = {"spec": {"priorityClassName": "system-node-critical"}}
    assert "system-node-critical" in refusal(lambda: team.api.merge(path, change))


def test_only_allowed_priority_classes_of_a_namespace_may_be_named(plane):
    team = tenant(plane, allowed_priority_classes="low, normal")
    message = refusal(lambda: make_group(team, "high"))
    assert f"PriorityClass high: the annotation {GROUP}/allowed-priority-classes of namespace" in message
    assert "allows low, normal" in message
    assert refusal(lambda: make_group(team, "normal")) == ""
    assert refusal(lambda: make_group(team)) == ""


# Queues


def test_only_allowed_queues_of_a_namespace_may_be_named(plane):
    team = tenant(plane, allowed_queues="research,default")
    queue = f"{GROUP}/queue"
    message = refusal(lambda: make_group(team, queue="product"))
    assert f"Queue product: the annotation {GROUP}/allowed-queues of namespace" in message
    assert "allows research, default" in message
    assert refusal(lambda: make_group(team, queue="research")) == ""
    assert refusal(lambda: make_owner(team, "Job", labels={queue: "product"}))
    assert refusal(lambda: make_owner(team, "Job", annotations={queue: "product"}))
    assert refusal(lambda: make_owner(team, "StatefulSet", annotations={queue: "research"})) == ""
    assert refusal(lambda: make_pod(team, "direct", labels={queue: "product"}))
    assert refusal(lambda: make_pod(team, "kai", labels={"kai.scheduler/queue": "product"}))
    volcano = {"scheduling.volcano.sh/queue-name": "product"}
    assert refusal(lambda: make_pod(team, "volcano", annotations=volcano))
    assert refusal(lambda: make_pod(team, "allowed", labels={queue: "research"})) == ""
    assert refusal(
        lambda: team.api.merge(team.path("pods", "allowed"), {"metadata": {"labels": {queue: "product"}}})
    )


def test_any_queue_may_be_named_in_a_namespace_without_the_annotation(team):
    assert refusal(lambda: make_group(team, queue="product")) == ""


def test_object_that_named_a_queue_before_it_was_disallowed_can_still_be_updated(plane):
    team = tenant(plane, allowed_queues="research")
    namespace = f"/api/v1/namespaces/{team.name}"
    path = f"{team.path('podgroups', group=OURS)}/{make_group(team, queue='research')['metadata']['name']}"
    team.api.merge(namespace, {"metadata": {"annotations": {f"{GROUP}/allowed-queues": "other"}}})
    eventually(lambda: refusal(lambda: make_group(team, queue="research")))
    assert refusal(lambda: team.api.merge(path, {"spec": {"minMember": 2}})) == ""
    assert refusal(lambda: team.api.merge(path, {"metadata": {"finalizers": []}})) == ""


# Users


def test_user_of_a_pod_cannot_be_changed_added_or_removed(team):
    user = f"{GROUP}/user"
    make_pod(team, "ada", labels={user: "ada"})
    make_pod(team, "unlabelled")
    for name, value in (("ada", "bob"), ("ada", None), ("unlabelled", "ada")):
        change = {"metadata": {"labels": {user: value}}}
        message = refusal(partial(team.api.merge, team.path("pods", name), change))
        assert f"the label {user} cannot be changed" in message
    assert (
        refusal(lambda: team.api.merge(team.path("pods", "ada"), {"metadata": {"labels": {"more": "x"}}}))
        == ""
    )


def test_user_of_a_pod_group_cannot_be_changed(team):
    made = make_group(team, labels={f"{GROUP}/user": "ada"})
    path = f"{team.path('podgroups', group=OURS)}/{made['metadata']['name']}"
    assert refusal(lambda: team.api.merge(path, {"metadata": {"labels": {f"{GROUP}/user": "bob"}}}))


def test_user_must_be_an_allowed_one_of_the_namespace(plane):
    team = tenant(plane, allowed_users="ada")
    user = f"{GROUP}/user"
    message = refusal(lambda: make_pod(team, "evades", labels={user: "bob"}))
    assert f"the label {user} is bob: the annotation {GROUP}/allowed-users of namespace" in message
    assert f"the label {user} is missing" in refusal(lambda: make_pod(team, "anonymous"))
    assert "missing" in refusal(lambda: make_group(team))
    assert refusal(lambda: make_pod(team, "counted", labels={user: "ada"})) == ""
    assert refusal(lambda: make_group(team, labels={user: "ada"})) == ""
    assert refusal(lambda: make_pod(team, "elsewhere", scheduler="default-scheduler")) == ""


# The rights of batchsched itself


@pytest.fixture
def scheduler(plane: ControlPlane) -> Api:
    return account(plane)


CHANGES: dict[str, Any] = {
    "image": {"spec": {"containers": [{"name": "main", "image": "evil"}]}},
    "another label": {"metadata": {"labels": {"app": "payments"}}},
    "removed label": {"metadata": {"labels": {"kept": None}}},
    "queue": {"metadata": {"labels": {f"{GROUP}/queue": "product"}}},
    "annotation": {"metadata": {"annotations": {"a": "b"}}},
    "finalizer": {"metadata": {"finalizers": ["example.com/stays"]}},
    "toleration": {"spec": {"tolerations": [{"operator": "Exists"}]}},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_batchsched_may_not_change_foreign_fields_of_a_pod(team, scheduler, change):
    make_pod(team, "victim", labels={"kept": "yes"})
    before = team.get("victim")
    message = refusal(lambda: scheduler.call("PATCH", team.path("pods", "victim"), change, STRATEGIC))
    assert "ValidatingAdmissionPolicy 'batchsched-pods'" in message
    assert team.get("victim") == before


def test_batchsched_may_set_and_remove_the_labels_of_gangs(team, scheduler):
    make_pod(team, "member")
    path = team.path("pods", "member")
    labels = {f"{GROUP}/pod-group": "bert", f"{GROUP}/sub-group": "workers"}
    assert scheduler.merge(path, {"metadata": {"labels": labels}})["metadata"]["labels"] == labels
    assert "labels" not in scheduler.merge(path, {"metadata": {"labels": dict.fromkeys(labels)}})["metadata"]


def test_policies_can_compare_the_largest_pods(team, scheduler):
    made = pod("large")
    (container,) = made["spec"]["containers"]
    variables = [{"name": f"VARIABLE_{number}", "value": "x" * 50} for number in range(20)]
    made["spec"]["containers"] = [
        container | {"name": f"c{number}", "env": variables} for number in range(400)
    ]
    team.api.create(team.path("pods"), made)
    change = {"metadata": {"labels": {f"{GROUP}/pod-group": "bert"}}}
    assert refusal(lambda: scheduler.merge(team.path("pods", "large"), change)) == ""


STATUSES: dict[str, Any] = {
    "phase": {"status": {"phase": "Succeeded"}},
    "another condition": {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
    "containers": {
        "status": {
            "containerStatuses": [
                {"name": "main", "image": "x", "imageID": "", "ready": True, "restartCount": 0}
            ]
        }
    },
    "addresses": {"status": {"podIPs": [{"ip": "10.0.0.9"}]}},
    "a label by the status": {"metadata": {"labels": {"app": "payments"}}},
}


@pytest.mark.parametrize("change", STATUSES.values(), ids=STATUSES)
def test_batchsched_may_not_change_foreign_parts_of_a_pods_status(team, scheduler, change):
    make_pod(team, "victim")
    path = team.path("pods", "victim") + "/status"
    assert "ValidatingAdmissionPolicy 'batchsched-pods'" in refusal(
        lambda: scheduler.call("PATCH", path, change, STRATEGIC)
    )


def test_batchsched_may_write_the_condition_and_the_nominated_node(team, scheduler):
    make_pod(team, "pending")
    path = team.path("pods", "pending") + "/status"
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    wanted = {"status": {"conditions": [condition], "nominatedNodeName": "node-0"}}
    status = scheduler.call("PATCH", path, wanted, STRATEGIC)["status"]
    assert status["nominatedNodeName"] == "node-0"
    assert [found["reason"] for found in status["conditions"]] == ["Unschedulable"]


def test_batchsched_may_set_only_the_labels_of_gangs_by_a_binding(team, scheduler):
    make_pod(team, "member")
    for metadata in ({"annotations": {"a": "b"}}, {"labels": {"app": "payments"}}):
        message = refusal(partial(bind, scheduler, team, "member", **metadata))
        assert "batchsched may set only its own labels of a pod by a binding" in message
    assert refusal(lambda: bind(scheduler, team, "member", labels={f"{GROUP}/pod-group": "bert"})) == ""
    assert team.get("member")["spec"]["nodeName"] == "node-0"


def test_other_accounts_may_change_pods_as_before(team):
    make_pod(team, "theirs")
    change = CHANGES["image"] | CHANGES["annotation"]
    assert team.api.call("PATCH", team.path("pods", "theirs"), change, STRATEGIC)


# Installation


def test_chart_and_kustomize_component_install_the_same_policies(tmp_path):
    overlay = {
        "resources": [os.path.relpath(BASE, tmp_path)],
        "components": [os.path.relpath(POLICIES, tmp_path)],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    component, chart = (
        by_name(list(rendered(tmp_path))),
        by_name(charted("--set", "admissionPolicies.enabled=true")),
    )
    wanted = {(one["kind"], one["metadata"]["name"]) for one in policies()}
    assert wanted
    assert wanted <= component.keys()
    assert {name: said(chart[name]) for name in wanted} == {name: said(component[name]) for name in wanted}
    assert not wanted & by_name(charted()).keys()


def test_chart_names_the_account_and_the_scheduler_names_of_its_values():
    chosen = ("--set", "admissionPolicies.enabled=true,configuration.profiles[0].schedulerName=gpu")
    chart = by_name(charted(*chosen, namespace="scheduling"))
    pods, users = (
        chart["ValidatingAdmissionPolicy", name]["spec"] for name in ("batchsched-pods", "batchsched-users")
    )
    (condition,) = pods["matchConditions"]
    assert "'system:serviceaccount:scheduling:batchsched'" in condition["expression"]
    counted = next(variable for variable in users["variables"] if variable["name"] == "counted")
    assert 'object.spec.schedulerName in ["gpu"]' in counted["expression"]
