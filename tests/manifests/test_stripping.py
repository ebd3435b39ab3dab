"""Stripping keeps what decisions read of an object and nothing else."""

import msgspec
import pytest

from batchsched.api.core.pod import LAST_CHECKPOINT
from batchsched.api.external.kai import KAI_ANNOTATION
from batchsched.api.external.pod_group import SOURCE
from batchsched.api.external.volcano import VOLCANO_ANNOTATIONS, VOLCANO_QUEUE, VOLCANO_TASK
from batchsched.api.owner_keys import MIN_MEMBER
from batchsched.api.snapshot import KIND_BY_GROUP_AND_NAME
from batchsched.api.unsupported_fields import UNSUPPORTED_ANNOTATIONS
from batchsched.framework.plugin_support.csi_migration import MIGRATED_PLUGINS
from batchsched.framework.plugin_support.volume_listers import BIND_COMPLETED, SELECTED_NODE
from batchsched.manifests.decode import Decoder, ObjectDecodeError
from batchsched.manifests.documents import Document, Envelope
from batchsched.manifests.stripping import keep_fields_that_decisions_read
from batchsched.podgrouper.workload_rules import EXCLUSIVE

POD = KIND_BY_GROUP_AND_NAME["", "Pod"]
SECRET = "s3cret"
SPEC = {
    "schedulerName": "batchsched",
    "serviceAccountName": SECRET,
    "containers": [
        {
            "name": "main",
            "image": "train:1",
            "command": ["sh", "-c", SECRET],
            "env": [{"name": "TOKEN", "value": SECRET}],
            "envFrom": [{"secretRef": {"name": SECRET}}],
            "resources": {"requests": {"cpu": "2", "nvidia.com/gpu": "1"}},
            "ports": [{"containerPort": 80, "hostPort": 8080}],
        }
    ],
    "initContainers": [{"name": "init", "env": [{"name": "TOKEN", "value": SECRET}]}],
    "volumes": [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "password", "secret": {"secretName": SECRET}},
    ],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]
            }
        }
    },
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    ],
}


def pod(**metadata):
    meta = {"name": "x", "namespace": "team", "labels": {"app": "x"}, **metadata}
    return {"metadata": meta, "spec": SPEC, "status": {"phase": "Pending", "hostIP": SECRET}}


def decoded(manifest):
    raw = msgspec.json.encode(manifest)
    return Decoder().decode(Document("", "", raw, msgspec.json.decode(raw, type=Envelope)), POD)


def test_pod_without_its_unread_fields_is_the_same_pod_to_the_scheduler():
    assert decoded(keep_fields_that_decisions_read(pod(), POD)) == decoded(pod())


def test_environment_commands_and_secrets_are_left_out():
    assert SECRET not in str(keep_fields_that_decisions_read(pod(), POD))


def test_annotations_that_decisions_read_are_kept_and_others_are_left_out():
    read = (
        *(LAST_CHECKPOINT, SOURCE, KAI_ANNOTATION, *VOLCANO_ANNOTATIONS, VOLCANO_TASK, VOLCANO_QUEUE),
        *UNSUPPORTED_ANNOTATIONS,
        *(MIGRATED_PLUGINS, BIND_COMPLETED, SELECTED_NODE, EXCLUSIVE, MIN_MEMBER),
    )
    unread = ("kubectl.kubernetes.io/last-applied-configuration", "vault.example.com/template")
    stripped = keep_fields_that_decisions_read(pod(annotations=dict.fromkeys((*read, *unread), "x")), POD)
    assert stripped["metadata"]["annotations"] == dict.fromkeys(read, "x")


@pytest.mark.parametrize(
    "field, value",
    [("nodeSelector", 5), ("containers", "none"), ("tolerations", [5]), ("priority", "high")],
)
def test_invalid_field_stays_invalid_for_the_same_reason(field, value):
    invalid = pod() | {"spec": SPEC | {field: value}}
    with pytest.raises(ObjectDecodeError) as before:
        decoded(invalid)
    with pytest.raises(ObjectDecodeError) as after:
        decoded(keep_fields_that_decisions_read(invalid, POD))
    assert after.value.complaints == before.value.complaints


def test_custom_resource_keeps_its_spec_and_status():
    group = KIND_BY_GROUP_AND_NAME["scheduling.batchsched.dev", "PodGroup"]
    written = {
        "apiVersion": group.api_version,
        "kind": "PodGroup",
        "metadata": {"name": "bert", "namespace": "team", "annotations": {"kubectl.kubernetes.io/x": SECRET}},
        "spec": {"minMember": 3, "queue": "a"},
        "status": {"phase": "Pending"},
    }
    stripped = keep_fields_that_decisions_read(written, group)
    assert (stripped["spec"], stripped["status"]) == (written["spec"], written["status"])
    assert SECRET not in str(stripped)
