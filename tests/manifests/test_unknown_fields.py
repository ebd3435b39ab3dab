"""Fields in files that Kubernetes does not have cause a warning with the file, the object and the field."""

import copy
import json

import pytest
import yaml

from batchsched.manifests.documents import Document, split_documents
from batchsched.manifests.reader import read_manifests
from batchsched.manifests.unknown_fields import UnknownFieldCheck, field_table, unknown_field_warnings
from tests.manifests.test_reader import listed, node, pod

OWNERS = {
    ("apps", "Deployment"),
    ("apps", "ReplicaSet"),
    ("batch", "Job"),
    ("jobset.x-k8s.io", "JobSet"),
    ("kubeflow.org", "PyTorchJob"),
    ("trainer.kubeflow.org", "TrainJob"),
    ("workload.codeflare.dev", "AppWrapper"),
}


def warnings_of(tmp_path, *objects):
    path = tmp_path / "in.json"
    path.write_text(json.dumps(listed(*objects)))
    found = read_manifests([path], owner_kinds=OWNERS).warnings
    return [warning.removeprefix(f"{path}: ") for warning in found if "unknown field" in warning]


def owner(text):
    return yaml.safe_load(text)


def job(**spec):
    template = {"spec": {"schedulerName": "batchsched", "containers": [{"name": "main"}]}}
    metadata = {"name": "train", "namespace": "ml"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"template": template, **spec},
    }


def test_a_misspelt_field_of_a_job_is_named_with_its_file_and_the_nearest_field(tmp_path):
    path = tmp_path / "in.json"
    path.write_text(json.dumps(job(paralelism=4)))
    assert read_manifests([path], owner_kinds=OWNERS).warnings == (
        f"{path}: Job ml/train: spec.paralelism: unknown field has no effect; did you mean parallelism?",
    )


def test_pods_with_the_same_unknown_field_cause_one_warning(tmp_path):
    containers = [{"name": "main", "resources": {"request": {"cpu": "4"}}}]
    assert warnings_of(tmp_path, *(pod(f"p{number}", containers=containers) for number in range(3))) == [
        (
            "Pod team-a/p0 and 2 more: spec.containers[0].resources.request: unknown field has no effect; "
            "did you mean requests?"
        )
    ]


def test_an_unknown_field_outside_of_the_spec_is_found(tmp_path):
    misspelt = node("n0") | {"status": {"allocateable": {"cpu": "4"}}, "stat": {}}
    misspelt["metadata"]["lables"] = {"a": "b"}
    assert warnings_of(tmp_path, misspelt) == [
        "Node n0: metadata.lables: unknown field has no effect; did you mean labels?",
        "Node n0: status.allocateable: unknown field has no effect; did you mean allocatable?",
        "Node n0: stat: unknown field has no effect; did you mean status?",
    ]


def test_a_field_of_another_level_is_suggested_at_its_level(tmp_path):
    assert warnings_of(tmp_path, job(schedulerName="batchsched")) == [
        "Job ml/train: spec.schedulerName: unknown field has no effect; did you mean spec.template.spec.schedulerName?"
    ]


def with_field(obj, path, name):
    part = obj
    for key in path:
        part = part[key]
    part[name] = {}
    return obj


@pytest.mark.parametrize(
    "manifest, path, name, meant",
    [
        (job(), ("spec", "template"), "labels", "spec.template.metadata.labels"),
        (job(), ("spec", "template"), "schedulerName", "spec.template.spec.schedulerName"),
        (job(), ("spec",), "containers", "spec.template.spec.containers"),
        (
            job(),
            ("spec", "template", "spec", "containers", 0),
            "limits",
            "spec.template.spec.containers[0].resources.limits",
        ),
        (pod("p0", containers=[{}]), ("spec", "containers", 0), "tolerations", "spec.tolerations"),
        (pod("p0"), ("spec",), "labels", "metadata.labels"),
        (node("n0"), (), "allocatable", "status.allocatable"),
        (node("n0"), (), "labels", "metadata.labels"),
    ],
)
def test_the_nearest_level_with_the_field_is_suggested(tmp_path, manifest, path, name, meant):
    (warning,) = warnings_of(tmp_path, with_field(copy.deepcopy(manifest), path, name))
    assert warning.partition("; ")[2] == f"did you mean {meant}?"


def test_the_suggestion_in_a_template_of_a_custom_resource_is_a_path_from_its_root(tmp_path):
    manifest = owner(
        """
        apiVersion: kubeflow.org/v1
        kind: PyTorchJob
        metadata: {name: pt, namespace: ml}
        spec: {pytorchReplicaSpecs: {Worker: {template: {spec: {containers: [{name: main}]}}}}}
        """
    )
    path = ("spec", "pytorchReplicaSpecs", "Worker", "template")
    assert warnings_of(tmp_path, with_field(manifest, path, "schedulerName")) == [
        (
            "PyTorchJob ml/pt: spec.pytorchReplicaSpecs.Worker.template.schedulerName: unknown field has no effect; "
            "did you mean spec.pytorchReplicaSpecs.Worker.template.spec.schedulerName?"
        )
    ]


@pytest.mark.parametrize(
    "manifest, path, name",
    [
        (pod("p0"), ("spec",), "phase"),
        (pod("p0"), ("metadata",), "fieldsType"),
        (job(), ("spec",), "active"),
    ],
)
def test_fields_that_only_the_cluster_writes_are_not_suggested(tmp_path, manifest, path, name):
    (warning,) = warnings_of(tmp_path, with_field(copy.deepcopy(manifest), path, name))
    assert warning.endswith(": unknown field has no effect")


def test_an_unknown_field_without_a_similar_one_has_no_suggestion(tmp_path):
    assert warnings_of(tmp_path, job(gpus=4)) == ["Job ml/train: spec.gpus: unknown field has no effect"]


def test_at_most_twenty_warnings_name_a_field_of_one_file(tmp_path):
    containers = [{"name": f"c{number}", "gpus": 1} for number in range(25)]
    found = warnings_of(tmp_path, pod("p0", containers=containers))
    assert len(found) == 21
    assert found[19].startswith("Pod team-a/p0: spec.containers[19].gpus: ")
    assert found[20] == "unknown fields that have no effect: 5 more"


@pytest.mark.parametrize(
    "name, shown",
    [
        ("gpu\x1b[2J", r"'gpu\x1b[2J'"),
        ("line\nbreak", r"'line\nbreak'"),
        ("", "''"),
        ("x" * 1000, "x" * 60 + "..."),
        ("\n" * 1000, "'" + r"\n" * 60 + "'..."),
    ],
    ids=["escape", "line break", "empty", "long", "long and not printable"],
)
def test_a_name_that_a_terminal_cannot_show_is_quoted_and_a_long_one_is_cut(tmp_path, name, shown):
    assert warnings_of(tmp_path, job(**{name: 1})) == [
        f"Job ml/train: spec.{shown}: unknown field has no effect"
    ]


@pytest.mark.parametrize(
    "manifest, expected",
    [
        (
            """
            apiVersion: kubeflow.org/v1
            kind: PyTorchJob
            metadata: {name: pt, namespace: ml, label: {a: b}}
            spec:
              anything: {goes: here}
              pytorchReplicaSpecs:
                Worker: {template: {spec: {containers: [{name: main, resource: {}}]}}}
            """,
            [
                "PyTorchJob ml/pt: metadata.label: unknown field has no effect; did you mean labels?",
                (
                    "PyTorchJob ml/pt: spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].resource: "
                    "unknown field has no effect; did you mean resources?"
                ),
            ],
        ),
        (
            """
            apiVersion: jobset.x-k8s.io/v1alpha2
            kind: JobSet
            metadata: {name: js, namespace: ml}
            spec:
              replicatedJobs:
              - name: workers
                template: {spec: {paralelism: 2, template: {spec: {containers: [{name: main}]}}}}
            """,
            [
                (
                    "JobSet ml/js: spec.replicatedJobs[0].template.spec.paralelism: unknown field has no effect; "
                    "did you mean parallelism?"
                )
            ],
        ),
    ],
)
def test_metadata_and_templates_of_custom_resources_are_checked(tmp_path, manifest, expected):
    assert warnings_of(tmp_path, owner(manifest)) == expected


@pytest.mark.parametrize(
    "manifest, expected",
    [
        pytest.param(
            """
            apiVersion: kubeflow.org/v1
            kind: PyTorchJob
            metadata: {name: pt, namespace: ml}
            spec:
              elasticPolicy:
                metrics:
                - type: Object
                  object: {describedObject: {apiVersion: v1, kind: Node, name: n0}, target: {value: 2k}}
              pytorchReplicaSpecs:
                Worker: {template: {spec: {containers: [{name: main}]}}}
            """,
            [],
            id="a reference to an object is no object",
        ),
        pytest.param(
            """
            apiVersion: workload.codeflare.dev/v1beta2
            kind: AppWrapper
            metadata: {name: wrapped, namespace: ml}
            spec:
              components:
              - template:
                  apiVersion: batch/v1
                  kind: Job
                  spec: {paralelism: 2, template: {spec: {containers: [{name: main}]}}}
            """,
            ["AppWrapper ml/wrapped: spec.components[0].template.spec.paralelism"],
            id="an object in a custom resource is checked",
        ),
        pytest.param(
            """
            apiVersion: trainer.kubeflow.org/v1alpha1
            kind: TrainJob
            metadata: {name: train, namespace: ml}
            spec:
              podTemplateOverrides:
              - targetJobs: [{name: node}]
                metadata: {lables: {a: b}}
                spec: {nodeSelectors: {a: b}, containers: [{name: node, environ: []}]}
            """,
            [
                "TrainJob ml/train: spec.podTemplateOverrides[0].metadata.lables",
                "TrainJob ml/train: spec.podTemplateOverrides[0].spec.nodeSelectors",
                "TrainJob ml/train: spec.podTemplateOverrides[0].spec.containers[0].environ",
            ],
            id="a part like a pod template may have other fields beside metadata and spec",
        ),
    ],
)
def test_only_parts_of_custom_resources_that_kubernetes_defines_are_checked(tmp_path, manifest, expected):
    found = warnings_of(tmp_path, owner(manifest))
    assert [warning.partition(": unknown field")[0] for warning in found] == expected


def test_a_spec_that_another_kind_may_have_is_checked_for_each_kind(tmp_path):
    spec = {"strategy": {"type": "Recreate"}, "selector": {}, "template": job()["spec"]["template"]}
    objects = [
        {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "a", "namespace": "ml"}, "spec": spec}
        for kind in ("Deployment", "ReplicaSet")
    ]
    assert warnings_of(tmp_path, *objects) == ["ReplicaSet ml/a: spec.strategy: unknown field has no effect"]


def test_known_fields_cause_no_warning_whether_they_are_read_or_not(tmp_path):
    containers = [
        {"name": "main", "image": "x", "env": [{"name": "A", "value": None}], "livenessProbe": None}
    ]
    full = pod("p0", containers=containers, volumes=[{"name": "a", "emptyDir": {"medium": "Memory"}}])
    full["metadata"]["managedFields"] = [{"manager": "kubectl", "fieldsV1": {"f:spec": {"f:anything": {}}}}]
    assert warnings_of(tmp_path, full, node("n0"), job(parallelism=2, backoffLimit=4)) == []


def test_a_field_of_an_earlier_version_of_kubernetes_causes_no_warning(tmp_path):
    device = {"name": "g0", "nodeAllocatableResourceMappings": {"cpu": {"capacityKey": "cores"}}}
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    resource_slice = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": {"driver": "d", "nodeName": "n0", "pool": pool, "devices": [device]},
    }
    assert warnings_of(tmp_path, resource_slice, node("n0")) == []


def test_added_files_are_checked_as_the_files_of_a_cluster(tmp_path):
    hyper_node = owner("""
        apiVersion: topology.volcano.sh/v1alpha1
        kind: HyperNode
        metadata: {name: h0, lables: {a: b}}
        spec: {tier: 1, members: []}
    """)
    added = split_documents(json.dumps(hyper_node).encode(), "added.json")
    expected = "HyperNode h0: metadata.lables: unknown field has no effect; did you mean labels?"
    assert warnings_of(tmp_path, hyper_node, node("n0")) == [expected]
    assert list(unknown_field_warnings(added, OWNERS)) == [f"added.json: {expected}"]


def test_broken_objects_are_left_to_the_decoder():
    check = UnknownFieldCheck(OWNERS)
    for raw in (
        b'{"apiVersion": "v1", "kind": "Pod", "spec": 3}',
        b'{"apiVersion":"v1","kind":"Pod","metadata":[]}',
    ):
        (document,) = split_documents(raw, "in.json")
        assert isinstance(document, Document)
        check.record_unknown_fields(document)
    assert list(check.warnings()) == []


def test_the_table_has_the_fields_of_nested_lists_and_mappings():
    types = field_table().types
    assert types["V1PodSpec"]["containers"] == "[]V1Container"
    assert types["V1Device"]["attributes"] == "{}V1DeviceAttribute"
    assert types["V1Container"]["image"] is None
