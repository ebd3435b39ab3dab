"""The trees of a live cluster: whatever the order of events, the gangs are those of the groups that exist."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.external.group_tree import TreeGroup, convert_trees_to_pod_groups
from batchsched.api.external.kubernetes import CompositePodGroup, UpstreamV1Beta1PodGroup
from batchsched.api.unsupported_fields import UNSUPPORTED_FIELD
from batchsched.state.group_trees import GroupTrees

NAMES = ("a", "b", "c", "d")


def group(name, parent="", minimum=1, *, is_composite=False):
    policy = {"gang": {"minGroupCount" if is_composite else "minCount": minimum}}
    spec: dict[str, Any] = {"schedulingPolicy": policy}
    if parent:
        spec["parentCompositePodGroupName"] = parent
    kind: Any = CompositePodGroup if is_composite else UpstreamV1Beta1PodGroup
    raw = {"metadata": {"name": name, "namespace": "team", "uid": f"{kind.__name__}-{name}"}, "spec": spec}
    return TreeGroup(msgspec.convert(raw, kind), "scheduling.k8s.io/v1alpha3")


def composite(name, parent="", minimum=1):
    return group(name, parent, minimum, is_composite=True)


class Trees:
    """Trees, with all the gangs and places that their changes told of."""

    def __init__(self):
        self.trees = GroupTrees()
        self.gangs = {}
        self.places = {}

    def apply(self, change):
        for key, gang in change.gangs.items():
            if gang is None:
                self.gangs.pop(key, None)
            else:
                self.gangs[key] = gang
        for key in change.pod_groups:
            place = self.trees.gang_and_subgroup_of(key)
            if place is None:
                self.places.pop(key, None)
            else:
                self.places[key] = place

    def put(self, *groups, origin=0):
        for one in groups:
            self.apply(self.trees.put_group(origin, one))

    def remove(self, one, origin=0):
        self.apply(self.trees.remove_group(origin, one.key, is_composite=one.is_composite))


def expected(groups):
    trees = convert_trees_to_pod_groups(groups)
    return {gang.key: gang for gang in trees.gangs}, trees.places


def test_a_pod_group_moves_when_the_parents_above_it_arrive():
    seen = Trees()
    seen.put(group("workers", "rack", 4))
    assert (seen.gangs, seen.places) == ({}, {"team/workers": ("rack", "workers")})
    seen.put(composite("rack", "train"))
    assert (seen.gangs, seen.places) == ({}, {"team/workers": ("train", "workers")})
    seen.put(composite("train"))
    assert [gang.effective_min_member for gang in seen.gangs.values()] == [4]


def test_a_changed_minimum_changes_the_gang():
    seen = Trees()
    seen.put(composite("train"), group("workers", "train", 4))
    change = seen.trees.put_group(0, group("workers", "train", 2))
    assert [gang.effective_min_member for gang in change.gangs.values() if gang] == [2]
    assert change.pod_groups == frozenset()


def test_the_first_origin_of_a_group_counts():
    seen = Trees()
    seen.put(composite("train"))
    seen.put(group("workers", "train", 4), origin=1)
    seen.put(group("workers", "train", 2), origin=2)
    assert seen.gangs["team/train"].effective_min_member == 4
    seen.remove(group("workers", "train"), origin=1)
    assert seen.gangs["team/train"].effective_min_member == 2


def test_the_groups_of_a_tree_are_listed_from_the_root():
    seen = Trees()
    seen.put(composite("train"), composite("rack", "train"), group("workers", "rack"))
    assert [one.name for one in seen.trees.groups_of_tree("team/train")] == ["train", "rack", "workers"]
    assert seen.trees.groups_of_tree("team/rack") == seen.trees.groups_of_tree("team/missing") == ()


def test_an_invalid_tree_is_refused_without_losing_the_moves_of_others():
    trees = GroupTrees()
    invalid = [composite("bad"), group("huge", "bad", 2**40)]
    change = trees.replace_groups_of_origin(0, [*invalid, composite("train"), group("workers", "train")])
    assert change.pod_groups == {"team/huge", "team/workers"}
    refused = change.gangs["team/bad"]
    assert refused is not None
    assert refused.metadata.annotations[UNSUPPORTED_FIELD] == (
        "PodGroup huge of scheduling.k8s.io: spec.schedulingPolicy.gang.minCount: expected 2147483647 or less, "
        "found 1099511627776"
    )
    valid = change.gangs["team/train"]
    assert valid is not None
    assert UNSUPPORTED_FIELD not in valid.metadata.annotations


def test_each_group_of_a_long_chain_is_visited_once(monkeypatch):
    trees, visits = GroupTrees(), []
    children = trees.child_groups

    def counted(parent):
        visits.append(parent)
        return children(parent)

    monkeypatch.setattr(trees, "child_groups", counted)
    trees.replace_groups_of_origin(0, [composite(f"g{n}", f"g{n - 1}" if n else "") for n in range(200)])
    assert len(visits) < 1000
    assert trees.groups_of_tree("team/g0")[-1].name == "g199"


@pytest.mark.properties
@given(st.data())
def test_any_order_of_events_leads_to_the_gangs_of_the_groups_that_exist(data):
    seen, present = Trees(), {}
    for _ in range(data.draw(st.integers(1, 14))):
        is_composite = data.draw(st.booleans())
        name = data.draw(st.sampled_from(NAMES))
        parent = data.draw(st.sampled_from(("", *NAMES) if is_composite else NAMES))
        one = group(name, parent, data.draw(st.integers(1, 3)), is_composite=is_composite)
        address = one.is_composite, one.key
        match data.draw(st.sampled_from(("put", "put", "put", "remove", "replace"))):
            case "put":
                present[address] = one
                seen.put(one)
            case "remove":
                present.pop(address, None)
                seen.remove(one)
            case "replace":
                present = {key: kept for key, kept in present.items() if key != address}
                seen.apply(seen.trees.replace_groups_of_origin(0, present.values()))
    gangs, places = expected(present.values())
    assert seen.gangs == gangs
    assert seen.places == places
    assert {key: found for key in gangs for found in [seen.trees.groups_of_tree(key)] if not found} == {}
