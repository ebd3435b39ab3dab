import gzip
import json
import tracemalloc

import pytest
import yaml

from batchsched.api.core.pod import POD_GROUP_LABEL, SUB_GROUP_LABEL
from batchsched.errors import CommandError, InvalidInput
from batchsched.manifests import reader
from batchsched.manifests.reader import format_set_aside_object, read_manifests

OURS = "scheduling.batchsched.dev/v1alpha1"


def node(name="n1", **allocatable):
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": allocatable},
    }


def pod(name="p", group=None, sub=None, phase="Pending", requests=None, **spec):
    labels = {key: value for key, value in ((POD_GROUP_LABEL, group), (SUB_GROUP_LABEL, sub)) if value}
    container = {"name": "c", "resources": {"requests": requests or {"cpu": "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team-a", "labels": labels},
        "spec": {"schedulerName": "batchsched", "containers": [container], **spec},
        "status": {"phase": phase},
    }


def custom(kind, name, **spec):
    metadata = {"name": name, "namespace": "team-a"} if kind == "PodGroup" else {"name": name}
    return {"apiVersion": OURS, "kind": kind, "metadata": metadata, "spec": spec}


def listed(*items):
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}


@pytest.fixture
def reading(tmp_path):
    """Write each content (text, bytes or an object) to a file of its own, and read them all."""

    def write(*contents, suffix=".json"):
        files = []
        for number, content in enumerate(contents):
            file = tmp_path / f"{number}{suffix}"
            if not isinstance(content, bytes | str):
                content = json.dumps(content)
            file.write_bytes(content.encode() if isinstance(content, str) else content)
            files.append(file)
        return read_manifests(files)

    return write


def names(objects):
    return [one.metadata.name for one in objects]


# Formats


BARE_NODES = [{"metadata": {"name": name}} for name in ("n1", "n2")]
FLOW_NODE = "{apiVersion: v1, kind: Node, metadata: {name: %s}}"


@pytest.mark.parametrize(
    "content, suffix",
    [
        pytest.param(listed(node("n1"), node("n2")), ".json", id="list"),
        pytest.param(listed(listed(node("n1")), node("n2")), ".json", id="list in a list"),
        pytest.param({"apiVersion": "v1", "kind": "NodeList", "items": BARE_NODES}, ".json", id="typed list"),
        pytest.param([node("n1"), node("n2")], ".json", id="array"),
        pytest.param(
            json.dumps(node("n1"), indent=2) + json.dumps(node("n2"), indent=2), ".json", id="texts"
        ),
        pytest.param(
            f"{FLOW_NODE % 'n1'}\n---\n{FLOW_NODE % 'n2'}", ".yaml", id="YAML that begins with a brace"
        ),
        pytest.param(gzip.compress(json.dumps([node("n1"), node("n2")]).encode()), ".json", id="gzip"),
    ],
)
def test_nodes_are_read_in_every_format(reading, content, suffix):
    found = reading(content, suffix=suffix)
    assert names(found.snapshot.nodes) == ["n1", "n2"]
    assert found.set_aside_objects == ()


def test_json_lines_are_read_and_only_a_broken_line_is_set_aside(reading):
    lines = f"{json.dumps(node('n1'))}\n{{broken\n\n{json.dumps(node('n2'))}\n"
    found = reading(lines, suffix=".jsonl")
    assert names(found.snapshot.nodes) == ["n1", "n2"]
    assert found.set_aside_objects[0].message.startswith("line 2: is not JSON")


def test_yaml_documents_are_read_and_only_a_broken_one_is_set_aside(reading):
    text = "\n---\n".join(
        [
            "# a comment alone",
            json.dumps(node("n1")),
            "kind: [",
            "apiVersion: v1\nkind: Node\nmetadata: {name: n2}",
            "",
        ]
    )
    found = reading(text, suffix=".yaml")
    assert names(found.snapshot.nodes) == ["n1", "n2"]
    (aside,) = found.set_aside_objects
    assert aside.message.startswith("line 6: is not YAML")


def test_yaml_times_stay_text(reading):
    text = "apiVersion: v1\nkind: Node\nmetadata: {name: n1, creationTimestamp: 2026-01-01T00:00:00Z}"
    assert (
        reading(text, suffix=".yaml").snapshot.nodes[0].metadata.creation_timestamp == "2026-01-01T00:00:00Z"
    )


def test_yaml_key_stated_twice_is_refused(reading):
    found = reading(
        node(),
        f"apiVersion: {OURS}\nkind: Queue\nmetadata: {{name: q}}\nspec:\n  weight: 1\n  weight: 2",
        suffix=".yaml",
    )
    assert found.set_aside_objects[0].message == "line 6: is not YAML: the key 'weight' is stated twice"


@pytest.mark.parametrize("deep", ["[" * 100_000, "- " * 100_000, '{"a":' * 100_000])
def test_nesting_without_end_is_refused(reading, deep):
    found = reading(node(), deep)
    assert "nested" in found.set_aside_objects[0].message


def test_aliases_that_expand_exponentially_are_refused(reading):
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    assert "aliases" in reading(node(), bomb, suffix=".yaml").set_aside_objects[0].message


def test_broken_gzip_is_set_aside(reading):
    whole = gzip.compress(json.dumps(node("n1")).encode())
    found = reading(node("n2"), whole[:-12])
    assert "broken gzip" in found.set_aside_objects[0].message


@pytest.mark.parametrize("packed", [True, False])
def test_file_with_more_text_than_the_limit_is_set_aside(reading, monkeypatch, packed):
    monkeypatch.setattr(reader, "MAX_TEXT_BYTES", 2**20)
    blanks = b" " * 2**21
    found = reading(node("n2"), gzip.compress(blanks) if packed else blanks)
    assert names(found.snapshot.nodes) == ["n2"]
    (aside,) = found.set_aside_objects
    assert "GiB of text, which is the limit" in aside.message
    assert aside.file


def test_gzip_file_beyond_the_limit_is_refused_without_its_content_in_memory(monkeypatch):
    monkeypatch.setattr(reader, "MAX_TEXT_BYTES", 2**24)
    packed = gzip.compress(b" " * 2**27)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInput, match=r"bomb\.gz: has more than"):
            reader.decompress(packed, "bomb.gz")
        assert tracemalloc.get_traced_memory()[1] < 2**23
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".yaml"])
@pytest.mark.parametrize("field", ["labels", "spec", "name", "kind"])
def test_object_with_bytes_that_are_not_utf_8_is_set_aside_and_the_others_are_read(reading, suffix, field):
    bad = {
        "apiVersion": "v1",
        "kind": "Pod" if field != "kind" else "Po?d",
        "metadata": {
            "name": "a?" if field == "name" else "a",
            "labels": {"x": "?" if field == "labels" else ""},
        },
        "spec": {"containers": [], "nodeSelector": {"x": "?" if field == "spec" else ""}},
    }
    lines = [json.dumps(node("n1")).encode(), json.dumps(bad).encode().replace(b"?", b"\xff")]
    found = reading(
        b"\n".join(lines) if suffix == ".jsonl" else b"[" + b",".join(lines) + b"]", suffix=suffix
    )
    assert names(found.snapshot.nodes) == ["n1"]
    (aside,) = found.set_aside_objects
    assert "not UTF-8" in aside.message
    assert field in ("name", "kind") or aside.object == "Pod default/a"


def test_custom_resource_with_bytes_that_are_not_utf_8_is_set_aside(reading):
    raw = b'{"apiVersion":"scheduling.batchsched.dev/v1alpha1","kind":"Queue","metadata":{"name":"q"},"x":"\xff"}'
    (aside,) = reading(node("n1"), raw).set_aside_objects
    assert (aside.object, aside.message) == ("Queue q", "contains bytes that are not UTF-8 text")


@pytest.mark.parametrize(
    "resource, amount", [("cpu", "9e15"), ("memory", "9e18"), ("memory", "5e18"), ("a/b", "2P")]
)
def test_pod_that_requests_more_than_any_cluster_has_is_set_aside(reading, resource, amount):
    resources = {"requests": {resource: amount}}
    huge = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "resources": resources}]},
    }
    (aside,) = reading(node("n1"), huge).set_aside_objects
    assert aside.field == f"spec.containers[0].resources.requests.{resource}"
    assert "more than any cluster has" in aside.message


def test_directory_is_read_by_name_and_what_is_no_manifest_is_left(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "2.json").write_text(json.dumps(node("n2")))
    (tmp_path / "1.yaml").write_text(json.dumps(node("n1")))
    (tmp_path / "README.md").write_text("# not this")
    found = read_manifests([tmp_path])
    assert names(found.snapshot.nodes) == ["n1", "n2"]
    assert found.set_aside_objects == ()


def test_file_that_is_missing_is_set_aside(tmp_path):
    (tmp_path / "1.json").write_text(json.dumps(node("n1")))
    found = read_manifests([tmp_path / "none.json", tmp_path / "1.json"])
    assert (
        format_set_aside_object(found.set_aside_objects[0])
        == f"{tmp_path}/none.json: cannot be read: No such file or directory"
    )


# What counts


def test_pods_of_one_template_share_one_spec(reading):
    one = pod("a")
    other = pod("b")
    third = pod("c", hostname="unlike-the-others")
    specs = [found.spec for found in reading(listed(one, other, third)).snapshot.pods]
    assert specs[0] is specs[1] is specs[2]


def test_finished_pods_are_left_out(reading):
    found = reading(
        listed(
            pod("a", phase="Succeeded"), pod("b", phase="Failed"), pod("c", phase="Running", nodeName="n1")
        )
    )
    assert names(found.snapshot.pods) == ["c"]


def test_pending_pods_of_other_schedulers_are_ignored_with_one_warning(reading):
    others = [pod(f"o{number}", schedulerName="other") for number in range(3)]
    found = reading(listed(pod("mine"), *others, pod("bound", schedulerName="other", nodeName="n1")))
    assert names(found.snapshot.pods) == ["mine", "bound"]
    (warning,) = found.warnings
    assert warning.startswith("3 pending pods are ignored, since 'other' schedules them (")
    assert "/o0, " in warning


def test_each_kind_that_is_not_read_causes_one_warning(reading):
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}
    found = reading(listed(node(), deployment, deployment, {"apiVersion": "v1", "kind": "Secret"}))
    assert found.warnings == (
        "Deployment of apps/v1 is not read: 2 passed over",
        "Secret of v1 is not read: 1 passed over",
    )
    assert found.set_aside_objects == ()


@pytest.mark.parametrize("kind", ["Scenario", "BatchSchedulerConfiguration"])
def test_configurations_and_scenarios_in_a_directory_of_manifests_cause_no_warning(tmp_path, kind):
    document = {"apiVersion": "config.batchsched.dev/v1alpha1", "kind": kind}
    (tmp_path / "input.json").write_text(json.dumps(listed(node(), document)))
    assert read_manifests([tmp_path]).warnings == ()


def test_storage_objects_are_read_and_claims_bind_at_once_unless_their_class_waits(reading):
    def stored(kind, name, **fields):
        return {"apiVersion": "storage.k8s.io/v1", "kind": kind, "metadata": {"name": name}, **fields}

    found = reading(
        listed(
            stored("StorageClass", "fast", provisioner="p"),
            stored("StorageClass", "late", provisioner="p", volumeBindingMode="WaitForFirstConsumer"),
            stored(
                "CSINode", "n", spec={"drivers": [{"name": "p", "nodeID": "n", "allocatable": {"count": 3}}]}
            ),
            stored("CSIDriver", "p", spec={"storageCapacity": True}),
            stored("CSIStorageCapacity", "c", storageClassName="late", capacity="1Gi"),
            stored("VolumeAttachment", "a", spec={"attacher": "p", "nodeName": "n", "source": {}}),
        )
    ).snapshot
    modes = [one.volume_binding_mode for one in found.storage_classes]
    assert modes == ["Immediate", "WaitForFirstConsumer"]
    assert found.csi_nodes[0].spec.drivers[0].allocatable.count == 3
    assert found.csi_drivers[0].spec.storage_capacity
    assert (names(found.csi_storage_capacities), names(found.volume_attachments)) == (["c"], ["a"])


@pytest.mark.parametrize(
    "wrong, field",
    [
        ("{kind: CSIStorageCapacity, apiVersion: storage.k8s.io/v1, capacity: much}", "capacity"),
        (
            "{kind: CSIStorageCapacity, apiVersion: storage.k8s.io/v1, maximumVolumeSize: -1}",
            "maximumVolumeSize",
        ),
        (
            "{kind: PersistentVolumeClaim, apiVersion: v1, spec: {resources: {requests: {storage: x}}}}",
            "spec.resources.requests.storage",
        ),
    ],
)
def test_invalid_storage_sizes_are_named(reading, wrong, field):
    (aside,) = reading(listed(node(), {"metadata": {"name": "o"}, **yaml.safe_load(wrong)})).set_aside_objects
    assert aside.field == field


def test_limits_count_as_requests_where_none_are_stated(reading):
    limited = pod()
    limited["spec"]["containers"][0]["resources"] = {
        "requests": {"cpu": "1"},
        "limits": {"cpu": "2", "nvidia.com/gpu": "8"},
    }
    (found,) = reading(limited).snapshot.pods
    assert found.spec.containers[0].resources.requests == {"cpu": "1", "nvidia.com/gpu": "8"}


def test_pod_limits_count_as_its_requests_except_where_a_container_asks(reading):
    limited = pod(resources={"limits": {"cpu": "4", "memory": "1Gi"}})
    (found,) = reading(limited).snapshot.pods
    assert found.spec.resources.requests == {"memory": "1Gi"}


def test_ports_on_the_hosts_network_are_host_ports(reading):
    networked = pod(hostNetwork=True)
    networked["spec"]["containers"][0]["ports"] = [{"containerPort": 80}]
    (found,) = reading(networked).snapshot.pods
    assert found.spec.containers[0].ports[0].host_port == 80


def test_null_means_not_stated(reading):
    empty = pod(nodeName=None, tolerations=None)
    empty["metadata"]["namespace"] = None
    found = reading(empty)
    assert found.set_aside_objects == ()
    assert found.snapshot.pods[0].key == "default/p"


def test_null_means_not_stated_in_custom_resources_too(reading):
    group = custom("PodGroup", "g", minMember=None, queue=None, subGroups=[{"name": "a", "minMember": 2}])
    group["metadata"]["labels"] = None
    found = reading(group)
    assert found.set_aside_objects == ()
    assert found.snapshot.pod_groups[0].effective_min_member == 2


def test_empty_list_is_an_empty_cluster(reading):
    found = reading(listed())
    assert found.snapshot.nodes == ()
    assert found.set_aside_objects == ()


# What is set aside


def aside(found):
    return [(one.object, one.field) for one in found.set_aside_objects]


@pytest.mark.parametrize(
    "amount, problem",
    [
        ("-1", "'-1' is negative"),
        ("lots", "not a usable quantity"),
        ("9e18", "63 bits"),
        (str(2**64), "63 bits"),
        (True, "expected a number or text, found true or false"),
        ({}, "expected a number or text, found a mapping"),
    ],
)
def test_invalid_amount_is_named_with_its_container(reading, amount, problem):
    broken = pod(requests={"cpu": amount})
    found = reading(node(), broken)
    assert names(found.snapshot.nodes) == ["n1"]
    (one,) = found.set_aside_objects
    assert one.object == "Pod team-a/p"
    assert one.field.startswith("spec.containers[0].resources.requests")
    assert problem in one.message


def test_same_mistake_in_every_pod_of_a_template_is_reported_for_every_pod(reading):
    found = reading(listed(*(pod(name, requests={"cpu": "-1"}) for name in "ab"), node()))
    assert aside(found) == [
        ("Pod team-a/a", "spec.containers[0].resources.requests.cpu"),
        ("Pod team-a/b", "spec.containers[0].resources.requests.cpu"),
    ]


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
NEAR = "{nodeSelectorTerms: [{matchExpressions: [{key: z, operator: Near}]}]}"
WITHOUT_VALUES = "{topologyKey: z, labelSelector: {matchExpressions: [{key: a, operator: In}]}}"


@pytest.mark.parametrize(
    "spec, field",
    [
        ("overhead: {cpu: '-1'}", "overhead.cpu"),
        ("resources: {requests: {cpu: x}}", "resources.requests.cpu"),
        (
            "initContainers: [{name: i, resources: {limits: {cpu: '-1'}}}]",
            "initContainers[0].resources.requests.cpu",
        ),
        (f"priority: {2**40}", "priority"),
        ("tolerations: [{operator: Like}]", "tolerations[0].operator"),
        ("tolerations: [{effect: Never}]", "tolerations[0].effect"),
        ("topologySpreadConstraints: [{maxSkew: 0, topologyKey: z}]", "topologySpreadConstraints[0].maxSkew"),
        ("topologySpreadConstraints: [{maxSkew: 1}]", "topologySpreadConstraints[0].topologyKey"),
        (
            "topologySpreadConstraints: [{topologyKey: z, whenUnsatisfiable: x}]",
            "topologySpreadConstraints[0].whenUnsatisfiable",
        ),
        (
            "topologySpreadConstraints: [{topologyKey: z, minDomains: 0}]",
            "topologySpreadConstraints[0].minDomains",
        ),
        (
            f"affinity: {{nodeAffinity: {{{REQUIRED}: {NEAR}}}}}",
            f"affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0].operator",
        ),
        (
            f"affinity: {{nodeAffinity: {{{PREFERRED}: [{{weight: 101}}]}}}}",
            f"affinity.nodeAffinity.{PREFERRED}[0].weight",
        ),
        (
            f"affinity: {{podAffinity: {{{REQUIRED}: [{{}}]}}}}",
            f"affinity.podAffinity.{REQUIRED}[0].topologyKey",
        ),
        (
            f"affinity: {{podAntiAffinity: {{{PREFERRED}: [{{weight: 1, podAffinityTerm: {WITHOUT_VALUES}}}]}}}}",
            f"affinity.podAntiAffinity.{PREFERRED}[0].podAffinityTerm.labelSelector.matchExpressions[0].values",
        ),
        ("containers: none", "containers"),
        ("nodeName: 7", "nodeName"),
    ],
)
def test_invalid_field_of_a_pod_is_named(reading, spec, field):
    assert aside(reading(node(), pod(**yaml.safe_load(spec)))) == [("Pod team-a/p", f"spec.{field}")]


def test_node_with_negative_capacity_is_set_aside(reading):
    assert aside(reading(node("n1", cpu="-8"), node("n2", cpu="8"))) == [
        ("Node n1", "status.allocatable.cpu")
    ]


def test_amounts_that_a_running_pod_was_given_are_checked(reading):
    running = pod(nodeName="n1", phase="Running")
    running["status"]["containerStatuses"] = [{"name": "c", "allocatedResources": {"cpu": "-1"}}]
    assert aside(reading(node(), running)) == [
        ("Pod team-a/p", "status.containerStatuses[0].allocatedResources.cpu")
    ]


GREATER = "{selector: {matchExpressions: [{key: a, operator: Gt, values: ['1']}]}}"


@pytest.mark.parametrize(
    "broken, field",
    [
        (
            f"{{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {{name: b}}, spec: {GREATER}}}",
            "spec.selector.matchExpressions[0].operator",
        ),
        (
            f"{{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {{name: b}}, value: {2**31}}}",
            "value",
        ),
        (
            "{apiVersion: v1, kind: PersistentVolume, metadata: {name: b}, spec: {capacity: {storage: '-1'}}}",
            "spec.capacity.storage",
        ),
        ("{apiVersion: v1, kind: Node, metadata: {name: ''}}", "metadata.name"),
        ("{apiVersion: v1, kind: Node, metadata: {name: a/b}}", "metadata.name"),
        ('{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: "b\\nc"}}', "metadata.namespace"),
        ("{apiVersion: v1, kind: Node, metadata: {name: n, labels: {a: 1}}}", "metadata.labels[*]"),
        (f"{{apiVersion: {OURS}, kind: Queue, metadata: {{name: q}}, spec: {{wieght: 1}}}}", "spec.wieght"),
        ("{apiVersion: scheduling.batchsched.dev/v7, kind: Queue, metadata: {name: q}}", "apiVersion"),
        (f"{{apiVersion: {OURS}, kind: PodGrup, metadata: {{name: q}}}}", "kind"),
        ("{kind: Node, metadata: {name: q}}", "apiVersion"),
        ("{metadata: {name: q}}", "kind"),
    ],
)
def test_invalid_object_is_named(reading, broken, field):
    found = reading(node(), yaml.safe_load(broken))
    assert [one.field for one in found.set_aside_objects] == [field]
    assert names(found.snapshot.nodes) == ["n1"]


def test_invalid_kind_is_reported_with_what_is_expected(reading):
    found = reading(node(), {"apiVersion": OURS, "kind": "PodGrup", "metadata": {"name": "q"}})
    assert found.set_aside_objects[0].message.endswith("did you mean PodGroup?")


@pytest.mark.parametrize(
    "content, field, message",
    [
        (
            "just words",
            "",
            "expected a Kubernetes object: a mapping with apiVersion, kind and metadata; found",
        ),
        ("3", "", "expected a Kubernetes object: a mapping with apiVersion, kind and metadata; found '3'"),
        ("kind: {a: b}", "kind", "expected text, found a mapping"),
    ],
)
def test_value_that_is_not_an_object_is_set_aside_with_what_is_expected(reading, content, field, message):
    found = reading(json.dumps(node()), content, suffix=".yaml")
    assert found.set_aside_objects[0].field == field
    assert found.set_aside_objects[0].message.startswith(message)


def test_second_object_of_a_name_is_set_aside_with_the_place_of_the_first(reading, tmp_path):
    found = reading(listed(node("n1", cpu="1"), pod("p")), listed(node("n1", cpu="2"), pod("p")))
    assert [one.status.allocatable for one in found.snapshot.nodes] == [{"cpu": "1"}]
    assert aside(found) == [("Node n1", "metadata.name"), ("Pod team-a/p", "metadata.name")]
    assert f"in {tmp_path}/0.json" in found.set_aside_objects[0].message


def test_equal_names_in_different_namespaces_are_distinct(reading):
    other = pod("p")
    other["metadata"]["namespace"] = "team-b"
    assert len(reading(listed(pod("p"), other)).snapshot.pods) == 2


# Objects together


def test_all_queues_of_a_cycle_and_those_below_are_set_aside(reading):
    queues = [
        custom("Queue", "a", parent="b"),
        custom("Queue", "b", parent="a"),
        custom("Queue", "c", parent="b"),
        custom("Queue", "d"),
    ]
    found = reading(listed(*queues))
    assert names(found.snapshot.queues) == ["d"]
    messages = {one.object: one.message for one in found.set_aside_objects}
    assert "a → b → a" in messages["Queue a"]
    assert "a → b → a" in messages["Queue b"]
    assert messages["Queue c"] == "the parent 'b' was set aside; set that one right first"


def test_queue_that_is_its_own_parent_is_set_aside(reading):
    found = reading(listed(custom("Queue", "a", parent="a"), node()))
    assert "a → a" in found.set_aside_objects[0].message


def test_queue_below_none_is_set_aside_and_one_below_default_is_not(reading):
    found = reading(listed(custom("Queue", "a", parent="none"), custom("Queue", "b", parent="default")))
    assert names(found.snapshot.queues) == ["b"]
    assert (
        found.set_aside_objects[0].message
        == "the parent 'none' does not exist; make it, or leave out the parent"
    )


def test_unknown_sub_group_causes_one_warning_and_the_pods_are_kept(reading):
    group = custom("PodGroup", "g", subGroups=[{"name": "workers"}])
    pods = [pod(f"p{number}", group="g", sub="wrokers") for number in range(2)]
    found = reading(listed(group, *pods, pod("q", group="g", sub="workers"), pod("r", group="g")))
    assert len(found.snapshot.pods) == 4
    (warning,) = found.warnings
    assert "PodGroup team-a/g" in warning
    assert "'wrokers' (2 pods); it has workers" in warning


# Nothing left


@pytest.mark.parametrize(
    "content",
    ["", "# nothing\n", b"\x00\xff junk", "kind: ["],
    ids=["nothing", "a comment", "junk", "half a list"],
)
def test_input_with_nothing_usable_is_refused(reading, content):
    with pytest.raises(CommandError, match="nothing in the input that can be used"):
        reading(content, suffix=".yaml")


def test_refusal_of_the_input_names_what_was_wrong(reading):
    with pytest.raises(CommandError, match=r"spec\.minMember: expected 1 or more, found 0"):
        reading(custom("PodGroup", "g", minMember=0))
    with pytest.raises(CommandError, match="Secret of v1 is not read"):
        reading({"apiVersion": "v1", "kind": "Secret"})


def test_long_refusal_of_the_input_is_cut(reading):
    with pytest.raises(CommandError, match="and 10 more"):
        reading(listed(*(custom("PodGroup", f"g{number}", minMember=0) for number in range(30))))


def test_pods_of_a_pod_group_of_coscheduling_join_a_gang_unless_another_scheduler_owns_them(reading):
    label = {"labels": {"scheduling.x-k8s.io/pod-group": "bert"}}
    pods = [pod(f"near-{number}") for number in range(2)]
    pods += [pod(f"far-{number}", schedulerName="other", nodeName="n") for number in range(2)]
    group = custom("PodGroup", "bert", minMember=2) | {"apiVersion": "scheduling.x-k8s.io/v1alpha1"}
    snapshot = reading([group, *(one | {"metadata": one["metadata"] | label} for one in pods)]).snapshot
    assert [(one.key, one.effective_min_member) for one in snapshot.pod_groups] == [("team-a/bert", 2)]
    joined = [one.name for one in snapshot.pods if one.labels.get(POD_GROUP_LABEL)]
    assert joined == ["near-0", "near-1"]


def test_an_invalid_gang_of_another_scheduler_is_set_aside_with_its_field(reading):
    group = custom("PodGroup", "bad", minMember=2, minResources={"cpu": "much"})
    (one,) = reading(node(), group | {"apiVersion": "scheduling.x-k8s.io/v1alpha1"}).set_aside_objects
    assert (one.object, one.field) == ("PodGroup team-a/bad", "spec.minResources.cpu")


def tree_group(kind, name, parent="", **gang):
    version = "v1alpha3" if kind == "CompositePodGroup" else "v1beta1"
    above = {"parentCompositePodGroupName": parent} if parent else {}
    return {
        "apiVersion": f"scheduling.k8s.io/{version}",
        "kind": kind,
        "metadata": {"name": name, "namespace": "team-a"},
        "spec": {"schedulingPolicy": {"gang": gang}, **above},
    }


def test_an_invalid_group_of_a_tree_is_set_aside_with_its_file_and_field(reading):
    trees = (tree_group("CompositePodGroup", "train"), tree_group("PodGroup", "workers", "train", minCount=4))
    invalid = tree_group("PodGroup", "huge", "bad", minCount=2**40)
    result = reading(listed(*trees, tree_group("CompositePodGroup", "bad")), invalid)
    assert [group.key for group in result.snapshot.pod_groups] == ["team-a/train"]
    (problem,) = result.snapshot.set_aside
    assert problem.file.endswith("1.json")
    assert (problem.object, problem.field) == ("PodGroup team-a/huge", "spec.schedulingPolicy.gang.minCount")
