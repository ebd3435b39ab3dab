import pytest

from batchsched.framework.cycle_state import CycleState
from batchsched.framework.status import Code
from batchsched.plugins.volume_zone import NO_ZONE, VolumeZone
from tests.plugins.cluster import class_of, filtered, node, pod, refusals
from tests.plugins.storage import ZONE, claim, claiming, storage_class, stored, volume

BETA = "failure-domain.beta.kubernetes.io/zone"


def prefilter(one, made):
    return VolumeZone().prefilter(class_of(made, one), made.all_nodes_view(), CycleState()).status


def test_a_zoned_volume_is_mounted_in_one_of_its_zones():
    nodes = [node(name, labels={ZONE: name}) for name in "abc"]
    made = stored(nodes, claim("c", "v"), volume("v", labels={ZONE: "a__b"}))
    assert refusals(VolumeZone(), claiming("x", "c"), made) == {"c": (NO_ZONE,)}
    assert filtered(VolumeZone(), claiming("x", "c"), made).unresolvable.tolist() == [False, False, True]


def test_a_node_without_any_topology_label_passes():
    nodes = [node("a"), node("b", labels={"topology.kubernetes.io/region": "r"})]
    made = stored(nodes, claim("c", "v"), volume("v", labels={ZONE: "z"}))
    assert list(refusals(VolumeZone(), claiming("x", "c"), made)) == ["b"]


def test_a_volumes_beta_label_is_compared_with_the_nodes_own_or_else_with_its_successor():
    nodes = [
        node("a", labels={BETA: "z"}),
        node("b", labels={ZONE: "z"}),
        node("c", labels={BETA: "y", ZONE: "z"}),
    ]
    made = stored(nodes, claim("c", "v"), volume("v", labels={BETA: "z"}))
    assert list(refusals(VolumeZone(), claiming("x", "c"), made)) == ["c"]


def test_a_zone_label_with_an_empty_part_is_ignored():
    made = stored([node("a", labels={ZONE: "a"})], claim("c", "v"), volume("v", labels={ZONE: "z__"}))
    assert prefilter(claiming("x", "c"), made).code is Code.SKIP


def test_pods_without_claims_and_claims_that_wait_for_a_node_are_skipped():
    made = stored([node("a")], claim("c"), storage_class())
    assert prefilter(pod(), made).code is Code.SKIP
    assert prefilter(claiming("x", "c"), made).code is Code.SKIP


@pytest.mark.parametrize(
    "objects, reason",
    [
        ([], 'persistentvolumeclaim "c" not found'),
        ([claim("c", "v")], 'persistentvolume "v" not found'),
        ([claim("c", storageClassName="")], "PersistentVolumeClaim had no pv name and storageClass name"),
        ([claim("c")], 'storageclass.storage.k8s.io "late" not found'),
        (
            [claim("c"), storage_class(volumeBindingMode=None)],
            'VolumeBindingMode not set for StorageClass "late"',
        ),
        ([claim("c"), storage_class(volumeBindingMode="Immediate")], "PersistentVolume had no name"),
    ],
)
def test_a_claim_that_will_have_no_volume_is_refused_on_every_node(objects, reason):
    status = prefilter(claiming("x", "c"), stored([node("a")], *objects))
    assert (status.code, status.reasons) == (Code.UNRESOLVABLE, (reason,))


def test_a_claim_needs_a_name():
    status = prefilter(claiming("x", ""), stored([node("a")]))
    assert status.reasons == ("PersistentVolumeClaim had no name",)
