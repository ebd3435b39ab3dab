import msgspec
import numpy as np
import pytest

from batchsched.framework.constrain import ALL_NODES, EVERY_NODE, CandidatePods, CandidateSet
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.status import Code
from batchsched.plugins.volume_restrictions import CLAIM_IN_USE, DISK_IN_USE, VolumeRestrictions
from tests.plugins.cluster import claim, class_of, filtered, land, node, pod, refusals, table

ONCE = claim("once", "ReadWriteOncePod")
MANY = claim("many", "ReadWriteMany")


def mounting(name, **source):
    return pod(name, volumes=[{"name": "v", **source}])


def using(name, claimed="once"):
    return mounting(name, persistentVolumeClaim={"claimName": claimed})


def gce(name, read_only=False):
    return mounting(name, gcePersistentDisk={"pdName": "d", "readOnly": read_only})


def prefilter(plugin, wish, made, state):
    return plugin.prefilter(class_of(made, wish), made.all_nodes_view(), state).status


@pytest.mark.parametrize(
    "source, apart",
    [
        ({"awsElasticBlockStore": {"volumeID": "d", "readOnly": True}}, True),
        ({"iscsi": {"iqn": "d"}}, True),
        ({"iscsi": {"iqn": "d", "readOnly": True}}, False),
        ({"gcePersistentDisk": {"pdName": "d"}}, True),
        ({"gcePersistentDisk": {"pdName": "d", "readOnly": True}}, False),
        ({"rbd": {"monitors": ["m1", "m2"], "image": "i"}}, True),
        ({"rbd": {"monitors": ["m1", "m2"], "image": "i", "readOnly": True}}, False),
    ],
)
def test_two_pods_may_share_a_disk_only_if_its_kind_allows_it(source, apart):
    made = table([node("a"), node("b")], {"a": [mounting("p", **source)]})
    assert refusals(VolumeRestrictions(), mounting("x", **source), made) == (
        {"a": (DISK_IN_USE,)} if apart else {}
    )


def test_a_reader_and_a_writer_of_one_disk_conflict():
    made = table([node("a")], {"a": [gce("p", read_only=True)]})
    assert list(refusals(VolumeRestrictions(), gce("x"), made)) == ["a"]


def test_rbd_images_conflict_if_they_share_a_monitor():
    def image(name, *monitors):
        return mounting(name, rbd={"monitors": list(monitors), "image": "i"})

    made = table([node("a")], {"a": [image("p", "m1", "m2")]})
    assert list(refusals(VolumeRestrictions(), image("x", "m2", "m3"), made)) == ["a"]
    assert refusals(VolumeRestrictions(), image("x", "m3"), made) == {}


def test_a_read_write_once_pod_claim_in_use_refuses_every_node_and_eviction_may_help():
    made = table([node("a"), node("b")], {"a": [using("p")]}, claims=[ONCE])
    assert refusals(VolumeRestrictions(), using("x"), made) == {"a": (CLAIM_IN_USE,), "b": (CLAIM_IN_USE,)}
    assert not filtered(VolumeRestrictions(), using("x"), made).unresolvable.any()


def test_a_read_write_many_claim_is_shared():
    made = table([node("a")], {"a": [using("p", "many")]}, claims=[MANY])
    assert prefilter(VolumeRestrictions(), using("x", "many"), made, CycleState()).code is Code.SKIP


def test_a_missing_claim_is_named():
    status = prefilter(VolumeRestrictions(), using("x", "c0"), table([node("a")]), CycleState())
    assert status.code is Code.UNRESOLVABLE
    assert status.reasons == ('persistentvolumeclaim "c0" not found',)


def test_the_claim_is_free_after_remove_pod_of_its_user():
    user = using("p")
    made = table([node("a")], {"a": [user]}, claims=[ONCE])
    plugin, state, wish = VolumeRestrictions(), CycleState(), using("x")
    prefilter(plugin, wish, made, state)
    plugin.remove_pod(class_of(made, wish), user, 0, made, state)
    assert plugin.filter(class_of(made, wish), made.all_nodes_view(), state).feasible_mask.all()
    plugin.add_pod(class_of(made, wish), user, 0, made, state)
    assert not plugin.filter(class_of(made, wish), made.all_nodes_view(), state).feasible_mask.any()


def test_remove_pod_frees_claims_of_the_same_name_in_every_namespace():
    # plugins/volumerestrictions, `conflictingPVCRefCountForPod` compares bare names: 1.36 errs so, and we with it.
    user, stranger = using("p"), using("q")
    meta = msgspec.structs.replace(stranger.metadata, namespace="other")
    stranger = msgspec.structs.replace(stranger, metadata=meta)
    made = table([node("a"), node("b")], {"a": [user], "b": [stranger]}, claims=[ONCE])
    plugin, state, wish = VolumeRestrictions(), CycleState(), using("x")
    prefilter(plugin, wish, made, state)
    plugin.remove_pod(class_of(made, wish), stranger, 1, made, state)
    assert plugin.filter(class_of(made, wish), made.all_nodes_view(), state).feasible_mask.all()
    plugin.add_pod(class_of(made, wish), stranger, 1, made, state)
    assert not plugin.filter(class_of(made, wish), made.all_nodes_view(), state).feasible_mask.any()


def test_reserve_refuses_a_claim_that_an_equal_pod_has_used_since_the_prefilter():
    made = table([node("a"), node("b")], claims=[ONCE])
    plugin, state = VolumeRestrictions(), CycleState()
    assert prefilter(plugin, using("x0"), made, state).code is Code.SKIP
    land(made, using("x0"), "a")
    assert plugin.reserve(using("x0"), 0, made, state).ok
    assert plugin.reserve(using("x1"), 1, made, state).reasons == (CLAIM_IN_USE,)
    plugin.unreserve(using("x1"), 1, made, state)


def test_only_one_of_equal_pods_is_admitted_if_its_volume_cannot_be_shared():
    made = table([node("a"), node("b")], claims=[ONCE])
    both, plugin = np.asarray([0, 1], np.int32), VolumeRestrictions()

    def admits(wish, *counts):
        return plugin.allows_bulk_placement(class_of(made, wish), made, both, np.asarray(counts, np.int32))

    assert admits(pod(), 5, 5)
    assert admits(gce("x"), 1, 1)
    assert not admits(gce("x"), 2, 0)
    assert admits(gce("x", read_only=True), 2, 2)
    assert admits(using("x"), 1, 0)
    assert not admits(using("x"), 1, 1)
    land(made, using("p"), "a")
    land(made, gce("q"), "b")
    assert not admits(using("x"), 0, 1)
    assert not admits(gce("x"), 1, 1)
    assert admits(gce("x"), 1, 0)


def test_rows_allow_one_pod_for_a_claim_and_one_writer_of_a_disk_on_each_node():
    made = table([node("a"), node("b")], {"b": [gce("p")]}, claims=[ONCE])
    wishes = [using("x"), using("y"), gce("w"), gce("r", read_only=True)]
    batch = CandidateSet(
        [CandidatePods(at, class_of(made, one), at, 2, True) for at, one in enumerate(wishes)]
    )
    claims, disks = VolumeRestrictions().constrain(batch, made.all_nodes_view())
    assert (claims.partition, claims.classes.tolist(), claims.right.tolist()) == (ALL_NODES, [0, 1], [1])
    assert (disks.partition, disks.classes.tolist(), disks.right.tolist()) == (EVERY_NODE, [2], [1, 0])
