"""Rules of the configuration for kinds of owners that batchsched does not know."""

from typing import Any

import msgspec
import pytest
from pydantic import ValidationError

from batchsched.config.load import load_configuration
from batchsched.config.owner_rules import OwnerRule, parse_field_path
from batchsched.errors import InvalidInput
from batchsched.podgrouper.configured_rules import built_in_and_configured_owner_kinds
from batchsched.podgrouper.owners import decode_owner
from batchsched.podgrouper.rules import KNOWN_OWNER_KINDS, read_owner_gang_settings
from batchsched.podgrouper.stripping import strip_unread_owner_fields
from tests.podgrouper.owners import TEMPLATE

RUN: dict[str, Any] = {
    "apiVersion": "example.com/v1",
    "kind": "TrainingRun",
    "metadata": {"name": "run", "uid": "u", "labels": {"example.com/team": "research", "size": "3"}},
    "spec": {
        "priorityClassName": "low",
        "secret": "s3cret",
        "coordinator": {"template": TEMPLATE},
        "workerGroups": [
            {"name": "gpu", "replicas": 4, "minReplicas": 2, "template": TEMPLATE},
            {"name": "cpu", "replicas": 1, "template": TEMPLATE},
        ],
    },
}
RULE = {
    "apiVersion": "example.com/v1",
    "kind": "TrainingRun",
    "suspended": ".spec.paused",
    "queue": ".metadata.labels['example.com/team']",
    "priorityClassName": ".spec.priorityClassName",
    "subGroupLabel": "example.com/role",
    "parts": [
        {"name": "coordinator", "template": ".spec.coordinator.template"},
        {
            "each": ".spec.workerGroups",
            "name": ".name",
            "replicas": ".replicas",
            "minMember": ".minReplicas",
            "template": ".template",
        },
    ],
}


def kind_of(**changes):
    kinds = built_in_and_configured_owner_kinds([OwnerRule.model_validate({**RULE, **changes})])
    return kinds.by_group_and_name["example.com", "TrainingRun"]


def grouped(manifest, **changes):
    return read_owner_gang_settings(kind_of(**changes).rule, manifest).build_pod_group_template({})


def with_spec(**spec):
    return {**RUN, "spec": {**RUN["spec"], **spec}}


def test_a_rule_forms_a_gang_of_the_parts_of_an_owner():
    found = grouped(RUN)
    assert {sub.name: sub.min_member for sub in found.spec.sub_groups} == {
        "coordinator": 1,
        "gpu": 2,
        "cpu": 1,
    }
    assert (found.spec.min_member, found.pods) == (4, 6)
    assert (found.spec.queue, found.spec.priority_class_name) == ("research", "low")
    assert found.sub_group_labels == ("example.com/role",)


def test_entries_of_a_mapping_are_parts_with_their_keys_as_names():
    groups = {"b": {"replicas": 2}, "a": {"replicas": 3}}
    part = {"each": ".spec.workerGroups", "replicas": ".replicas"}
    found = grouped(with_spec(workerGroups=groups), parts=[part])
    assert [(sub.name, sub.min_member) for sub in found.spec.sub_groups] == [("a", 3), ("b", 2)]


def test_the_minimum_of_the_gang_can_be_a_number_a_field_or_a_label():
    assert grouped(RUN, minMember=2).spec.min_member == 2
    assert grouped(with_spec(least=5), minMember=".spec.least").spec.min_member == 5
    assert grouped(RUN, minMember=".metadata.labels.size").spec.min_member == 3


def test_a_suspended_owner_has_no_gang():
    assert grouped(with_spec(paused=True)) is None


def test_a_field_that_is_not_a_number_is_named_and_counts_as_missing():
    groups = [{"name": "gpu", "replicas": "many"}]
    found = grouped(with_spec(workerGroups=groups))
    assert found.problem == ".replicas: expected a whole number, 0 or more; found 'many'"
    assert found.pods == 2


def test_a_rule_without_parts_passes_fields_on():
    assert grouped(RUN, parts=[]) is None


def test_a_rule_replaces_that_of_a_known_kind_and_keeps_the_others():
    rule = {"apiVersion": "apps/v1", "kind": "Deployment", "parts": [{"replicas": ".spec.replicas"}]}
    kinds = built_in_and_configured_owner_kinds([OwnerRule.model_validate(rule)])
    found = read_owner_gang_settings(
        kinds.by_group_and_name["apps", "Deployment"].rule, {"spec": {"replicas": 3}}
    ).build_pod_group_template({})
    assert found is not None
    assert found.spec.min_member == 3
    assert kinds.names == KNOWN_OWNER_KINDS.names


@pytest.mark.parametrize("changes", [{}, {"queue": ".spec.workerGroups[0].name"}], ids=["labels", "index"])
def test_a_stripped_owner_has_the_same_gang_and_no_other_fields(changes):
    kind = kind_of(**changes)
    kept = strip_unread_owner_fields(RUN, kind)
    assert (
        decode_owner(kind, msgspec.json.encode(kept)).grouping
        == decode_owner(kind, msgspec.json.encode(RUN)).grouping
    )
    assert "s3cret" not in str(kept)
    assert "image" not in str({**kept, "spec": {}})


@pytest.mark.parametrize(
    "text, steps",
    [
        (".spec.a-b", ("spec", "a-b")),
        (".a['x.y/z'][2].b", ("a", "x.y/z", 2, "b")),
    ],
)
def test_paths_are_split_into_steps(text, steps):
    assert parse_field_path(text) == steps


@pytest.mark.parametrize("text", ["spec.replicas", ".spec.", ".spec..a", ".spec[x]", "$.spec", ".a b", ""])
def test_text_that_is_no_path_is_refused(text):
    with pytest.raises(ValueError, match=r"expected a path such as \.spec\.replicas"):
        parse_field_path(text)


def settings(rule):
    return msgspec.json.encode(
        {
            "apiVersion": "config.batchsched.dev/v1alpha1",
            "kind": "BatchSchedulerConfiguration",
            "podGrouper": {"rules": rule if isinstance(rule, list) else [rule]},
        }
    ).decode()


@pytest.mark.parametrize(
    "changes, field, message",
    [
        ({"queue": "spec.queue"}, "podGrouper.rules[0].queue", "expected a path such as .spec.replicas"),
        ({"parts": [{"replicas": -1}]}, "podGrouper.rules[0].parts[0].replicas", ""),
        ({"parts": [{"each": ".spec.a", "name": "b"}]}, "podGrouper.rules[0].parts[0]", "with each"),
        ({"parts": [{}]}, "podGrouper.rules[0]", "each part needs a name"),
        ({"kind": "trainingrun"}, "podGrouper.rules[0].kind", ""),
        ({"apiVersion": "v1"}, "podGrouper.rules[0].apiVersion", ""),
        ({"replica": 3}, "podGrouper.rules[0].replica", "unknown"),
        ({"parts": [], "minMember": 2}, "podGrouper.rules[0]", "add parts"),
    ],
)
def test_an_invalid_rule_is_refused_with_its_field(changes, field, message):
    with pytest.raises(InvalidInput) as refused:
        load_configuration(settings({**RULE, **changes}))
    assert refused.value.field.startswith(field)
    assert message in str(refused.value)


def test_two_rules_for_one_kind_are_refused():
    with pytest.raises(InvalidInput, match=r"two rules are for TrainingRun of example\.com"):
        load_configuration(settings([RULE, RULE]))
    with pytest.raises(ValidationError):
        OwnerRule.model_validate({})
