"""Sessions over nodes with NUMA zones: no zone is overcommitted, and gangs fill all zones."""

import random
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.core.pod import Amounts, Container, ResourceRequirements
from batchsched.api.snapshot import Snapshot
from tests.plugins.node_resource_topology.topologies import topology
from tests.session.scenario import gang, node, profile, schedule

ALONE = profile(solver={"enabled": False})
TOGETHER = profile()
BOTH_WAYS = pytest.mark.parametrize("way", [ALONE, TOGETHER], ids=["pod by pod", "solver"])
ZONE = {"cpu": "8", "memory": "64Gi"}


def guaranteed_gang(name: str, count: int, cpu: int, minimum: int | None = None) -> Snapshot:
    """A gang of Guaranteed pods."""
    amounts: Amounts = {"cpu": str(cpu), "memory": "1Gi"}
    part = gang(name, count, minimum)
    resources = ResourceRequirements(requests=amounts, limits=amounts)
    pods = tuple(
        msgspec.structs.replace(
            one,
            spec=msgspec.structs.replace(one.spec, containers=(Container(name="main", resources=resources),)),
        )
        for one in part.pods
    )
    return replace(part, pods=pods)


def cluster(zones: dict[str, list[int]], *parts: Snapshot) -> Snapshot:
    """Nodes with these cpus available in their zones, and gangs."""
    return Snapshot(
        nodes=tuple(node(name, cpu=sum(cpus)) for name, cpus in zones.items()),
        node_resource_topologies=tuple(
            topology(name, *({**ZONE, "cpu": str(cpu)} for cpu in cpus)) for name, cpus in zones.items()
        ),
        pods=tuple(one for part in parts for one in part.pods),
        pod_groups=tuple(one for part in parts for one in part.pod_groups),
    )


@BOTH_WAYS
def test_a_gang_fills_both_zones_of_each_node(way):
    """Zones of 8 cpus have room for one pod of 6 cpus: four pods need all zones of two nodes."""
    decision = schedule(cluster({"n0": [8, 8], "n1": [8, 8]}, guaranteed_gang("bert", 4, 6)), way)
    assert sorted(one.node for one in decision.assignments) == ["n0", "n0", "n1", "n1"]


@BOTH_WAYS
def test_a_gang_that_fits_on_nodes_but_not_in_zones_is_refused_with_the_reason(way):
    """Two nodes of 18 cpus would have room for six pods of 6 cpus; their zones of 9 cpus have room for four."""
    decision = schedule(cluster({"n0": [9, 9], "n1": [9, 9]}, guaranteed_gang("bert", 5, 6)), way)
    assert not decision.assignments
    assert "cannot align container" in decision.refusals[0].message


@BOTH_WAYS
def test_a_pod_does_not_join_a_larger_one_of_which_it_could_take_the_zone(way):
    """The kubelet may start the pod of 4 cpus first, in zone 0, and then no zone has 8 cpus."""
    large, small = guaranteed_gang("large", 1, 8), guaranteed_gang("small", 1, 4)
    decision = schedule(cluster({"n0": [8, 4]}, large, small), way)
    assert len(decision.assignments) == 1
    assert len(schedule(cluster({"n0": [8, 8]}, large, small), way).assignments) == 2


@pytest.mark.properties
@given(
    zones=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=3), min_size=1, max_size=3),
    sizes=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 6)), min_size=1, max_size=3),
    joint=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_every_pod_of_a_session_finds_a_zone_in_whatever_order_the_kubelet_starts_it(
    zones, sizes, joint, seed
):
    parts = [guaranteed_gang(f"g{at}", count, cpu, 1) for at, (count, cpu) in enumerate(sizes)]
    state = cluster({f"n{at}": cpus for at, cpus in enumerate(zones)}, *parts)
    decision = schedule(state, TOGETHER if joint else ALONE)
    assignments = list(decision.assignments)
    random.Random(seed).shuffle(assignments)
    free = {f"n{at}": list(cpus) for at, cpus in enumerate(zones)}
    for one in assignments:
        cpu = sizes[int(one.pod[1])][1]
        zone = next(number for number, amount in enumerate(free[one.node]) if amount >= cpu)
        free[one.node][zone] -= cpu
