"""Objects that an API server rejects are set aside if they come from files, with the field and what is expected."""

import json

import pytest
import yaml

from batchsched.api.snapshot import KIND_BY_GROUP_AND_NAME
from batchsched.manifests.decode import Decoder
from batchsched.manifests.documents import Document, split_documents
from batchsched.manifests.reader import read_manifests
from tests.manifests.test_reader import custom, listed, node, pod


def set_aside(tmp_path, *objects):
    path = tmp_path / "input.json"
    path.write_text(json.dumps(listed(node("good"), *objects)))
    return [(one.object, one.field) for one in read_manifests([path]).snapshot.set_aside]


def resources(requests=None, limits=None):
    return {"containers": [{"name": "c", "resources": {"requests": requests or {}, "limits": limits or {}}}]}


REQUESTS, LIMITS = "containers[0].resources.requests", "containers[0].resources.limits"


@pytest.mark.parametrize(
    "spec, field",
    [
        (resources({"nvidia.com/gpu": "0.5"}), f"{REQUESTS}.nvidia.com/gpu"),
        (resources({"nvidia.com/gpu": 0.5}), f"{REQUESTS}.nvidia.com/gpu"),
        (resources(limits={"nvidia.com/gpu": "500m"}), f"{LIMITS}.nvidia.com/gpu"),
        (resources({"cpu": "2"}, {"cpu": "1"}), f"{REQUESTS}.cpu"),
        (resources({"memory": "2Gi"}, {"memory": "2G"}), f"{REQUESTS}.memory"),
        (resources({"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "2"}), f"{REQUESTS}.nvidia.com/gpu"),
        (resources({"gpu": "1"}), f"{REQUESTS}.gpu"),
        (resources({"Nvidia.com/gpu": "1"}), f"{REQUESTS}.Nvidia.com/gpu"),
        ({"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}, "resources.requests.cpu"),
        ({"containers": [{"name": "Main"}]}, "containers[0].name"),
        ({"containers": [{"name": "main"}, {"name": "main"}]}, "containers"),
        ({"containers": [{"name": "c", "ports": [{"containerPort": 70000}]}]}, "containers[0].ports[0]"),
        ({"nodeSelector": {"pool": "a b"}}, "nodeSelector[pool]"),
        ({"nodeSelector": {"a b": "x"}}, "nodeSelector"),
        ({"tolerations": [{"value": "x"}]}, "tolerations[0].operator"),
        ({"tolerations": [{"key": "gpu", "operator": "Exists", "value": "x"}]}, "tolerations[0].value"),
        ({"tolerations": [{"key": "gpu", "tolerationSeconds": 3}]}, "tolerations[0].tolerationSeconds"),
        (
            {"topologySpreadConstraints": [{"topologyKey": "z", "maxSkew": 1}] * 2},
            "topologySpreadConstraints[1]",
        ),
        (
            {
                "topologySpreadConstraints": [
                    {"topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 2}
                ]
            },
            "topologySpreadConstraints[0].minDomains",
        ),
    ],
)
def test_pod_that_the_api_server_rejects_is_set_aside(tmp_path, spec, field):
    assert set_aside(tmp_path, pod(**spec)) == [("Pod team-a/p", f"spec.{field}")]


@pytest.mark.parametrize(
    "broken, name, field",
    [
        ("{apiVersion: v1, kind: Pod, metadata: {name: BAD_name}}", "Pod default/BAD_name", "metadata.name"),
        ("{apiVersion: v1, kind: Node, metadata: {name: -n}}", "Node -n", "metadata.name"),
        ("{apiVersion: v1, kind: Namespace, metadata: {name: a.b}}", "Namespace a.b", "metadata.name"),
        (
            "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: Team}}",
            "Pod Team/p",
            "metadata.namespace",
        ),
        (
            "{apiVersion: v1, kind: Node, metadata: {name: n, labels: {rack: 'a b'}}}",
            "Node n",
            "metadata.labels[rack]",
        ),
        (
            "{apiVersion: v1, kind: Node, metadata: {name: n, labels: {'ra ck': a}}}",
            "Node n",
            "metadata.labels",
        ),
        (
            "{apiVersion: v1, kind: Pod, metadata: {name: p, annotations: {'a/b/c': x}}}",
            "Pod default/p",
            "metadata.annotations",
        ),
        (
            "{apiVersion: v1, kind: Node, metadata: {name: n}, spec: {taints: [{key: 'a b', effect: NoSchedule}]}}",
            "Node n",
            "spec.taints[0].key",
        ),
        (
            "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: top}, value: 1000000001}",
            "PriorityClass top",
            "value",
        ),
    ],
)
def test_object_that_the_api_server_rejects_is_set_aside(tmp_path, broken, name, field):
    assert set_aside(tmp_path, yaml.safe_load(broken)) == [(name, field)]


def test_custom_resource_with_an_invalid_name_is_set_aside(tmp_path):
    assert set_aside(tmp_path, custom("Queue", "ML_prod")) == [("Queue ML_prod", "metadata.name")]


@pytest.mark.parametrize(
    "spec",
    [
        resources({"nvidia.com/gpu": "2", "cpu": "500m"}, {"nvidia.com/gpu": "2", "cpu": "1"}),
        resources({"nvidia.com/gpu": "2"}),
        resources(limits={"hugepages-2Mi": "4Mi"}),
        {"containers": [{"image": "x"}, {"image": "y"}]},
        {"tolerations": [{"operator": "Exists"}, {"key": "gpu"}]},
        {"nodeSelector": {"example.com/pool": "", "kubernetes.io/hostname": "n1.example.com"}},
    ],
    ids=["equal limit", "no limit", "huge pages", "no names of containers", "tolerations", "node selector"],
)
def test_pod_that_scheduling_understands_is_read(tmp_path, spec):
    assert set_aside(tmp_path, pod(**spec)) == []


def test_object_of_a_running_cluster_is_not_checked_again():
    kind = KIND_BY_GROUP_AND_NAME["", "Pod"]
    (document,) = split_documents(json.dumps(pod("OLD_name")).encode(), "watch")
    assert isinstance(document, Document)
    assert Decoder().decode(document, kind).name == "OLD_name"
