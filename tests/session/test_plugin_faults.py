"""Faults of plugins, point by point: a plugin that raises or answers nonsense fails its own gang and no other."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from typing_extensions import override

from batchsched.api.core.pod import POD_GROUP_LABEL, Pod
from batchsched.api.decision import Decision
from batchsched.api.snapshot import Snapshot
from batchsched.framework.constrain import ALL_NODES, ConstraintRow
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.runtime.registry import standard_registry
from batchsched.framework.status import (
    SKIP,
    SUCCESS,
    Code,
    PermitAnswer,
    PostFilterAnswer,
    PreFilterAnswer,
    Status,
    Verdict,
)
from batchsched.framework.traits import PlacementEffect, PluginTraits
from batchsched.session.session import Session
from tests.session.needs import snapshot_of
from tests.session.scenario import NOW, alone, cluster, gang, nodes, placed, pod, profile, reasons
from tests.session.test_needs import OTHERS_FIRST
from tests.session.test_permit import WAYS

BAD = "bert"

Fault = Callable[[Any], Any]


def _pod(first: Any) -> Pod:
    return first if isinstance(first, Pod) else first.pod


def _is_bad(pod: Pod) -> bool:
    return pod.labels.get(POD_GROUP_LABEL) == BAD


class Faulty:
    """Has every point and says nothing against any pod, save at one point over the pods of one gang."""

    name: ClassVar[str] = "Faulty"
    traits: ClassVar[PluginTraits] = PluginTraits(placement_effect=PlacementEffect.ANY)

    def __init__(self, point: str, fault: Fault) -> None:
        self.point = point
        self.fault = fault
        self.unreserved = 0

    def _say(self, point: str, bad: bool, usual: Any) -> Any:
        return self.fault(usual) if bad and point == self.point else usual

    def signature(self, pod):
        return self._say("Signature", _is_bad(pod), pod.labels.get(POD_GROUP_LABEL))

    def selector_label_keys(self, pod):
        return self._say("LabelKeys", _is_bad(pod), frozenset({POD_GROUP_LABEL}))

    def preenqueue(self, pod):
        return self._say("PreEnqueue", _is_bad(pod), SUCCESS)

    def sort_key(self, pod, priority, queued):
        return self._say("QueueSort", _is_bad(pod), (-priority, queued))

    def prefilter(self, pod, nodes, state):
        return self._say("PreFilter", _is_bad(pod.pod), PreFilterAnswer())

    def add_pod(self, pod, added, node, nodes, state):
        self._say("AddPod", _is_bad(added), None)

    def remove_pod(self, pod, removed, node, nodes, state):
        pass

    def filter(self, pod, nodes, state):
        return self._say("Filter", _is_bad(pod.pod), Verdict.accept(len(nodes)))

    def postfilter(self, pod, scan, handle):
        return self._say("PostFilter", _is_bad(pod.pod), PostFilterAnswer(Status(Code.UNSCHEDULABLE)))

    def prescore(self, pod, nodes, state):
        return self._say("PreScore", _is_bad(pod.pod), SUCCESS)

    def score(self, pod, nodes, state):
        return self._say("Score", _is_bad(pod.pod), np.zeros(len(nodes), np.int64))

    def normalize(self, scores, pod, nodes, state):
        return self._say("NormalizeScore", _is_bad(pod.pod), scores)

    def constrain(self, batch, nodes):
        return self._say("Constrain", any(_is_bad(one.pod_class.pod) for one in batch.candidates), ())

    def reserve(self, pod, node, nodes, state):
        if self.point == "Unreserve" and _is_bad(pod):
            return Status(Code.UNSCHEDULABLE, ("no licence",))
        return self._say("Reserve", _is_bad(pod), SUCCESS)

    def unreserve(self, pod, node, nodes, state):
        self.unreserved += 1
        self._say("Unreserve", _is_bad(pod), None)

    def permit(self, pod, node, nodes, state):
        return self._say("Permit", _is_bad(pod), PermitAnswer())


def raising(_: Any) -> Any:
    raise RuntimeError("out of cheese")


def saying(answer: Any) -> Fault:
    def said(_: Any) -> Any:
        return answer

    return said


def nan(usual: Any) -> Any:
    return np.full(len(usual), np.nan)


def above(usual: Any) -> Any:
    return usual + 101


def below(usual: Any) -> Any:
    return usual - 1


def too_short(usual: Any) -> Any:
    return usual[:-1]


def words(usual: Any) -> Any:
    return ["good"] * len(usual)


def ragged(usual: Any) -> Any:
    return [[1], [1, 2]]


def of_other_nodes(usual: Verdict) -> Verdict:
    return Verdict.accept(len(usual.unresolvable) + 1)


def without_code(usual: Verdict) -> Verdict:
    return Verdict((), usual.refused, np.zeros(0, np.bool_))


def in_numbers(usual: Verdict) -> Verdict:
    return Verdict(("no",), np.ones((1, len(usual.unresolvable))), usual.unresolvable)  # type: ignore[arg-type]


def row(**said: Any) -> Fault:
    usual: dict[str, Any] = {
        "partition": ALL_NODES,
        "classes": np.zeros(0, np.int32),
        "coefficients": np.zeros(0, np.int64),
        "right": np.ones(1, np.int64),
    }
    return saying((ConstraintRow(**(usual | said)),))


WAIT = Status(Code.WAIT)

FAULTS: list[tuple[str, Fault]] = [
    ("Signature", raising),
    ("Signature", saying([])),
    ("LabelKeys", raising),
    ("LabelKeys", saying(7)),
    ("LabelKeys", saying({7})),
    ("PreEnqueue", raising),
    ("PreEnqueue", saying(None)),
    ("PreEnqueue", saying(True)),
    ("PreEnqueue", saying(WAIT)),
    ("QueueSort", raising),
    ("QueueSort", saying(None)),
    ("PreFilter", raising),
    ("PreFilter", saying(None)),
    ("PreFilter", saying(SUCCESS)),
    ("PreFilter", saying(PreFilterAnswer(WAIT))),
    ("PreFilter", saying(PreFilterAnswer(nodes="n0"))),  # type: ignore[arg-type]
    ("Filter", raising),
    ("Filter", saying(None)),
    ("Filter", saying("yes")),
    ("Filter", of_other_nodes),
    ("Filter", without_code),
    ("Filter", in_numbers),
    ("PreScore", raising),
    ("PreScore", saying(None)),
    ("PreScore", saying(Status(Code.UNSCHEDULABLE, ("no",)))),
    ("Score", raising),
    ("Score", saying(None)),
    ("Score", nan),
    ("Score", too_short),
    ("Score", words),
    ("Score", ragged),
    ("NormalizeScore", raising),
    ("NormalizeScore", saying(None)),
    ("NormalizeScore", nan),
    ("NormalizeScore", above),
    ("NormalizeScore", below),
    ("NormalizeScore", too_short),
    ("NormalizeScore", words),
    ("Reserve", raising),
    ("Reserve", saying(None)),
    ("Reserve", saying(SKIP)),
    ("Unreserve", raising),
    ("Permit", raising),
    ("Permit", saying(None)),
    ("Permit", saying(SUCCESS)),
    ("Permit", saying(PermitAnswer(WAIT, -1.0))),
    ("Permit", saying(PermitAnswer(WAIT, float("nan")))),
    ("Permit", saying(PermitAnswer(WAIT, "soon"))),  # type: ignore[arg-type]
]
WITH_SOLVER: list[tuple[str, Fault]] = [
    ("Constrain", raising),
    ("Constrain", saying(None)),
    ("Constrain", saying((1, 2))),
    ("Constrain", row(partition=99)),
    ("Constrain", row(classes=np.array([77], np.int32), coefficients=np.ones(1, np.int64))),
    ("Constrain", row(coefficients=np.ones(3, np.int64))),
    ("Constrain", row(right=np.ones(0, np.int64))),
    ("Constrain", row(right=np.array([np.nan]))),
    ("Constrain", row(gangs=np.array([0], np.int32))),
]

OF_POSTFILTER: list[tuple[str, Fault]] = [
    ("PostFilter", raising),
    ("PostFilter", saying(None)),
    ("PostFilter", saying(SUCCESS)),
    ("PostFilter", saying(PostFilterAnswer(SKIP))),
    ("PostFilter", saying(PostFilterAnswer(WAIT))),
    ("PostFilter", saying(PostFilterAnswer(node="atlantis"))),
    ("PostFilter", saying(PostFilterAnswer(node="n0", victims=("team/missing",)))),
    ("PostFilter", saying(PostFilterAnswer(node="n0", victims="all"))),  # type: ignore[arg-type]
]


USUAL = cluster(nodes(6, gpu=1), gang(BAD, 2), gang("gpt", 2), alone(1, gpu=1))


def decide_with(plugin: object, snapshot: Snapshot = USUAL, **settings: Any) -> tuple[Decision, Session]:
    chosen = profile(plugins={"disabled": ["PrioritySort"]}, **settings)
    usual = standard_registry().create_pipeline(chosen)
    sessions = Session(snapshot, chosen, Pipeline((plugin, *usual.plugins), usual.weights))
    return sessions.decide(NOW, 0), sessions


def assert_that_one_gang_failed(decision: Decision, sessions: Session) -> None:
    assert set(placed(decision)) == {"gpt-0", "gpt-1", "solo-0"}
    assert reasons(decision) == {"team/bert": "PluginFailed"}
    assert "plugin Faulty failed in " in decision.refusals[0].message
    assert decision.waiting == ()
    assert not sessions.tables.node_table.requested.any()
    assert not sessions.tables.gangs["team/bert"].to_pod_counts().placed


def cases(faults: list[tuple[str, Fault]]) -> list[Any]:
    return [
        pytest.param(point, fault, id=f"{point}-{fault.__name__.strip('<>')}-{at}")
        for at, (point, fault) in enumerate(faults)
    ]


@pytest.mark.parametrize("settings", WAYS)
@pytest.mark.parametrize("point, fault", cases(FAULTS))
def test_fault_of_a_plugin_fails_only_the_gang_concerned_and_names_the_plugin(point, fault, settings):
    assert_that_one_gang_failed(*decide_with(Faulty(point, fault), **settings))


class NeverGivesBack(Faulty):
    """Reserves every pod, and raises in Unreserve."""

    @override
    def reserve(self, pod, node, nodes, state):
        return SUCCESS


@pytest.mark.parametrize("settings", WAYS[:2])
def test_gang_with_a_failed_unreserve_is_not_retried_in_another_order(settings):
    order_matters = replace(OTHERS_FIRST, teams=(replace(OTHERS_FIRST.teams[0], name=BAD),))
    plugin = NeverGivesBack("Unreserve", raising)
    decision, sessions = decide_with(plugin, snapshot_of(order_matters), **settings)
    assert placed(decision) == {}
    assert reasons(decision) == {f"team/{BAD}": "PluginFailed"}
    assert not sessions.tables.node_table.requested.any()


@pytest.mark.parametrize("settings", WAYS[:2])
@pytest.mark.parametrize("point, fault", cases(WITH_SOLVER))
def test_fault_in_constrain_fails_only_the_gang_concerned(point, fault, settings):
    assert_that_one_gang_failed(*decide_with(Faulty(point, fault), **settings))


@pytest.mark.parametrize("point, fault", cases(OF_POSTFILTER))
def test_fault_in_postfilter_fails_only_the_preempting_gang(point, fault):
    wish = gang(BAD, 1, requests={"gpu": 2})
    snapshot = cluster(nodes(6, gpu=1), wish, gang("gpt", 2), alone(1, gpu=1))
    chosen = profile(plugins={"disabled": ["PrioritySort"]}, solver={"enabled": False})
    usual = standard_registry().create_pipeline(chosen)
    sessions = Session(snapshot, chosen, Pipeline((Faulty(point, fault), *usual.plugins), usual.weights))
    decision = sessions.decide(NOW, 0)
    assert_that_one_gang_failed(decision, sessions)
    assert "plugin Faulty failed in PostFilter: " in decision.refusals[0].message
    assert (decision.evictions, decision.nominations) == ((), ())


def test_constrain_is_not_asked_when_the_solver_is_off():
    decision, _ = decide_with(Faulty("Constrain", raising), solver={"enabled": False})
    assert reasons(decision) == {}


@pytest.mark.parametrize("settings", WAYS)
def test_prefilter_that_names_unknown_nodes_refuses_the_gang_and_is_named(settings):
    unknown = saying(PreFilterAnswer(nodes=frozenset({"atlantis"})))
    decision, _ = decide_with(Faulty("PreFilter", unknown), **settings)
    assert set(placed(decision)) == {"gpt-0", "gpt-1", "solo-0"}
    assert set(reasons(decision)) == {"team/bert"}
    assert "node(s) didn't satisfy plugin(s) [Faulty]" in decision.refusals[0].message


def test_fault_in_add_pod_fails_only_the_gang_concerned():
    decision, sessions = decide_with(Faulty("AddPod", raising))
    assert_that_one_gang_failed(decision, sessions)


@pytest.mark.parametrize("settings", WAYS)
def test_fault_in_object_selector_label_keys_is_reported_and_refuses_no_pod(settings):
    class Reading(Faulty):
        name: ClassVar[str] = "Reading"

        def object_selector_label_keys(self, snapshot):
            raise RuntimeError("out of cheese")

    decision, _ = decide_with(Reading("", raising), **settings)
    assert len(placed(decision)) == 5
    (aside,) = decision.set_aside
    assert aside.object == "plugin Reading"
    assert "out of cheese" in aside.message


@pytest.mark.parametrize("settings", WAYS)
def test_pods_differ_in_every_label_if_object_selector_label_keys_fails(settings):
    class Choosy(Faulty):
        name: ClassVar[str] = "Choosy"

        def object_selector_label_keys(self, snapshot):
            raise RuntimeError("out of cheese")

        @override
        def selector_label_keys(self, pod):
            return frozenset()

        @override
        def filter(self, pod, nodes, state):
            unwanted = np.full(len(nodes), pod.pod.labels.get("colour") == "red")
            return Verdict.refuse(unwanted, "is red", unresolvable=True)

    pods = tuple(pod(colour, labels={"colour": colour}, gpu=1) for colour in ("blue", "red", "green"))
    decision, _ = decide_with(Choosy("", raising), cluster(nodes(6, gpu=1), pods=pods), **settings)
    assert set(placed(decision)) == {"blue", "green"}


@pytest.mark.parametrize("settings", WAYS[:2])
def test_constrain_that_fails_only_for_several_gangs_is_skipped_and_reported(settings):
    class Crowded(Faulty):
        name: ClassVar[str] = "Crowded"

        @override
        def constrain(self, batch, nodes):
            if len({one.gang for one in batch.candidates}) > 1:
                raise RuntimeError("too many")
            return ()

    decision, sessions = decide_with(Crowded("", raising), **settings)
    assert len(placed(decision)) == 5
    told = [one.object for one in decision.set_aside]
    assert told == (["plugin Crowded"] if not settings else [])
    assert sessions.decide(NOW, 0) == decision


@pytest.mark.parametrize("settings", WAYS[:2])
@pytest.mark.parametrize("right", [-1, -(2**62), 2**62])
def test_row_with_a_negative_or_huge_right_hand_side_refuses_no_gang(right, settings):
    decision, _ = decide_with(Faulty("Constrain", row(right=np.array([right]))), **settings)
    assert len(placed(decision)) == 5
