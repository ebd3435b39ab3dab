import pytest
from pydantic import ValidationError

from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.crd.validation import field_errors


def group(**spec):
    return PodGroup.model_validate({"metadata": {"name": "bert", "namespace": "team-a"}, "spec": spec})


def complaint(**spec):
    with pytest.raises(ValidationError) as caught:
        group(**spec)
    (only,) = field_errors(caught.value, PodGroup)
    return only.field, only.message


def test_defaults_are_those_of_the_public_surface():
    spec = group().spec
    assert (spec.min_member, spec.queue, spec.preemption_policy) == (1, None, "PreemptLowerPriority")
    assert (spec.preemptible, spec.stranded_policy, spec.disruption_mode) == (True, "Complete", "Gang")
    assert (spec.schedule_timeout_seconds, spec.expected_runtime_seconds, spec.min_runtime_seconds) == (
        600,
        None,
        0,
    )


def test_every_field_of_the_public_surface_is_read():
    full = group(
        minMember=9,
        queue="team-a",
        priorityClassName="high",
        preemptionPolicy="Never",
        preemptible=False,
        strandedPolicy="Rollback",
        disruptionMode="Elastic",
        minResources={"nvidia.com/gpu": "72"},
        scheduleTimeoutSeconds=5,
        expectedRuntimeSeconds=7200,
        minRuntimeSeconds=900,
        topology={"name": "default", "required": "block", "preferred": "rack"},
        subGroups=[
            {"name": "launcher", "minMember": 1},
            {"name": "workers", "minMember": 8, "topology": {"required": "rack"}},
        ],
    )
    assert full.key == "team-a/bert"
    assert full.effective_min_member == 9
    assert full.spec.sub_groups[1].topology.required == "rack"


def test_min_member_left_out_is_the_sum_of_the_subgroups():
    assert (
        group(subGroups=[{"name": "a", "minMember": 2}, {"name": "b", "minMember": 3}]).effective_min_member
        == 5
    )


def test_min_member_may_exceed_the_sum_of_the_subgroups():
    assert group(minMember=7, subGroups=[{"name": "a", "minMember": 2}]).effective_min_member == 7


def test_min_member_below_the_sum_of_the_subgroups_is_refused_with_the_sum():
    field, message = complaint(minMember=3, subGroups=[{"name": "a", "minMember": 4}])
    assert field == "spec.minMember"
    assert message == "3 is less than the subGroups' sum 4; raise minMember to 4 or more, or leave it out"


@pytest.mark.parametrize(
    "spec, field, message",
    [
        ({"minMember": 0}, "spec.minMember", "expected 1 or more, found 0"),
        ({"minMember": "many"}, "spec.minMember", "expected a whole number, found 'many'"),
        ({"minMembers": 2}, "spec.minMembers", "unknown field; did you mean minMember?"),
        (
            {"preemptionPolicy": "Always"},
            "spec.preemptionPolicy",
            "expected 'PreemptLowerPriority' or 'Never', found 'Always'",
        ),
        ({"minResources": {"cpu": "-1"}}, "spec.minResources.cpu", "'-1' is negative; expected 0 or more"),
        ({"topology": {"require": "rack"}}, "spec.topology.require", "unknown field; did you mean required?"),
        ({"subGroups": [{"minMember": 1}]}, "spec.subGroups[0].name", "is required; add it"),
        (
            {"subGroups": [{"name": "a"}, {"name": "a"}]},
            "spec.subGroups",
            "two of them have one name; each needs a name of its own",
        ),
        ({"scheduleTimeoutSeconds": 0}, "spec.scheduleTimeoutSeconds", "expected 1 or more, found 0"),
    ],
)
def test_mistake_is_named_by_its_field(spec, field, message):
    assert complaint(**spec) == (field, message)


def test_invalid_quantity_is_reported_with_the_expected_format():
    field, message = complaint(minResources={"cpu": "lots"})
    assert field == "spec.minResources.cpu"
    assert "'lots' is not a usable quantity" in message
    assert "500m" in message


def tree_of(*subs, **spec):
    """A PodGroup with one pod for each subGroup, given as `name` or `name<parent`."""
    parts = [sub.split("<") for sub in subs]
    return {
        "subGroups": [dict(zip(("name", "parent"), part, strict=False)) for part in parts],
        **spec,
    }


def test_every_field_of_trees_and_slices_is_read():
    full = group(
        minSubGroups=1,
        subGroups=[
            {"name": "replica-0", "minSubGroups": 1, "topology": {"required": "block"}},
            {"name": "replica-1"},
            {"name": "prefill", "parent": "replica-0", "minMember": 4},
            {
                "name": "decode",
                "parent": "replica-0",
                "minMember": 8,
                "topology": {"preferred": "rack", "slices": {"level": "rack", "size": 4}},
            },
            {"name": "all", "parent": "replica-1", "minMember": 9},
        ],
    )
    assert full.spec.subgroup_tree.parents == (-1, -1, 0, 0, 1)
    assert full.spec.subgroup_tree.roots == (0, 1)
    assert full.spec.sub_groups[3].topology_slices.slice_size(8) == 4
    assert full.spec.sub_groups[2].topology_slices is None


def test_minimum_of_a_tree_is_that_of_the_cheapest_children_that_must_run():
    parts = [{"name": name, "minMember": pods} for name, pods in (("a", 5), ("b", 2), ("c", 4))]
    assert group(subGroups=parts, minSubGroups=2).effective_min_member == 6
    assert group(subGroups=parts, minSubGroups=1, minMember=9).effective_min_member == 9
    assert group(**tree_of("r", "a<r", "b<r", "c<b", "d<b")).effective_min_member == 3


def test_missing_pods_of_a_tree_are_counted_where_the_fewest_are_missing():
    parts = [{"name": name, "minMember": pods} for name, pods in (("a", 5), ("b", 2), ("c", 4))]
    tree = group(subGroups=parts, minSubGroups=2).spec.subgroup_tree
    assert tree.count_missing_pods({"a": 4}) == 3
    assert tree.count_missing_pods({"a": 4, "c": 4}) == 1
    assert tree.count_missing_pods({"b": 7, "c": 4}) == 0


def test_count_of_slices_divides_min_member_into_slices_of_equal_size():
    slices = group(minMember=12, topology={"slices": {"level": "rack", "count": 3}}).spec.topology_slices
    assert slices.slice_size(12) == 4


@pytest.mark.parametrize(
    "spec, field, message",
    [
        (
            tree_of("a<b"),
            "subGroups[0].parent",
            "no subGroup is named b; name an existing one, or leave parent out",
        ),
        (
            tree_of("a<b", "b<a"),
            "subGroups[0].parent",
            "a < b < a is a cycle; leave out parent in one of them",
        ),
        (
            tree_of("a", "b<a", "c<b", "d<c", "e<d"),
            "subGroups[4].parent",
            "e < d < c < b < a is deeper than 4 levels; remove a level",
        ),
        (
            {"subGroups": [{"name": "a", "minMember": 2}, {"name": "b", "parent": "a"}]},
            "subGroups[0].minMember",
            "a subGroup with children has no pods of its own; state minSubGroups instead",
        ),
        (
            {"subGroups": [{"name": "a", "minSubGroups": 2}]},
            "subGroups[0].minSubGroups",
            "no subGroup names this one as its parent; state minMember instead",
        ),
        (
            {"subGroups": [{"name": "a", "minSubGroups": 2}, {"name": "b", "parent": "a"}]},
            "subGroups[0].minSubGroups",
            "2 is more than its 1 children; lower it, or leave it out",
        ),
        (
            tree_of("a", "b<a", minSubGroups=2),
            "minSubGroups",
            "2 is more than the 1 subGroups without a parent; lower it, or leave it out",
        ),
        ({"minSubGroups": 0}, "minSubGroups", "expected 1 or more, found 0"),
        (
            {"minMember": 6, "topology": {"slices": {"level": "rack", "size": 4}}},
            "topology.slices.size",
            "4 does not divide minMember 6; change one of the two",
        ),
        (
            {"minMember": 6, "topology": {"slices": {"level": "rack", "count": 4}}},
            "topology.slices.count",
            "4 does not divide minMember 6; change one of the two",
        ),
        (
            tree_of("a", topology={"slices": {"level": "rack", "size": 1}}),
            "topology.slices",
            "the PodGroup has subGroups; state slices in the topology of each subGroup",
        ),
        (
            {
                "subGroups": [
                    {"name": "a", "topology": {"slices": {"level": "rack", "size": 1}}},
                    {"name": "b", "parent": "a"},
                ]
            },
            "subGroups[0].topology.slices",
            "a subGroup with children has no pods of its own; state slices in the children",
        ),
        (
            {"topology": {"slices": {"level": "rack"}}},
            "topology.slices",
            "state either size or count",
        ),
    ],
)
def test_mistake_in_a_tree_or_in_slices_is_named_by_its_field(spec, field, message):
    assert complaint(**spec) == (f"spec.{field}", message)
