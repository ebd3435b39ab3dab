"""Pods with ranks: consecutive ranks are placed close together, in every selection."""

import pytest

from batchsched.api.snapshot import Snapshot
from tests.session.scenario import cluster, group, node, placed, pod, profile, schedule, topology

INDEX = "batch.kubernetes.io/job-completion-index"


def racks(*sizes: int, blocks: int = 1):
    """Racks with this many nodes of 2 GPUs; node names do not follow the racks."""
    owners = [rack for rack, size in enumerate(sizes) for _ in range(size)]
    return [
        node(f"n{(7 * at) % len(owners)}", {"rack": f"r{rack}", "block": f"b{rack % blocks}"}, gpu=2)
        for at, rack in enumerate(owners)
    ]


def ranked_gang(name: str, count: int, **topology_fields: str) -> Snapshot:
    """A gang with pod names that sort in another order than the ranks."""
    pods = tuple(pod(f"{name}-{at}", group=name, gpu=1, labels={INDEX: str(at)}) for at in range(count))
    return Snapshot(
        pods=pods, pod_groups=(group(name, count, topology={"rankLabel": INDEX, **topology_fields}),)
    )


def racks_by_rank(snapshot: Snapshot, decision, name: str, count: int) -> list[str]:
    rack_of = {one.metadata.name: (one.metadata.labels or {})["rack"] for one in snapshot.nodes}
    nodes = placed(decision)
    return [rack_of[nodes[f"{name}-{at}"]] for at in range(count)]


@pytest.mark.parametrize("selection", ["weight", "ordered"])
def test_ranks_follow_each_other_rack_by_rack(selection):
    snapshot = cluster(racks(3, 3, 3, 3), ranked_gang("ring", 12), topologies=(topology("block", "rack"),))
    decision = schedule(snapshot, profile(selection=selection))
    order = racks_by_rank(snapshot, decision, "ring", 12)
    assert len(set(order)) == 2
    assert order == [order[0]] * 6 + [order[-1]] * 6


@pytest.mark.parametrize("selection", ["weight", "ordered"])
def test_ranks_leave_as_few_blocks_as_possible(selection):
    snapshot = cluster(
        racks(2, 2, 2, 2, blocks=2), ranked_gang("ring", 8), topologies=(topology("block", "rack"),)
    )
    decision = schedule(snapshot, profile(selection=selection))
    block_of = {one.metadata.name: (one.metadata.labels or {})["block"] for one in snapshot.nodes}
    assert len({block_of[name] for name in placed(decision).values()}) == 1


def test_lowest_ranks_of_an_elastic_gang_are_placed_first():
    pods = tuple(pod(f"e-{9 - at}", group="e", gpu=1, labels={INDEX: str(at)}) for at in range(6))
    elastic = Snapshot(pods=pods, pod_groups=(group("e", 2, topology={"rankLabel": INDEX}),))
    decision = schedule(cluster(racks(2), elastic, topologies=(topology("rack"),)))
    assert set(placed(decision)) == {"e-9", "e-8", "e-7", "e-6"}


def test_required_rack_is_kept_with_ranks():
    snapshot = cluster(racks(2, 2), ranked_gang("ring", 4, required="rack"), topologies=(topology("rack"),))
    decision = schedule(snapshot)
    assert len(set(racks_by_rank(snapshot, decision, "ring", 4))) == 1


def test_gang_without_a_topology_of_that_name_is_placed_in_the_order_of_names():
    decision = schedule(cluster(racks(2, 2), ranked_gang("ring", 4)))
    assert len(placed(decision)) == 4
