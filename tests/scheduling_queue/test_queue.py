import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.errors import IllegalStateChange
from batchsched.framework.events import Action, ClusterEventWithHint, EventResource, Hint, always_queue
from batchsched.framework.runtime.deadline import CountingPluginRunner, wrap_with_deadline
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.status import SUCCESS, Code, Status
from batchsched.scheduling_queue.entity import Entity, QueueState
from batchsched.scheduling_queue.queue import gating_plugins
from batchsched.state.store import ObjectChange
from tests.plugins.cluster import node
from tests.scheduling_queue.entities import (
    Listening,
    Silent,
    group,
    known,
    names,
    place,
    pod,
    popped,
    queue,
    says,
    standard_pipeline,
)

ADDED = Listening("Added", ClusterEventWithHint.for_events(EventResource.NODE, Action.ADD))
GATES = [{"name": "g"}]


def refused(made, entity, now=0.0, by="Added"):
    made.add_unschedulable(entity, (by,), now)
    return entity


def waiting(made, *pods, now=0.0, by="Added"):
    """Have pods refused."""
    for one in pods:
        made.add_pod(one, now)
    found = []
    while (entity := made.pop(now, early=False)) is not None:
        found.append(entity)
    for entity in found:
        refused(made, entity, now, by)
    return found


def nominated(name, node_name):
    made = pod(name)
    status = msgspec.structs.replace(made.status, nominated_node_name=node_name)
    return msgspec.structs.replace(made, status=status)


def test_entities_are_popped_by_priority_and_then_by_arrival():
    made = queue(pipeline=standard_pipeline())
    for at, (name, priority) in enumerate([("a", 0), ("b", 5), ("c", 5), ("d", 1)]):
        made.add_pod(pod(name, priority=priority), float(at))
    assert [popped(made, 9.0).identity for _ in range(4)] == [f"pod/default/{name}" for name in "bcda"]
    assert made.pop(9.0) is None


def test_pods_of_a_gang_are_popped_together():
    made = queue(pipeline=standard_pipeline())
    made.put_group(group("g", 2), 0.0)
    for name in ("x", "y"):
        made.add_pod(pod(name, "g"), 0.0)
    entity = popped(made, 0.0)
    assert entity.group == group("g", 2)
    assert (entity.identity, names(entity.popped)) == ("default/g", ["x", "y"])
    assert made.pop(0.0) is None


def test_event_moves_only_entities_that_it_may_help_according_to_the_refusing_plugin():
    hint = says(lambda one, old, new: Hint.queue_if(one.labels["size"] == "small"))
    fits = Listening("Fit", ClusterEventWithHint.for_events(EventResource.NODE, Action.ADD, hint))
    made = queue(fits, ADDED)
    waiting(made, pod("s", labels={"size": "small"}), pod("l", labels={"size": "large"}), by="Fit")
    made.process_object_change(EventResource.NODE, None, node("n"), 0.5)
    assert (place(made, "s"), place(made, "l")) == (
        QueueState.BACKOFF,
        QueueState.UNSCHEDULABLE,
    )
    assert made.moved_pod_counts()["backoff", "NodeAdd"] == 1


def test_hint_runs_once_for_equal_pods():
    seen: list[object] = []
    fits = Listening(
        "Fit", ClusterEventWithHint.for_events(EventResource.NODE, Action.ADD, says(Hint.SKIP, seen))
    )
    made = queue(fits)
    waiting(made, *(pod(f"p{at}") for at in range(50)), by="Fit")
    made.process_object_change(EventResource.NODE, None, node("n"), 0.5)
    assert len(seen) == 1


def test_every_event_moves_entities_refused_by_a_plugin_without_registered_events():
    for by in ("Silent", "Unknown"):
        made = queue(Silent("Silent"))
        waiting(made, pod("p"), by=by)
        made.process_object_change(EventResource.CSI_DRIVER, None, object(), 9.0)
        assert place(made, "p") is QueueState.ACTIVE


def test_event_during_a_cycle_is_evaluated_at_its_end():
    made = queue(ADDED)
    made.add_pod(pod("p"), 0.0)
    entity = popped(made, 0.0)
    made.process_object_change(EventResource.NODE, None, node("n"), 0.2)
    refused(made, entity, 0.4)
    assert entity.place is QueueState.BACKOFF


def test_event_before_a_cycle_is_not_evaluated_at_its_end():
    made = queue(ADDED)
    made.add_pod(pod("p"), 0.0)
    made.add_pod(pod("q"), 0.0)
    first = popped(made, 0.0)
    made.process_object_change(EventResource.NODE, None, node("n"), 0.2)
    second = popped(made, 0.3)
    refused(made, second, 0.4)
    refused(made, first, 0.4)
    assert (first.place, second.place) == (QueueState.BACKOFF, QueueState.UNSCHEDULABLE)


def test_backoff_doubles_with_each_refusal_and_ends_with_a_whole_second():
    made = queue(ADDED)
    made.add_pod(pod("p"), 0.0)
    now, waits = 0.5, []
    for _ in range(6):
        entity = popped(made, now)
        began = now
        made.process_object_change(EventResource.NODE, None, node("n"), now)
        refused(made, entity, now)
        while entity.place is QueueState.BACKOFF:
            now += 0.5
            made.flush_expired_entities(now)
        waits.append(now - began)
    assert waits == [1.5, 3.0, 5.0, 9.0, 11.0, 11.0]
    assert made.moved_pod_counts()["active", "BackoffComplete"] == 6


def test_errors_are_counted_apart_and_reset_by_the_next_refusal():
    made = queue(ADDED)
    made.add_pod(pod("p"), 0.0)
    entity = popped(made, 0.0)
    for _ in range(3):
        refused(made, entity, 0.0)
        made.activate(["default/p"], 0.0)
        entity = popped(made, 0.0)
    made.add_unschedulable(entity, (), 0.0)
    assert (entity.place, entity.errors, entity.refusals) == (QueueState.BACKOFF, 1, 3)
    made.flush_expired_entities(2.0)
    assert entity.place is QueueState.ACTIVE
    refused(made, popped(made, 2.0), 2.0)
    assert (entity.errors, entity.refusals) == (0, 4)


def test_without_active_entities_a_refused_entity_leaves_backoff_early_but_not_one_with_an_error():
    made = queue(ADDED)
    for name in ("erred", "refused"):
        made.add_pod(pod(name), 0.0)
    erred, other = popped(made, 0.0), popped(made, 0.0)
    made.process_object_change(EventResource.NODE, None, node("n"), 0.0)
    made.add_unschedulable(erred, (), 0.0)
    refused(made, other, 0.0)
    assert made.pop(0.1, early=False) is None
    assert made.pop(0.1) is other
    assert made.pop(0.1) is None
    assert made.moved_pod_counts()["active", "PopFromBackoffQ"] == 1


def test_unschedulable_entity_is_retried_after_five_minutes():
    made = queue(ADDED)
    (entity,) = waiting(made, pod("p"))
    for now in range(0, 301, 10):
        made.flush_expired_entities(float(now))
    assert place(made, "p") is QueueState.UNSCHEDULABLE
    made.flush_expired_entities(330.0)
    assert entity.place is QueueState.ACTIVE
    assert made.moved_pod_counts()["active", "UnschedulableTimeout"] == 1


def test_gated_pod_is_not_popped_until_its_gates_are_removed():
    made = queue(pipeline=standard_pipeline())
    made.add_pod(pod("p", schedulingGates=GATES), 0.0)
    assert made.pending_pod_counts() == {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 1}
    made.process_object_change(EventResource.NODE, None, node("n"), 1.0)
    made.flush_expired_entities(1000.0)
    assert made.pop(1000.0) is None
    made.update_pod(pod("p"), 1001.0)
    assert popped(made, 1001.0).identity == "pod/default/p"
    assert made.moved_pod_counts() == {
        ("unschedulable", "UnscheduledPodAdd"): 1,
        ("active", "UnscheduledPodUpdatePodSchedulingGatesEliminated"): 1,
    }


def test_gang_is_gated_while_all_its_pods_are_gated():
    made = queue(pipeline=standard_pipeline())
    made.add_pod(pod("x", "g", schedulingGates=GATES), 0.0)
    assert place(made, "default/g") is QueueState.GATED
    made.add_pod(pod("y", "g"), 0.0)
    assert place(made, "default/g") is QueueState.ACTIVE


def test_update_of_a_pod_is_evaluated_by_the_plugin_that_refused_it():
    own = Listening(
        "Own",
        ClusterEventWithHint.for_events(EventResource.TARGET_POD, Action.UPDATE_POD_TOLERATION, always_queue),
    )
    made = queue(own)
    waiting(made, pod("p"), pod("q"), by="Own")
    made.update_pod(pod("p", tolerations=[{"operator": "Exists"}]), 5.0)
    made.update_pod(pod("q", labels={"a": "b"}), 5.0)
    assert (place(made, "p"), place(made, "q")) == (
        QueueState.ACTIVE,
        QueueState.UNSCHEDULABLE,
    )


def test_update_of_a_pod_during_its_cycle_is_evaluated():
    own = Listening(
        "Own",
        ClusterEventWithHint.for_events(EventResource.TARGET_POD, Action.UPDATE_POD_TOLERATION, always_queue),
    )
    made = queue(own)
    made.add_pod(pod("p"), 0.0)
    entity = popped(made, 0.0)
    made.update_pod(pod("p", tolerations=[{"operator": "Exists"}]), 0.1)
    refused(made, entity, 0.2, "Own")
    assert (entity.place, names(entity.pods.values())) == (QueueState.BACKOFF, ["p"])
    assert entity.pods["default/p"].tolerations


def test_new_pod_and_changed_spec_of_the_pod_group_move_the_gang():
    made = queue(ADDED)
    made.put_group(group("g", 2), 0.0)
    (entity,) = waiting(made, pod("x", "g"))
    made.add_pod(pod("y", "g"), 5.0)
    assert (entity.place, len(entity.pods)) == (QueueState.ACTIVE, 2)
    refused(made, popped(made, 5.0), 5.0)
    made.put_group(group("g", 2), 20.0)
    assert entity.place is QueueState.UNSCHEDULABLE
    made.put_group(group("g", 1), 20.0)
    assert (entity.place, entity.group) == (QueueState.ACTIVE, group("g", 1))


def test_pod_that_joins_during_the_cycle_is_popped_in_the_next_one():
    made = queue(ADDED)
    made.add_pod(pod("x", "g"), 0.0)
    entity = popped(made, 0.0)
    made.add_pod(pod("y", "g"), 0.1)
    made.done(entity.identity, 0.2)
    assert names(popped(made, 0.3).popped) == ["y"]


def test_unplaced_pods_of_a_gang_stay_in_the_queue():
    made = queue(ADDED)
    for name in ("x", "y", "z"):
        made.add_pod(pod(name, "g"), 0.0)
    entity = popped(made, 0.0)
    made.delete_pod("default/x", 0.1, placed=True)
    refused(made, entity, 0.1)
    assert made.pending_pod_counts()["unschedulable"] == 2


def test_pods_return_to_the_queue_if_their_binding_fails_after_the_cycle():
    made = queue(ADDED)
    for name in ("x", "y"):
        made.add_pod(pod(name, "g"), 0.0)
    entity = popped(made, 0.0)
    made.done(entity.identity, 0.1)
    assert made.find_entity("default/g") is None
    made.add_unschedulable(entity, (), 0.2, [pod("y", "g")])
    assert (entity.place, list(entity.pods), entity.errors) == (QueueState.BACKOFF, ["default/y"], 1)


def test_pods_with_failed_bindings_join_the_new_entity_of_their_gang():
    made = queue(ADDED)
    made.add_pod(pod("x", "g"), 0.0)
    entity = popped(made, 0.0)
    made.done(entity.identity, 0.1)
    made.add_pod(pod("y", "g"), 0.2)
    made.add_unschedulable(entity, (), 0.3)
    assert sorted(names(popped(made, 0.3).popped)) == ["x", "y"]


def test_pod_deleted_during_its_cycle_does_not_return_to_the_queue():
    made = queue(ADDED)
    made.add_pod(pod("p"), 0.0)
    entity = popped(made, 0.0)
    made.delete_pod("default/p", 0.1)
    refused(made, entity, 0.2)
    assert made.find_entity(entity.identity) is None
    assert entity.place is QueueState.GONE


def test_pod_with_another_gang_label_moves_to_the_other_entity():
    made = queue(ADDED)
    waiting(made, pod("x", "g"), pod("y", "g"))
    made.update_pod(pod("y", "h"), 5.0)
    assert list(known(made, "default/g").pods) == ["default/x"]
    assert list(known(made, "default/h").pods) == ["default/y"]


def test_entity_that_is_not_in_flight_cannot_end_a_cycle():
    made = queue(ADDED)
    (entity,) = waiting(made, pod("p"))
    with pytest.raises(IllegalStateChange, match="is Unschedulable in the scheduling queue, not in flight"):
        refused(made, entity)
    assert entity.refusals == 1


def test_activation_moves_an_entity_without_an_event_even_during_its_cycle():
    made = queue(ADDED)
    waiting(made, pod("p"))
    made.activate(["default/p", "default/unknown"], 0.0)
    entity = popped(made, 0.0)
    assert made.moved_pod_counts()["active", "ForceActivate"] == 1
    made.activate(["default/p"], 0.1)
    refused(made, entity, 0.2)
    assert entity.place is QueueState.BACKOFF


def test_deleted_nominated_pod_frees_its_node_which_is_an_event():
    freed = Listening("Freed", ClusterEventWithHint.for_events(EventResource.ASSIGNED_POD, Action.DELETE))
    made = queue(freed)
    waiting(made, pod("p"), pod("kept"), by="Freed")
    made.update_pod(nominated("kept", "n0"), 0.0)
    assert place(made, "p") is QueueState.UNSCHEDULABLE
    made.delete_pod("default/kept", 5.0)
    assert place(made, "p") is QueueState.ACTIVE


@pytest.mark.parametrize(
    "node, message, expected",
    [
        ("", "", QueueState.ACTIVE),
        ("n1", "", QueueState.ACTIVE),
        ("n0", "other status", QueueState.UNSCHEDULABLE),
    ],
)
def test_only_a_removed_or_changed_nomination_is_an_event_for_gangs_that_lack_resources(
    node, message, expected
):
    freed = Listening("Freed", ClusterEventWithHint.for_events(EventResource.ASSIGNED_POD, Action.DELETE))
    made = queue(freed)
    before, after = nominated("kept", "n0"), nominated("kept", node)
    after = msgspec.structs.replace(
        after, metadata=msgspec.structs.replace(after.metadata, annotations={"a": message})
    )
    waiting(made, pod("p"), before, by="Freed")
    made.apply_change(ObjectChange("pods", before.key, before, after), 5.0)
    assert place(made, "p") is expected
    assert place(made, "kept") is QueueState.UNSCHEDULABLE


def test_deleted_pod_without_a_node_is_an_event_for_gangs_that_wait_for_their_turn():
    made = queue(ADDED)
    waiting(made, pod("ahead"))
    waiting(made, pod("p"), by="OutOfTurn")
    made.delete_pod("default/ahead", 5.0)
    assert place(made, "p") is QueueState.ACTIVE


def test_failed_hint_moves_the_entity_and_is_counted():
    def broken(*_):
        raise ZeroDivisionError

    def nonsense(*_):
        return "maybe"

    made = queue(
        Listening("Broken", ClusterEventWithHint.for_events(EventResource.NODE, Action.ADD, broken)),
        Listening("Nonsense", ClusterEventWithHint.for_events(EventResource.NODE, Action.ADD, nonsense)),
    )
    waiting(made, pod("p"), by="Broken")
    waiting(made, pod("q"), by="Nonsense")
    made.process_object_change(EventResource.NODE, None, node("n"), 5.0)
    assert made.pending_pod_counts()["active"] == 2
    assert made.hint_failure_counts() == {"Broken": 1, "Nonsense": 1}


def test_heartbeat_of_a_node_is_no_event():
    made = queue(Silent("Silent"))
    (entity,) = waiting(made, pod("p"), by="Silent")
    made.process_object_change(EventResource.NODE, node("n"), node("n"), 5.0)
    assert entity.place is QueueState.UNSCHEDULABLE


def test_queue_counts_pods_by_state_and_moves_by_event():
    made = queue(ADDED)
    waiting(made, pod("a"), pod("b", "g"), pod("c", "g"))
    made.add_pod(pod("d"), 0.0)
    assert made.pending_pod_counts() == {"active": 1, "backoff": 0, "unschedulable": 3, "gated": 0}
    assert made.moved_pod_counts() == {
        ("active", "UnscheduledPodAdd"): 4,
        ("unschedulable", "ScheduleAttemptFailure"): 3,
    }


def test_deleted_pod_group_moves_its_gang():
    made = queue(ADDED)
    made.put_group(group("g"), 0.0)
    (entity,) = waiting(made, pod("x", "g"))
    made.delete_group("default/g", 5.0)
    made.delete_group("default/g", 5.0)
    assert (entity.place, entity.group) == (QueueState.ACTIVE, None)
    assert made.moved_pod_counts()["active", "PodGroupDelete"] == 1


def test_changed_pod_group_during_the_cycle_of_its_gang_is_an_event():
    made = queue(ADDED)
    made.put_group(group("g", 2), 0.0)
    made.add_pod(pod("x", "g"), 0.0)
    entity = popped(made, 0.0)
    made.put_group(group("g", 1), 0.1)
    refused(made, entity, 0.2)
    assert entity.place is QueueState.BACKOFF


def test_pod_group_may_be_added_after_its_pods():
    made = queue(ADDED)
    made.add_pod(pod("x", "g"), 0.0)
    made.put_group(group("g"), 0.0)
    assert popped(made, 0.0).group == group("g")


def entity(*pods):
    made = Entity("default/g", 0, 0.0)
    for one in pods:
        made.put_pod(one)
    return made


class Broken:
    name = "Broken"

    def preenqueue(self, one):
        raise ZeroDivisionError


def test_one_admitted_pod_admits_its_gang():
    pipeline = standard_pipeline()
    assert gating_plugins(entity(pod("a", schedulingGates=GATES)), pipeline) == ("SchedulingGates",)
    assert gating_plugins(entity(pod("a", schedulingGates=GATES), pod("b")), pipeline) == ()


def test_plugin_that_raises_gates_its_pod():
    assert gating_plugins(entity(pod("a")), Pipeline([Broken()])) == ("Broken",)


def test_gang_is_retried_when_its_wait_for_a_preferred_level_ends():
    made = queue(ADDED)
    topology = {"preferred": "rack", "preferredWaitSeconds": 100}
    made.put_group(group("g", 1, topology=topology), 0.0)  # created in 1970
    (entity,) = waiting(made, pod("p", "g"))
    for now in range(0, 100, 10):
        made.flush_expired_entities(float(now))
    assert place(made, "default/g") is QueueState.UNSCHEDULABLE
    for now in range(100, 131, 10):
        made.flush_expired_entities(float(now))
    assert entity.place is QueueState.ACTIVE
    assert made.moved_pod_counts()["active", "PreferredWaitEnded"] == 1


@pytest.mark.parametrize("wall_offset", [-50.0, 50.0])
def test_wait_for_a_preferred_level_ends_by_the_wall_clock(wall_offset):
    made = queue(ADDED)
    topology = {"preferred": "rack", "preferredWaitSeconds": 200}
    made.put_group(group("g", 1, topology=topology), 0.0)  # created in 1970
    (entity,) = waiting(made, pod("p", "g"))
    end = 200.0 - wall_offset
    places = []
    for now in (end - 5, end + 25):
        made.flush_expired_entities(now, wall_offset)
        places.append(entity.place)
    assert places == [QueueState.UNSCHEDULABLE, QueueState.ACTIVE]


class Sorting:
    """A QueueSort with the keys that pods state in a label, and fails for other pods."""

    name = "Sorting"

    def sort_key(self, pod, priority, queued):
        key = pod.labels["key"]
        return int(key) if key.isdigit() else key


@pytest.mark.parametrize("labels", [{}, {"key": "soon"}], ids=["raises", "returns a key of another type"])
def test_gang_is_last_if_queue_sort_fails_for_it(labels):
    made = queue(Sorting())
    made.add_pod(pod("third", labels={"key": "3"}), 0.0)
    made.add_pod(pod("failed", labels=labels), 0.0)
    made.add_pod(pod("second", labels={"key": "2"}), 0.0)
    made.add_pod(pod("failed-too", "g", labels), 0.0)
    order = [popped(made, 0.0) for _ in range(4)]
    assert [name for entity in order for name in names(entity.popped)] == [
        "second",
        "third",
        "failed",
        "failed-too",
    ]
    for entity in order:
        refused(made, entity, 0.0)
    made.delete_pod("default/failed", 1.0)
    assert sum(made.pending_pod_counts().values()) == 3


class SortingByLabels:
    """A QueueSort with a tuple of the labels of a pod."""

    name = "SortingByLabels"

    def sort_key(self, pod, priority, queued):
        return tuple(int(key) if key.isdigit() else None for key in pod.labels["key"].split("-"))


@pytest.mark.parametrize("runner", [None, CountingPluginRunner(())], ids=["no deadline", "deadline"])
@pytest.mark.parametrize("position", range(4))
def test_key_that_cannot_be_compared_is_last_and_logged_wherever_it_arrives(position, runner, caplog):
    made = queue(wrap_with_deadline(Sorting(), runner))
    labels = ["3", "1", "2"]
    labels.insert(position, "soon")
    for label in labels:
        made.add_pod(pod(f"p-{label}", labels={"key": label}), 0.0)
    assert [popped(made, 0.0).popped[0].name for _ in labels] == ["p-1", "p-2", "p-3", "p-soon"]
    (message,) = caplog.messages
    assert message.startswith(
        "plugin Sorting failed in QueueSort for pod/default/p-soon: expected a key that can be compared with "
    )
    assert message.endswith(", not 'soon'")


def test_part_of_a_key_that_cannot_be_compared_keeps_no_other_pod_from_the_queue(caplog):
    made = queue(SortingByLabels())
    labels = ["0-5", "1-none", "1-4", "2-0", "1-3", "1-absent"]
    for at, label in enumerate(labels):
        made.add_pod(pod(f"p-{label}", labels={"key": label}), float(at))
    order = [popped(made, 9.0) for _ in labels]
    expected = ["p-0-5", "p-1-3", "p-1-4", "p-1-none", "p-1-absent", "p-2-0"]
    assert [entity.popped[0].name for entity in order] == expected
    assert "for pod/default/p-1-none: expected a key that can be compared with (1, " in caplog.text
    for entity in order:
        refused(made, entity, 9.0)
    made.activate([f"default/p-{label}" for label in labels], 10.0)
    assert [popped(made, 10.0).popped[0].name for _ in labels] == expected


class CountingGate:
    """A PreEnqueue that refuses pods with scheduling gates, and counts its calls."""

    name = "CountingGate"

    def __init__(self):
        self.calls = 0

    def events_to_register(self):
        return ()

    def preenqueue(self, one):
        self.calls += 1
        return Status(Code.UNSCHEDULABLE, ("gated",)) if one.spec.scheduling_gates else SUCCESS


def test_pods_that_join_a_gated_gang_are_checked_alone():
    gate = CountingGate()
    made = queue(gate)
    for at in range(20):
        made.add_pod(pod(f"p{at}", "g", {"index": str(at)}, schedulingGates=GATES), 0.0)
    assert gate.calls == 20
    assert made.pending_pod_counts()["gated"] == 20
    made.add_pod(pod("admitted", "g"), 0.0)
    assert made.pending_pod_counts()["active"] == 21


@given(
    st.lists(st.tuples(st.sampled_from(["add", "delete"]), st.integers(0, 5), st.integers(0, 2)), max_size=20)
)
def test_index_of_unschedulable_entities_follows_pods_that_come_and_go(changes):
    """It contains what it would contain if the entity was filed after all changes."""
    made = queue(CountingGate())
    for kind, name, label in changes:
        if kind == "add":
            made.add_pod(pod(f"p{name}", "g", {"l": str(label)}, schedulingGates=GATES), 0.0)
        else:
            made.delete_pod(f"default/p{name}", 0.0)
        templates = {
            template: set(alike.entities)
            for template, alike in made._pool._refused.get("CountingGate", {}).items()
        }
        gang = made.find_entity("default/g")
        expected = gang.pod_by_template() if gang is not None else {}
        assert templates == {template: {"default/g"} for template in expected}
