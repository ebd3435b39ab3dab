import math
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from typing_extensions import override

from batchsched.api.core.cluster_objects import PodDisruptionBudget
from batchsched.api.core.pod import Container
from batchsched.config.schema import Profile
from batchsched.errors import PluginError
from batchsched.framework.pod_class import PodClass
from batchsched.framework.preemption import Nominations, PreemptionHandle, run_postfilters
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.runtime.registry import standard_registry
from batchsched.framework.status import Code, Verdict
from batchsched.plugins.default_preemption import (
    DefaultPreemption,
    DefaultPreemptionArgs,
    PreemptionCandidate,
    choose_candidate,
    importance_key,
    is_terminating_by_preemption,
    split_by_disruption_budget,
)
from batchsched.plugins.gang_scheduling import GangScheduling
from batchsched.plugins.node_name import NodeName
from batchsched.plugins.node_ports import NodePorts
from batchsched.plugins.node_resources_fit import NodeResourcesFit
from tests.plugins.cluster import judged, node, pod, table

SMALL = {"cpu": "4"}


def running(name, cpu="1", priority=0, minute=0, labels=None, namespace="default", **status):
    """A pod with its start in minutes after midnight."""
    made = pod(name, {"cpu": cpu}, priority=priority)
    stated = {"startTime": f"2026-01-01T00:{minute:02d}:00Z", **status}
    return msgspec.structs.replace(
        made,
        metadata=msgspec.structs.replace(made.metadata, labels=labels, namespace=namespace),
        status=msgspec.convert(stated, type(made.status)),
    )


def budget(allowed, name="b", namespace="default", disrupted=(), **labels):
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"selector": {"matchLabels": labels}},
            "status": {"disruptionsAllowed": allowed, "disruptedPods": dict.fromkeys(disrupted, "2026")},
        },
        PodDisruptionBudget,
    )


def handle_of(made, one, *nominated, args=None, budgets=()):
    if budgets:
        made.cluster_objects = replace(made.cluster_objects, pod_disruption_budgets=tuple(budgets))
    plugins = (NodeName(), NodePorts(), NodeResourcesFit(), DefaultPreemption(args))
    pipeline, nominations = Pipeline(plugins), Nominations.from_pods(nominated, made)
    requests, nonzero = made.request_vectors(one)
    wish = PodClass.from_pod(one, requests, (int(nonzero[0]), int(nonzero[1])), one.spec.priority or 0)
    return judged(pipeline, wish, made, nominations)


def preempted(made, one, *nominated, **more):
    """The nominated node and the victims, or the reason."""
    answer = run_postfilters(handle_of(made, one, *nominated, **more))
    if answer.status.ok:
        return answer.node, list(answer.victims)
    assert answer.status.code is Code.UNSCHEDULABLE
    return answer.status.reasons[0]


def searched(made, one, **more):
    handle = handle_of(made, one, **more)
    search = DefaultPreemption(more.get("args")).find_candidates(handle.pod, handle.scan, handle)
    return {room.node: ([each.name for each in room.victims], room.violations) for room in search.candidates}


def wanting(cpu="1", priority=10, **spec):
    return pod("x", {"cpu": cpu}, priority=priority, **spec)


def test_victims_are_the_fewest_and_least_important_pods():
    there = [running("old", "1", 5), running("mid", "2", 3), running("low", "1", 1)]
    made = table([node("a", SMALL)], {"a": there})
    assert preempted(made, wanting("1")) == ("a", ["default/low"])
    assert preempted(made, wanting("2")) == ("a", ["default/mid"])
    assert preempted(made, wanting("4")) == ("a", ["default/old", "default/mid", "default/low"])


def test_pods_of_equal_or_higher_priority_are_not_victims():
    made = table([node("a", SMALL)], {"a": [running("p", "4", 10)]})
    assert preempted(made, wanting("1", 10)) == (
        "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )
    assert preempted(made, wanting("1", 11)) == ("a", ["default/p"])


def test_the_youngest_pod_of_equal_priority_is_the_victim():
    there = [running("late", "2", minute=9), running("early", "2", minute=1)]
    made = table([node("a", SMALL)], {"a": there})
    assert preempted(made, wanting("1")) == ("a", ["default/late"])


def test_a_pod_that_has_not_started_is_the_least_important():
    there = [running("waiting", "2", startTime=None), running("early", "2", minute=1)]
    made = table([node("a", SMALL)], {"a": there})
    assert preempted(made, wanting("1")) == ("a", ["default/waiting"])
    assert importance_key(there[0], handle_of(made, wanting()))[1] == math.inf


def test_nodes_on_which_no_eviction_can_help_are_not_tried():
    made = table([node("a", SMALL), node("b", SMALL)], {"a": [running("p", "4")], "b": [running("q", "4")]})
    assert preempted(made, wanting("1", nodeName="b")) == ("b", ["default/q"])
    assert preempted(made, wanting("1", nodeName="c")) == (
        "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    )
    assert preempted(made, wanting("9")).endswith("2 Preemption is not helpful for scheduling.")


def test_a_node_without_enough_room_after_evictions_reports_the_reason():
    there = [running("high", "3", 99), running("low", "1")]
    made = table([node("a", SMALL)], {"a": there})
    assert preempted(made, wanting("2")) == "preemption: 0/1 nodes are available: 1 Insufficient cpu."


def test_a_pod_with_preemption_policy_never_does_not_preempt():
    made = table([node("a", SMALL)], {"a": [running("p", "4")]})
    assert preempted(made, wanting(preemptionPolicy="Never")) == (
        "preemption: not eligible due to preemptionPolicy=Never."
    )


@pytest.mark.parametrize("leaving, waits", [(True, True), (False, False)])
def test_a_pod_with_terminating_victims_waits_for_them(leaving, waits):
    conditions = [
        {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"},
    ]
    victim = running("p", "4", conditions=conditions if leaving else [])
    victim = msgspec.structs.replace(
        victim, metadata=msgspec.structs.replace(victim.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    )
    assert is_terminating_by_preemption(victim) is leaving
    made = table([node("a", SMALL)], {"a": [victim]})
    own = wanting()
    own = msgspec.structs.replace(own, status=msgspec.structs.replace(own.status, nominated_node_name="a"))
    said = preempted(made, own)
    text = "preemption: not eligible due to a terminating pod on the nominated node."
    assert said == (text if waits else ("a", ["default/p"]))


def test_a_pod_with_an_unresolvable_nominated_node_may_preempt_on_another_node():
    victim = running(
        "p",
        "1",
        conditions=[{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}],
    )
    victim = msgspec.structs.replace(
        victim, metadata=msgspec.structs.replace(victim.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    )
    nodes = [node("a", {"cpu": "1"}), node("b", SMALL)]
    made = table(nodes, {"a": [victim], "b": [running("q", "4")]})
    own = wanting("2")
    own = msgspec.structs.replace(own, status=msgspec.structs.replace(own.status, nominated_node_name="a"))
    assert preempted(made, own) == ("b", ["default/q"])


def test_pods_protected_by_a_budget_are_reprieved_first():
    there = [running("free", "2", 5, labels={"app": "f"}), running("kept", "2", 1, labels={"app": "k"})]
    made = table([node("a", SMALL)], {"a": there})
    assert searched(made, wanting("2"), budgets=[budget(0, app="k")]) == {"a": (["free"], 0)}
    assert searched(made, wanting("3"), budgets=[budget(0, app="k")]) == {"a": (["free", "kept"], 1)}


def test_a_budget_is_spent_on_the_most_important_pods_first():
    pods = [running(name, labels={"app": "k"}) for name in "abc"]
    violating, others = split_by_disruption_budget(pods, [budget(1, app="k")])
    assert ([one.name for one in violating], [one.name for one in others]) == (["b", "c"], ["a"])


@pytest.mark.parametrize(
    "stated",
    [
        budget(0),
        budget(0, app="other"),
        budget(0, namespace="elsewhere", app="k"),
        budget(0, disrupted=["a"], app="k"),
        msgspec.convert({"metadata": {"name": "b", "namespace": "default"}}, PodDisruptionBudget),
    ],
)
def test_a_budget_that_does_not_apply_to_a_pod_is_not_violated(stated):
    assert split_by_disruption_budget([running("a", labels={"app": "k"})], [stated])[0] == ()


def test_every_budget_that_applies_to_a_pod_is_charged():
    pods = [running("a", labels={"app": "k", "tier": "t"}), running("b", labels={"tier": "t"})]
    violating, _ = split_by_disruption_budget(pods, [budget(5, app="k"), budget(1, name="t", tier="t")])
    assert [one.name for one in violating] == ["b"]


def rooms(**victims):
    return [
        PreemptionCandidate(name, tuple(pods), violations) for name, (pods, violations) in victims.items()
    ]


@pytest.mark.parametrize(
    "candidates, best",
    [
        (rooms(a=([running("p")], 1), b=([running("q", priority=9)], 0)), "b"),
        (rooms(a=([running("p", priority=5)], 0), b=([running("q", priority=4)] * 3, 0)), "b"),
        (
            rooms(
                a=([running("p", priority=5), running("q", priority=4)], 0),
                b=([running("r", priority=5), running("s", priority=3)], 0),
            ),
            "b",
        ),
        (rooms(a=([running("p")] * 2, 0), b=([running("q")], 0)), "b"),
        (rooms(a=([running("p", priority=-9)] * 2, 0), b=([running("q", priority=-9)], 0)), "b"),
        (rooms(a=([running("p", minute=1)], 0), b=([running("q", minute=2)], 0)), "b"),
        (rooms(a=([running("p", minute=1)], 0), b=([running("q", minute=1)], 0)), "a"),
    ],
)
def test_the_node_with_the_least_important_victims_is_chosen(candidates, best):
    made = table([node("a", SMALL)])
    assert choose_candidate(candidates, handle_of(made, wanting())).node == best


def test_nodes_are_compared_by_the_earliest_start_of_the_highest_priority_victims():
    high, low = running("h", priority=5, minute=7), running("l", priority=1, minute=1)
    other = running("o", priority=5, minute=6)
    candidates = rooms(a=([other, low], 0), b=([high, low], 0))
    assert choose_candidate(candidates, handle_of(table([node("a", SMALL)]), wanting())).node == "b"


def test_victims_free_enough_room_for_a_nominated_pod_too():
    there = [running("p", "2"), running("q", "2", minute=5)]
    made = table([node("a", SMALL)], {"a": there})
    rival = running("rival", "2", 10)
    rival = msgspec.structs.replace(
        rival, status=msgspec.structs.replace(rival.status, nominated_node_name="a")
    )
    assert preempted(made, wanting("2"), rival) == ("a", ["default/p", "default/q"])
    assert preempted(made, wanting("2")) == ("a", ["default/q"])


@pytest.mark.parametrize("percentage, absolute, least", [(100, 0, 6), (50, 0, 3), (10, 4, 4), (0, 1, 1)])
def test_the_search_ends_after_the_configured_number_of_candidates(percentage, absolute, least):
    names = [f"n{at}" for at in range(6)]
    made = table([node(name, SMALL) for name in names], {name: [running(name, "4")] for name in names})
    args = DefaultPreemptionArgs(
        min_candidate_nodes_percentage=percentage, min_candidate_nodes_absolute=absolute
    )
    assert len(searched(made, wanting(), args=args)) == least


def test_the_search_continues_while_every_candidate_violates_a_budget():
    names = [f"n{at}" for at in range(4)]
    there = {name: [running(name, "4", labels={"app": "k"})] for name in names}
    made = table([node(name, SMALL) for name in names], there)
    args = DefaultPreemptionArgs(min_candidate_nodes_percentage=0, min_candidate_nodes_absolute=1)
    assert len(searched(made, wanting(), args=args, budgets=[budget(0, app="k")])) == 4


def test_two_candidate_counts_of_zero_are_refused():
    with pytest.raises(ValidationError, match="both are 0"):
        DefaultPreemptionArgs(min_candidate_nodes_percentage=0, min_candidate_nodes_absolute=0)


def test_a_candidate_node_that_fits_without_victims_is_an_error():
    """For example if the filters first refuse the node and then accept it: their answers are inconsistent."""
    made = table([node("a", SMALL)], {"a": [running("p", "4")]})
    handle = handle_of(made, wanting())
    gone = next(iter(made.pod_table.pods_on(0)))
    made.remove_pods([gone])
    made.add_pods([(running("p", "1"), 0)], *made.request_vectors(running("p", "1")))
    with pytest.raises(PluginError, match="at least one victim"):
        run_postfilters(handle)


def test_the_preemption_policy_is_part_of_the_signature():
    assert DefaultPreemption().signature(wanting()) != DefaultPreemption().signature(
        wanting(preemptionPolicy="Never")
    )


PODS = st.builds(
    lambda *stated: stated,
    st.uuids().map(str),
    st.sampled_from(["1", "2"]),
    st.integers(0, 3),
    st.integers(0, 9),
    st.sampled_from("kf"),
)


@pytest.mark.properties
@given(
    there=st.lists(st.lists(PODS, max_size=4, unique_by=lambda one: one[0]), min_size=1, max_size=3),
    cpu=st.integers(1, 4),
    priority=st.integers(0, 4),
    allowed=st.integers(0, 2),
)
def test_no_victim_could_be_reprieved_and_the_search_restores_the_table(there, cpu, priority, allowed):
    bound = {
        f"n{at}": [
            running(name, cpu, priority, minute, {"app": app}) for name, cpu, priority, minute, app in pods
        ]
        for at, pods in enumerate(there)
    }
    made = table([node(name, SMALL) for name in bound], bound)
    handle = handle_of(made, wanting(str(cpu), priority), budgets=[budget(allowed, app="k")])
    if handle.scan.fits.any():
        return
    before = made.requested.copy()
    search = DefaultPreemption().find_candidates(handle.pod, handle.scan, handle)
    assert (made.requested == before).all()
    assert len(made.pod_table) == sum(map(len, bound.values()))
    for room in search.candidates:
        assert all(victim.spec.priority < priority for victim in room.victims)
        assert room.violations <= len(room.victims)
        with handle.start_node_dry_run(made.index[room.node]) as trial:
            for victim in room.victims:
                trial.remove_pod(victim)
            assert trial.run_filters().ok
            for victim in room.victims:
                trial.add_pod(victim)
                assert not trial.run_filters().ok
                trial.remove_pod(victim)
    tried = {room.node for room in search.candidates} | set(search.rejected)
    assert tried == {
        name for at, name in enumerate(made.names) if handle.scan.code_at(at) is Code.UNSCHEDULABLE
    }


class OneByOne(PreemptionHandle):
    """Tries every node alone."""

    @override
    def start_candidate_nodes_dry_run(self, nodes):
        return super().start_candidate_nodes_dry_run(())


class Unsaid:
    """A Filter that does not say how far it looks: to where there are two pods at most."""

    name = "Unsaid"

    def filter(self, pod, nodes, state):
        counts = [len(list(nodes.pod_table.pods_on(at))) for at in nodes.node_indexes.tolist()]
        return Verdict.refuse(np.asarray(counts) > 2, "too many", unresolvable=False)


class Brittle:
    """A Filter that breaks over nodes without pods."""

    name = "Brittle"

    def __init__(self, *broken):
        self.broken = broken

    def filter(self, pod, nodes, state):
        for at in nodes.node_indexes.tolist():
            if at in self.broken and not list(nodes.pod_table.pods_on(at)):
                raise KeyError(at)
        return Verdict.accept(len(nodes))


@pytest.mark.parametrize("broken, found", [((0,), {"b": (["q"], 0)}), ((0, 1), None)])
def test_an_error_of_a_plugin_on_one_node_does_not_affect_other_nodes(broken, found):
    # framework/preemption, `DryRunPreemption` gathers errors, which count only when there is no candidate.
    made = table(
        [node("a", SMALL), node("b", SMALL)], {"a": [running("p", "4", 0)], "b": [running("q", "4", 0)]}
    )
    plugin = DefaultPreemption()
    pipeline = Pipeline([NodeResourcesFit(), Brittle(*broken), plugin])
    one = wanting("1")
    requests, nonzero = made.request_vectors(one)
    wish = PodClass.from_pod(one, requests, (int(nonzero[0]), int(nonzero[1])), 10)
    handle = PreemptionHandle(
        pipeline, wish, made, pipeline.find_nodes_that_pass_filters(wish, made), Nominations({})
    )
    if found is None:
        with pytest.raises(PluginError, match="plugin Brittle failed in Filter: KeyError"):
            plugin.find_candidates(wish, handle.scan, handle)
        return
    search = plugin.find_candidates(wish, handle.scan, handle)
    rooms = {room.node: ([each.name for each in room.victims], room.violations) for room in search.candidates}
    assert rooms == found
    assert [one.name for one in made.pod_table.pods_on(0)] == ["p"]


HELD = st.sampled_from([None, None, None, None, None, None, 80, 81])
ANY_POD = st.tuples(
    st.sampled_from("abcdefgh"),
    st.integers(1, 3),
    st.integers(0, 3),
    st.integers(0, 2),
    st.sampled_from(["k", "m"]),
    HELD,
)


@pytest.mark.properties
@given(
    there=st.lists(
        st.lists(ANY_POD, min_size=2, max_size=5, unique_by=lambda one: one[0]), min_size=1, max_size=5
    ),
    wish=st.tuples(st.integers(3, 4), st.integers(1, 4), HELD),
    waiting=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(1, 4)), max_size=2),
    budgets=st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["k", "m"])), max_size=2),
    tainted=st.sets(st.integers(1, 4), max_size=1),
    enough=st.tuples(st.integers(0, 100), st.integers(1, 3)),
    others=st.sampled_from([(), (), (), (Unsaid(),)]),
)
def test_trying_nodes_together_finds_the_same_candidates_as_one_by_one(
    there, wish, waiting, budgets, tainted, enough, others
):
    names = [f"n{at}" for at in range(len(there))]
    bound = {
        name: [
            with_port(running(f"{name}-{each}", str(cpu), priority, minute, {"app": app}), port)
            for each, cpu, priority, minute, app, port in pods
        ]
        for name, pods in zip(names, there, strict=True)
    }
    taint = [{"key": "a", "effect": "NoSchedule"}]
    made = table(
        [node(name, SMALL, taints=taint if at in tainted else []) for at, name in enumerate(names)], bound
    )
    made.cluster_objects = replace(
        made.cluster_objects,
        pod_disruption_budgets=tuple(
            budget(allowed, f"b{at}", app=app) for at, (allowed, app) in enumerate(budgets)
        ),
    )
    cpu, priority, port = wish
    one = with_port(wanting(str(cpu), priority), port)
    nominated = [
        msgspec.structs.replace(
            running(f"w{at}", str(some), high), status=type(one.status)(nominated_node_name=f"n{where}")
        )
        for at, (where, high, some) in enumerate(waiting)
    ]
    default = [
        each
        for each in standard_registry().create_pipeline(Profile()).plugins
        if not isinstance(each, GangScheduling)
    ]
    pipeline, nominations = Pipeline([*default, *others]), Nominations.from_pods(nominated, made)
    requests, nonzero = made.request_vectors(one)
    seen = PodClass.from_pod(one, requests, (int(nonzero[0]), int(nonzero[1])), priority)
    scan = judged(pipeline, seen, made, nominations).scan
    if scan.fits.any():
        return
    plugin = DefaultPreemption(
        DefaultPreemptionArgs(
            min_candidate_nodes_percentage=enough[0], min_candidate_nodes_absolute=enough[1]
        )
    )
    told = [
        plugin.find_candidates(seen, scan, kind(pipeline, seen, made, scan, nominations))
        for kind in (PreemptionHandle, OneByOne)
    ]
    assert told[0] == told[1]


def with_port(one, port):
    """A pod with a container that uses a host port."""
    if port is None:
        return one
    container = msgspec.convert({"name": "p", "ports": [{"containerPort": 80, "hostPort": port}]}, Container)
    spec = msgspec.structs.replace(one.spec, containers=(*one.spec.containers, container))
    return msgspec.structs.replace(one, spec=spec)
