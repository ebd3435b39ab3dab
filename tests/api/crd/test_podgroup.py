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
    assert full.min_member == 9
    assert full.spec.sub_groups[1].topology.required == "rack"


def test_min_member_left_out_is_the_sum_of_the_subgroups():
    assert group(subGroups=[{"name": "a", "minMember": 2}, {"name": "b", "minMember": 3}]).min_member == 5


def test_min_member_may_exceed_the_sum_of_the_subgroups():
    assert group(minMember=7, subGroups=[{"name": "a", "minMember": 2}]).min_member == 7


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
