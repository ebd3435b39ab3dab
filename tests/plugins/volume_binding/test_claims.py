import pytest
from msgspec.structs import replace

from batchsched.api.core.volume import PersistentVolumeClaimStatus
from batchsched.errors import PluginError
from batchsched.framework.plugin_support.volume_listers import storage_objects
from batchsched.plugins.volume_binding.claims import VolumeClaimRefused, bound_and_delayed_volume_claims
from tests.plugins.cluster import node, pod
from tests.plugins.storage import claim, claiming, storage_class, stored


def sorted_claims(one, *objects):
    return bound_and_delayed_volume_claims(one, storage_objects(stored([node("a")], *objects)))


def names(claims):
    return [one.metadata.name for one in claims]


def ephemeral():
    return pod("x", volumes=[{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}])


def test_claims_are_bound_or_delayed_until_a_node_is_chosen():
    found = sorted_claims(claiming("x", "b", "w"), claim("b", "v"), claim("w"), storage_class())
    assert (names(found.bound), names(found.delayed)) == (["b"], ["w"])


def test_a_pod_without_claims_has_none():
    assert sorted_claims(pod()) is None


@pytest.mark.parametrize(
    "objects, reason",
    [
        ([], 'persistentvolumeclaim "c" not found'),
        (
            [claim("c", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})],
            'persistentvolumeclaim "c" is being deleted',
        ),
        ([claim("c")], "pod has unbound immediate PersistentVolumeClaims"),
        (
            [claim("c"), storage_class(volumeBindingMode="Immediate")],
            "pod has unbound immediate PersistentVolumeClaims",
        ),
        (
            [claim("c", volumeName="v"), storage_class()],
            "pod has unbound immediate PersistentVolumeClaims",
        ),
    ],
)
def test_an_unusable_claim_is_refused_with_a_reason(objects, reason):
    with pytest.raises(VolumeClaimRefused) as refused:
        sorted_claims(claiming("x", "c"), *objects)
    assert str(refused.value) == reason


def test_a_lost_claim_names_its_volume():
    lost = replace(claim("c", "v"), status=PersistentVolumeClaimStatus(phase="Lost"))
    with pytest.raises(VolumeClaimRefused, match='"c" bound to non-existent persistentvolume "v"'):
        sorted_claims(claiming("x", "c"), lost)


def test_an_ephemeral_volumes_claim_is_waited_for_and_must_be_the_pods_own():
    with pytest.raises(
        VolumeClaimRefused, match=r'waiting for ephemeral volume controller to create .* "x-v"'
    ):
        sorted_claims(ephemeral())
    with pytest.raises(VolumeClaimRefused, match="PVC default/x-v was not created for pod default/x"):
        sorted_claims(ephemeral(), claim("x-v"))


def test_a_storage_class_without_a_binding_mode_is_an_error():
    with pytest.raises(PluginError, match="VolumeBindingMode not set"):
        sorted_claims(claiming("x", "c"), claim("c"), storage_class(volumeBindingMode=None))
