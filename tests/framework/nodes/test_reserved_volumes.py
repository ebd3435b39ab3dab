from dataclasses import replace

from batchsched.api.snapshot import Snapshot
from batchsched.framework.nodes.reserved_volumes import ReservedPodVolumes, ReservedVolumes
from tests.plugins.storage import claim, claiming, volume

X, Y = claiming("x", uid="ux"), claiming("y", uid="uy")
NEW_X = claiming("x", uid="new")
OF_X = ReservedPodVolumes((("v", "default/c"),), (("default/d", "n"),))
OF_Y = ReservedPodVolumes((("w", "default/e"),))


def test_reserved_volumes_are_kept_until_they_are_reverted():
    reserved = ReservedVolumes()
    reserved.reserve(X, OF_X)
    reserved.reserve(Y, OF_Y)
    assert reserved.claim_of == {"v": "default/c", "w": "default/e"}
    assert reserved.node_of == {"default/d": "n"}
    assert (reserved.reserved_volumes_of_pod(Y), reserved.reserved_volumes_of_pod(NEW_X)) == (
        OF_Y,
        ReservedPodVolumes(),
    )
    reserved.release(X)
    reserved.release(X)
    reserved.release(NEW_X)
    assert (reserved.claim_of, reserved.node_of) == ({"w": "default/e"}, {})


def test_a_pod_that_reserves_other_volumes_releases_those_that_it_reserved_before():
    reserved = ReservedVolumes()
    reserved.reserve(X, OF_X)
    reserved.reserve(X, OF_Y)
    assert (reserved.claim_of, reserved.node_of) == ({"w": "default/e"}, {})


def test_volumes_of_reserved_pods_are_copied():
    before, after = ReservedVolumes(), ReservedVolumes()
    before.reserve(X, OF_X)
    before.reserve(NEW_X, OF_Y)
    after.copy_reservations_of_pods_being_bound(before, lambda pod, uid: (pod, uid) == ("default/x", "ux"))
    assert (after.claim_of, after.node_of) == ({"v": "default/c"}, {"default/d": "n"})
    assert after.reserved_volumes_of_pod(X) == OF_X


def test_reservations_are_dropped_if_their_pods_are_not_being_bound_any_more():
    reserved = ReservedVolumes()
    reserved.reserve(X, OF_X)
    reserved.reserve(NEW_X, OF_X)
    reserved.release_reservations_of_pods_not_being_bound(lambda _, uid: uid == "new")
    assert (reserved.reserved_volumes_of_pod(X), reserved.reserved_volumes_of_pod(NEW_X)) == (
        ReservedPodVolumes(),
        OF_X,
    )
    assert (reserved.claim_of, reserved.node_of) == ({"v": "default/c"}, {"default/d": "n"})
    reserved.release_reservations_of_pods_not_being_bound(lambda *_: False)
    assert (reserved.claim_of, reserved.node_of) == ({}, {})


def test_a_bound_pod_keeps_its_volumes_until_the_snapshot_shows_all_of_them_as_bound():
    free = Snapshot(persistent_volumes=(volume("v"),), persistent_volume_claims=(claim("d"),))
    owner = {"namespace": "default", "name": "c", "uid": "uid-c"}
    written = replace(free, persistent_volumes=(volume("v", claimRef=owner),))
    bound = replace(written, persistent_volume_claims=(claim("d", "pv"),))
    kept = []
    for snapshot in (free, written, bound):
        reserved = ReservedVolumes(snapshot)
        reserved.reserve(X, OF_X)
        reserved.release_reservations_of_pods_not_being_bound(lambda *_: False, lambda *_: True)
        kept.append(bool(reserved.claim_of or reserved.node_of))
    assert kept == [True, True, False]
