from batchsched.framework.events import Action, ClusterEvent, Resource
from batchsched.scheduling_queue.entity import Entity
from batchsched.scheduling_queue.hints import InFlightEntities, InFlightEvent


def happening(number: int, identity: str = "") -> InFlightEvent:
    return InFlightEvent(ClusterEvent(Resource.NODE, Action.ADD), None, number, identity)


def numbers(flights: InFlightEntities, entity: Entity) -> list[int] | None:
    happened = flights.end(entity)
    return None if happened is None else [one.new for one in happened]


def test_each_hears_of_what_happened_in_its_own_cycle():
    flights, first, second = InFlightEntities(), Entity("a", 0, 0.0), Entity("b", 1, 0.0)
    flights.note(happening(0))
    flights.begin(first)
    flights.note(happening(1))
    flights.begin(second)
    flights.note(happening(2))
    assert numbers(flights, second) == [2]
    flights.note(happening(3))
    assert numbers(flights, first) == [1, 2, 3]
    assert numbers(flights, first) is None


def test_what_concerns_one_is_not_told_to_others():
    flights, first, second = InFlightEntities(), Entity("a", 0, 0.0), Entity("b", 1, 0.0)
    flights.begin(first)
    flights.begin(second)
    flights.note(happening(1, "a"))
    flights.note(happening(2, "stranger"))
    assert (numbers(flights, first), numbers(flights, second)) == ([1], [])


def test_what_nobody_needs_any_more_is_forgotten():
    flights, first, second = InFlightEntities(), Entity("a", 0, 0.0), Entity("b", 1, 0.0)
    flights.begin(first)
    for number in range(100):
        flights.note(happening(number))
    flights.begin(second)
    flights.note(happening(100))
    flights.end(first)
    assert len(flights._log) == 1
    assert numbers(flights, second) == [100]
    assert (len(flights._log), len(flights)) == (0, 0)
