"""Pods that no API server has created get the claims of their templates."""

import msgspec

from batchsched.api.core.device import ResourceClaimTemplate
from batchsched.api.core.metadata import ObjectMeta
from batchsched.api.core.pod import Pod, PodResourceClaim, PodSpec
from batchsched.api.snapshot import Snapshot
from batchsched.api.template_claims import with_claims_of_new_pods
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
    snapshot = with_claims_of_new_pods(cluster(""))
    ((pod,), (made,)) = snapshot.pods, snapshot.resource_claims
    assert made.spec == claim().spec
    owner = made.metadata.controller
    assert owner is not None
    assert owner.uid == pod.metadata.uid
    (status,) = pod.status.resource_claim_statuses or ()
    assert (status.name, status.resource_claim_name) == ("device", made.name)


def test_claims_are_created_once():
    snapshot = with_claims_of_new_pods(cluster("supposed-Pod-team-a"))
    assert len(snapshot.resource_claims) == 1
    assert with_claims_of_new_pods(snapshot) is snapshot


def test_pods_of_a_cluster_bound_pods_and_pods_without_a_template_are_unchanged():
    for snapshot in (cluster("e2b7"), cluster("", node="n0"), cluster("", template="absent")):
        assert with_claims_of_new_pods(snapshot) is snapshot
