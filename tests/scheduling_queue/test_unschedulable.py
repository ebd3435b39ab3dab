from batchsched.framework.events import Action, ClusterEvent, ClusterEventWithHint, Hint, Resource
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.scheduling_queue.entity import Entity, Rejection
from batchsched.scheduling_queue.hints import InFlightEvent, QueueingHints, Strategy, UnschedulableEntities
from tests.plugins.cluster import node
from tests.scheduling_queue.entities import NAME, Listening, pod

CAME = InFlightEvent(ClusterEvent(Resource.NODE, Action.ADD), None, node("n"))


def pool(asked: list[str]) -> UnschedulableEntities:
    def small(one, _old, _new):
        asked.append(one.name)
        return Hint.queue_if(one.labels.get("size") == "small")

    listening = Listening("A", ClusterEventWithHint.on(Resource.NODE, Action.ADD, small))
    return UnschedulableEntities(QueueingHints({NAME: Pipeline([listening, Listening("Deaf")])}))


def waiting(number: int, *pods, by=("A",), pending=()) -> Entity:
    entity = Entity(f"e{number}", number, 0.0, rejection=Rejection.by(*by, pending=pending))
    for one in pods:
        entity.put(one)
    return entity


def test_templates_are_asked_about_once_and_whom_it_helps_comes_in_order():
    asked: list[str] = []
    made = pool(asked)
    small = {"size": "small"}
    entities = [
        waiting(2, pod("a", labels=small)),
        waiting(1, pod("b", labels=small), pod("c")),
        waiting(3, pod("d")),
        waiting(4, pod("e", labels=small), by=("Deaf",)),
    ]
    for entity in entities:
        made.put(entity)
    assert [(one.identity, how) for one, how in made.helped(CAME)] == [
        ("e1", Strategy.AFTER_BACKOFF),
        ("e2", Strategy.AFTER_BACKOFF),
    ]
    assert asked == ["a", "c"]


def test_who_is_pending_need_not_back_off():
    made = pool([])
    made.put(waiting(1, pod("a", labels={"size": "small"}), by=(), pending=("A",)))
    assert [how for _, how in made.helped(CAME)] == [Strategy.IMMEDIATELY]


def test_who_is_gated_is_helped_by_its_gates_alone():
    made = pool([])
    gated = waiting(1, pod("a", labels={"size": "small"}))
    gated.gated_by = ("Deaf",)
    made.put(gated)
    assert made.helped(CAME) == []


def test_who_left_is_not_asked_about_though_it_has_changed():
    asked: list[str] = []
    made = pool(asked)
    entity = waiting(1, pod("a"))
    made.put(entity)
    entity.put(pod("b", labels={"size": "small"}))
    made.remove(entity)
    made.remove(entity)
    assert (made.helped(CAME), asked, list(made.entities())) == ([], [], [])
