from batchsched.plugins.priority_sort import PrioritySort
from tests.plugins.cluster import pod


def test_priority_comes_first_and_waiting_time_second():
    queue = [("late", 5, 20.0), ("low", 1, 1.0), ("early", 5, 10.0)]
    ordered = sorted(queue, key=lambda one: PrioritySort().key(pod(one[0]), one[1], one[2]))
    assert [name for name, _, _ in ordered] == ["early", "late", "low"]


def test_the_order_makes_no_classes():
    assert PrioritySort().signature(pod("a")) == PrioritySort().signature(pod("b"))
