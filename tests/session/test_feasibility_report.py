from batchsched.api.decision import Assignment, Decision, Eviction
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.session.feasibility_report import report_feasibility
from tests.session.scenario import GPU, group, node, pod, topology

RACKS = topology("example.com/rack")


def rack(name: str) -> dict[str, str]:
    return {"example.com/rack": name}


CLUSTER = Snapshot(
    nodes=(
        node("n1", rack("a"), gpu=8),
        node("n2", rack("a"), gpu=8),
        node("n3", rack("b"), gpu=8),
        node("n4", gpu=4),
    ),
    topologies=(RACKS,),
    pod_groups=(group("wide", 3), group("other")),
    pods=(
        *(pod(f"wide-{at}", group="wide", gpu=4) for at in range(3)),
        pod("other-0", group="other", gpu=8),
        pod("busy", on="n3", gpu=5),
    ),
)


NOTHING = Decision()


def seen(decision: Decision = NOTHING, key: str = "team/wide"):
    view = report_feasibility(CLUSTER, decision, Profile(), key)
    assert view is not None
    return view


def test_room_counts_members_on_open_nodes_by_domain():
    view = seen()
    assert (view.min_member, view.bound, view.pending) == (3, 0, 3)
    (part,) = view.parts
    assert part.requests == {GPU: 4}
    assert (part.members, part.nodes, part.open_nodes, part.room) == (3, 4, 3, 5)
    assert part.reasons == {f"Insufficient {GPU}": 1}
    (level,) = part.levels
    assert [(one.value, one.nodes, one.open_nodes, one.room) for one in level.domains] == [
        ("a", 2, 2, 4),
        ("b", 1, 0, 0),
    ]


def test_pods_of_other_gangs_count_on_the_nodes_of_the_decision():
    decision = Decision(assignments=(Assignment(namespace="team", pod="other-0", node="n1"),))
    assert seen(decision).parts[0].room == 3


def test_members_of_the_gang_itself_are_evaluated_as_pending():
    decision = Decision(assignments=(Assignment(namespace="team", pod="wide-0", node="n1"),))
    assert seen(decision) == seen()


def test_evicted_pods_leave_room():
    gone = Eviction(namespace="team", pod="busy", pod_group="team/busy", for_="team/wide", reason="Preempted")
    assert seen(Decision(evictions=(gone,))).parts[0].room == 7


def test_single_pod_is_found_by_name_and_an_unknown_name_has_no_report():
    view = seen(key="team/busy")
    assert (view.bound, view.pending, view.parts) == (1, 0, ())
    assert report_feasibility(CLUSTER, Decision(), Profile(), "team/missing") is None
