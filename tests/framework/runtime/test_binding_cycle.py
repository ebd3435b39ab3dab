"""The binding cycle: PreBind, Bind, PostBind, in that order."""

import asyncio
from collections.abc import Callable

import pytest
from typing_extensions import override

from batchsched.errors import PluginError
from batchsched.framework.runtime.binding_cycle import BindingCycle, bind, unreserve
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
    """A Reserve plugin that notes who is unreserved."""

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
    cycle = BindingCycle(table([a_node("n0")]), Written())
    return asyncio.run(bind(Pipeline(plugins), pod(), node, cycle))


def at(point: str, status: Status) -> Callable[[str], Status]:
    return lambda asked: status if asked == point else SUCCESS


def test_everyone_prepares_the_first_binds_and_everyone_is_told():
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


def test_pod_that_nobody_takes_is_skipped_and_nobody_is_told():
    calls: Calls = []
    assert bound(Binder("a", calls, at("Bind", SKIP))) == SKIP
    assert ("PostBind", "a") not in calls


@pytest.mark.parametrize("point", ["PreBind", "Bind"])
def test_refusal_ends_the_cycle(point):
    calls: Calls = []
    assert bound(Binder("a", calls, at(point, NO)), Binder("b", calls)) == NO
    assert calls[-1] == (point, "a")


@pytest.mark.parametrize("point", ["PreBind", "Bind"])
def test_plugin_that_breaks_is_named_with_its_point(point):
    def broken(asked: str) -> Status:
        if asked == point:
            raise OSError("gone")
        return SUCCESS

    with pytest.raises(PluginError, match=f"plugin a failed in {point}: OSError: gone"):
        bound(Binder("a", [], broken))


def test_breakage_that_a_plugin_words_itself_goes_through():
    def broken(_: str) -> Status:
        raise PluginError("inner", "PreBind", "my own words")

    with pytest.raises(PluginError, match="plugin inner failed in PreBind: my own words"):
        bound(Binder("a", [], broken))


@pytest.mark.parametrize("answer", [None, True, Status(Code.WAIT)])
@pytest.mark.parametrize("point", ["PreBind", "Bind"])
def test_answer_that_means_nothing_is_breakage(point, answer):
    with pytest.raises(PluginError, match=f"plugin a failed in {point}: expected"):
        bound(Binder("a", [], at(point, answer)))


def test_plugin_that_raises_before_it_awaits_is_named_too():
    class Plain(Binder):
        @override
        def bind(self, pod, node, cycle):
            raise OSError("gone")

    with pytest.raises(PluginError, match="plugin a failed in Bind: OSError: gone"):
        bound(Plain("a", []))


def test_refusal_carries_the_name_of_its_plugin():
    assert bound(Binder("a", [], at("Bind", Status(Code.UNSCHEDULABLE, ("no",))))).plugin == "a"


def test_postbind_that_breaks_leaves_the_pod_bound_and_the_others_told():
    class Deaf(Binder):
        @override
        async def postbind(self, pod, node):
            raise OSError("gone")

    calls: Calls = []
    status = bound(Deaf("a", calls), Binder("b", calls))
    assert status.ok
    assert status.reasons == ("plugin a failed in PostBind: OSError: gone",)
    assert calls[-1] == ("PostBind", "b")


@pytest.mark.parametrize("point", ["PreBind", "Bind"])
def test_pod_that_is_not_bound_is_left_to_whoever_asked(point):
    keeper = Keeper()
    assert bound(keeper, Binder("a", [], at(point, NO))) == NO
    assert keeper.unreserved == []


def given_back(*keepers: Keeper, node: str = "n0") -> tuple[str, ...]:
    return unreserve(Pipeline(keepers), pod(), node, table([a_node("n0")]))


def test_every_plugin_gives_back_what_it_reserved():
    keepers = Keeper(), Keeper()
    assert given_back(*keepers) == ()
    assert [one.unreserved for one in keepers] == [[("x", 0)], [("x", 0)]]


def test_what_breaks_as_a_pod_is_unreserved_is_told():
    assert given_back(Keeper(OSError("gone"))) == ("plugin Keeper failed in Unreserve: OSError: gone",)


def test_node_that_is_gone_has_nothing_to_give_back():
    keeper = Keeper()
    assert given_back(keeper, node="atlantis") == ()
    assert keeper.unreserved == []
