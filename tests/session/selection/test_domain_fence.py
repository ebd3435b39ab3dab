"""Where pods of a gang may still go when they are placed one by one."""

from batchsched.api.snapshot import Snapshot
from batchsched.session.selection.domain_fence import DomainFence
from tests.session.clusters import on
from tests.session.scenario import cluster, gang, group, node, pod, topology
from tests.session.scenes import inside

NODES = [
    node("n0", {"zone": "a", "rack": "r0"}),
    node("n1", {"zone": "a", "rack": "r1"}),
    node("n2", {"zone": "b", "rack": "r2"}),
    node("n3"),
]


def fence(*parts: Snapshot, key: str = "team/g") -> DomainFence:
    there = inside(cluster(NODES, *parts, topologies=(topology("zone", "rack"),)))
    return DomainFence.of(there.context, there.gang(key))


def allowed(one: DomainFence, subgroup: int = -1) -> list[int]:
    nodes = one.allows(subgroup)
    return [0, 1, 2, 3] if nodes is None else [at for at in range(4) if nodes[at]]


def test_gang_without_levels_may_go_anywhere():
    found = fence(gang("g", 1))
    assert found.allows(-1) is None
    assert list(found.each()) == []
    found.enter(-1, 0)
    assert allowed(found) == [0, 1, 2, 3]


def test_nodes_without_the_label_are_out_and_the_first_pod_decides_for_the_others():
    found = fence(gang("g", 2, topology={"required": "zone"}))
    assert allowed(found) == [0, 1, 2]
    found.enter(-1, 1)
    assert allowed(found) == [0, 1]


def test_each_domain_gets_a_fence_of_its_own_and_the_first_stays_open():
    found = fence(gang("g", 2, topology={"required": "zone"}))
    assert [allowed(one) for one in found.each()] == [[0, 1], [2]]
    assert allowed(found) == [0, 1, 2]


def test_members_that_run_have_decided_already():
    members = (on(pod("a", group="g", cpu=1), "n2"), pod("b", group="g", cpu=1))
    found = fence(Snapshot(pods=members, pod_groups=(group("g", 2, topology={"required": "zone"}),)))
    assert allowed(found) == [2]
    assert list(found.each()) == []


def test_subgroups_keep_to_their_own_level_inside_that_of_the_gang():
    members = tuple(pod(f"p{sub}", group="g", sub=sub, cpu=1) for sub in "xy")
    subs = [{"name": "x", "minMember": 1, "topology": {"required": "rack"}}, {"name": "y", "minMember": 1}]
    made = group("g", 2, topology={"required": "zone"}, subGroups=subs)
    found = fence(Snapshot(pods=members, pod_groups=(made,)))
    found.enter(0, 0)
    assert allowed(found, 0) == [0]
    assert allowed(found, 1) == [0, 1]
