"""The queue tree: ancestry, limits, and trees that are none."""

import pytest

from batchsched.errors import InvalidInput
from batchsched.queues.tree import QueueTree, find_cycles
from tests.session.scenario import queue

TREE = (
    queue("org", limit={"cpu": "4", "nvidia.com/gpu": "8"}),
    queue("team", parent="org", maxRunningPodGroups=0),
    queue("person", parent="team"),
    queue("other", limit={"cpu": "500m"}),
)


def test_ancestry_goes_from_a_queue_to_its_root():
    tree = QueueTree(TREE)
    assert tree.queue_and_ancestors("person") == ("person", "team", "org")
    assert tree.queue_and_ancestors("other") == ("other",)


def test_only_the_default_queue_exists_without_an_object():
    tree = QueueTree(())
    assert "default" in tree
    assert "team" not in tree
    assert tree.queue_and_ancestors("default") == ("default",)
    assert tree.limits() == ()


def test_created_default_queue_has_its_stated_parent():
    tree = QueueTree((*TREE, queue("default", parent="team")))
    assert tree.queue_and_ancestors("default") == ("default", "team", "org")


def test_limits_are_sorted_by_queue_name_and_in_base_units():
    found = QueueTree(TREE).limits()
    assert [limit.name for limit in found] == ["org", "other", "team"]
    assert found[0].resources == {"cpu": 4000, "nvidia.com/gpu": 8}
    assert found[1].resources == {"cpu": 500}
    assert [limit.pod_groups for limit in found] == [None, None, 0]


def test_guarantee_of_a_queue_is_its_own_or_the_sum_of_those_of_its_children_up_to_their_limits():
    tree = QueueTree(
        (
            queue("org", guarantee={"cpu": "4"}),
            queue("team", parent="org", limit={"nvidia.com/gpu": "3"}),
            queue("a", parent="team", guarantee={"cpu": "3", "nvidia.com/gpu": "2"}),
            queue("b", parent="team", guarantee={"cpu": "3", "nvidia.com/gpu": "2"}),
            queue("c", parent="default", guarantee={"cpu": "1"}),
        )
    )
    assert tree.guarantees["team"] == {"cpu": 6000, "nvidia.com/gpu": 4}
    assert tree.guarantees["org"] == {"cpu": 4000, "nvidia.com/gpu": 3}
    assert tree.guarantees["default"] == {"cpu": 1000}


def test_missing_parent_names_the_queue_and_the_field():
    with pytest.raises(InvalidInput) as caught:
        QueueTree((queue("team", parent="org"),))
    assert str(caught.value) == "Queue team: spec.parent: no queue is named 'org'"


def test_cycle_of_queues_is_refused():
    ring = (queue("a", parent="b"), queue("b", parent="c"), queue("c", parent="a"), queue("d", parent="a"))
    assert find_cycles(ring) == (("a", "b", "c"),)
    with pytest.raises(InvalidInput, match="the queues form a cycle"):
        QueueTree(ring)


def test_several_cycles_are_all_found():
    pairs = [("a", "b"), ("b", "a"), ("x", "y"), ("y", "x"), ("z", "x")]
    assert find_cycles(queue(name, parent=parent) for name, parent in pairs) == (("a", "b"), ("x", "y"))
    assert find_cycles(TREE) == ()
