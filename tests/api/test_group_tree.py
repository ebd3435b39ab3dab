"""A tree of groups of Kubernetes is one gang with nested subgroups."""

from collections import UserDict
from typing import Any

import msgspec
import pytest
from typing_extensions import override

from batchsched.api.external.conversion import EXTERNAL_KINDS, convert_to_pod_group_or_tree_group
from batchsched.api.external.group_tree import TreeRootIndex, convert_trees_to_pod_groups, subgroup_name
from batchsched.api.external.pod_group import SOURCE, SOURCE_KIND, SOURCE_UID
from batchsched.api.priority import PriorityTable
from batchsched.api.unsupported_fields import UNSUPPORTED_FIELD

TYPES: dict[tuple[str, str], Any] = {(kind.name, kind.api_version): kind.type for kind in EXTERNAL_KINDS}
ALPHA = "scheduling.k8s.io/v1alpha3"
BETA = "scheduling.k8s.io/v1beta1"


def group(name, parent="", kind="PodGroup", version=BETA, workload="train", **spec):
    """A group as the API server stores it."""
    stated = {"workloadRef": {"workloadName": workload, "templateName": name}, **spec}
    if parent:
        stated["parentCompositePodGroupName"] = parent
    raw = {"metadata": {"name": name, "namespace": "team-a", "uid": f"uid-{name}"}, "spec": stated}
    return convert_to_pod_group_or_tree_group(msgspec.convert(raw, TYPES[kind, version]))


def pods(name, parent, count=1, **spec):
    return group(name, parent, schedulingPolicy={"gang": {"minCount": count}}, **spec)


def composite(name, parent="", groups=1, **spec):
    policy = {"gang": {"minGroupCount": groups}}
    return group(name, parent, "CompositePodGroup", ALPHA, **{"schedulingPolicy": policy, **spec})


def assembled(*groups):
    """The only gang of these groups."""
    (gang,) = convert_trees_to_pod_groups(groups).gangs
    return gang


def shape(gang):
    """The subgroups: name, parent, and minimum of pods or of groups."""
    return [
        (
            sub.name,
            sub.parent,
            sub.min_sub_groups if gang.spec.subgroup_tree.children[index] else sub.min_member,
        )
        for index, sub in enumerate(gang.spec.sub_groups)
    ]


def test_a_composite_pod_group_and_its_pod_groups_are_one_gang_with_subgroups():
    gang = assembled(composite("train", groups=2), pods("driver", "train"), pods("workers", "train", 4))
    assert (gang.key, gang.effective_min_member) == ("team-a/train", 5)
    assert shape(gang) == [("driver", None, 1), ("workers", None, 4)]
    assert gang.spec.min_sub_groups is None
    marks = gang.metadata.annotations
    assert (marks[SOURCE], marks[SOURCE_KIND], marks[SOURCE_UID]) == (ALPHA, "CompositePodGroup", "uid-train")


def test_a_tree_of_four_levels_keeps_its_parents_and_minimums():
    gang = assembled(
        composite("train", groups=1),
        composite("rack", "train", groups=2),
        composite("block", "rack", groups=1),
        pods("a", "block", 2),
        pods("b", "block", 3),
        pods("c", "rack", 4),
    )
    assert shape(gang) == [
        ("composite/rack", None, None),
        ("c", "composite/rack", 4),
        ("composite/block", "composite/rack", 1),
        ("a", "composite/block", 2),
        ("b", "composite/block", 3),
    ]
    assert gang.effective_min_member == 6
    assert UNSUPPORTED_FIELD not in gang.metadata.annotations


def test_pods_belong_to_the_gang_of_the_root():
    groups = (
        composite("train"),
        composite("rack", "train"),
        pods("workers", "rack"),
        pods("lost", "missing"),
    )
    assert convert_trees_to_pod_groups(groups).places == {
        "team-a/workers": ("train", "workers"),
        "team-a/lost": ("missing", "lost"),
    }


def test_a_tree_without_enough_groups_lacks_pods():
    gang = assembled(composite("train", groups=3), pods("workers", "train", 4))
    assert shape(gang) == [("workers", None, 4), ("train/missing", None, 2)]
    assert gang.effective_min_member == 6


def test_a_composite_pod_group_without_groups_lacks_pods():
    gang = assembled(composite("train"), composite("rack", "train"))
    assert shape(gang) == [("composite/rack", None, None), ("rack/missing", "composite/rack", 1)]


def test_groups_beyond_the_minimum_are_optional():
    gang = assembled(composite("train", groups=1), pods("a", "train", 4), pods("b", "train", 2))
    assert (gang.spec.min_sub_groups, gang.effective_min_member) == (1, 2)


def test_the_policy_basic_needs_one_pod_and_one_group():
    basic: dict[str, Any] = {"schedulingPolicy": {"basic": {}}}
    gang = assembled(composite("train", **basic), group("a", "train", **basic), group("b", "train", **basic))
    assert (gang.spec.min_sub_groups, shape(gang)) == (1, [("a", None, 1), ("b", None, 1)])


def test_topology_constraints_stay_at_their_levels():
    def within(key):
        return {"schedulingConstraints": {"topology": [{"key": key}]}}

    gang = assembled(
        composite("train", **within("zone")),
        composite("rack", "train", **within("rack")),
        pods("workers", "rack", **within("host")),
    )
    assert gang.spec.topology.required == "zone"
    assert [sub.topology.required for sub in gang.spec.sub_groups] == ["rack", "host"]


@pytest.mark.parametrize(
    "root, leaf, mode",
    [
        ({}, {}, "Elastic"),
        ({"all": {}}, {}, "Gang"),
        ({}, {"all": {}}, "Gang"),
        ({"single": {}}, {}, "Elastic"),
    ],
)
def test_a_tree_is_evicted_as_a_whole_if_any_group_is(root, leaf, mode):
    gang = assembled(composite("train", disruptionMode=root), pods("a", "train", disruptionMode=leaf))
    assert gang.spec.disruption_mode == mode


def test_the_root_states_priority_and_preemption_policy():
    gang = assembled(
        composite("train", priority=7, priorityClassName="low", preemptionPolicy="Never"),
        pods("a", "train", priority=9),
    )
    assert gang.spec.preemption_policy == "Never"
    assert PriorityTable(()).priority_capped_by_pod_group(gang, 100) == 7


def test_the_priority_of_a_pod_group_without_a_parent_is_read():
    gang = group("alone", priority=-3)
    assert PriorityTable(()).priority_capped_by_pod_group(gang, 100) == -3
    assert PriorityTable(()).priority_capped_by_pod_group(gang, -5) == -5


@pytest.mark.parametrize(
    "groups, field",
    [
        (
            (composite("a", "b"), composite("b", "a"), pods("c", "b")),
            "spec.parentCompositePodGroupName: the parents",
        ),
        (
            (
                composite("a"),
                composite("b", "a"),
                composite("c", "b"),
                composite("d", "c"),
                pods("e", "d"),
            ),
            "spec.parentCompositePodGroupName: the tree is deeper than 4 levels",
        ),
        ((composite("a"), pods("b", "a", workload="other")), "spec.workloadRef.workloadName"),
        (
            (
                composite("a", schedulingConstraints={"topology": [{"key": "x"}, {"key": "y"}]}),
                pods("b", "a"),
            ),
            "CompositePodGroup a of scheduling.k8s.io: spec.schedulingConstraints.topology[1]",
        ),
    ],
)
def test_an_invalid_tree_is_refused_with_the_field(groups, field):
    assert field in assembled(*groups).metadata.annotations[UNSUPPORTED_FIELD]


def test_names_of_subgroups_fit_into_a_label_and_differ():
    long = "n" * 253
    names = {subgroup_name(long), subgroup_name(long, is_composite=True), subgroup_name(long + "n")}
    assert len(names) == 3
    assert max(map(len, names)) == 63


def test_an_invalid_group_refuses_its_own_tree_only():
    groups = (
        composite("bad"),
        pods("fine", "bad"),
        pods("huge", "bad", 2**40),
        composite("rack", groups=2**40),
    )
    assembled_trees = convert_trees_to_pod_groups((*groups, composite("train"), pods("workers", "train", 4)))
    assert [gang.key for gang in assembled_trees.gangs] == ["team-a/train"]
    problems = [(one.group.kind, one.group.name, one.field) for one in assembled_trees.problems]
    assert problems == [
        ("PodGroup", "huge", "spec.schedulingPolicy.gang.minCount"),
        ("CompositePodGroup", "rack", "spec.schedulingPolicy.gang.minGroupCount"),
    ]
    assert assembled_trees.problems[0].message == "expected 2147483647 or less, found 1099511627776"


def test_the_roots_of_a_long_chain_are_found_by_following_each_parent_once():
    reads = []

    class CountedComposites(UserDict):
        @override
        def __getitem__(self, key):
            reads.append(key)
            return super().__getitem__(key)

    chain = [composite("g0"), *(composite(f"g{n}", f"g{n - 1}") for n in range(1, 400))]
    roots = TreeRootIndex(CountedComposites((one.key, one) for one in chain))
    assert {roots.root_key_of(one) for one in reversed(chain)} == {"team-a/g0"}
    assert len(reads) <= len(chain)


def test_the_root_of_parents_in_a_cycle_is_the_first_of_them_by_name():
    groups = [
        composite("b", "a"),
        composite("a", "c"),
        composite("c", "b"),
        composite("x", "b"),
        pods("p", "x"),
    ]
    for order in (groups, groups[::-1]):
        roots = TreeRootIndex({one.key: one for one in groups if one.is_composite})
        assert {roots.root_key_of(one) for one in order} == {"team-a/a"}
