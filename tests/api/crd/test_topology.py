"""Levels are found by their names, or by their node labels; subGroups inherit the Topology of their PodGroup."""

import pytest

from batchsched.api.crd.podgroup import PodGroupSpec
from batchsched.api.crd.topology import TopologySpec


def topology(*levels: tuple[str, str]) -> TopologySpec:
    return TopologySpec.model_validate(
        {"levels": [{"name": name, "nodeLabel": label} for name, label in levels]}
    )


def test_level_with_a_name_is_found_before_another_one_with_the_same_label():
    assert topology(("zone", "ex/rack"), ("ex/rack", "ex/other")).find_level_index("ex/rack") == 1


def test_widest_level_with_a_node_label_is_found():
    levels = topology(("zone", "ex/zone"), ("block", "ex/rack"), ("rack", "ex/rack"))
    assert levels.find_level_index("ex/rack") == 1


def test_unknown_level_is_not_found():
    assert topology(("zone", "ex/zone")).find_level_index("rack") is None


@pytest.mark.parametrize(
    "own, inherited, name",
    [
        (None, None, "default"),
        (None, "racks", "racks"),
        ("zones", "racks", "zones"),
        ("zones", None, "zones"),
    ],
)
def test_subgroup_uses_the_topology_of_its_podgroup_unless_it_names_another(own, inherited, name):
    subgroup = {"name": "worker", "minMember": 1, "topology": {"name": own, "required": "rack"}}
    whole = {"topology": {"name": inherited}} if inherited else {}
    spec = PodGroupSpec.model_validate({"subGroups": [subgroup], **whole})
    assert spec.topology_name_of_subgroup(spec.sub_groups[0]) == name
