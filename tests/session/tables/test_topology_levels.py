"""Topology levels as numbers."""

import pytest

from batchsched.api.crd.topology import Topology, TopologyLevel, TopologySpec
from batchsched.session.tables.topology_levels import RequestedLevels, UnknownLevelError
from batchsched.solver.problem import NONE
from tests.session.scenario import cluster, gang, group, node, topology
from tests.session.scenes import inside

NODES = [
    node("n0", {"zone": "a", "rack": "r1"}),
    node("n1", {"zone": "b", "rack": "r2"}),
    node("n2", {"zone": "a"}),
]
BOTH = (topology("zone", "rack"), topology("zone", name="other"))


def levels(*parts):
    return inside(cluster(NODES, *parts, topologies=BOTH)).inputs.levels


def test_domains_are_numbered_by_first_occurrence_and_a_missing_label_has_none():
    found = levels()
    assert found.names == [("default", "zone"), ("default", "rack"), ("other", "zone")]
    assert found.domains.tolist() == [[0, 1, 0], [0, 1, -1], [0, 1, 0]]
    assert found.values[1] == ("r1", "r2")
    assert found.wider == [NONE, 0, NONE]


def test_levels_of_a_gang_are_looked_up_in_its_topology():
    found = levels()
    wide = group("g", 1, topology={"name": "other", "required": "zone"})
    assert found.requested_levels_of_gang(wide) == RequestedLevels(required=2)
    assert found.requested_levels_of_gang(group("g", 1)) == RequestedLevels()
    assert found.requested_levels_of_gang(None) == RequestedLevels()
    assert found.requested_levels_of_subgroups(None) == ()


def test_subgroup_inherits_the_topologys_name_and_may_state_its_own():
    subs = [
        {"name": "x", "topology": {"required": "zone"}},
        {"name": "y", "topology": {"name": "default", "preferred": "rack"}},
        {"name": "z"},
    ]
    made = group("g", 3, topology={"name": "other"}, subGroups=subs)
    assert levels().requested_levels_of_subgroups(made) == (
        RequestedLevels(2),
        RequestedLevels(preferred=1),
        RequestedLevels(),
    )


@pytest.mark.parametrize(
    "topology_of_gang, complaint",
    [
        ({"required": "row"}, "Topology 'default' has no level 'row'; its levels are: zone, rack"),
        ({"name": "none", "preferred": "rack"}, "no Topology is named 'none'; there are: default, other"),
    ],
)
def test_unknown_names_are_refused_with_the_existing_ones(topology_of_gang, complaint):
    with pytest.raises(UnknownLevelError, match=complaint):
        levels(gang("g", 1)).requested_levels_of_gang(group("g", 1, topology=topology_of_gang))


def test_a_level_may_be_named_by_its_node_label():
    named = TopologyLevel(name="row", node_label="rack")
    above = TopologyLevel(name="rack", node_label="zone")
    one = Topology(metadata={"name": "default"}, spec=TopologySpec(levels=(above, named)))
    found = inside(cluster(NODES, topologies=(one,))).inputs.levels
    gang = group("g", topology={"required": "zone", "preferred": "rack"})
    assert found.requested_levels_of_gang(gang) == RequestedLevels(required=0, preferred=0)
