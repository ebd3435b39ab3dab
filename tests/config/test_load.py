import pytest

from batchsched.config.load import load_configuration
from batchsched.config.schema import BatchSchedulerConfiguration
from batchsched.errors import InvalidInput


def refused(text):
    with pytest.raises(InvalidInput) as caught:
        load_configuration(text)
    return caught.value


def test_empty_configuration_is_the_default():
    assert load_configuration("") == BatchSchedulerConfiguration()


def test_stated_fields_are_combined_with_defaults():
    (profile,) = load_configuration(
        "profiles: [{selection: ordered, solver: {gap: 0.01}, sessionWindow: 7}]"
    ).profiles
    assert (profile.selection, profile.solver.gap, profile.session_window) == ("ordered", 0.01, 7)
    assert profile.scheduler_name == "batchsched"
    assert profile.solver.enabled


def test_arguments_of_a_plugin_are_found_by_name():
    text = "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated}}}]}]"
    (profile,) = load_configuration(text).profiles
    assert profile.plugin_arguments("NodeResourcesFit") == {"scoringStrategy": {"type": "MostAllocated"}}
    assert profile.plugin_arguments("Other") == {}


def test_file_is_named_in_what_is_wrong_with_it(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("profiles: [{sesionWindow: 3}]")
    with pytest.raises(InvalidInput) as caught:
        load_configuration(file)
    assert str(caught.value) == (
        f"{file}: profiles[0].sesionWindow: unknown field; did you mean sessionWindow?"
    )


def test_all_mistakes_are_reported_at_once():
    message = str(refused("kind: Deployment\nprofiles: [{sessionWindow: 0}]"))
    assert "kind: expected 'BatchSchedulerConfiguration', found 'Deployment'" in message
    assert "profiles[0].sessionWindow: expected 1 or more, found 0" in message


def test_two_profiles_of_one_name_are_refused():
    assert "two profiles have the same schedulerName" in str(refused("profiles: [{}, {}]"))


def test_plugin_stated_twice_is_refused():
    assert "a occurs more than once" in str(refused("profiles: [{pluginConfig: [{name: a}, {name: a}]}]"))


def test_broken_yaml_is_named_by_its_line():
    assert "line 2: is not YAML" in str(refused("profiles:\n\t- {}"))


def test_several_documents_are_refused_with_what_is_expected():
    assert "contains several documents; expected one BatchSchedulerConfiguration" in str(
        refused("a: 1\n---\nb: 2")
    )


def test_text_that_is_no_mapping_is_refused():
    assert "expected a mapping" in str(refused("just words"))


def test_file_that_is_missing_or_binary_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="cannot be read"):
        load_configuration(tmp_path / "none.yaml")
    (tmp_path / "junk").write_bytes(b"\xff\xfe\x00junk")
    with pytest.raises(InvalidInput, match="is not text"):
        load_configuration(tmp_path / "junk")


def test_profile_cannot_change_under_a_session():
    profile = BatchSchedulerConfiguration().profiles[0]
    with pytest.raises(ValueError, match="frozen"):
        setattr(profile, "session_window", 3)  # noqa: B010 - mypy knows that it cannot be set
