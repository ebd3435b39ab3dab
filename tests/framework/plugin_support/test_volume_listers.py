from batchsched.framework.plugin_support.volume_listers import (
    PodVolumeClaim,
    reason_pod_does_not_own_claim,
    signature_of_pod_volume_claims,
    storage_objects,
    volume_claim_storage_class,
    volume_claims_of_pod,
    volume_storage_class,
)
from tests.plugins.cluster import node, pod
from tests.plugins.storage import attachment, claim, claiming, stored, volume

BETA = {"annotations": {"volume.beta.kubernetes.io/storage-class": "old"}}


def test_objects_are_found_by_name_and_attachments_by_node():
    made = stored([node("a")], claim("c"), volume("v"), attachment("a", "v"), attachment("a", "w"))
    storage = storage_objects(made)
    assert (list(storage.claims), list(storage.volumes)) == (["default/c"], ["v"])
    assert [one.metadata.name for one in storage.attachments["a"]] == ["a-v", "a-w"]
    assert [one.metadata.name for one in storage.volumes_of["late"]] == ["v"]


def test_an_ephemeral_volumes_claim_is_named_after_pod_and_volume():
    volumes = [
        {"name": "v", "ephemeral": {"volumeClaimTemplate": {}}},
        {"name": "w", "persistentVolumeClaim": {"claimName": "c"}},
        {"name": "u", "gcePersistentDisk": {"pdName": "d"}},
    ]
    assert list(volume_claims_of_pod(pod("x", volumes=volumes))) == [
        PodVolumeClaim("x-v", ephemeral=True),
        PodVolumeClaim("c"),
    ]


def test_claim_identity_differs_by_claim_and_by_pod_for_ephemeral_claims():
    assert (
        signature_of_pod_volume_claims(claiming("x", "c"))
        == signature_of_pod_volume_claims(claiming("y", "c"))
        != signature_of_pod_volume_claims(pod())
    )
    own = [{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}]
    assert signature_of_pod_volume_claims(pod("x", volumes=own)) != signature_of_pod_volume_claims(
        pod("y", volumes=own)
    )


def test_a_claim_is_owned_by_the_pod_that_controls_it():
    def owned(**reference):
        return reason_pod_does_not_own_claim(
            pod("x"), claim("x-v", metadata={"ownerReferences": [reference]})
        )

    assert owned(controller=True, uid="") is None
    assert owned(controller=False, uid="") == owned(controller=True, uid="other")
    assert owned() == "PVC default/x-v was not created for pod default/x (pod is not owner)"


def test_the_beta_annotation_overrides_the_storage_class():
    assert volume_claim_storage_class(claim("c", metadata=BETA)) == "old"
    assert volume_claim_storage_class(claim("c", storageClassName=None)) == ""
    assert volume_storage_class(volume("v")) == "late"
