import pytest

from batchsched.scheduling_queue.backoff import (
    BackoffQueue,
    EntityHeap,
    backoff_end,
    backoff_seconds,
    is_in_backoff,
)
from batchsched.scheduling_queue.entity import Entity


def failed(name: str, queued: float, refusals: int = 0, errors: int = 0) -> Entity:
    refused_by = () if errors else ("P",)
    return Entity(name, 0, queued, refusals=refusals, errors=errors, refused_by=refused_by)


@pytest.mark.parametrize(
    "failures, seconds", [(0, 0), (1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (6, 10), (2000, 10)]
)
def test_backoff_doubles_up_to_ten_seconds(failures, seconds):
    assert backoff_seconds(failures) == seconds


def test_after_an_error_only_errors_count():
    assert backoff_end(failed("a", 100.0, refusals=5)) == 110.0
    assert backoff_end(failed("a", 100.0, refusals=5, errors=1)) == 101.0


def test_backoff_includes_the_second_in_which_it_ends():
    entity = failed("a", 100.4, refusals=1)
    assert [is_in_backoff(entity, now) for now in (100.4, 101.4, 101.9, 102.0)] == [True, True, True, False]
    assert not is_in_backoff(failed("never failed", 100.0), 100.0)


def test_entities_whose_backoff_ends_in_the_same_second_keep_the_order_of_the_active_queue():
    queue = BackoffQueue()
    early, late = failed("early", 0.1, refusals=1), failed("late", 0.9, refusals=1)
    queue.put(early, 2)
    queue.put(late, 1)
    assert queue.first_refused_entity() is late


def test_entities_leave_the_backoff_queue_in_the_order_in_which_their_backoff_ends():
    queue = BackoffQueue()
    for name, queued, refusals, errors in (
        ("b", 1.0, 1, 0),
        ("a", 0.0, 1, 0),
        ("e", 0.0, 0, 1),
        ("z", 0.0, 4, 0),
    ):
        queue.put(failed(name, queued, refusals, errors), 0)
    assert [entity.identity for entity in queue.pop_expired(5.0)] == ["a", "b", "e"]
    assert [entity.identity for entity in queue.pop_expired(9.0)] == ["z"]


def order(heap: EntityHeap) -> list[str]:
    identities = []
    while (entity := heap.first_entity()) is not None:
        heap.remove(entity)
        identities.append(entity.identity)
    return identities


def test_heap_orders_entities_by_key_and_then_by_arrival():
    heap = EntityHeap()
    for arrival, (name, key) in enumerate([("a", 2), ("b", 1), ("c", 2), ("d", 1)]):
        heap.put(Entity(name, arrival, 0.0), key)
    assert order(heap) == ["b", "d", "a", "c"]


def test_heap_changes_keys_and_removes_entities_from_the_middle():
    heap = EntityHeap()
    entities = [Entity(name, arrival, 0.0) for arrival, name in enumerate("abc")]
    for key, entity in enumerate(entities):
        heap.put(entity, key)
    heap.put(entities[0], 9)
    heap.remove(entities[1])
    heap.remove(entities[1])
    assert order(heap) == ["c", "a"]


def test_stale_entries_of_a_heap_are_dropped():
    heap = EntityHeap()
    entity = Entity("a", 0, 0.0)
    for key in range(10_000):
        heap.put(entity, key)
    assert len(heap._heap) < 200
    assert order(heap) == ["a"]
