"""From names in a profile to a pipeline."""

from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import ClassVar

import pytest
from pydantic import Field

from batchsched.api.crd.base import StrictModel
from batchsched.config.plugins import DEFAULT_PLUGINS
from batchsched.config.schema import Profile
from batchsched.errors import InvalidInput, PluginError
from batchsched.framework.runtime import registry
from batchsched.framework.runtime.pipeline import plugin_names
from batchsched.framework.runtime.registry import Registry, load_plugin_classes, standard_registry


class First:
    name = "First"


class Sized(StrictModel):
    size: int = Field(default=1, ge=1)


class Second:
    name: ClassVar[str] = "Second"
    Args = Sized

    def __init__(self, args: Sized) -> None:
        self.args = args


class Third:
    name = "Third"


REGISTRY = Registry((First, Second, Third), ("Second", "Missing", "First"), {"First": 5})


def profile(**settings: object) -> Profile:
    return Profile.model_validate(settings)


def enabled(**settings: object) -> tuple[str, ...]:
    return plugin_names(REGISTRY.create_pipeline(profile(**settings)).plugins)


def test_default_plugins_keep_their_order_and_unknown_ones_are_ignored():
    assert enabled() == ("Second", "First")
    assert REGISTRY.names == ("First", "Second", "Third")


def test_enabled_plugins_come_after_the_defaults_with_the_weight_that_is_stated():
    pipeline = REGISTRY.create_pipeline(profile(plugins={"enabled": [{"name": "Third", "weight": 7}]}))
    assert plugin_names(pipeline.plugins) == ("Second", "First", "Third")
    assert pipeline.weights == {"Second": 1, "First": 5, "Third": 7}


def test_default_that_is_enabled_again_has_the_new_weight_and_keeps_its_place():
    pipeline = REGISTRY.create_pipeline(profile(plugins={"enabled": [{"name": "Second", "weight": 3}]}))
    assert plugin_names(pipeline.plugins) == ("Second", "First")
    assert pipeline.weights["Second"] == 3


def test_star_disables_all_defaults_and_keeps_enabled_plugins():
    assert enabled(plugins={"disabled": ["*"], "enabled": [{"name": "First"}]}) == ("First",)
    assert enabled(plugins={"disabled": ["First"]}) == ("Second",)


@pytest.mark.parametrize(
    "settings",
    [
        {"plugins": {"enabled": [{"name": "Fourth"}]}},
        {"plugins": {"disabled": ["Fourth"]}},
        {"plugin_config": [{"name": "Fourth"}]},
    ],
)
def test_unknown_name_is_refused_with_the_registered_names(settings):
    message = "there is no plugin 'Fourth'; known are First, Second, Third"
    with pytest.raises(InvalidInput, match=message):
        REGISTRY.create_pipeline(profile(**settings))


def test_two_plugins_of_one_name_are_refused():
    class Other:
        name = "First"

    with pytest.raises(InvalidInput, match="two plugins are named First; rename one of them"):
        Registry((First, Other), (), {})
    assert Registry((First, First), (), {}).names == ("First",)


def test_plugin_receives_its_arguments_or_their_defaults():
    config = [{"name": "Second", "args": {"size": 4}}]
    made = REGISTRY.create_pipeline(profile(plugin_config=config)).plugins[0]
    assert isinstance(made, Second)
    assert made.args.size == 4
    plain = REGISTRY.create_pipeline(profile()).plugins[0]
    assert isinstance(plain, Second)
    assert plain.args.size == 1


@pytest.mark.parametrize("args, field", [({"size": 0}, "args.size"), ({"length": 1}, "args.length")])
def test_wrong_argument_names_the_plugin_and_the_field(args, field):
    with pytest.raises(InvalidInput) as caught:
        REGISTRY.create_pipeline(profile(plugin_config=[{"name": "Second", "args": args}]))
    assert (caught.value.object, caught.value.field) == ("plugin Second", field)


def test_plugin_that_takes_no_arguments_says_so():
    with pytest.raises(InvalidInput, match="plugin First: args: the plugin takes no arguments"):
        REGISTRY.create_pipeline(profile(plugin_config=[{"name": "First", "args": {"x": 1}}]))


def test_installed_plugins_are_found_by_entry_point_and_all_defaults_are_among_them():
    assert set(DEFAULT_PLUGINS) <= {one.name for one in load_plugin_classes()}  # type: ignore[attr-defined]
    assert plugin_names(standard_registry().create_pipeline(Profile()).plugins) == DEFAULT_PLUGINS


def test_plugin_with_a_failed_construction_is_named():
    class Raising:
        name: ClassVar[str] = "Raising"

        def __init__(self) -> None:
            raise OSError("no licence server")

    @dataclass
    class Unhashable:
        name: ClassVar[str] = "Unhashable"

    enabled = Profile.model_validate({"plugins": {"enabled": [{"name": "Raising"}]}})
    with pytest.raises(
        PluginError, match="plugin Raising failed in construction: OSError: no licence server"
    ):
        Registry([Raising], (), {}).create_pipeline(enabled)
    with pytest.raises(PluginError, match="plugin Unhashable failed in construction: TypeError"):
        Registry([Unhashable], ("Unhashable",), {}).create_pipeline(Profile())


def test_plugin_that_cannot_be_loaded_is_named(monkeypatch):
    gone = EntryPoint("Gone", "no_such_package:Gone", registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "entry_points", lambda group: (gone,))
    with pytest.raises(PluginError, match="plugin Gone failed in loading: ModuleNotFoundError"):
        load_plugin_classes.__wrapped__()
