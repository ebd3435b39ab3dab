"""The binding cycle: PreBind, Bind, PostBind, in that order."""

import asyncio
from collections.abc import Callable

import pytest
from typing_extensions import override

from batchsched.errors import PluginError
from batchsched.framework.runtime.binding_cycle import (
    BindingCycleInput,
    run_binding_cycle,
    unreserve_after_session,
)
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.status import SKIP, SUCCESS, Code, Status
from tests.plugins.binder import Written
from tests.plugins.cluster import node as a_node
from tests.plugins.cluster import pod, table

NO = Status(Code.UNSCHEDULABLE, ("no volume",), "x")
Calls = list[tuple[str, str]]


class Binder:
    """A plugin with all three points."""

    def __init__(self, name: str, calls: Calls, answer: Callable[[str], Status] = lambda _: SUCCESS) -> None:
        self.name = name
        self.calls = calls
        self.answer = answer

    async def prebind(self, pod, node, cycle):
        self.calls.append(("PreBind", self.name))
        await asyncio.sleep(0)
        return self.answer("PreBind")

    async def bind(self, pod, node, cycle):
        self.calls.append(("Bind", self.name))
        return self.answer("Bind")

    async def postbind(self, pod, node):
        self.calls.append(("PostBind", self.name))


class Keeper:
    """A Reserve plugin that records unreserved pods."""

    name = "Keeper"

    def __init__(self, fault: Exception | None = None) -> None:
        self.unreserved: list[tuple[str, int]] = []
        self.fault = fault

    def reserve(self, pod, node, nodes, state):
        return SUCCESS

    def unreserve(self, pod, node, nodes, state):
        self.unreserved.append((pod.name, node))
        if self.fault is not None:
            raise self.fault


def bound(*plugins: object, node: str = "n0") -> Status:
    cycle = BindingCycleInput(table([a_node("n0")]), Written())
    return asyncio.run(run_binding_cycle(Pipeline(plugins), pod(), node, cycle))


def at(point: str, status: Status) -> Callable[[str], Status]:
    return lambda asked: status if asked == point else SUCCESS


def test_every_plugin_runs_prebind_and_postbind_and_the_first_one_binds():
    calls: Calls = []
    assert bound(Binder("a", calls), Binder("b", calls)) == SUCCESS
    assert calls == [
        ("PreBind", "a"),
        ("PreBind", "b"),
        ("Bind", "a"),
        ("PostBind", "a"),
        ("PostBind", "b"),
    ]


def test_binder_that_skips_leaves_the_pod_to_the_next():
    calls: Calls = []
    assert bound(Binder("a", calls, at("Bind", SKIP)), Binder("b", calls)) == SUCCESS
    assert [name for point, name in calls if point == "Bind"] == ["a", "b"]


def test_bind_skipped_by_every_plugin_returns_skip_without_postbind():
    calls: Calls = []
    assert bound(Binder("a", calls, at("Bind", SKIP))) == SKIP
    assert ("PostBind", "a") not in calls


@pytest.mark.parametrize("point", ["PreBind", "Bind"])
def test_refusal_ends_the_cycle(point):
    calls: Calls = []
    assert bound(Binder("a", calls, at(point, NO)), Binder("b", calls)) == NO
    assert calls[-1] == (point, "a")


@pytest.mark.parametrize("point", ["PreBind", "Bind"])
def test_error_names_the_plugin_and_its_point(point):
    def broken(asked: str) -> Status:
        if asked == point:
            raise OSError("gone")
        return SUCCESS

    with pytest.raises(PluginError, match=f"plugin a failed in {point}: OSError: gone"):
        bound(Binder("a", [], broken))


def test_plugin_error_raised_by_a_plugin_is_not_wrapped():
    def broken(_: str) -> Status:
        raise PluginError("inner", "PreBind", "my own words")

    with pytest.raises(PluginError, match="plugin inner failed in PreBind: my own words"):
        bound(Binder("a", [], broken))


@pytest.mark.parametrize("answer", [None, True, Status(Code.WAIT)])
@pytest.mark.parametrize("point", ["PreBind", "Bind"])
def test_invalid_answer_is_an_error(point, answer):
    with pytest.raises(PluginError, match=f"plugin a failed in {point}: expected"):
        bound(Binder("a", [], at(point, answer)))


def test_error_of_a_bind_that_is_not_a_coroutine_names_the_plugin_too():
    class Plain(Binder):
        @override
        def bind(self, pod, node, cycle):
            raise OSError("gone")

    with pytest.raises(PluginError, match="plugin a failed in Bind: OSError: gone"):
        bound(Plain("a", []))


def test_refusal_carries_the_name_of_its_plugin():
    assert bound(Binder("a", [], at("Bind", Status(Code.UNSCHEDULABLE, ("no",))))).plugin == "a"


def test_error_in_postbind_keeps_the_pod_bound_and_the_other_plugins_are_called():
    class Deaf(Binder):
        @override
        async def postbind(self, pod, node):
            raise OSError("gone")

    calls: Calls = []
    status = bound(Deaf("a", calls), Binder("b", calls))
    assert status.ok
    (reason,) = status.reasons
    assert reason.startswith("plugin a failed in PostBind: OSError: gone (")
    assert calls[-1] == ("PostBind", "b")


@pytest.mark.parametrize("point", ["PreBind", "Bind"])
def test_bind_does_not_unreserve_a_refused_pod(point):
    keeper = Keeper()
    assert bound(keeper, Binder("a", [], at(point, NO))) == NO
    assert keeper.unreserved == []


def given_back(*keepers: Keeper, node: str = "n0") -> tuple[str, ...]:
    return unreserve_after_session(Pipeline(keepers), pod(), node, table([a_node("n0")]))


def test_unreserve_is_called_on_every_plugin():
    keepers = Keeper(), Keeper()
    assert given_back(*keepers) == ()
    assert [one.unreserved for one in keepers] == [[("x", 0)], [("x", 0)]]


def test_error_in_unreserve_is_returned():
    (reason,) = given_back(Keeper(OSError("gone")))
    assert reason.startswith("plugin Keeper failed in Unreserve: OSError: gone (")


def test_unreserve_is_not_called_for_a_deleted_node():
    keeper = Keeper()
    assert given_back(keeper, node="atlantis") == ()
    assert keeper.unreserved == []
