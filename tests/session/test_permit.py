"""Reserve and Permit: the calls for placed pods, waiting gangs, and the rollback after a refusal."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import msgspec
import numpy as np
import pytest
from typing_extensions import override

from batchsched.api.core.pod import POD_GROUP_LABEL
from batchsched.api.decision import Decision
from batchsched.api.snapshot import HeldGang, HeldGangPod, Snapshot
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.runtime.registry import standard_registry
from batchsched.framework.status import SUCCESS, Code, PermitAnswer, PreFilterAnswer, Status, Verdict
from batchsched.framework.traits import PluginTraits
from batchsched.session.session import Session
from tests.session.scenario import NOW, alone, cluster, gang, nodes, placed, profile, queue, reasons


class Recorder:
    """Has every point up to Permit, allows everything, and writes down what it is asked.

    It states no signature: nothing is known of what it reads, so it is shown every pod by itself.
    """

    name: ClassVar[str] = "Recorder"

    def __init__(self, permit: Callable[[str], PermitAnswer] | None = None) -> None:
        self.calls: list[tuple[str, str]] = []
        self._permit = permit or (lambda _: PermitAnswer())

    def saw(self, point: str) -> list[str]:
        return [pod for at, pod in self.calls if at == point]

    def preenqueue(self, pod):
        self.calls.append(("PreEnqueue", pod.name))
        return SUCCESS

    def sort_key(self, pod, priority, queued):
        self.calls.append(("QueueSort", pod.name))
        return (-priority, queued)

    def prefilter(self, pod, nodes, state):
        self.calls.append(("PreFilter", pod.pod.name))
        return PreFilterAnswer()

    def filter(self, pod, nodes, state):
        self.calls.append(("Filter", pod.pod.name))
        return Verdict.accept(len(nodes))

    def prescore(self, pod, nodes, state):
        self.calls.append(("PreScore", pod.pod.name))
        return SUCCESS

    def score(self, pod, nodes, state):
        self.calls.append(("Score", pod.pod.name))
        return np.zeros(len(nodes), np.int64)

    def reserve(self, pod, node, nodes, state):
        self.calls.append(("Reserve", pod.name))
        return SUCCESS

    def unreserve(self, pod, node, nodes, state):
        self.calls.append(("Unreserve", pod.name))

    def permit(self, pod, node, nodes, state):
        self.calls.append(("Permit", pod.name))
        return self._permit(pod.name)


def wait(_: str) -> PermitAnswer:
    return PermitAnswer(Status(Code.WAIT), 30.0)


def refuse(name: str) -> Callable[[str], PermitAnswer]:
    no = PermitAnswer(Status(Code.UNSCHEDULABLE, ("no licence",)))
    return lambda pod: no if pod == name else PermitAnswer()


def decide_with(
    recorder: Any, snapshot: Snapshot, now: float = NOW, **settings: Any
) -> tuple[Decision, Session]:
    chosen = profile(plugins={"disabled": ["PrioritySort"]}, **settings)
    usual = standard_registry().create_pipeline(chosen)
    sessions = Session(snapshot, chosen, Pipeline((*usual.plugins, recorder), usual.weights))
    return sessions.decide(now, 0), sessions


WAYS = [
    pytest.param({}, id="joint"),
    pytest.param({"selection": "ordered"}, id="ordered"),
    pytest.param({"solver": {"enabled": False}}, id="pod-by-pod"),
]


@pytest.mark.parametrize("settings", WAYS)
def test_every_placed_pod_goes_through_every_point_in_order(settings):
    recorder = Recorder()
    there = cluster(nodes(4, gpu=2), gang("bert", 3), gang("gpt", 2), alone(2))
    decision, _ = decide_with(recorder, there, **settings)
    assert len(placed(decision)) == 7
    for pod in placed(decision):
        seen = [point for point, name in recorder.calls if name == pod and point not in ("PreScore", "Score")]
        assert list(dict.fromkeys(seen)) == [
            "QueueSort",
            "PreEnqueue",
            "PreFilter",
            "Filter",
            "Reserve",
            "Permit",
        ]
    assert recorder.saw("PreScore")
    assert recorder.saw("Score")


@pytest.mark.parametrize("settings", WAYS)
def test_members_reserve_one_by_one_and_are_released_together(settings):
    recorder = Recorder()
    decision, sessions = decide_with(recorder, cluster(nodes(3, gpu=1), gang("bert", 3)), **settings)
    assert len(placed(decision)) == 3
    assert recorder.saw("Reserve") == recorder.saw("Permit")
    assert decision.waiting == ()
    assert sessions.tables.node_table.waiting.is_gang_allowed("team/bert")


@pytest.mark.parametrize("settings", WAYS)
def test_refused_member_unreserves_its_gang_in_reverse_order(settings):
    recorder = Recorder(refuse("bert-2"))
    decision, sessions = decide_with(
        recorder, cluster(nodes(4, gpu=1), gang("bert", 3), gang("solo", 1)), **settings
    )
    assert set(placed(decision)) == {"solo-0"}
    assert reasons(decision) == {"team/bert": "PermitRejected"}
    assert "no licence" in decision.refusals[0].message
    mine = [(point, pod) for point, pod in recorder.calls if pod.startswith("bert")]
    reserved = [pod for point, pod in mine if point == "Reserve"]
    unreserved = [pod for point, pod in mine if point == "Unreserve"]
    assert unreserved == list(reversed(reserved))
    assert not sessions.tables.node_table.requested.any()
    assert sessions.tables.gangs["team/bert"].to_pod_counts().placed == 0


def test_gang_that_waits_at_permit_is_held_on_its_nodes():
    decision, _ = decide_with(Recorder(wait), cluster(nodes(2, gpu=1), gang("bert", 2)))
    assert decision.assignments == ()
    (waiting,) = decision.waiting
    assert (waiting.pod_group, waiting.plugin, waiting.until) == (
        "team/bert",
        "Recorder",
        "2023-11-14T22:13:50Z",
    )
    assert sorted(one.node for one in decision.nominations) == ["n0", "n1"]


def held(snapshot: Snapshot, until: float) -> Snapshot:
    pods = (HeldGangPod("team/bert-0", "n0"), HeldGangPod("team/bert-1", "n1"))
    return Snapshot(
        nodes=snapshot.nodes,
        pods=snapshot.pods,
        pod_groups=snapshot.pod_groups,
        held=(HeldGang("team/bert", "Recorder", until, pods),),
    )


def test_held_gang_keeps_its_capacity_from_others():
    snapshot = cluster(nodes(2, gpu=1), gang("bert", 2), gang("late", 1, priorityClassName=""))
    decision, _ = decide_with(Recorder(wait), held(snapshot, NOW + 10))
    assert set(reasons(decision)) == {"team/late"}
    assert decision.waiting[0].until == "2023-11-14T22:13:30Z"


def test_held_gang_is_assigned_to_its_held_nodes_once_permit_allows_it():
    decision, _ = decide_with(Recorder(), held(cluster(nodes(2, gpu=1), gang("bert", 2)), NOW + 10))
    assert placed(decision) == {"bert-0": "n0", "bert-1": "n1"}


def test_held_gang_past_its_timeout_is_unreserved_in_reverse_order():
    recorder = Recorder(wait)
    decision, sessions = decide_with(recorder, held(cluster(nodes(2, gpu=1), gang("bert", 2)), NOW))
    assert reasons(decision) == {"team/bert": "PermitTimeout"}
    assert decision.waiting == ()
    assert recorder.saw("Unreserve") == list(reversed(recorder.saw("Reserve")))
    assert not sessions.tables.node_table.requested.any()


class Gate:
    """A Permit plugin that counts the placed pods at each call, and may refuse a pod."""

    name: ClassVar[str] = "Gate"

    def __init__(self, refused: str = "") -> None:
        self._refused = refused
        self.seen: list[int] = []
        self.unreserved: list[str] = []

    def permit(self, pod, node, nodes, state):
        self.seen.append(len(nodes.pod_table))
        return refuse(self._refused)(pod.name)


class Door(Gate):
    """Implements Reserve too, and keeps state."""

    def reserve(self, pod, node, nodes, state):
        return SUCCESS

    def unreserve(self, pod, node, nodes, state):
        self.unreserved.append(pod.name)


class Arch(Door):
    """Reserves nothing for any class."""

    def reserves_nothing(self, pod, nodes):
        return True


@pytest.mark.parametrize("kind, seen", [(Gate, [1, 2, 3]), (Door, [1, 2, 3]), (Arch, [3, 3, 3])])
def test_permit_sees_earlier_pods_or_the_whole_gang_if_nothing_is_reserved(kind, seen):
    plugin = kind()
    decision, _ = decide_with(plugin, cluster(nodes(3, gpu=1), gang("bert", 3)))
    assert len(placed(decision)) == 3
    assert plugin.seen == seen


class Herald(Arch):
    """Answers the same for all pods of a gang."""

    traits: ClassVar[PluginTraits] = PluginTraits(permit_is_per_gang=True)

    @override
    def permit(self, pod, node, nodes, state):
        self.shown.add(pod.name)
        return super().permit(pod, node, nodes, state)

    def __init__(self, refused: str = "") -> None:
        super().__init__(refused)
        self.shown: set[str] = set()


@pytest.mark.parametrize("refused, left", [("", 3), ("bert-0", 0)])
def test_permit_per_gang_is_called_for_the_first_of_equal_pods_only(refused, left):
    plugin = Herald(refused)
    decision, _ = decide_with(plugin, cluster(nodes(3, gpu=1), gang("bert", 3)))
    assert len(placed(decision)) == left
    assert plugin.shown == {"bert-0"}
    assert set(plugin.seen) == {3}


class Porter:
    """A PreEnqueue plugin that reads only the spec of a pod."""

    name: ClassVar[str] = "Porter"
    traits: ClassVar[PluginTraits] = PluginTraits(preenqueue_reads_spec_only=True)

    def __init__(self) -> None:
        self.seen: list[str] = []

    def preenqueue(self, pod):
        self.seen.append(pod.name)
        return SUCCESS


def test_preenqueue_that_reads_only_specs_is_called_once_for_each_spec():
    plugin, some = Porter(), gang("bert", 4)
    first, last = some.pods[0].spec, some.pods[3].spec
    specs = zip(some.pods, (first, first, last, last), strict=True)
    pods = tuple(msgspec.structs.replace(pod, spec=spec) for pod, spec in specs)
    assert first is not last
    decision, _ = decide_with(plugin, cluster(nodes(4, gpu=1), replace(some, pods=pods)))
    assert len(placed(decision)) == 4
    assert plugin.seen == ["bert-0", "bert-2"]


@dataclass
class Nameplate(Arch):
    """Compares by value, and so has no hash."""

    seen: list[int] = field(default_factory=list)
    _refused: str = ""


def test_unhashable_plugin_may_implement_reserve_and_permit():
    plugin = Nameplate()
    decision, _ = decide_with(plugin, cluster(nodes(3, gpu=1), gang("bert", 3)))
    assert len(placed(decision)) == 3
    assert plugin.seen == [3, 3, 3]


@pytest.mark.parametrize("kind, back", [(Door, ["bert-1", "bert-0"]), (Arch, ["bert-2", "bert-1", "bert-0"])])
def test_refused_member_is_unreserved_with_the_pods_assumed_together_with_it(kind, back):
    plugin = kind("bert-1")
    there = cluster(nodes(4, gpu=1), gang("bert", 3), gang("solo", 1))
    decision, sessions = decide_with(plugin, there)
    assert set(placed(decision)) == {"solo-0"}
    assert reasons(decision) == {"team/bert": "PermitRejected"}
    assert plugin.unreserved[-len(back) :] == back
    assert not sessions.tables.node_table.requested.any()


class Minding(Recorder):
    """Makes the first gang wait, and acts on waiting pods when the second gang is at Permit."""

    def __init__(self, act: Callable[[Any], object]) -> None:
        super().__init__()
        self._act = act

    @override
    def permit(self, pod, node, nodes, state):
        if pod.labels[POD_GROUP_LABEL] == "first":
            return wait(pod.name)
        self._act(nodes.waiting)
        return PermitAnswer()


def minded(act: Callable[[Any], object], **settings: Any) -> tuple[Decision, Session]:
    snapshot = cluster(nodes(4, gpu=1), gang("first", 2, age=9), gang("second", 2))
    return decide_with(Minding(act), snapshot, **settings)


@pytest.mark.parametrize("settings", WAYS)
def test_waiting_pods_can_be_allowed_during_permit_of_another_gang(settings):
    decision, sessions = minded(lambda waiting: [one.allow("Recorder") for one in waiting], **settings)
    assert len(placed(decision)) == 4
    assert decision.waiting == ()
    assert not list(sessions.tables.node_table.waiting)


@pytest.mark.parametrize("settings", WAYS)
def test_rejection_of_a_waiting_pod_rolls_back_its_gang(settings):
    def act(waiting: Any) -> None:
        one = waiting.get("team/first-1")
        if one is not None:
            one.reject("Quota", "too late")

    decision, sessions = minded(act, **settings)
    assert set(placed(decision)) == {"second-0", "second-1"}
    assert reasons(decision) == {"team/first": "PermitRejected"}
    assert decision.refusals[0].message == "plugin Quota: too late; the gang was rolled back"
    assert (decision.waiting, decision.nominations) == ((), ())
    assert not sessions.tables.node_table.requested.any()


def held_on(snapshot: Snapshot, name: str, *pairs: tuple[str, str], until: float = NOW + 10) -> Snapshot:
    pods = tuple(HeldGangPod(f"team/{pod}", node) for pod, node in pairs)
    return replace(snapshot, held=(*snapshot.held, HeldGang(f"team/{name}", "Recorder", until, pods)))


def test_deleted_held_gang_holds_no_capacity():
    snapshot = held_on(cluster(nodes(1, gpu=1), gang("late", 1)), "gone", ("gone-0", "n0"))
    decision, _ = decide_with(Recorder(), snapshot)
    assert set(placed(decision)) == {"late-0"}


def test_held_gang_with_a_deleted_node_is_scheduled_again():
    snapshot = held_on(cluster(nodes(1, gpu=1), gang("bert", 1)), "bert", ("bert-0", "n9"))
    decision, _ = decide_with(Recorder(), snapshot)
    assert placed(decision) == {"bert-0": "n0"}
    nowhere = held_on(cluster(nodes(1, gpu=1), gang("bert", 2)), "bert", ("bert-0", "n0"), ("bert-1", "n9"))
    decision, sessions = decide_with(Recorder(), nowhere)
    assert reasons(decision) == {"team/bert": "InsufficientResources"}
    assert not sessions.tables.node_table.requested.any()


def test_single_pod_is_held_under_its_own_name():
    snapshot = cluster(nodes(1, gpu=1), gang("x", 1))
    single = replace(snapshot, pod_groups=(), pods=tuple(_alone(one) for one in snapshot.pods))
    decision, _ = decide_with(Recorder(), held_on(single, "x-0", ("x-0", "n0")))
    assert placed(decision) == {"x-0": "n0"}


def _alone(one):

    return msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, labels=None))


def test_repeated_wait_does_not_extend_the_permit_deadline():
    snapshot = held_on(cluster(nodes(1, gpu=1), gang("bert", 1)), "bert", ("bert-0", "n0"), until=NOW + 5)
    for _ in range(2):
        decision, _ = decide_with(Recorder(wait), snapshot)
        assert [one.until for one in decision.waiting] == ["2023-11-14T22:13:25Z"]


def test_gang_that_is_allowed_after_its_deadline_is_assigned():
    snapshot = held_on(cluster(nodes(1, gpu=1), gang("bert", 1)), "bert", ("bert-0", "n0"), until=NOW - 5)
    decision, _ = decide_with(Recorder(lambda _: PermitAnswer()), snapshot)
    assert placed(decision) == {"bert-0": "n0"}


def test_held_gang_keeps_the_places_of_its_minimum_if_a_surplus_pod_is_refused():
    snapshot = held_on(
        cluster(nodes(1, gpu=2), gang("bert", 3, 2)), "bert", *((f"bert-{at}", "n0") for at in range(3))
    )
    decision, _ = decide_with(Recorder(), snapshot)
    assert placed(decision) == {"bert-0": "n0", "bert-1": "n0"}
    assert decision.refusals == ()


def test_held_gangs_count_against_their_queues():
    snapshot = cluster(
        nodes(4, gpu=1),
        gang("bert", 1, queue="a"),
        gang("late", 2, queue="a"),
        queues=(queue("a", limit={"nvidia.com/gpu": "2"}),),
    )
    decision, _ = decide_with(Recorder(wait), held_on(snapshot, "bert", ("bert-0", "n0")))
    assert reasons(decision) == {"team/late": "QueueLimit"}
    assert [one.pod_group for one in decision.waiting] == ["team/bert"]


def test_held_gang_that_rests_too_is_not_scheduled_a_second_time():
    snapshot = replace(held(cluster(nodes(4, gpu=1), gang("bert", 2)), NOW + 10), resting=("team/bert",))
    decision, _ = decide_with(Recorder(wait), snapshot)
    assert [one.pod_group for one in decision.waiting] == ["team/bert"]
    assert (decision.refusals, decision.assignments) == ((), ())
