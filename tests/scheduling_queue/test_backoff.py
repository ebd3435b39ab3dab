import pytest

from batchsched.scheduling_queue.backoff import BackoffPolicy, BackoffQueue, EntityHeap
from batchsched.scheduling_queue.entity import Entity, Rejection


def failed(name: str, queued: float, refusals: int = 0, errors: int = 0) -> Entity:
    rejection = Rejection() if errors else Rejection.by("P")
    return Entity(name, 0, queued, refusals=refusals, errors=errors, rejection=rejection)


@pytest.mark.parametrize(
    "failures, seconds", [(0, 0), (1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (6, 10), (2000, 10)]
)
def test_it_doubles_up_to_ten_seconds(failures, seconds):
    assert BackoffPolicy().duration(failures) == seconds


def test_after_an_error_only_errors_count():
    assert BackoffPolicy().until(failed("a", 100.0, refusals=5)) == 110.0
    assert BackoffPolicy().until(failed("a", 100.0, refusals=5, errors=1)) == 101.0


def test_a_wait_lasts_through_the_second_in_which_it_ends():
    entity = failed("a", 100.4, refusals=1)
    lasts = [BackoffPolicy().lasts(entity, now) for now in (100.4, 101.4, 101.9, 102.0)]
    assert lasts == [True, True, True, False]


def test_who_never_failed_does_not_wait_and_nobody_does_without_backoff():
    assert not BackoffPolicy().lasts(failed("a", 100.0), 100.0)
    assert not BackoffPolicy(1.0, 0.0).lasts(failed("a", 100.0, refusals=3), 100.0)


def test_within_one_second_the_order_of_the_active_queue_holds():
    queue = BackoffQueue(BackoffPolicy())
    early, late = failed("early", 0.1, refusals=1), failed("late", 0.9, refusals=1)
    queue.put(early, 2)
    queue.put(late, 1)
    assert queue.first() is late


def test_those_whose_wait_is_over_come_out_the_first_to_end_first():
    queue = BackoffQueue(BackoffPolicy())
    for name, queued, refusals, errors in (
        ("b", 1.0, 1, 0),
        ("a", 0.0, 1, 0),
        ("e", 0.0, 0, 1),
        ("z", 0.0, 4, 0),
    ):
        queue.put(failed(name, queued, refusals, errors), 0)
    assert [one.identity for one in queue.completed(5.0)] == ["a", "b", "e"]
    assert [one.identity for one in queue.entities()] == ["z"]


def order(heap: EntityHeap) -> list[str]:
    found = []
    while (entity := heap.first()) is not None:
        heap.remove(entity)
        found.append(entity.identity)
    return found


def test_the_smallest_key_is_first_and_of_equal_ones_who_came_first():
    heap = EntityHeap()
    for arrival, (name, key) in enumerate([("a", 2), ("b", 1), ("c", 2), ("d", 1)]):
        heap.put(Entity(name, arrival, 0.0), key)
    assert order(heap) == ["b", "d", "a", "c"]


def test_an_entity_may_get_another_key_and_leave_from_the_middle():
    heap = EntityHeap()
    entities = [Entity(name, at, 0.0) for at, name in enumerate("abc")]
    for at, entity in enumerate(entities):
        heap.put(entity, at)
    heap.put(entities[0], 9)
    heap.remove(entities[1])
    heap.remove(entities[1])
    assert (len(heap), order(heap)) == (2, ["c", "a"])


def test_entries_that_were_left_behind_do_not_pile_up():
    heap = EntityHeap()
    entity = Entity("a", 0, 0.0)
    for key in range(10_000):
        heap.put(entity, key)
    assert len(heap._heap) < 200
    assert list(heap.entities()) == [entity]
