"""Plugins of a profile, point by point."""

import pytest

from batchsched.config.load import load_configuration
from batchsched.config.plugins import PluginConfig, Plugins
from batchsched.errors import InvalidInput


def test_profile_of_batchsched_is_converted_to_the_shape_of_kube_scheduler():
    text = "profiles: [{plugins: {filter: {disabled: [{name: '*'}]}, multiPoint: {enabled: [{name: a, weight: 2}]}}}]"
    (profile,) = load_configuration(text).profiles
    assert profile.plugins.filter.disabled[0].name == "*"
    assert profile.plugins.multi_point.enabled[0].weight == 2


def test_a_plugin_enabled_twice_at_a_point_is_refused_by_its_path():
    with pytest.raises(InvalidInput) as caught:
        load_configuration("profiles: [{plugins: {preScore: {enabled: [{name: a}, {name: a}]}}}]")
    assert caught.value.field == "profiles[0].plugins.preScore.enabled"


def test_every_named_plugin_is_found_with_its_place():
    stated = Plugins.model_validate(
        {
            "disabled": ["a", "*"],
            "enabled": [{"name": "b"}],
            "score": {"enabled": [{"name": "c"}], "disabled": [{"name": "*"}, {"name": "d"}]},
        }
    )
    assert stated.enabled_and_disabled_plugins_with_paths() == (
        ("disabled[0]", "a"),
        ("enabled[0].name", "b"),
        ("score.enabled[0].name", "c"),
        ("score.disabled[1].name", "d"),
    )


def test_kind_of_arguments_is_left_to_a_plugin_that_has_such_an_argument():
    own = PluginConfig(name="Mine", args={"kind": "fast", "size": 1})
    assert own.arguments == {"kind": "fast", "size": 1}
    kube = PluginConfig(name="Mine", args={"kind": "MineArgs", "size": 1})
    assert kube.arguments == {"size": 1}
