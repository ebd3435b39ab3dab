from batchsched.plugins.priority_sort import PrioritySort
from tests.plugins.cluster import pod


def test_order_is_priority_then_waiting_time():
    queue = [("late", 5, 20.0), ("low", 1, 1.0), ("early", 5, 10.0)]
    ordered = sorted(queue, key=lambda one: PrioritySort().sort_key(pod(one[0]), one[1], one[2]))
    assert [name for name, _, _ in ordered] == ["early", "late", "low"]


def test_the_sort_plugin_adds_nothing_to_the_signature():
    assert PrioritySort().signature(pod("a")) == PrioritySort().signature(pod("b"))
