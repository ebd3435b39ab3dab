import pytest
from pydantic import ValidationError

from batchsched.api.crd.queue import Queue
from batchsched.api.crd.topology import Topology
from batchsched.api.crd.validation import field_errors, field_path, suggest_name


def found(model, content):
    try:
        model.model_validate(content)
    except ValidationError as error:
        return [(one.field, one.message) for one in field_errors(error, model)]
    return []


def test_every_mistake_of_an_object_is_reported_separately():
    assert found(
        Queue, {"metadata": {"name": "q"}, "spec": {"weight": -1, "limits": {}, "maxRunningPodGroups": 1.5}}
    ) == [
        ("spec.weight", "expected 0 or more, found -1"),
        ("spec.maxRunningPodGroups", "expected a whole number, found 1.5"),
        ("spec.limits", "unknown field; did you mean limit?"),
    ]


def test_unknown_field_is_reported_with_the_known_ones():
    ((field, message),) = found(
        Topology, {"metadata": {"name": "t"}, "spec": {"levels": [{"name": "a", "nodeLabel": "b", "zzz": 1}]}}
    )
    assert field == "spec.levels[0].zzz"
    assert message == "unknown field; known are name, nodeLabel"


def test_list_of_bad_items_is_not_called_empty_as_well():
    assert [
        field
        for field, _ in found(Topology, {"metadata": {"name": "t"}, "spec": {"levels": [{"name": "a"}]}})
    ] == ["spec.levels[0].nodeLabel"]


def test_empty_list_is_named():
    assert found(Topology, {"metadata": {"name": "t"}, "spec": {"levels": []}}) == [
        ("spec.levels", "must not be empty; found a list")
    ]


def test_missing_name_is_named():
    assert found(Queue, {"metadata": {}}) == [("metadata.name", "is required; add it")]


def test_long_values_are_cut():
    ((_, message),) = found(Queue, {"metadata": {"name": "q"}, "spec": {"weight": "x" * 500}})
    assert len(message) < 100


def test_paths_are_written_as_in_a_manifest():
    assert field_path(("spec", "levels", 1, "name")) == "spec.levels[1].name"
    assert field_path(()) == ""


def test_nearest_name_is_suggested_where_one_is_near():
    assert suggest_name("batchshed", ["batchsched", "other"]) == "did you mean batchsched?"
    assert suggest_name("zzz", ["b", "a"]) == "known are a, b"
    assert suggest_name("zzz", []) == "none is known"


def test_of_very_many_known_names_the_first_are_listed_and_the_others_counted():
    jobs = [f"job-{number:04}" for number in range(1_500)]
    listed = ", ".join(jobs[:30])
    assert suggest_name("zzz", jobs) == f"known are {listed} and 1,470 more"


def test_levels_keep_their_order():
    levels = [{"name": "zone", "nodeLabel": "z"}, {"name": "rack", "nodeLabel": "r"}]
    topology = Topology.model_validate({"metadata": {"name": "default"}, "spec": {"levels": levels}})
    assert [level.name for level in topology.spec.levels] == ["zone", "rack"]


def test_two_levels_of_one_name_are_refused():
    levels = [{"name": "rack", "nodeLabel": "a"}, {"name": "rack", "nodeLabel": "b"}]
    with pytest.raises(ValidationError, match="one name"):
        Topology.model_validate({"metadata": {"name": "default"}, "spec": {"levels": levels}})
