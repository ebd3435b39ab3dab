"""The index of gangs and the tally of queues, kept event by event, equal a fresh count."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from batchsched.api.crd.podgroup import PodGroup
from batchsched.state.cluster_state import ClusterState
from batchsched.state.podgroup_state import count_pods_missing_for_minimum
from tests.session.scenario import group, queue
from tests.state.objects import ended, leaving, node, pod

KINDS = ("wait", "bound", "runs", "leaves", "ended", "failed", "gone", "assume", "forget")
GANGS = ("", "a", "b")


def index_of(state: ClusterState) -> Any:
    """Return what the index holds of pods that have not finished, and the tallies, without zeros."""
    return (
        {
            gang.identity: (gang.group, dict(gang.pending), dict(gang.bound), set(gang.assumed))
            for gang in state.gangs
            if gang.has_unfinished_pods or gang.group is not None
        },
        state.queue_usage.allocated_by_queue,
        state.queue_usage.pending_requests_by_queue,
        +state.capacity,
    )


def rebuilt(state: ClusterState) -> ClusterState:
    """Return a state that is made of the objects of another one, in the order of their names."""
    fresh = ClusterState(state.scheduler_names)
    listed = state.snapshot_without_assumptions()
    for found in (*listed.nodes, *listed.pods, *listed.pod_groups):
        fresh.put(found)
    for assumed in state.assumed_pods():
        fresh.put(node(assumed.assumption.node))
        fresh.assume_pod(assumed.pod, assumed.assumption.node, 0.0)
    for name in {found.assumption.node for found in state.assumed_pods()}:
        if not state.has_node(name):
            fresh.remove(node(name))
    return fresh


class Story:
    """Events of a cluster, with a count of finished pods that is kept by hand."""

    def __init__(self) -> None:
        self.state = ClusterState(["batchsched"])
        self.state.put(node("n0"))
        self.changed = self.state.gangs.create_changed_gangs_reader()
        self.version = 0
        self.finished: dict[str, tuple[str, bool, bool]] = {}

    def pod(self, number: int, gang: str, kind: str) -> None:
        self.version += 1
        name = f"{gang or 'solo'}-{number}"
        key = f"team/{name}"
        known = self.state.get("pods", key)
        if kind == "gone":
            self._delete_finished(key)
            if known is not None:
                self.state.remove(known)
            else:
                self.state.remove(pod(name))
        elif kind == "assume":
            self.state.assume_pod(key, "n0", 0.0)
        elif kind == "forget":
            self.state.forget_assumption(key, "n0")
        else:
            labels = {"scheduling.batchsched.dev/queue": f"q{self.version % 2}"}
            made = pod(name, self.version, group=gang, on="" if kind == "wait" else "n0", labels=labels)
            phases = {"runs": "Running", "ended": "Succeeded", "failed": "Failed"}
            if kind in phases:
                made = ended(made, phases[kind])
            self.state.put(leaving(made) if kind == "leaves" else made)
            self.finished.pop(key, None)
            if kind in ("ended", "failed") and gang:
                self.finished[key] = (f"team/{gang}", kind == "ended", True)

    def _delete_finished(self, key: str) -> None:
        """A finished pod that is deleted stays counted while its PodGroup exists."""
        identity, succeeded, _ = self.finished.pop(key, ("", False, False))
        if self.state.get("pod_groups", identity) is not None:
            self.finished[key] = (identity, succeeded, False)

    def node(self, number: int, cpu: int) -> None:
        self.version += 1
        known = self.state.get("nodes", f"m{number}")
        if cpu:
            self.state.put(node(f"m{number}", self.version, cpu=cpu))
        elif known is not None:
            self.state.remove(known)

    def group(self, gang: str, minimum: int, queue_name: str) -> None:
        known = self.state.get("pod_groups", f"team/{gang}")
        if not minimum and known is not None:
            self.state.remove(known)
            for key, (identity, _, exists) in tuple(self.finished.items()):
                if identity == f"team/{gang}" and not exists:
                    del self.finished[key]
        elif minimum:
            self.state.put(group(gang, minimum, queue=queue_name))


pods = st.tuples(st.just("pod"), st.integers(0, 3), st.sampled_from(GANGS), st.sampled_from(KINDS))
nodes = st.tuples(st.just("node"), st.integers(0, 2), st.integers(0, 3))
groups = st.tuples(
    st.just("group"), st.sampled_from(GANGS[1:]), st.integers(0, 3), st.sampled_from(("q0", "q1"))
)


@given(st.lists(st.one_of(pods, groups, nodes), max_size=40))
def test_index_and_tally_kept_event_by_event_equal_a_fresh_count(events):
    story = Story()
    for what, *arguments in events:
        getattr(story, what)(*arguments)
    assert index_of(story.state) == index_of(rebuilt(story.state))
    finished = {
        (key, gang.identity, succeeded)
        for gang in story.state.gangs
        for key, succeeded in gang.finished.items()
    }
    assert finished == {(key, identity, good) for key, (identity, good, _) in story.finished.items()}


@given(st.lists(st.one_of(pods, groups), max_size=20))
def test_each_gang_that_differs_was_reported_as_changed(events):
    story = Story()
    for what, *arguments in events:
        before = _records(story.state)
        story.changed.read_changed_gangs()
        getattr(story, what)(*arguments)
        after = _records(story.state)
        differ = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
        assert differ <= story.changed.read_changed_gangs()


def _records(state: ClusterState) -> dict[str, Any]:
    return {
        gang.identity: (
            gang.group,
            dict(gang.pending),
            dict(gang.bound),
            set(gang.assumed),
            dict(gang.finished),
        )
        for gang in state.gangs
    }


def is_pending(state: ClusterState) -> bool:
    bert = state.gangs.get("team/bert")
    return bert is not None and bert.has_pending_pods_and_lacks_minimum


def test_gang_counts_for_the_queue_of_its_pod_group():
    state = ClusterState(["batchsched"])
    state.put(node("n0"))
    for number in range(3):
        state.put(pod(f"bert-{number}", group="bert", on="n0" if number < 2 else "", uid=f"u{number}"))
    changed = state.gangs.create_changed_gangs_reader()
    changed.read_changed_gangs()
    assert state.queue_usage.allocated_by_queue["default"]["cpu"] == 2000
    state.put(group("bert", 3, queue="ml"))
    assert changed.read_changed_gangs() == {"team/bert"}
    assert "default" not in state.queue_usage.allocated_by_queue
    assert state.queue_usage.allocated_by_queue["ml"] == Counter(cpu=2000, pods=2)
    assert state.queue_usage.pending_requests_by_queue["ml"]["cpu"] == 1000
    assert is_pending(state)
    state.put(pod("bert-2", group="bert", on="n0", uid="u2"))
    assert not is_pending(state)
    assert "ml" not in state.queue_usage.pending_requests_by_queue


def test_pods_of_other_schedulers_count_if_a_label_names_a_queue_or_a_pod_group():
    state = ClusterState(["batchsched"])
    state.put(node("n0"))
    for labels in ({}, {"scheduling.batchsched.dev/queue": "ml"}):
        theirs = pod(f"pod-{len(labels)}", on="n0", labels=labels)
        state.put(replace(theirs, spec=replace(theirs.spec, scheduler_name="default-scheduler")))
    assert {name: amounts["cpu"] for name, amounts in state.queue_usage.allocated_by_queue.items()} == {
        "ml": 1000
    }


def test_terminating_pod_counts_for_its_queue_until_it_is_gone_and_never_for_its_gang():
    state = ClusterState(["batchsched"])
    state.put(node("n0"))
    state.put(group("bert", 1, queue="ml"))
    state.put(leaving(pod("bert-0", group="bert", on="n0", uid="u0")))
    bert = state.gangs.get("team/bert")
    assert bert is not None
    assert (len(bert.bound), bert.placed_pods()) == (1, [])
    assert state.queue_usage.allocated_by_queue["ml"]["cpu"] == 1000
    state.remove(state.get("pods", "team/bert-0"))
    assert state.queue_usage.allocated_by_queue == {}


def test_finished_pods_are_counted_by_their_end():
    state = ClusterState(["batchsched"])
    for number, phase in enumerate(("Succeeded", "Succeeded", "Failed")):
        state.put(ended(pod(f"bert-{number}", group="bert", on="n0", uid=f"u{number}"), phase))
    bert = state.gangs.get("team/bert")
    assert bert is not None
    assert bert.count_succeeded_and_failed_pods() == (2, 1)


def test_pod_that_ends_because_it_was_evicted_has_not_finished():
    state = ClusterState(["batchsched"])
    state.put(group("bert", 1))
    state.put(leaving(ended(pod("bert-0", group="bert", on="n0", uid="u0"), "Failed")))
    bert = state.gangs.get("team/bert")
    assert bert is not None
    assert bert.count_succeeded_and_failed_pods() == (0, 0)


def finished_counts(state: ClusterState) -> tuple[int, int]:
    bert = state.gangs.get("team/bert")
    return bert.count_succeeded_and_failed_pods() if bert is not None else (0, 0)


def test_finished_pods_stay_counted_after_they_are_deleted_until_another_pod_has_the_name():
    state = ClusterState(["batchsched"])
    state.put(group("bert", 2))
    for number in range(2):
        state.put(ended(pod(f"bert-{number}", group="bert", uid=f"u{number}")))
    state.remove(pod("bert-0", uid="u0"))  # a delete event may lack the labels
    state.replace(type(pod("x")), [])
    assert finished_counts(state) == (2, 0)
    state.put(pod("bert-1", group="bert", uid="u9"))
    assert finished_counts(state) == (1, 0)
    state.remove(group("bert", 2))
    assert finished_counts(state) == (0, 0)


def test_deleted_finished_pods_without_a_pod_group_are_forgotten():
    state = ClusterState(["batchsched"])
    state.put(ended(pod("bert-0", group="bert")))
    state.replace(type(pod("x")), [ended(pod("bert-1", group="bert"), "Failed")])
    assert finished_counts(state) == (0, 1)


def test_confirmed_binding_is_a_change_of_the_gang_but_not_of_the_snapshot():
    state = ClusterState(["batchsched"])
    state.put(node("n0"))
    state.put(pod("bert-0", 1, "u0", group="bert"))
    state.assume_pod("team/bert-0", "n0", 0.0)
    bert = state.gangs.get("team/bert")
    assert bert is not None
    assert bert.assumed == {"team/bert-0"}
    changed, generation = state.gangs.create_changed_gangs_reader(), state.generation
    changed.read_changed_gangs()
    state.put(pod("bert-0", 2, "u0", group="bert", on="n0"))
    assert (bert.assumed, changed.read_changed_gangs(), state.generation) == (
        set(),
        {"team/bert"},
        generation,
    )


def test_status_of_another_object_of_the_same_name_is_not_returned():
    made = group("bert", 2).model_dump(by_alias=True)
    made["metadata"]["uid"] = "u1"
    bert = PodGroup.model_validate(made | {"status": {"phase": "Running", "placed": 2}})
    state = ClusterState(["batchsched"])
    state.put(bert)
    assert state.status_of_custom_resource("pod_groups", "team/bert", "u1")["placed"] == 2
    assert state.status_of_custom_resource("pod_groups", "team/bert", "u2") == {}
    state.remove(bert)
    assert state.status_of_custom_resource("pod_groups", "team/bert", "u1") == {}


def test_change_of_a_status_is_no_change_of_the_snapshot():
    state = ClusterState(["batchsched"])
    state.put(group("bert", 2))
    generation = state.generation
    made = state.get("pod_groups", "team/bert").model_dump(by_alias=True)
    state.put(PodGroup.model_validate(made | {"status": {"phase": "Running"}}))
    assert state.generation == generation


def test_queues_without_a_place_in_the_tree_are_returned():
    state = ClusterState(["batchsched"])
    state.put(queue("lost", parent="absent"))
    assert [found.name for found in state.list_objects("queues")] == ["lost"]


@pytest.mark.parametrize("placed, missing", [((), 3), (("a",), 2), (("a", "a"), 1), (("a", "b", ""), 0)])
def test_missing_pods_are_those_of_the_gang_or_of_its_sub_groups(placed, missing):
    bert = group("bert", 3, subGroups=[{"name": "a", "minMember": 1}, {"name": "b", "minMember": 1}])
    label = "scheduling.batchsched.dev/sub-group"
    made = [
        pod(f"bert-{number}", group="bert", on="n0", labels={label: name} if name else {})
        for number, name in enumerate(placed)
    ]
    assert count_pods_missing_for_minimum(bert, made) == missing
