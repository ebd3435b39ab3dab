"""References to missing objects and implausible amounts cause a warning with a suggestion."""

import json

import pytest

from batchsched.manifests.reader import read_manifests
from batchsched.session.session import decide
from tests.manifests.test_reader import custom, listed, node, pod
from tests.session.scenario import NOW, profile

PRODUCTION = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "prod-high"},
    "value": 10000,
}


def warnings_of(tmp_path, *objects):
    path = tmp_path / "input.json"
    path.write_text(json.dumps(listed(*objects)))
    return read_manifests([path]).warnings


def marked(name, labels=None, annotations=None):
    made = pod(name)
    made["metadata"] |= {"labels": labels or {}, "annotations": annotations or {}}
    return made


def test_unknown_priority_class_of_pods_causes_one_warning_with_the_similar_name(tmp_path):
    pods = [pod(f"p{number}", priorityClassName="prod-hi") for number in range(3)]
    (warning,) = warnings_of(tmp_path, PRODUCTION, *pods)
    assert warning == (
        "pod team-a/p0 and 2 more: there is no PriorityClass 'prod-hi', so the default priority counts; "
        "did you mean prod-high?"
    )


def test_unknown_priority_class_of_a_pod_group_causes_a_warning(tmp_path):
    (warning,) = warnings_of(tmp_path, PRODUCTION, custom("PodGroup", "bert", priorityClassName="prod-hi"))
    assert warning.startswith("PodGroup team-a/bert: there is no PriorityClass 'prod-hi', so ")


def test_priority_class_of_a_pod_group_above_that_of_its_pods_causes_a_warning(tmp_path):
    group = custom("PodGroup", "bert", priorityClassName="prod-high")
    (warning,) = warnings_of(tmp_path, PRODUCTION, group, pod("bert-0", "bert"))
    assert warning == (
        "PodGroup team-a/bert: spec.priorityClassName prod-high has the value 10000, but the highest priority of the "
        "pods is 0, which the gang has; set priorityClassName: prod-high in the pod template as well"
    )
    same = pod("bert-0", "bert", priorityClassName="prod-high")
    assert warnings_of(tmp_path, PRODUCTION, group, same) == ()


def test_absent_claims_of_pods_cause_one_warning_for_each_claim(tmp_path):
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    (warning,) = warnings_of(tmp_path, pod("p0", volumes=volumes), pod("p1", volumes=volumes))
    assert warning.startswith("pod team-a/p0 and 1 more: there is no PersistentVolumeClaim team-a/data, ")
    assert "`batchsched dump`" in warning
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "team-a"},
    }
    assert warnings_of(tmp_path, pod("p0", volumes=volumes), claim) == ()


@pytest.mark.parametrize(
    "spec",
    [
        {"priorityClassName": "prod-high"},
        {"priorityClassName": "system-node-critical"},
        {"priorityClassName": "deleted-since", "priority": 7},
        {"priorityClassName": "unknown", "nodeName": "n1"},
    ],
    ids=["known", "of every cluster", "resolved by the API server", "bound pod"],
)
def test_priority_that_is_known_causes_no_warning(tmp_path, spec):
    assert warnings_of(tmp_path, PRODUCTION, node(), pod("p", **spec)) == ()


@pytest.mark.parametrize(
    "key, suggestion",
    [
        ("scheduling.batchshed.dev/pod-group", "scheduling.batchsched.dev/pod-group"),
        ("scheduling.batchsched.dev/podgroup", "scheduling.batchsched.dev/pod-group"),
        ("scheduling.batchsched.dev/subgroup", "scheduling.batchsched.dev/sub-group"),
        ("scheduling.batchsched.dev/queues", "scheduling.batchsched.dev/queue"),
        ("scheduling.x-k8s.io/podgroup", "scheduling.x-k8s.io/pod-group"),
        ("kai.scheduler/queues", "kai.scheduler/queue"),
    ],
)
def test_misspelt_label_of_pods_causes_one_warning_with_the_right_key(tmp_path, key, suggestion):
    pods = [marked(f"p{number}", {key: "bert"}) for number in range(2)]
    (warning,) = warnings_of(tmp_path, *pods)
    assert warning == (
        f"pod team-a/p0 and 1 more: unknown label {key!r} has no effect; did you mean {suggestion}?"
    )


def test_misspelt_annotation_of_a_pod_causes_a_warning(tmp_path):
    (warning,) = warnings_of(tmp_path, marked("p", annotations={"scheduling.k8s.io/groupname": "bert"}))
    assert warning.endswith("did you mean scheduling.k8s.io/group-name?")


def test_label_that_is_stated_as_an_annotation_causes_a_warning(tmp_path):
    key = "scheduling.batchsched.dev/pod-group"
    (warning,) = warnings_of(tmp_path, marked("p", annotations={key: "bert"}))
    assert warning == f"pod team-a/p: {key!r} is read as a label only; make it one"


def test_label_of_the_project_that_does_not_exist_causes_a_warning(tmp_path):
    (warning,) = warnings_of(tmp_path, marked("p", {"scheduling.batchsched.dev/colour": "red"}))
    assert "unknown label 'scheduling.batchsched.dev/colour' has no effect; " in warning


def test_labels_of_other_projects_cause_no_warning(tmp_path):
    labels = dict.fromkeys(
        (
            "app.kubernetes.io/name",
            "kueue.x-k8s.io/queue-name",
            "kueue.x-k8s.io/pod-group-name",
            "batch.kubernetes.io/job-name",
            "jobset.sigs.k8s.io/jobset-name",
            "volcano.sh/job-name",
            "volcano.sh/queue-name",
            "training.kubeflow.org/replica-type",
            "pod-template-hash",
            "team",
        ),
        "x",
    )
    annotations = dict.fromkeys(
        ("volcano.sh/task-index", "kueue.x-k8s.io/workload", "prometheus.io/scrape"), "x"
    )
    assert warnings_of(tmp_path, marked("p", labels, annotations)) == ()


def test_misspelt_default_queue_of_a_namespace_causes_a_warning(tmp_path):
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "team-a", "labels": {"scheduling.batchsched.dev/default-queu": "a", "env": "b"}},
    }
    (warning,) = warnings_of(tmp_path, node(), namespace)
    assert warning.startswith("Namespace team-a: unknown label 'scheduling.batchsched.dev/default-queu'; ")


def test_memory_in_fractions_of_a_byte_causes_one_warning(tmp_path):
    pods = [pod(f"p{number}", requests={"cpu": "500m", "memory": "512m"}) for number in range(2)]
    (warning,) = warnings_of(tmp_path, *pods, pod("q", requests={"memory": "512Mi"}))
    assert warning == (
        "pod team-a/p0 and 1 more: spec.containers[0].resources.requests.memory: '512m' is not a whole number of "
        "bytes; did you mean 512Mi?"
    )


def refusal_of(tmp_path, *objects):
    path = tmp_path / "input.json"
    path.write_text(json.dumps(listed(node("n1", cpu="8", pods="10"), *objects)))
    (refusal,) = decide(read_manifests([path]).snapshot, profile(), NOW, 0).refusals
    return refusal


def test_absent_queue_causes_a_warning_with_the_similar_name(tmp_path):
    queues = [custom("Queue", "research"), custom("PodGroup", "bert", queue="reserch")]
    (warning,) = warnings_of(tmp_path, *queues, marked("p", {"scheduling.batchsched.dev/queue": "reserch"}))
    assert warning == "PodGroup team-a/bert: there is no Queue 'reserch' (did you mean research?)"


def test_absent_pod_group_causes_one_warning_with_the_similar_name_of_the_namespace(tmp_path):
    pods = [pod("p", group="bert"), pod("q", group="brt"), pod("r", group="brt"), pod("s", group="unlike")]
    (warning,) = warnings_of(tmp_path, custom("PodGroup", "bert"), *pods)
    assert warning == "pod team-a/q: there is no PodGroup 'brt' in namespace team-a (did you mean bert?)"


def test_refusal_of_a_gang_without_pods_says_that_pods_are_set_aside(tmp_path):
    group = custom("PodGroup", "bert", minMember=1)
    refusal = refusal_of(tmp_path, group, pod("p", group="bert", requests={"cpu": "lots"}))
    assert refusal.reason == "NotEnoughPods"
    assert refusal.message.endswith("1 pod is set aside in namespace team-a: correct these first")


def test_parent_that_does_not_exist_is_set_aside_with_the_similar_name(tmp_path):
    path = tmp_path / "input.json"
    path.write_text(json.dumps(listed(custom("Queue", "research"), custom("Queue", "nlp", parent="reserch"))))
    (aside,) = read_manifests([path]).snapshot.set_aside
    assert aside.message.startswith("the parent 'reserch' does not exist (did you mean research?); ")


def test_annotation_of_owners_on_pods_names_the_owner_in_the_warning(tmp_path):
    owned = marked("p0", annotations={"scheduling.batchsched.dev/required-topology": "rack"})
    owned["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
    ]
    (warning,) = warnings_of(tmp_path, owned)
    assert warning == (
        "pod team-a/p0: annotation 'scheduling.batchsched.dev/required-topology' has no effect on pods; "
        "move it from the pod template to the metadata of Job team-a/train"
    )


def test_misspelt_annotation_of_owners_on_pods_names_the_correct_key_and_place(tmp_path):
    (warning,) = warnings_of(
        tmp_path, marked("p0", annotations={"scheduling.batchsched.dev/min-members": "1"})
    )
    assert warning.endswith(
        "did you mean scheduling.batchsched.dev/min-member, in the metadata of the workload that creates the pods?"
    )


@pytest.mark.parametrize("kind", ["BatchSchedulerConfiguration", "KubeSchedulerConfiguration"])
def test_configuration_among_the_input_files_causes_a_warning_that_names_the_option(tmp_path, kind):
    path = tmp_path / "config.yaml"
    path.write_text(f"apiVersion: config.batchsched.dev/v1alpha1\nkind: {kind}\n")
    other = tmp_path / "pod.json"
    other.write_text(json.dumps(pod("p0")))
    (warning,) = read_manifests([other, path]).warnings
    assert warning == f"{path}: {kind} is not read here; name the file with --config"


def test_keys_of_owners_on_a_driver_of_spark_cause_no_warning(tmp_path):
    minimum = {
        "scheduling.batchsched.dev/min-member": "1",
        "scheduling.batchsched.dev/required-topology": "rack",
    }
    driver = {"spark-role": "driver"}
    assert warnings_of(tmp_path, marked("p0", driver, minimum)) == ()
    executor = marked("p1", {"spark-role": "executor"}, minimum)
    of_application = marked("p2", driver | {"sparkoperator.k8s.io/app-name": "pi"}, minimum)
    assert [warning[:23] for warning in warnings_of(tmp_path, executor, of_application)] == [
        "pod team-a/p1 and 1 mor",
        "pod team-a/p1 and 1 mor",
    ]
