"""Traits: without a declaration a plugin promises nothing, and a wrong declaration is an error."""

from typing import Any, ClassVar

import pytest

from batchsched.errors import PluginError
from batchsched.framework.runtime.deadline import CountingPluginRunner, wrap_with_deadline
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.runtime.registry import Registry
from batchsched.framework.status import SUCCESS, PermitAnswer
from batchsched.framework.traits import SAFE_TRAITS, PlacementEffect, PluginTraits, ResultScope, traits_of
from tests.plugins.cluster import class_of, pod, table
from tests.session.scenario import profile


class Declared:
    """Makes every promise, and has the optional methods of Filter and Reserve."""

    name = "Declared"
    traits: ClassVar[PluginTraits] = PluginTraits(
        placement_effect=PlacementEffect.USES_CAPACITY,
        result_scope=ResultScope.NODE_OBJECT,
        reads_priority=False,
        preenqueue_reads_spec_only=True,
        permit_is_per_gang=True,
    )

    def preenqueue(self, pod):
        return SUCCESS

    def filter(self, pod, nodes, state):
        raise AssertionError

    def ignores_resource(self, resource):
        return resource == "example.com/ignored"

    def reserve(self, pod, node, nodes, state):
        raise AssertionError

    def unreserve(self, pod, node, nodes, state):
        raise AssertionError

    def reserves_nothing(self, pod, nodes):
        return True

    def permit(self, pod, node, nodes, state):
        return PermitAnswer()


class Undeclared(Declared):
    """The same plugin without a promise."""

    traits: ClassVar[PluginTraits] = PluginTraits()


class Computed:
    """Computes its traits."""

    @property
    def traits(self) -> PluginTraits:
        return Declared.traits


class Wrong:
    """Declares something else than traits."""

    name = "Wrong"
    traits = "none"


def test_a_plugin_without_traits_promises_nothing():
    assert traits_of(object()) is SAFE_TRAITS
    assert PluginTraits() == SAFE_TRAITS
    assert SAFE_TRAITS.placement_effect is PlacementEffect.ANY
    assert SAFE_TRAITS.result_scope is ResultScope.CLUSTER
    assert SAFE_TRAITS.reads_priority
    assert not SAFE_TRAITS.preenqueue_reads_spec_only
    assert not SAFE_TRAITS.permit_is_per_gang
    assert SAFE_TRAITS.postfilter_nominates


def test_traits_are_an_attribute_or_a_property():
    assert traits_of(Declared()) is Declared.traits
    assert traits_of(Declared) is Declared.traits
    assert traits_of(Computed()) is Declared.traits


@pytest.mark.parametrize("wrong", [{"placement_effect": "none"}, {"result_scope": "nodeObject"}])
def test_a_value_of_the_wrong_type_is_an_error(wrong: Any):
    with pytest.raises(TypeError, match="must be a"):
        PluginTraits(**wrong)


def test_traits_of_the_wrong_type_fail_the_construction_of_the_plugin():
    with pytest.raises(PluginError, match="plugin Wrong failed in construction: TypeError: traits must be"):
        Registry([Wrong], ["Wrong"], {}).create_pipeline(profile())


def promises(plugin: object) -> tuple[bool, ...]:
    pipeline, made = Pipeline([plugin]), table([])
    return (
        pipeline.reads_priority,
        pipeline.preenqueue_reads_spec_only,
        pipeline.permit_is_per_gang,
        bool(pipeline.never_reopening_filters),
        pipeline.ignores_resource("example.com/ignored"),
        pipeline.ignores_resource("cpu"),
        bool(pipeline.stateful_reserve_plugins(class_of(made, pod()), made)),
    )


def test_the_pipeline_reads_promises_and_optional_methods():
    assert promises(Declared()) == (False, True, True, True, True, False, False)
    assert promises(Undeclared()) == (True, False, False, False, False, False, False)


def test_a_plugin_behind_a_deadline_keeps_its_promises_and_optional_methods():
    foreign = type("Foreign", (Declared,), {"__module__": "elsewhere"})()
    plugin = wrap_with_deadline(foreign, CountingPluginRunner())
    assert plugin is not foreign
    assert promises(plugin) == promises(Declared())


class Nominating:
    """A PostFilter plugin without traits."""

    name = "Nominating"

    def postfilter(self, pod, scan, handle):
        raise AssertionError


class Freeing(Nominating):
    """A PostFilter plugin that declares that it nominates no node."""

    name = "Freeing"
    traits: ClassVar[PluginTraits] = PluginTraits(postfilter_nominates=False)


@pytest.mark.parametrize(
    "plugins, nominates", [([], False), ([Freeing()], False), ([Freeing(), Nominating()], True)]
)
def test_pipeline_nominates_nodes_if_the_postfilter_of_one_plugin_may(plugins, nominates):
    assert Pipeline(plugins).nominates_nodes is nominates
