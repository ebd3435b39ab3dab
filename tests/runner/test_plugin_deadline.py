"""Plugins that hang, at every point: their pod is refused, everything else is scheduled, and a replay repeats it."""

import sys
import time
from threading import Event
from typing import Any, ClassVar

import pytest

from batchsched.api.gang import gang_identity
from batchsched.config.plugins import DEFAULT_PLUGINS, DEFAULT_WEIGHTS
from batchsched.errors import PluginDeadlineExceeded
from batchsched.framework.runtime.deadline import (
    AbandonedSessionError,
    CountingPluginRunner,
    PluginWithDeadline,
    is_builtin_plugin,
)
from batchsched.framework.runtime.registry import Registry, load_plugin_classes
from batchsched.ports.external import ExceededDeadline, ExternalClients, PluginRunner
from batchsched.record.external_answers import ExternalAnswers
from batchsched.runner import session_runner
from batchsched.runner.session_runner import (
    SessionInput,
    SessionRunner,
    repeat_until_no_call_is_overdue,
    run_with_plugin_deadline,
)
from batchsched.session import session
from batchsched.session.session import Session
from tests.session.scenario import NOW, alone, cluster, gang, nodes, placed, profile, reasons
from tests.session.test_permit import WAYS
from tests.session.test_plugin_faults import BAD, Faulty

DEADLINE = 0.15
ENDED = Event()
"""Lets hung calls go once the tests are through."""
HANGS: dict[str, Any] = {"point": "", "how": None}


@pytest.fixture(autouse=True, scope="module")
def _let_go():
    yield
    ENDED.set()


def waiting(_: Any) -> Any:
    ENDED.wait()


def spinning(_: Any) -> Any:
    while not ENDED.is_set():
        pass


class Hanging(Faulty):
    """Hangs at one point, over the pods of one gang."""

    name: ClassVar[str] = "Hanging"

    def __init__(self) -> None:
        super().__init__(HANGS["point"], HANGS["how"])


REGISTRY = Registry((*load_plugin_classes(), Hanging), (*DEFAULT_PLUGINS, "Hanging"), DEFAULT_WEIGHTS)
SNAPSHOT = cluster(nodes(6, gpu=1), gang(BAD, 2), gang("gpt", 2), alone(1, gpu=1))


def decide_with(minder: PluginRunner | None, settings: dict[str, Any]) -> Any:
    chosen = profile(plugins={"disabled": ["PrioritySort"]}, **settings)
    pipeline = REGISTRY.create_pipeline(chosen, ExternalClients(deadline=minder))
    return Session(SNAPSHOT, chosen, pipeline).decide(NOW, 0)


POINTS = [
    "Signature",
    "LabelKeys",
    "PreEnqueue",
    "QueueSort",
    "PreFilter",
    "Filter",
    "PreScore",
    "Score",
    "NormalizeScore",
    "Reserve",
    "Unreserve",
    "Permit",
]


@pytest.mark.parametrize("settings", WAYS)
@pytest.mark.parametrize("point", POINTS)
def test_plugin_that_hangs_fails_its_gang_and_is_disabled(point, settings):
    HANGS.update(point=point, how=waiting)
    decision, overdue = repeat_until_no_call_is_overdue(
        lambda minder: decide_with(minder, settings), DEADLINE
    )
    (one,) = overdue
    assert one.plugin == "Hanging"
    assert set(placed(decision)) == {"gpt-0", "gpt-1", "solo-0"}
    assert reasons(decision) == {"team/bert": "PluginFailed"}
    message = f"plugin Hanging failed in {one.point}: {one.message}"
    assert message in decision.refusals[0].message
    assert [(aside.object, one.message in aside.message) for aside in decision.set_aside] == [
        ("plugin Hanging", True)
    ]
    began = time.perf_counter()
    again = decide_with(ExternalAnswers(overdue=overdue).create_replay_clients().deadline, settings)
    assert again == decision
    assert time.perf_counter() - began < 5


def test_loop_that_never_ends_is_given_up_as_well():
    HANGS.update(point="Filter", how=spinning)
    decision, (one,) = repeat_until_no_call_is_overdue(lambda minder: decide_with(minder, {}), DEADLINE)
    assert (one.plugin, one.point) == ("Hanging", "Filter")
    assert reasons(decision) == {"team/bert": "PluginFailed"}


def test_plugin_that_hung_in_an_earlier_session_is_left_out_from_the_start():
    HANGS.update(point="Filter", how=waiting)
    before = ExceededDeadline("Hanging", "Filter", 0, DEADLINE)
    decision, overdue = repeat_until_no_call_is_overdue(
        lambda minder: decide_with(minder, {}), DEADLINE, (before,)
    )
    assert overdue == (before,)
    assert len(placed(decision)) == 5
    assert [one.object for one in decision.set_aside] == ["plugin Hanging"]


def test_session_of_a_followed_cluster_is_decided_from_its_snapshot_if_a_plugin_hangs(monkeypatch):
    HANGS.update(point="Filter", how=waiting)
    for module in (session_runner, session):
        monkeypatch.setattr(module, "standard_registry", lambda: REGISTRY)
    chosen = profile(plugins={"disabled": ["PrioritySort"]}, pluginDeadlineSeconds=DEADLINE)
    runner = SessionRunner(chosen)
    following = Session(SNAPSHOT, chosen, REGISTRY.create_pipeline(chosen, runner.outside))
    following.decide(NOW, 0, frozenset())  # as in an earlier session, with its own numbering of calls
    taking_part = frozenset(gang_identity(pod) for pod in SNAPSHOT.pods)
    decision = runner.run_within_plugin_deadline(
        lambda: following.decide(NOW, 0), SessionInput(SNAPSHOT, taking_part, NOW, 0)
    )
    assert runner.hung
    assert reasons(decision) == {"team/bert": "PluginFailed"}
    assert decide_with(runner.answers.create_replay_clients().deadline, {}) == decision
    again = runner.without_hung_plugins()
    assert [(call.plugin, call.call) for call in again.overdue] == [("Hanging", 0)]
    assert len(placed(again.decide_from_snapshot(SNAPSHOT, NOW, 0))) == 5
    assert again.answers.overdue == again.overdue


def test_calls_of_other_threads_than_that_of_the_session_have_no_deadline():
    keeper = CountingPluginRunner()
    decision = run_with_plugin_deadline(
        lambda: keeper.call_within_deadline("own", "Filter", lambda: 1), keeper, 1.0
    )
    assert decision == 1
    keeper.abandoned = True
    assert keeper.call_within_deadline("own", "Unreserve", lambda: keeper.current) is None


def test_slow_plugin_within_its_deadline_is_not_disabled():
    def slow(usual: Any) -> Any:
        time.sleep(0.1)
        return usual

    HANGS.update(point="Filter", how=slow)
    decision, overdue = repeat_until_no_call_is_overdue(lambda minder: decide_with(minder, {}), 5.0)
    assert overdue == ()
    assert len(placed(decision)) == 5


def test_exception_of_the_work_is_raised():
    with pytest.raises(ZeroDivisionError):
        repeat_until_no_call_is_overdue(lambda minder: 1 / 0, 1.0)


def test_two_plugins_that_hang_are_both_given_up():
    def work(minder: CountingPluginRunner) -> list[str]:
        failed = []
        for name in ("one", "two"):
            try:
                minder.call_within_deadline(name, "Score", ENDED.wait)
            except PluginDeadlineExceeded as error:
                failed.append(error.plugin)
        return failed

    done, overdue = repeat_until_no_call_is_overdue(work, 0.05)
    assert done == ["one", "two"]
    assert [one.call for one in overdue] == [1, 2]


def test_abandoned_session_ends_when_the_plugin_returns():
    minder = CountingPluginRunner()
    minder.abandoned = True
    with pytest.raises(AbandonedSessionError):
        minder.call_within_deadline("late", "Filter", lambda: True)


def test_call_that_is_known_to_be_overdue_is_not_made():
    minder = CountingPluginRunner((ExceededDeadline("slow", "Filter", 2, 1.0),))
    assert minder.call_within_deadline("slow", "Filter", lambda: "first") == "first"
    with pytest.raises(PluginDeadlineExceeded, match="slow failed in Filter: took longer than 1 s"):
        minder.call_within_deadline("slow", "Filter", sys.exit)
    assert minder.find_exceeded_deadline("slow") is not None


def test_built_in_plugins_have_no_deadline():
    chosen = profile(plugins={"disabled": ["PrioritySort"]})
    made = REGISTRY.create_pipeline(chosen, ExternalClients(deadline=CountingPluginRunner())).plugins
    assert [one.name for one in made if isinstance(one, PluginWithDeadline)] == ["Hanging"]
    assert not any(isinstance(one, PluginWithDeadline) for one in REGISTRY.create_pipeline(chosen).plugins)
    assert REGISTRY.external_plugin_names(chosen) == ("Hanging",)
    assert is_builtin_plugin(load_plugin_classes()[0])
