from batchsched.scheduling_queue.active import EntityHeap
from batchsched.scheduling_queue.entity import Entity


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
