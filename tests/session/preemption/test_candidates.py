"""Who may leave, in which units, and what it costs."""

from typing import Any

from batchsched.api.snapshot import Snapshot
from batchsched.framework.runtime.registry import standard
from batchsched.session.preemption.candidates import VictimCandidates
from batchsched.session.tables.session_tables import SessionTables
from tests.session.preemption.running import at_work, lone, running
from tests.session.scenario import NOW, cluster, group, nodes, pod, profile

HALF: dict[str, Any] = {"requests": {"gpu": 4}}


def tenants(*parts: Snapshot, **more: Any) -> dict[str, list[tuple[int, int, bool]]]:
    """By gang: pods, cost and whether it ends, of each unit."""
    tables = SessionTables(cluster(nodes(2, gpu=8), *parts, **more), standard().pipeline(profile()))
    tables.refresh()
    return {
        one.members.key: [(len(unit.pods), unit.cost, unit.ends) for unit in one.units]
        for one in VictimCandidates(tables, NOW, "batchsched").candidates
    }


def test_gang_is_one_unit_and_a_pod_alone_another():
    found = tenants(running("g", ["n0", "n1"], **HALF), pods=(lone("p", "n0", gpu=1),))
    assert {name: [unit[::2] for unit in units] for name, units in found.items()} == {
        "team/g": [(2, True)],
        "team/p": [(1, True)],
    }


def test_elastic_gang_is_its_surplus_pod_by_pod_and_then_its_minimum():
    elastic = running("g", ["n0", "n0", "n1", "n1"], minimum=2, disruptionMode="Elastic", **HALF)
    units = tenants(elastic)["team/g"]
    assert [unit[::2] for unit in units] == [(1, False), (1, False), (2, True)]
    assert units[0][1] * 8 == units[2][1]


def test_pod_that_its_subgroup_needs_is_no_surplus_and_others_may_still_be():
    subs = [{"name": "x", "minMember": 1}, {"name": "y", "minMember": 1}]
    members = (
        at_work(pod("g-0", group="g", sub="x", gpu=1), "n0", started=0),
        *(at_work(pod(f"g-{at}", group="g", sub="y", gpu=1), "n0", started=60 * at) for at in (1, 2, 3)),
    )
    elastic = Snapshot(pods=members, pod_groups=(group("g", 2, subGroups=subs, disruptionMode="Elastic"),))
    assert [unit[::2] for unit in tenants(elastic)["team/g"]] == [(1, False), (1, False), (2, True)]


def test_work_that_is_lost_costs_and_so_does_a_priority():
    new, old = running("new", ["n0"], started=0, **HALF), running("old", ["n0"], started=7200, **HALF)
    high = running("high", ["n1"], started=0, priority=9, **HALF)
    cost = {name: units[0][1] for name, units in tenants(new, old, high).items()}
    assert cost["team/new"] < cost["team/old"]
    assert cost["team/high"] == 2 * cost["team/new"]


def test_gang_that_lost_its_minimum_costs_next_to_nothing():
    broken = running("g", ["n0", "n1"], **HALF)
    rest = Snapshot(pods=broken.pods[:1], pod_groups=broken.pod_groups)
    assert tenants(rest)["team/g"] == [(1, 1, True)]


def test_who_is_not_preemptible_or_has_not_run_for_its_minimum_is_no_tenant():
    young = running("young", ["n0"], minRuntimeSeconds=9999, **HALF)
    assert tenants(young, running("firm", ["n1"], preemptible=False, **HALF)) == {}
