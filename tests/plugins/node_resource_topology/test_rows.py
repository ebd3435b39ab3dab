"""Rows of NodeResourceTopologyMatch: they forbid nothing that the Filter accepts, and count equal pods exactly."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.framework.constrain import CandidatePods, CandidateSet
from batchsched.plugins.node_resource_topology import NodeResourceTopologyMatch
from tests.plugins.cluster import class_of, land, named, refusals
from tests.plugins.node_resource_topology.topologies import guaranteed, table, topology

PLUGIN = NodeResourceTopologyMatch()
SIZES = st.lists(
    st.lists(
        st.fixed_dictionaries({"cpu": st.integers(1, 5), "nvidia.com/gpu": st.integers(0, 3)}),
        min_size=1,
        max_size=2,
    ),
    min_size=1,
    max_size=3,
)
AMOUNTS = {"cpu": st.integers(0, 12), "nvidia.com/gpu": st.integers(0, 4), "memory": st.just(2**40)}


def zones_of(listed: list[str]) -> Any:
    return st.lists(st.fixed_dictionaries({one: AMOUNTS[one] for one in listed}), min_size=1, max_size=10)


NODES = st.lists(
    st.lists(st.sampled_from(sorted(AMOUNTS)), unique=True).flatmap(zones_of), min_size=1, max_size=3
)
"""Nodes with one to ten zones; each node lists other resources."""


def pod_of(sizes: list[dict[str, int]], name: str) -> Any:
    containers = [{one: str(amount) for one, amount in size.items()} for size in sizes]
    return guaranteed(name, *({"memory": "1Gi", **each} for each in containers))


def topology_of(zones: list[dict[str, int]], scope: str = "container", name: str = "a") -> Any:
    stated = ({one: str(amount) for one, amount in zone.items()} for zone in zones)
    return topology(name, *stated, scope=scope)


def rows_for(made: Any, *pods: Any) -> Any:
    batch = [CandidatePods(at, class_of(made, one), at, 8, False) for at, one in enumerate(pods)]
    return PLUGIN.constrain(CandidateSet(batch), made.all_nodes_view())


def test_a_row_sums_the_pods_that_each_zone_has_room_for():
    """Zones of 8 and 7 cpus have room for 2 and 1 pods of 4 cpus, and for 1 and 1 of 6 cpus: a 6 counts as one 4."""
    made = table([topology_of([{"cpu": 8}, {"cpu": 7}])])
    rows = rows_for(made, pod_of([{"cpu": 4}], "four"), pod_of([{"cpu": 6}], "six"))

    def admitted(*pods: int) -> bool:
        return all(sum(row.class_coefficients(2) * pods) <= row.right[0] for row in rows)

    assert admitted(3, 0)
    assert admitted(1, 1)
    assert admitted(0, 2)
    assert admitted(2, 1)
    assert not admitted(4, 0)
    assert not admitted(0, 3)
    assert not admitted(3, 1)


def test_pods_that_are_not_counted_take_room_in_the_rows():
    four = pod_of([{"cpu": 4}], "four")
    made = table([topology_of([{"cpu": 8}, {"cpu": 8}])], bound={"a": [named(four, "waiting")]})
    assert next(row.right.tolist() for row in rows_for(made, four)) == [3]


def test_there_are_no_rows_without_nodes_that_align_pods():
    assert not rows_for(table([topology("a", {"cpu": "1"}, policy="none")]), pod_of([{"cpu": 4}], "four"))


@pytest.mark.parametrize("width", [2, 4, 5, 8, 64])
def test_a_node_without_zones_for_a_resource_has_no_limit_for_it(width):
    """Node a lists no memory, so that only its cpus limit the pods, however many zones another node has."""
    wide = topology("b", *[{"cpu": "1", "memory": "64Gi"}] * width)
    made = table([topology("a", {"cpu": "8"}, {"cpu": "8"}), wide])
    rows = rows_for(made, pod_of([{"cpu": 4}], "four"))
    assert [min(row.right[0], 100) for row in rows] == [4, 4]


@pytest.mark.properties
@given(sizes=SIZES, nodes=NODES, scope=st.sampled_from(["container", "pod"]), data=st.data())
def test_rows_hold_for_every_placement_that_the_filter_accepts(sizes, nodes, scope, data):
    made = table([topology_of(zones, scope, name) for name, zones in zip("abc", nodes, strict=False)])
    pods = [pod_of(size, f"p{at}") for at, size in enumerate(sizes)]
    rows = rows_for(made, *pods)
    placed = np.zeros((len(nodes), len(pods)), np.int64)
    for step in range(data.draw(st.integers(0, 6))):
        index = data.draw(st.integers(0, len(pods) - 1))
        node = data.draw(st.integers(0, len(nodes) - 1))
        if not refusals(PLUGIN, pods[index], made).get("abc"[node]):
            land(made, named(pods[index], f"placed-{step}"), "abc"[node])
            placed[node, index] += 1
    for row in rows:
        assert (placed[:, row.classes] @ row.coefficients <= row.right).all()
