"""Pods that no API server has created get the claims of their templates."""

from dataclasses import replace

import msgspec

from batchsched.api.core.device import ResourceClaimTemplate
from batchsched.api.core.metadata import ObjectMeta
from batchsched.api.core.pod import Pod, PodResourceClaim, PodSpec
from batchsched.api.snapshot import Snapshot
from batchsched.api.template_claims import with_template_claims_of_hypothetical_pods
from batchsched.config.schema import Profile
from batchsched.record.cluster_files import ClusterFiles, SessionSettings
from batchsched.scheduler.cluster_reader import read_snapshot_from_files
from tests.devices.objects import claim

TEMPLATE = msgspec.convert(
    {"metadata": {"name": "gpu", "namespace": "team"}, "spec": {"spec": msgspec.to_builtins(claim().spec)}},
    ResourceClaimTemplate,
)


def cluster(uid: str, node: str = "", template: str = "gpu") -> Snapshot:
    entry = PodResourceClaim(name="device", resource_claim_template_name=template)
    spec = PodSpec(node_name=node, resource_claims=(entry,))
    pod = Pod(metadata=ObjectMeta(name="a", namespace="team", uid=uid), spec=spec)
    return Snapshot(pods=(pod,), resource_claim_templates=(TEMPLATE,))


def test_pod_without_uid_gets_the_claim_of_its_template():
    snapshot = with_template_claims_of_hypothetical_pods(cluster(""))
    ((pod,), (made,)) = snapshot.pods, snapshot.resource_claims
    assert made.spec == claim().spec
    owner = made.metadata.controller_owner
    assert owner is not None
    assert owner.uid == pod.metadata.uid
    (status,) = pod.status.resource_claim_statuses or ()
    assert (status.name, status.resource_claim_name) == ("device", made.name)


def test_claims_are_created_once():
    snapshot = with_template_claims_of_hypothetical_pods(cluster("supposed-Pod-team-a"))
    assert len(snapshot.resource_claims) == 1
    assert with_template_claims_of_hypothetical_pods(snapshot) is snapshot


def test_pods_of_a_cluster_bound_pods_and_pods_without_a_template_are_unchanged():
    for snapshot in (cluster("e2b7"), cluster("", node="n0"), cluster("", template="absent")):
        assert with_template_claims_of_hypothetical_pods(snapshot) is snapshot


def test_name_of_an_existing_claim_is_not_used_again():
    taken = claim("a-device", metadata={"namespace": "team"})
    snapshot = with_template_claims_of_hypothetical_pods(replace(cluster(""), resource_claims=(taken,)))
    assert [made.key for made in snapshot.resource_claims] == ["team/a-device", "team/a-device-1"]
    assert snapshot.resource_claims[0] is taken
    (status,) = snapshot.pods[0].status.resource_claim_statuses or ()
    assert status.resource_claim_name == "a-device-1"


def test_single_pod_of_a_file_gets_its_claim(tmp_path):
    documents = [
        {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "team"}}
        | {
            "spec": {
                "schedulerName": "batchsched",
                "containers": [{"name": "main"}],
                "resourceClaims": [{"name": "device", "resourceClaimTemplateName": "gpu"}],
            }
        },
        {"kind": "ResourceClaimTemplate", "apiVersion": "resource.k8s.io/v1"} | msgspec.to_builtins(TEMPLATE),
    ]
    file = tmp_path / "pod.json"
    file.write_bytes(msgspec.json.encode({"kind": "List", "apiVersion": "v1", "items": documents}))
    reading = read_snapshot_from_files(ClusterFiles((file,)), SessionSettings(Profile(), 0.0))
    assert [made.key for made in reading.snapshot.resource_claims] == ["team/a-device"]
