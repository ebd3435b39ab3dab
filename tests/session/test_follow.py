"""The follower decides what `decide` decides, and leaves out what a simulator does not read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.snapshot import Snapshot
from batchsched.ports.cluster import ClusterChanges
from batchsched.session.session import Session
from tests.session.clusters import clusters
from tests.session.scenario import NOW, alone, bound, cluster, gang, nodes, placed, profile, reasons, schedule
from tests.session.test_properties import WAYS

SETTINGS = WAYS | {
    "headroom": profile(selection="ordered", policy={"name": "headroom"}, backfill="easy"),
    "blocking": profile(selection="ordered", policy={"name": "sjf"}, blocking=True),
}


@pytest.mark.properties
@pytest.mark.parametrize("way", SETTINGS)
@given(snapshot=clusters(), later=st.sampled_from([0.0, 5000.0]))
def test_session_without_refusals_decides_the_same(way: str, snapshot: Snapshot, later: float):
    brief = Session(snapshot, SETTINGS[way], brief=True).decide(NOW + later, 0)
    full = schedule(snapshot, SETTINGS[way], NOW + later)
    assert brief.assignments == full.assignments
    if brief.assignments or brief.reservations:  # it omits a head behind which no gang could start
        assert brief.reservations == full.reservations
    assert brief.solver == full.solver
    if way != "joint":
        assert {one.pod_group for one in brief.refusals} <= {one.pod_group for one in full.refusals}


@pytest.mark.properties
@pytest.mark.parametrize("way", SETTINGS)
@given(snapshot=clusters(), later=st.sampled_from([0.0, 5000.0]))
def test_session_without_evictions_assigns_the_same(way: str, snapshot: Snapshot, later: float):
    session = Session(snapshot, SETTINGS[way], brief=True)
    without = session.decide(NOW + later, 0, with_evictions=False)
    assert without.assignments == schedule(snapshot, SETTINGS[way], NOW + later).assignments
    assert way == "pod-by-pod" or not without.evictions


def test_session_follows_the_events_of_the_cluster():
    follower = Session(cluster(nodes(2, gpu=1)), profile())
    snapshot = cluster(nodes(2, gpu=1), gang("bert", 2), alone(1, gpu=1))
    follower.apply_changes(ClusterChanges(pod_groups=snapshot.pod_groups, added_pods=snapshot.pods))
    first = follower.decide(NOW, 0)
    assert set(placed(first)) == {"bert-0", "bert-1"}
    running = [pod for pod in bound(snapshot, first).pods if pod.node_name]
    follower.apply_changes(ClusterChanges(bound_pods=running))
    assert placed(follower.decide(NOW, 0)) == {}
    follower.apply_changes(ClusterChanges(removed_pods=snapshot.pods[:2], removed_pod_groups=("team/bert",)))
    assert set(placed(follower.decide(NOW, 0))) == {"solo-0"}
    follower.apply_changes(ClusterChanges(added_pods=snapshot.pods[:2]))
    assert reasons(follower.decide(NOW, 0))["team/bert"] == "PodGroupNotFound"
