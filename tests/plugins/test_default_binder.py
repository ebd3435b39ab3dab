"""DefaultBinder: the binding is written, and what the API server refuses ends the cycle."""

import asyncio

import msgspec
import pytest

from batchsched.api.core.pod import POD_GROUP_LABEL, SUB_GROUP_LABEL
from batchsched.api.external.conversion import with_labels
from batchsched.config.schema import Profile
from batchsched.errors import PluginError
from batchsched.framework.runtime.binding_cycle import BindingCycleInput, run_binding_cycle
from batchsched.framework.runtime.pipeline import Pipeline, plugin_names
from batchsched.framework.runtime.registry import standard_registry
from batchsched.framework.status import SKIP, SUCCESS
from batchsched.plugins.default_binder import DefaultBinder
from batchsched.ports.cluster import Binding
from tests.plugins.binder import Written
from tests.plugins.cluster import node, pod, table


def cycle(binder):
    return BindingCycleInput(table([node("a")]), binder)


def known():
    one = pod("x")
    return msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, uid="u1"))


def test_a_pod_is_bound_to_its_node():
    binder = Written()
    assert asyncio.run(run_binding_cycle(Pipeline([DefaultBinder()]), known(), "a", cycle(binder))) == SUCCESS
    assert binder.writes == [Binding("default", "x", "u1", "a")]


@pytest.mark.parametrize(
    "labels, written",
    [
        ({POD_GROUP_LABEL: "x" * 63, SUB_GROUP_LABEL: "w.0"}, True),
        ({POD_GROUP_LABEL: "x" * 64}, False),
        ({POD_GROUP_LABEL: "x" * 64, SUB_GROUP_LABEL: "w.0"}, False),
        ({POD_GROUP_LABEL: "bert", SUB_GROUP_LABEL: "two words"}, False),
    ],
    ids=["valid", "long", "long with a subgroup", "not the characters of a label"],
)
def test_binding_has_the_labels_of_the_gang_if_all_are_valid_label_values(labels, written):
    # The API server writes labels of a binding unchecked, and would then refuse each later update of the pod.
    found = with_labels(pod("x"), labels)
    assert Binding.from_pod_and_node(found, "a").labels == (tuple(labels.items()) if written else ())


def test_a_failed_write_is_an_error_with_the_name_of_the_plugin():
    binder = Written(fault=OSError("409 Conflict"))
    with pytest.raises(PluginError, match="plugin DefaultBinder failed in Bind: OSError: 409 Conflict"):
        asyncio.run(run_binding_cycle(Pipeline([DefaultBinder()]), known(), "a", cycle(binder)))


@pytest.mark.parametrize("answer, writes", [(SKIP, 1), (SUCCESS, 0)], ids=["skips", "takes it"])
def test_an_earlier_bind_plugin_takes_precedence(answer, writes):
    class Own:
        name = "Own"

        async def bind(self, pod, node, cycle):
            return answer

    binder = Written()
    assert asyncio.run(run_binding_cycle(Pipeline([Own(), DefaultBinder()]), known(), "a", cycle(binder))).ok
    assert len(binder.writes) == writes


def test_the_default_binder_is_enabled_unless_a_profile_disables_it():
    assert plugin_names(standard_registry().create_pipeline(Profile()).binds) == ("DefaultBinder",)
    off = Profile.model_validate({"plugins": {"bind": {"disabled": [{"name": "DefaultBinder"}]}}})
    assert standard_registry().create_pipeline(off).binds == ()
    assert DefaultBinder().signature(pod()) is DefaultBinder().signature(known())
