"""NodeOwner, through a whole session and by itself."""

from batchsched_site.node_owner import FOREIGN, NodeOwner
from site_cluster import Schedule, node, pod

from batchsched.api.decision import Decision
from batchsched.framework.status import SUCCESS


def places(decision: Decision) -> dict[str, str]:
    return {one.pod: one.node for one in decision.assignments}


def test_team_gets_its_own_nodes_first(schedule: Schedule) -> None:
    nodes = [node("open"), node("ours", owner="team-a")]
    assert places(schedule(nodes, [pod("web", cpu="1")])) == {"web": "ours"}


def test_pods_of_other_owners_do_not_use_these_nodes(schedule: Schedule) -> None:
    decision = schedule([node("ours", owner="team-a")], [pod("web", namespace="team-b", cpu="1")])
    assert places(decision) == {}
    assert "node(s) belonged to another team" in decision.refusals[0].message


def test_one_node_can_be_asked_about_without_a_session() -> None:
    plugin = NodeOwner()
    assert plugin.filter_node(pod("web"), node("open")) is SUCCESS
    assert plugin.filter_node(pod("web"), node("theirs", owner="team-b")) is FOREIGN
