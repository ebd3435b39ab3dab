import pytest

from batchsched.api.core.cluster_objects import Namespace
from batchsched.api.core.metadata import ObjectMeta
from batchsched.api.decision import REASONS, Refusal
from batchsched.errors import PluginError
from batchsched.framework.events import Action, ClusterEvent, ClusterEventWithHint, EventResource, Hint
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.scheduling_queue.entity import Entity, QueueState
from batchsched.scheduling_queue.in_flight import InFlightEntities, ObjectEvent
from batchsched.scheduling_queue.queueing_hints import (
    HELPS,
    SHORT_OF_NODES,
    QueueingHints,
    possibly_refusing_plugins,
)
from batchsched.scheduling_queue.unschedulable import UnschedulableEntities
from tests.plugins.cluster import node
from tests.scheduling_queue.entities import Listening, place, pod, popped, queue, says, standard_pipeline

NODE_ADDED = ObjectEvent(ClusterEvent(EventResource.NODE, Action.ADD), None, node("n"))
PIPELINE = standard_pipeline()


def node_hints(**answers) -> QueueingHints:
    """The hints of plugins that listen to added nodes, by their names."""
    plugins = [
        Listening(name, ClusterEventWithHint.for_events(EventResource.NODE, Action.ADD, says(answer)))
        for name, answer in answers.items()
    ]
    return QueueingHints(Pipeline(plugins))


def refused(*plugins: str, number: int = 0, pods=None) -> Entity:
    entity = Entity(f"e{number}", number, 0.0, refused_by=plugins)
    for each in pods or [pod("p")]:
        entity.put_pod(each)
    return entity


def refusal(reason: str) -> Refusal:
    return Refusal(pod_group="default/p", reason=reason, message="")


def queue_after_refusal(reason: str):
    made = queue(pipeline=PIPELINE)
    made.add_pod(pod("p"), 0.0)
    made.add_unschedulable(popped(made, 0.0), possibly_refusing_plugins(refusal(reason), PIPELINE), 0.0)
    return made


@pytest.mark.parametrize(
    "plugins, helps",
    [
        pytest.param(("Skips",), False, id="one plugin that skips"),
        pytest.param(("Queues", "Skips"), True, id="one of two plugins is enough"),
        pytest.param((), True, id="an error of the last cycle"),
        pytest.param(("Unknown",), True, id="a plugin without registered events"),
    ],
)
def test_event_helps_an_entity_if_a_plugin_that_refused_it_says_so(plugins, helps):
    assert (
        node_hints(Skips=Hint.SKIP, Queues=Hint.QUEUE).event_helps_entity(refused(*plugins), NODE_ADDED)
        is helps
    )


@pytest.mark.parametrize("answer", [None, [Hint.QUEUE]], ids=["none", "hints"])
def test_plugin_that_registers_nonsense_is_named_when_the_queue_is_created(answer):
    class Nonsense:
        name = "Nonsense"

        def events_to_register(self):
            return answer

    with pytest.raises(PluginError, match="plugin Nonsense failed in EventsToRegister"):
        QueueingHints(Pipeline([Nonsense()]))


def test_every_reason_names_a_plugin_or_has_its_own_events_or_none():
    assert set(HELPS) | SHORT_OF_NODES <= set(REASONS)
    without_events = {"OutOfTurn", "OutsideWindow", "PluginFailed", "ExplanationFailed"}
    assert set(REASONS) - set(HELPS) - SHORT_OF_NODES == without_events


@pytest.mark.parametrize(
    "reason, resource, old, new",
    [
        ("NoNodes", EventResource.NODE, None, node("n")),
        ("QueueNotFound", EventResource.QUEUE, None, object()),
        ("NamespaceNotSelected", EventResource.QUEUE, object(), None),
        ("NamespaceNotSelected", EventResource.NAMESPACE, Namespace(), Namespace()),
        ("UnknownTopologyLevel", EventResource.TOPOLOGY, None, object()),
        ("QueueLimit", EventResource.ASSIGNED_POD, pod("b"), None),
        ("InsufficientTopologyCapacity", EventResource.NODE, None, node("n")),
        ("InsufficientResources", EventResource.ASSIGNED_POD, pod("b"), None),
        ("NoFeasibleNode", EventResource.NODE, None, node("n")),
        ("OutOfTurn", EventResource.CSI_DRIVER, None, object()),
    ],
)
def test_event_that_may_remove_the_reason_of_a_refusal_moves_the_entity(reason, resource, old, new):
    made = queue_after_refusal(reason)
    assert place(made, "p") is QueueState.UNSCHEDULABLE
    made.process_object_change(resource, old, new, 5.0)
    assert place(made, "p") is QueueState.ACTIVE


@pytest.mark.parametrize(
    "reason",
    ["QueueLimit", "PodGroupNotFound", "NotEnoughPods", "QueueNotFound", "NamespaceNotSelected", "Gated"],
)
def test_new_node_does_not_move_an_entity_that_was_refused_for_another_reason(reason):
    made = queue_after_refusal(reason)
    made.process_object_change(EventResource.NODE, None, node("n"), 5.0)
    assert place(made, "p") is QueueState.UNSCHEDULABLE


def test_entity_backs_off_after_an_error_of_a_plugin():
    assert possibly_refusing_plugins(refusal("PluginFailed"), PIPELINE) == ()
    assert place(queue_after_refusal("PluginFailed"), "p") is QueueState.BACKOFF


def test_extenders_may_have_refused_whatever_a_filter_may_have_refused(monkeypatch):
    pipeline = standard_pipeline()
    without = possibly_refusing_plugins(refusal("NoFeasibleNode"), pipeline)
    monkeypatch.setattr(pipeline, "extenders", ["one"])
    assert possibly_refusing_plugins(refusal("NoFeasibleNode"), pipeline) == tuple(
        sorted((*without, "Extenders"))
    )


def pool(hinted_pods: list[str]) -> UnschedulableEntities:
    """An index with the plugin A, which records the pods that its hint gets, and B, which registers nothing."""

    def small(each, _old, _new):
        hinted_pods.append(each.name)
        return Hint.queue_if(each.labels.get("size") == "small")

    listening = Listening("A", ClusterEventWithHint.for_events(EventResource.NODE, Action.ADD, small))
    return UnschedulableEntities(QueueingHints(Pipeline([listening, Listening("B")])))


SMALL = {"size": "small"}


def test_hint_runs_once_for_each_template_and_helped_entities_are_in_the_order_of_arrival():
    hinted_pods: list[str] = []
    made = pool(hinted_pods)
    for entity in (
        refused("A", number=2, pods=[pod("a", labels=SMALL)]),
        refused("A", number=1, pods=[pod("b", labels=SMALL), pod("c")]),
        refused("A", number=3, pods=[pod("d")]),
        refused("B", number=4, pods=[pod("e", labels=SMALL)]),
    ):
        made.put(entity)
    assert [entity.identity for entity in made.entities_helped_by(NODE_ADDED)] == ["e1", "e2"]
    assert hinted_pods == ["a", "c"]


def test_only_the_plugins_that_gate_an_entity_decide_about_it():
    made = pool([])
    gated = refused("A", pods=[pod("a", labels=SMALL)])
    gated.gated_by = ("B",)
    made.put(gated)
    assert made.entities_helped_by(NODE_ADDED) == []


def test_removed_entity_has_no_hints_although_its_templates_changed():
    hinted_pods: list[str] = []
    made = pool(hinted_pods)
    entity = refused("A", pods=[pod("a")])
    made.put(entity)
    entity.put_pod(pod("b", labels=SMALL))
    made.remove(entity)
    made.remove(entity)
    assert (made.entities_helped_by(NODE_ADDED), hinted_pods, list(made.entities())) == ([], [], [])


def numbered_event(number: int, identity: str = "") -> ObjectEvent:
    return ObjectEvent(ClusterEvent(EventResource.NODE, Action.ADD), None, number, identity)


def numbers(flights: InFlightEntities, entity: Entity) -> list[int] | None:
    events = flights.end_cycle(entity)
    return None if events is None else [event.new for event in events]


def test_entity_gets_the_events_of_its_own_cycle():
    flights, first, second = InFlightEntities(), Entity("a", 0, 0.0), Entity("b", 1, 0.0)
    flights.record_event(numbered_event(0))
    flights.begin_cycle(first)
    flights.record_event(numbered_event(1))
    flights.begin_cycle(second)
    flights.record_event(numbered_event(2))
    assert numbers(flights, second) == [2]
    flights.record_event(numbered_event(3))
    assert numbers(flights, first) == [1, 2, 3]
    assert numbers(flights, first) is None


def test_event_of_one_entity_does_not_reach_others():
    flights, first, second = InFlightEntities(), Entity("a", 0, 0.0), Entity("b", 1, 0.0)
    flights.begin_cycle(first)
    flights.begin_cycle(second)
    flights.record_event(numbered_event(1, "a"))
    flights.record_event(numbered_event(2, "stranger"))
    assert (numbers(flights, first), numbers(flights, second)) == ([1], [])


def test_events_from_before_the_oldest_cycle_are_dropped():
    flights, first, second = InFlightEntities(), Entity("a", 0, 0.0), Entity("b", 1, 0.0)
    flights.begin_cycle(first)
    for number in range(100):
        flights.record_event(numbered_event(number))
    flights.begin_cycle(second)
    flights.record_event(numbered_event(100))
    flights.end_cycle(first)
    assert len(flights._log) == 1
    assert numbers(flights, second) == [100]
    assert len(flights._log) == 0


def test_changed_default_queue_of_a_namespace_moves_its_gangs_and_no_others():
    def namespace(name: str, default: str) -> Namespace:
        labels = {"scheduling.batchsched.dev/default-queue": default}
        return Namespace(metadata=ObjectMeta(name=name, labels=labels))

    made = queue_after_refusal("QueueLimit")
    made.process_object_change(EventResource.NAMESPACE, namespace("other", "a"), namespace("other", "b"), 5.0)
    made.process_object_change(
        EventResource.NAMESPACE, namespace("default", "a"), namespace("default", "a"), 5.0
    )
    assert place(made, "p") is QueueState.UNSCHEDULABLE
    made.process_object_change(
        EventResource.NAMESPACE, namespace("default", "a"), namespace("default", "b"), 5.0
    )
    assert place(made, "p") is QueueState.ACTIVE
