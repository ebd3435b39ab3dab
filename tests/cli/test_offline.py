"""Commands over dumps, recorded sessions, and owners of pods such as Jobs, without a cluster."""

import io
import json
import logging
import re
import sys

import msgspec
import pytest

from batchsched.api.core.metadata import parse_timestamp
from batchsched.api.crd.base import API_VERSION
from batchsched.config.schema import CONFIG_API_VERSION
from batchsched.record.dump import ClusterDump
from tests.cli.conftest import NOW
from tests.podgrouper.owners import (
    TEMPLATE,
    app_wrapper,
    clique,
    job,
    jobset,
    owner,
    pod_clique_set,
    pytorch,
    ray_spec,
    reference,
    replicas,
    replicated,
    spark,
    workers,
)

OWNERS = {
    "Job": (job(3), 3),
    "JobSet": (jobset(replicated("a", 2, parallelism=2), replicated("b")), 5),
    "PyTorchJob": (pytorch(pytorchReplicaSpecs=replicas(Master=1, Worker=3)), 4),
    "TFJob": (owner("TFJob", tfReplicaSpecs=replicas(Chief=1, Worker=2)), 3),
    "MPIJob": (owner("MPIJob", mpiReplicaSpecs=replicas(Launcher=1, Worker=2)), 3),
    "RayCluster": (owner("RayCluster", **ray_spec(workers(replicas=2, minReplicas=2))), 3),
    "RayJob": (owner("RayJob", rayClusterSpec=ray_spec(workers(replicas=2, minReplicas=2))), 3),
    "LeaderWorkerSet": (
        owner(
            "LeaderWorkerSet",
            replicas=2,
            leaderWorkerTemplate={"size": 3, "workerTemplate": TEMPLATE},
        ),
        6,
    ),
    "StatefulSet": (
        owner("StatefulSet", podManagementPolicy="Parallel", replicas=2, template=TEMPLATE),
        2,
    ),
}
OWNERS |= {
    "Deployment": (owner("Deployment", replicas=2, template=TEMPLATE), 2),
    "JAXJob": (owner("JAXJob", jaxReplicaSpecs=replicas(Worker=2)), 2),
    "XGBoostJob": (owner("XGBoostJob", xgbReplicaSpecs=replicas(Master=1, Worker=2)), 3),
    "PaddleJob": (owner("PaddleJob", paddleReplicaSpecs=replicas(Worker=2)), 2),
    "RayService": (owner("RayService", rayClusterConfig=ray_spec(workers(replicas=2, minReplicas=2))), 3),
    "SparkApplication": (
        spark(driver={"schedulerName": "batchsched"}, executor={"schedulerName": "batchsched"}),
        2,
    ),
    "AppWrapper": (
        app_wrapper(job(2), {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, **TEMPLATE}),
        3,
    ),
    "PodCliqueSet": (
        pod_clique_set(
            clique("front"),
            clique("worker", 2),
            groups=[{"name": "decode", "cliqueNames": ["worker"], "replicas": 2}],
            replicas=2,
        ),
        10,
    ),
}
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1"},
    "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}},
}


def written(manifest):
    """The manifest as a user writes it, before an API server gave it a uid."""
    metadata = {
        key: value for key, value in manifest["metadata"].items() if key not in ("uid", "creationTimestamp")
    }
    return {**manifest, "metadata": metadata}


def member(of, number=0):
    meta = {"name": f"train-{number}", "namespace": "team", "ownerReferences": [reference(of)]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, **TEMPLATE}


@pytest.fixture
def write(tmp_path):
    """Write objects to a file."""

    def to(name, *objects):
        file = tmp_path / name
        file.write_text("\n".join(map(json.dumps, objects)))
        return file

    return to


@pytest.fixture
def dump(tmp_path):
    """Write a dump with these objects."""

    def of(*objects, name="dump.json.gz"):
        file = tmp_path / name
        items = tuple(msgspec.Raw(msgspec.json.encode(item)) for item in objects)
        file.write_bytes(ClusterDump(parse_timestamp(NOW), items).encode(compress=name.endswith(".gz")))
        return file

    return of


@pytest.mark.parametrize("made, pods", OWNERS.values(), ids=OWNERS)
def test_decide_places_the_pods_that_the_controller_of_an_owner_would_create(command, write, made, pods):
    result = command("decide", write("c.jsonl", NODE, written(made)), "--now", NOW, "-o", "json")
    assert (result.code, result.err) == (0, "")
    assert len(result.data["assignments"]) == pods


RUNTIME = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "ClusterTrainingRuntime",
    "metadata": {"name": "torch"},
    "spec": {
        "mlPolicy": {"numNodes": 1},
        "template": {
            "spec": {
                "replicatedJobs": [
                    replicated("node"),
                    replicated("launcher", dependsOn=[{"name": "node", "status": "Ready"}]),
                ]
            }
        },
    },
}


def test_decide_creates_the_pods_of_a_train_job_from_its_runtime(command, write):
    spec = {"runtimeRef": {"name": "torch"}, "trainer": {"numNodes": 3}}
    made = written(owner("TrainJob", labels={"scheduling.batchsched.dev/queue": "q"}, **spec))
    queue = {"apiVersion": "scheduling.batchsched.dev/v1alpha1", "kind": "Queue", "metadata": {"name": "q"}}
    result = command("decide", write("c.jsonl", NODE, queue, made, RUNTIME), "--now", NOW, "-o", "json")
    assert (result.code, result.err) == (0, "")
    assert len(result.data["assignments"]) == 4
    alone = command("decide", write("d.jsonl", NODE, made), "--now", NOW, "-o", "json")
    (refused,) = alone.data["setAside"]
    assert refused["field"] == "spec.runtimeRef"
    assert "ClusterTrainingRuntime 'torch'" in refused["message"]


def test_decide_forms_the_gangs_of_a_rule_in_the_configuration(command, write):
    rule = {
        "apiVersion": "example.com/v1",
        "kind": "Run",
        "parts": [{"replicas": ".spec.size", "template": ".spec.template"}],
    }
    config = {
        "apiVersion": "config.batchsched.dev/v1alpha1",
        "kind": "BatchSchedulerConfiguration",
        "podGrouper": {"rules": [rule]},
    }
    run = {
        "apiVersion": "example.com/v1",
        "kind": "Run",
        "metadata": {"name": "r", "namespace": "team"},
        "spec": {"size": 3, "template": TEMPLATE},
    }
    cluster, file = write("c.jsonl", NODE, run), write("config.json", config)
    result = command("decide", cluster, "--config", file, "--now", NOW, "-o", "json")
    assert (result.code, result.err) == (0, "")
    assert len(result.data["assignments"]) == 3


def test_job_that_does_not_fit_is_refused_as_a_gang(command, write):
    big = written(job(3))
    big["spec"]["template"] = json.loads(json.dumps(TEMPLATE))
    big["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "4"}}
    result = command("decide", write("c.jsonl", NODE, big), "--now", NOW, "-o", "json")
    assert result.data["assignments"] == []
    assert [refusal["reason"] for refusal in result.data["refusals"]] == ["InsufficientResources"]


@pytest.mark.parametrize(
    "arguments",
    [("--pod-group", "train"), ("--pod-group", "job/train"), ("--pod-group", "team/train"), ("job/train",)],
)
def test_explain_takes_the_name_of_a_job_for_its_gang(command, write, arguments):
    cluster = write("c.jsonl", NODE, written(job(3)))
    result = command("explain", cluster, *arguments, "-n", "team", "--now", NOW, "-o", "json")
    assert result.code == 0
    assert re.fullmatch("team/job-train-[0-9a-f]{8}", result.data["podGroup"])
    assert result.data["podGroup"] in result.err


def test_explain_names_an_owner_without_pods_and_an_owner_with_several_gangs(command, write):
    made, _ = OWNERS["LeaderWorkerSet"]
    cluster = write("c.jsonl", NODE, written(made))
    name = made["metadata"]["name"]
    several = command("explain", cluster, f"leaderworkerset/{name}", "-n", "team", "--now", NOW)
    assert several.code == 2
    assert f"team/{name} has " in several.complaint
    absent = command("explain", cluster, "job/absent", "-n", "team", "--now", NOW)
    assert absent.code == 2
    assert "there is no pod of Job 'team/absent'" in absent.complaint


def test_pods_of_a_listed_job_form_a_gang_and_no_pods_are_created(command, write):
    listed = job(3)
    result = command(
        "decide",
        write("c.jsonl", NODE, listed, member(listed, 0), member(listed, 1)),
        "--now",
        NOW,
        "-o",
        "json",
    )
    assert result.data["assignments"] == []
    assert [refusal["reason"] for refusal in result.data["refusals"]] == ["NotEnoughPods"]


def test_listed_job_without_its_pods_causes_a_warning_with_a_remedy(command, write):
    result = command("decide", write("c.jsonl", NODE, job(3)), "--now", NOW)
    assert (
        "Job team/train comes from a cluster, and its pods are in no file; remove metadata.uid" in result.err
    )


def test_simulation_forms_no_gang_of_a_job_if_the_pod_grouper_is_disabled(command, write):
    settings = {"apiVersion": CONFIG_API_VERSION, "kind": "BatchSchedulerConfiguration"}
    config = write("config.json", {**settings, "podGrouper": {"enabled": False}})
    cluster = write("c.jsonl", NODE, written(job(3)))
    command_line = ("simulate", "manifests", cluster, "--now", NOW, "-o", "json")
    assert command(*command_line).data["policies"][0]["gangs"] == 1
    assert command(*command_line, "--config", config).data["policies"][0]["gangs"] == 3


def test_pod_whose_owner_is_not_in_the_files_is_decided_by_its_labels(command, write):
    other = written(job(1, name="other"))
    result = command("decide", write("c.jsonl", NODE, member(job(3)), other), "--now", NOW, "-o", "json")
    assert {entry["pod"] for entry in result.data["assignments"]} == {"train-0", "other-0"}


def test_pods_of_a_job_of_another_scheduler_are_left_to_it_with_a_warning(command, write):
    made = written(job(2))
    made["spec"]["template"] = {"spec": {"containers": [{"name": "main"}]}}
    result = command("decide", write("c.jsonl", NODE, made), "--now", NOW, "-o", "json")
    assert result.data["assignments"] == []
    assert "pods are ignored, since 'default-scheduler' schedules them" in result.err


def test_job_with_an_invalid_template_is_set_aside_with_its_file(command, write):
    made = written(job(2))
    made["spec"]["template"] = {"spec": {"schedulerName": "batchsched", "containers": 5}}
    file = write("c.jsonl", NODE, made)
    result = command("decide", file, "--now", NOW, "-o", "json")
    assert result.code == 3
    (entry,) = result.data["setAside"]
    assert (entry["file"], entry["object"]) == (str(file), "Pod team/train-0")


def without(key, value):
    """The value without a key, at every depth."""
    if isinstance(value, dict):
        return {name: without(key, part) for name, part in value.items() if name != key}
    return [without(key, part) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    "kind, field",
    [
        ("Job", "spec.template"),
        ("JobSet", "spec.replicatedJobs[0].template.spec.template"),
        ("PyTorchJob", "spec.pytorchReplicaSpecs.Master.template"),
        ("TFJob", "spec.tfReplicaSpecs.Chief.template"),
        ("MPIJob", "spec.mpiReplicaSpecs.Launcher.template"),
        ("RayCluster", "spec.headGroupSpec.template"),
        ("RayJob", "spec.rayClusterSpec.headGroupSpec.template"),
        ("LeaderWorkerSet", "spec.leaderWorkerTemplate.workerTemplate"),
        ("StatefulSet", "spec.template"),
    ],
)
def test_owner_without_containers_is_refused_with_the_field_and_the_remedy(command, write, kind, field):
    cluster, file = write("c.json", NODE), write("job.json", without("containers", written(OWNERS[kind][0])))
    result = command("what-if", "-f", file, "--cluster", cluster, "--now", NOW)
    assert result.code == 1
    assert f"{file}: {kind} team/train: {field}.spec.containers: expected at least one" in result.complaint


def test_job_without_a_pod_template_is_refused_by_what_if_and_set_aside_by_decide(command, write):
    made = without("template", written(job(2)))
    file = write("job.json", NODE, made)
    decided = command("decide", file, "--now", NOW, "-o", "json")
    (entry,) = decided.data["setAside"]
    assert (decided.code, entry["object"], entry["field"]) == (3, "Job team/train", "spec.template")
    result = command("what-if", "-f", file, "--cluster", write("c.json", NODE), "--now", NOW)
    assert result.code == 1
    assert f"{file}: Job team/train: spec.template: the pod template is missing; add it" in result.complaint


def test_stateful_set_that_starts_pods_one_by_one_creates_none(command, write):
    made = written(owner("StatefulSet", replicas=2, template=TEMPLATE))
    result = command("decide", write("c.jsonl", NODE, made), "--now", NOW, "-o", "json")
    assert (result.data["assignments"], result.err) == ([], "")


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet"])
def test_keys_without_effect_are_named_for_owners_whose_pods_are_not_created(command, write, kind):
    minimum = "scheduling.batchsched.dev/min-member"
    template = TEMPLATE | {"metadata": {"annotations": {minimum: "2"}}}
    made = written(owner(kind, replicas=2, template=template, annotations={f"{minimum}s": "2"}))
    file = write("c.jsonl", NODE, made)
    result = command("decide", file, "--now", NOW, "-o", "json")
    assert result.err == (
        f"warning: {file}: {kind} team/train: metadata.annotations: unknown annotation '{minimum}s' has no effect; "
        f"did you mean {minimum}?\n"
        f"warning: {file}: {kind} team/train: spec.template.metadata.annotations: '{minimum}' has no effect on pods; "
        "move it to metadata.annotations\n"
    )


def test_invalid_object_of_a_dump_is_set_aside_with_its_file(command, dump):
    queue = {"apiVersion": API_VERSION, "kind": "Queue", "metadata": {"name": "train"}, "spec": {"weigth": 2}}
    file = dump(NODE, queue)
    result = command("decide", file, "-o", "json")
    assert result.data["setAside"] == [
        {
            "file": str(file),
            "object": "Queue train",
            "field": "spec.weigth",
            "message": "unknown field; did you mean weight?",
        }
    ]
    assert f"set aside: {file}: Queue train: spec.weigth: unknown field; did you mean weight?" in result.err


def test_dump_is_decided_at_its_time_with_the_gangs_of_owners(command, dump):
    listed = job(2)
    file = dump(NODE, listed, member(listed, 0), member(listed, 1))
    result = command("decide", file, "-o", "json")
    assert len(result.data["assignments"]) == 2
    assert (
        command("decide", file, "--now", NOW, "-o", "json").data["assignments"] == result.data["assignments"]
    )


def test_pod_of_a_deleted_job_is_refused_in_a_dump_as_in_the_cluster(command, dump):
    result = command("decide", dump(NODE, member(job(1))), "-o", "json")
    assert [refusal["reason"] for refusal in result.data["refusals"]] == ["PodGroupNotFound"]


def test_owner_with_a_field_of_another_type_is_set_aside_with_the_field(command, dump, write):
    mistaken = write("job.json", {**job(1), "metadata": {"name": "a", "ownerReferences": 5}})
    offline = command("decide", mistaken).err
    predicted = command("what-if", "-f", str(mistaken), "--cluster", str(dump(NODE))).err
    for message in (offline, predicted):
        assert "Job default/a: metadata.ownerReferences: expected a list, found a whole number" in message


def test_owner_and_pod_of_a_file_with_line_breaks_in_their_names_are_set_aside_on_one_line(
    command, dump, write
):
    name = "a\nset aside: b"
    spoilt = write("job.json", {**job(1), "metadata": {"name": name, "namespace": "team"}})
    expected = r"job.json: Job team/'a\nset aside: b': metadata.name: 'a\nset aside: b' is no name"
    for result in (
        command("decide", spoilt),
        command("what-if", "-f", str(spoilt), "--cluster", str(dump(NODE))),
    ):
        assert expected in result.err
        assert "\nset aside: b" not in result.err
    member_file = write("pod.json", {**member(job(1)), "metadata": {"name": name, "namespace": "team"}})
    predicted = command("what-if", "-f", str(member_file), "--cluster", str(dump(NODE)))
    assert r"pod.json: Pod team/'a\nset aside: b': metadata.name: " in predicted.err


def test_manifests_beside_a_dump_are_added_to_it(command, dump, write):
    result = command("decide", dump(NODE), write("job.json", written(job(3))), "-o", "json")
    assert len(result.data["assignments"]) == 3


def test_dump_is_read_from_standard_input(command, dump, monkeypatch):
    content = dump(NODE, written(job(1))).read_bytes()
    stream = io.TextIOWrapper(io.BufferedReader(io.BytesIO(content)))
    monkeypatch.setattr(sys, "stdin", stream)
    assert command("queues", "-").code == 0


def test_edited_dump_with_unusable_objects_is_read_without_them(command, dump):
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}
    result = command(
        "decide", dump(NODE, 5, config, config, {**member(job(1)), "kind": "Pod", "spec": {"containers": 5}})
    )
    assert result.code == 3
    assert (
        "dump.json.gz: (item 2): expected a Kubernetes object: a mapping with apiVersion, kind and metadata; found '5'"
        in result.err
    )
    assert (
        "dump.json.gz: Pod team/train-0: spec.containers: expected a list, found a whole number" in result.err
    )
    assert "ConfigMap of v1 is not read: 2 passed over" in result.err


def test_two_dumps_are_refused(command, dump):
    result = command("decide", dump(NODE), dump(NODE, name="other.json"))
    assert result.code == 1
    assert "expected one dump or recorded session, and manifests to add to it" in result.err


@pytest.fixture
def session(command, cluster, tmp_path):
    file = tmp_path / "session.json.gz"
    assert command("record", cluster, "--to", file, "--now", NOW).code == 0
    return file


def test_recorded_session_is_decided_again_as_it_was(command, session, cluster):
    again = command("decide", session, "-o", "json").data
    first = command("decide", cluster, "--now", NOW, "-o", "json").data
    assert [again[part] for part in ("assignments", "refusals")] == [
        first[part] for part in ("assignments", "refusals")
    ]


def test_job_is_added_to_a_recorded_session(command, session, write):
    result = command("decide", session, write("job.json", written(job(3))), "-o", "json")
    assert len(result.data["assignments"]) == 2 + 3


def test_dump_is_recorded_and_replayed(command, dump, tmp_path):
    listed = job(2)
    file = tmp_path / "session.json.gz"
    assert command("record", dump(NODE, listed, member(listed, 0), member(listed, 1)), "--to", file).code == 0
    assert command("replay", file).code == 0


def test_gangs_and_queues_of_a_recorded_session_are_explained(command, session):
    explained = command("explain", session, "--pod-group", "team-a/good", "-o", "json")
    assert explained.data["state"] == "Placed"
    assert [queue["name"] for queue in command("queues", session, "-o", "json").data["queues"]] == ["default"]


@pytest.mark.parametrize("source", ["session", "cluster"])
def test_what_if_adds_a_job_to_the_cluster_of_a_file(command, write, request, source):
    file = request.getfixturevalue(source)
    result = command(
        "what-if", "-f", write("job.json", written(job(3))), "--cluster", file, "--now", NOW, "-o", "json"
    )
    assert result.code == 0
    (gang,) = result.data["gangs"]
    assert (gang["state"], len(gang["assignments"])) == ("Placed", 3)
    assert result.data["displaced"] == []


def test_what_if_over_a_dump_names_the_gangs_that_would_wait_longer(command, dump, write):
    spec = json.loads(json.dumps(TEMPLATE["spec"]))
    spec["containers"][0]["resources"] = {"requests": {"cpu": "8"}}
    meta = {"name": "waits", "namespace": "team", "creationTimestamp": NOW}
    waits = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {**spec, "priority": 1}}
    urgent = {**waits, "metadata": {"name": "urgent", "namespace": "team"}, "spec": {**spec, "priority": 9}}
    result = command(
        "what-if", "-f", write("urgent.json", urgent), "--cluster", dump(NODE, waits), "-o", "json"
    )
    assert result.data["displaced"] == ["team/waits"]


def gang_of(name, created=None):
    """A PodGroup with one pod."""
    meta = {"namespace": "team", **({"creationTimestamp": created} if created else {})}
    spec = json.loads(json.dumps(TEMPLATE["spec"]))
    spec["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    labels = {"scheduling.batchsched.dev/pod-group": name}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {**meta, "name": f"{name}-0", "labels": labels}}
    group = {"apiVersion": "scheduling.batchsched.dev/v1alpha1", "kind": "PodGroup"}
    return {**group, "metadata": {**meta, "name": name}, "spec": {"minMember": 1}}, {**pod, "spec": spec}


@pytest.mark.parametrize(
    "cluster, added, position",
    [
        pytest.param([gang_of("old", "2025-12-31T00:00:00Z")], gang_of("a-new"), 2, id="unknown-is-youngest"),
        pytest.param([gang_of("x"), gang_of("z")], gang_of("y"), 2, id="by-name-if-all-are-unknown"),
        pytest.param(
            [gang_of("old", "2025-12-31T00:00:00Z"), gang_of("x", "2025-12-30T00:00:00Z")],
            gang_of("x", "2025-12-30T00:00:00Z"),
            1,
            id="existing-gang-keeps-its-age",
        ),
    ],
)
def test_what_if_and_explain_give_the_same_position(command, write, cluster, added, position):
    base = write("c.jsonl", NODE, *(item for gang in cluster for item in gang))
    file, name = write("added.jsonl", *added), added[0]["metadata"]["name"]
    asked = command("what-if", "-f", file, "--cluster", base, "--now", NOW, "-o", "json")
    exists = any(gang[0]["metadata"]["name"] == name for gang in cluster)
    files = (base,) if exists else (base, file)
    explained = command("explain", *files, "--pod-group", f"team/{name}", "--now", NOW, "-o", "json")
    assert asked.data["gangs"][0]["position"] == explained.data["position"] == position


def test_cluster_file_that_does_not_exist_is_wrong_usage(command, write):
    result = command("what-if", "-f", write("job.json", job(1)), "--cluster", "nosuch.json")
    assert result.code == 2
    assert "there is no file 'nosuch.json'" in result.complaint


def test_job_in_a_dump_is_simulated(command, dump, write):
    result = command(
        "simulate",
        "manifests",
        dump(NODE),
        write("job.json", written(job(3))),
        "--policy",
        "fcfs",
        "-o",
        "json",
    )
    assert result.code == 0
    (run,) = result.data["policies"]
    assert (run["gangs"], run["unfinished"]) == (1, 0)


def test_objects_of_a_dump_that_are_set_aside_are_printed_once(command, dump, monkeypatch):
    monkeypatch.setattr(
        logging.getLogger(), "handlers", []
    )  # a command configures no logging, but pytest does
    queue = {"apiVersion": API_VERSION, "kind": "Queue", "metadata": {"name": "train"}, "spec": {"weigth": 2}}
    owners = [
        {**job(1), "metadata": {"name": "train", "namespace": "team", "uid": 7}},
        # A StatefulSet is read as an owner, and for the default spread of its pods.
        {**OWNERS["StatefulSet"][0], "metadata": {"name": "web", "namespace": "team", "uid": 7}},
    ]
    file = dump(NODE, queue, *owners)
    result = command("decide", file, "--now", NOW)
    reported = [line for line in result.err.splitlines() if "set aside: " in line]
    problem = "metadata.uid: expected text, found a whole number; put it in quotes"
    assert sorted(reported) == [
        f"set aside: {file}: Job team/train: {problem}",
        f"set aside: {file}: Queue train: spec.weigth: unknown field; did you mean weight?",
        f"set aside: {file}: StatefulSet team/web: {problem}",
    ]


def test_unknown_field_of_a_training_runtime_is_reported_by_what_if_as_by_decide(command, write):
    misspelt = RUNTIME | {"metadata": {"name": "torch", "lables": {"a": "b"}}}
    complaint = "metadata.lables: unknown field has no effect; did you mean labels?"
    cluster, added = write("c.jsonl", NODE), write("added.jsonl", misspelt, job(1))
    decided = command("decide", cluster, added, "--now", NOW)
    asked = command("what-if", "-f", added, "--cluster", cluster, "--now", NOW)
    assert complaint in decided.err
    assert complaint in asked.err


@pytest.mark.parametrize(
    "made, field",
    [
        (jobset(replicated("a", 2) | {"replicas": "2"}), "spec.replicatedJobs[0].replicas"),
        (pytorch(pytorchReplicaSpecs=replicas(Worker="4")), "spec.pytorchReplicaSpecs.Worker.replicas"),
        (
            owner("LeaderWorkerSet", leaderWorkerTemplate={"size": "3", "workerTemplate": TEMPLATE}),
            "spec.leaderWorkerTemplate.size",
        ),
        (
            owner("RayCluster", **ray_spec(workers(replicas=2, minReplicas="2"))),
            "spec.workerGroupSpecs[0].minReplicas",
        ),
    ],
    ids=["JobSet", "PyTorchJob", "LeaderWorkerSet", "RayCluster"],
)
def test_number_of_pods_that_is_a_text_is_set_aside_with_its_field(command, write, made, field):
    result = command("decide", write("owner.json", written(made)), "--now", NOW, "-o", "json")
    (entry,) = result.data["setAside"]
    assert (entry["field"], result.data["assignments"]) == (field, [])
    assert "expected a whole number, 0 or more; found" in entry["message"]
