"""`explain podgroup/NAME` and `what-if` on a real API server: they say what the scheduler would, and write nothing."""

import pytest
import yaml

from tests.controlplane.objects import pod, pod_group

JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train"},
    "spec": {
        "parallelism": 3,
        "completions": 3,
        "template": {
            "spec": {
                "schedulerName": "batchsched",
                "restartPolicy": "Never",
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}],
            }
        },
    },
}


@pytest.fixture
def ask(command, plane):
    """Run a command against the cluster."""
    return lambda *arguments: command(*arguments, "--kubeconfig", plane.kubeconfig())


def job(namespace, tmp_path, cpu="2", parallelism=3, name="train"):
    made = yaml.safe_load(yaml.safe_dump(JOB))
    made["metadata"] = {"name": name, "namespace": namespace.name}
    made["spec"] |= {"parallelism": parallelism, "completions": parallelism}
    made["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
    file = tmp_path / f"{name}.yaml"
    file.write_text(yaml.safe_dump(made))
    return file


def test_gang_of_the_cluster_is_explained(ask, namespace):
    namespace.nodes(2)
    namespace.gang("big", 2, min_member=5)
    result = ask("explain", "podgroup/big", "-n", namespace.name)
    assert result.code == 0
    assert f"PodGroup {namespace.name}/big: refused, NotEnoughPods" in result.out
    assert "minMember 5; 2 members pending" in result.out


@pytest.mark.parametrize("form", ["podgroup/{}/big", "pg/{}/big", "PodGroup/{}/big"])
def test_namespace_may_stand_before_the_name(ask, namespace, form):
    namespace.gang("big", 2, min_member=5)
    data = ask("explain", form.format(namespace.name), "-o", "json").data
    assert (data["podGroup"], data["state"]) == (f"{namespace.name}/big", "Refused")


def test_gang_that_is_not_there_is_named_with_those_that_are(ask, namespace):
    namespace.gang("bert", 2)
    result = ask("explain", "podgroup/bart", "-n", namespace.name)
    assert result.code == 2
    assert "bert" in result.err


def test_job_that_fits_would_be_placed_and_nothing_is_written(ask, namespace, tmp_path):
    namespace.nodes(2, cpu="4")
    result = ask("what-if", "-f", job(namespace, tmp_path), "-o", "json")
    assert result.code == 0
    (gang,) = result.data["gangs"]
    assert gang["state"] == "Placed"
    assert len(gang["assignments"]) == 3
    assert result.data["displaced"] == result.data["evictions"] == []
    assert namespace.api.get(namespace.path("pods"))["items"] == []
    assert (
        namespace.api.get(namespace.path("podgroups", group=pod_group("x", 1)["apiVersion"]))["items"] == []
    )


def test_job_that_does_not_fit_is_refused_as_a_gang_with_what_is_missing(ask, namespace, tmp_path):
    namespace.nodes(2, cpu="4")
    result = ask("what-if", "-f", job(namespace, tmp_path, parallelism=5))
    assert result.code == 0
    assert "refused, InsufficientResources" in result.out
    assert "minMember 5; 5 members pending" in result.out


def test_gang_that_would_wait_longer_is_named(ask, namespace, tmp_path):
    namespace.nodes(1, cpu="4")
    namespace.pod("waits", cpu="2")
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    high = f"high-{namespace.name}"
    namespace.api.create(classes, {"metadata": {"name": high}, "value": 1000})
    group = pod_group("first", 2, priorityClassName=high)
    group["metadata"]["namespace"] = namespace.name
    pods = [pod(f"first-{at}", gang="first", spec={"priorityClassName": high}, cpu="2") for at in range(2)]
    for one in pods:
        one["metadata"]["namespace"] = namespace.name
    file = tmp_path / "first.yaml"
    file.write_text(yaml.safe_dump_all([*pods, group]))
    result = ask("what-if", "-f", file, "-o", "json")
    namespace.api.delete(f"{classes}/{high}")
    assert [one["state"] for one in result.data["gangs"]] == ["Placed"]
    assert result.data["displaced"] == [f"{namespace.name}/waits"]


def test_pods_of_another_scheduler_are_treated_as_pods_of_the_profile_with_a_warning(
    ask, namespace, tmp_path
):
    namespace.nodes(1, cpu="4")
    file = tmp_path / "pod.yaml"
    made = pod("x", spec={"schedulerName": "default-scheduler"})
    made["metadata"]["namespace"] = namespace.name
    file.write_text(yaml.safe_dump(made))
    result = ask("what-if", "-f", file)
    assert f"Pod {namespace.name}/x: placed, 1 pod" in result.out
    assert "pods of schedulerName default-scheduler are looked at as if they stated batchsched" in result.err


@pytest.mark.parametrize(
    "text, complaint",
    [
        ("{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}", "there is no pod, PodGroup or owner"),
        (
            "{apiVersion: scheduling.batchsched.dev/v1alpha1, kind: PodGroup, spec: {minMember: -1}}",
            "spec.minMember",
        ),
    ],
    ids=["nothing to schedule", "invalid"],
)
def test_file_that_cannot_be_used_is_refused(ask, tmp_path, text, complaint):
    file = tmp_path / "x.yaml"
    file.write_text(text)
    result = ask("what-if", "-f", file)
    assert result.code == 1
    assert complaint in result.err


def test_explain_without_permission_to_list_fails_at_once(command, plane, namespace):
    namespace.api.create(namespace.path("serviceaccounts"), {"metadata": {"name": "unprivileged"}})
    token = plane.token_of(namespace.name, "unprivileged")
    result = command("explain", "podgroup/x", "--kubeconfig", plane.kubeconfig(token))
    assert result.code == 1
    assert "the cluster does not list" in result.err


def test_namespace_that_is_not_stated_is_that_of_the_context(command, plane, namespace, tmp_path):
    namespace.nodes(1, cpu="8")
    namespace.gang("big", 2, min_member=5)
    stated = yaml.safe_load(plane.kubeconfig().read_text())
    stated["contexts"][0]["context"]["namespace"] = namespace.name
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(stated))
    explained = command("explain", "podgroup/big", "--kubeconfig", kubeconfig, "-o", "json")
    assert explained.data["podGroup"] == f"{namespace.name}/big"
    file = tmp_path / "pod.yaml"
    file.write_text(yaml.safe_dump(pod("x")))
    asked = command("what-if", "-f", file, "--kubeconfig", kubeconfig, "-o", "json")
    assert [one["podGroup"] for one in asked.data["gangs"]] == [f"{namespace.name}/x"]


def test_unreachable_cluster_is_reported_once(command, tmp_path):
    stated = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(stated))
    result = command("queues", "--kubeconfig", kubeconfig)
    assert result.code == 5
    assert result.err.count("127.0.0.1") == result.err.count("GET /version") * 2 == 2


def test_cluster_without_the_custom_resources_is_reported_with_a_remedy(command, own_plane):
    result = command("queues", "--kubeconfig", own_plane.kubeconfig())
    assert result.code == 0
    assert (
        "the cluster does not know podgroups, queues, topologies of batchsched; `batchsched install`"
        in result.err
    )
