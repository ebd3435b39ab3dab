"""The follower decides what `decide` decides, and leaves out what a simulator does not read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.snapshot import Snapshot
from batchsched.session.follow import Follower
from tests.session.clusters import clusters
from tests.session.scenario import NOW, alone, bound, cluster, gang, nodes, placed, profile, schedule
from tests.session.test_properties import WAYS

SETTINGS = WAYS | {
    "headroom": profile(selection="ordered", policy={"name": "headroom"}, backfill="easy"),
    "blocking": profile(selection="ordered", policy={"name": "sjf"}, blocking=True),
}


@pytest.mark.properties
@pytest.mark.parametrize("way", SETTINGS)
@given(snapshot=clusters(), later=st.sampled_from([0.0, 5000.0]))
def test_leaving_refusals_out_changes_nothing_else(way: str, snapshot: Snapshot, later: float):
    brief = Follower(snapshot, SETTINGS[way]).decide(NOW + later, 0)
    full = schedule(snapshot, SETTINGS[way], NOW + later)
    assert brief.assignments == full.assignments
    if brief.assignments or brief.reservations:  # of a head behind which nobody could start it says nothing
        assert brief.reservations == full.reservations
    assert brief.solver == full.solver
    if way != "joint":
        assert {one.pod_group for one in brief.refusals} <= {one.pod_group for one in full.refusals}


def test_events_move_the_cluster_on():
    follower = Follower(cluster(nodes(2, gpu=1)), profile())
    snapshot = cluster(nodes(2, gpu=1), gang("bert", 2), alone(1, gpu=1))
    follower.add_group(snapshot.pod_groups[0])
    follower.add_pods(snapshot.pods)
    first = follower.decide(NOW, 0)
    assert set(placed(first)) == {"bert-0", "bert-1"}
    follower.bind_pods([one for one in bound(snapshot, first).pods if one.node])
    assert placed(follower.decide(NOW, 0)) == {}
    follower.remove_pods(snapshot.pods[:2])
    follower.remove_group("team/bert")
    assert set(placed(follower.decide(NOW, 0))) == {"solo-0"}
