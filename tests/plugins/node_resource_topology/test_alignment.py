"""Whether pods find zones: compared with kubelets that receive them in any order."""

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from batchsched.plugins.node_resource_topology import NodeResourceTopologyMatch
from batchsched.plugins.node_resource_topology.alignment import all_pods_fit_in_any_order
from batchsched.plugins.node_resource_topology.zones import zone_table
from tests.plugins.cluster import named, refusals
from tests.plugins.node_resource_topology.topologies import guaranteed, table, topology

GPU = "nvidia.com/gpu"
SIZES = st.fixed_dictionaries({"cpu": st.integers(1, 5), GPU: st.integers(0, 3)})
ZONES = st.lists(
    st.fixed_dictionaries({"cpu": st.integers(0, 8), GPU: st.integers(0, 4)}), min_size=1, max_size=3
)


def pod_of(size: dict[str, int], name: str) -> Any:
    return guaranteed(name, {"memory": "1Gi", **{one: str(amount) for one, amount in size.items()}})


def topology_of(zones: list[dict[str, int]]) -> Any:
    return topology("a", *({one: str(amount) for one, amount in zone.items()} for zone in zones))


def start(sizes: list[dict[str, int]], zones: list[dict[str, int]], choose: Any) -> bool:
    """Let a kubelet start pods one after the other, each in a zone that `choose` picks; False if one has no zone."""
    free = [dict(zone) for zone in zones]
    for size in sizes:
        fitting = [zone for zone in free if all(zone[one] >= amount for one, amount in size.items())]
        if not fitting:
            return False
        zone = choose(fitting)
        for one, amount in size.items():
            zone[one] -= amount
    return True


@pytest.mark.properties
@given(sizes=st.lists(SIZES, min_size=1, max_size=6), zones=ZONES, data=st.data())
def test_pods_that_fit_find_zones_in_any_order_and_by_any_choice(sizes, zones, data):
    made = table([topology_of(zones)])
    read = zone_table(made)
    demands = [read.cached_aligned_demand(pod_of(size, f"p{at}")) for at, size in enumerate(sizes)]
    assume(all(start([size], zones, lambda fitting: fitting[0]) for size in sizes))
    if all_pods_fit_in_any_order(demands, read, 0):
        order = data.draw(st.permutations(sizes))
        assert start(order, zones, lambda fitting: data.draw(st.sampled_from(fitting)))


@pytest.mark.properties
@given(size=SIZES, count=st.integers(1, 8), zones=ZONES)
def test_equal_pods_fit_exactly_if_the_zones_together_have_room_for_them(size, count, zones):
    made = table([topology_of(zones)])
    read = zone_table(made)
    room = sum(min(zone[one] // amount for one, amount in size.items() if amount) for zone in zones)
    assume(room)  # the caller refuses a pod that fits into no zone
    demands = [read.cached_aligned_demand(pod_of(size, "p"))] * count
    assert all_pods_fit_in_any_order(demands, read, 0) is (count <= room)


@pytest.mark.properties
@given(waiting=st.lists(SIZES, max_size=3), size=SIZES, zones=ZONES)
def test_no_pod_is_refused_that_would_fit_beside_all_others_in_every_zone(waiting, size, zones):
    """This is the rule of scheduler-plugins: the pods that are not counted use their amounts in all zones."""
    others = [named(pod_of(one, "x"), f"w{at}") for at, one in enumerate(waiting)]
    made = table([topology_of(zones)], bound={"a": others})
    charged = {one: sum(each[one] for each in waiting) for one in ("cpu", GPU)}
    fits = any(all(zone[one] - charged[one] >= amount for one, amount in size.items()) for zone in zones)
    if fits:
        assert refusals(NodeResourceTopologyMatch(), pod_of(size, "p"), made) == {}
