from dataclasses import replace

from batchsched.api.snapshot import Snapshot
from batchsched.framework.nodes.reserved_volumes import ReservedPodVolumes, ReservedVolumes
from tests.plugins.storage import claim, claiming, volume

X, Y = claiming("x", uid="ux"), claiming("y", uid="uy")
NEW_X = claiming("x", uid="new")
OF_X = ReservedPodVolumes((("v", "default/c"),), (("default/d", "n"),))
OF_Y = ReservedPodVolumes((("w", "default/e"),))


def test_assumed_volumes_are_kept_until_they_are_reverted():
    assumed = ReservedVolumes()
    assumed.assume(X, OF_X)
    assumed.assume(Y, OF_Y)
    assert assumed.claim_of == {"v": "default/c", "w": "default/e"}
    assert assumed.node_of == {"default/d": "n"}
    assert (assumed.get(Y), assumed.get(NEW_X)) == (OF_Y, ReservedPodVolumes())
    assumed.release_reserved_volumes(X)
    assumed.release_reserved_volumes(X)
    assumed.release_reserved_volumes(NEW_X)
    assert (assumed.claim_of, assumed.node_of) == ({"w": "default/e"}, {})


def test_a_pod_that_reserves_other_volumes_releases_those_that_it_reserved_before():
    assumed = ReservedVolumes()
    assumed.assume(X, OF_X)
    assumed.assume(X, OF_Y)
    assert (assumed.claim_of, assumed.node_of) == ({"w": "default/e"}, {})


def test_assumed_volumes_of_reserved_pods_are_copied():
    before, after = ReservedVolumes(), ReservedVolumes()
    before.assume(X, OF_X)
    before.assume(NEW_X, OF_Y)
    after.copy_reservations_of_pods_being_bound(before, lambda pod, uid: (pod, uid) == ("default/x", "ux"))
    assert (after.claim_of, after.node_of) == ({"v": "default/c"}, {"default/d": "n"})
    assert after.get(X) == OF_X


def test_reservations_are_dropped_if_their_pods_are_not_being_bound_any_more():
    assumed = ReservedVolumes()
    assumed.assume(X, OF_X)
    assumed.assume(NEW_X, OF_X)
    assumed.release_reservations_of_pods_not_being_bound(lambda _, uid: uid == "new")
    assert (assumed.get(X), assumed.get(NEW_X)) == (ReservedPodVolumes(), OF_X)
    assert (assumed.claim_of, assumed.node_of) == ({"v": "default/c"}, {"default/d": "n"})
    assumed.release_reservations_of_pods_not_being_bound(lambda *_: False)
    assert (assumed.claim_of, assumed.node_of) == ({}, {})


def test_a_bound_pod_keeps_its_volumes_until_the_snapshot_shows_all_of_them_as_bound():
    free = Snapshot(persistent_volumes=(volume("v"),), persistent_volume_claims=(claim("d"),))
    owner = {"namespace": "default", "name": "c", "uid": "uid-c"}
    written = replace(free, persistent_volumes=(volume("v", claimRef=owner),))
    bound = replace(written, persistent_volume_claims=(claim("d", "pv"),))
    kept = []
    for snapshot in (free, written, bound):
        assumed = ReservedVolumes(snapshot)
        assumed.assume(X, OF_X)
        assumed.release_reservations_of_pods_not_being_bound(lambda *_: False, lambda *_: True)
        kept.append(bool(assumed.claim_of or assumed.node_of))
    assert kept == [True, True, False]
