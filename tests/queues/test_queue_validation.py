"""Invalid settings of queues are reported with a remedy."""

from batchsched.queues.tree import QueueTree, find_inconsistent_settings
from tests.queues.sharing.trees import queue

KNOWN = ("cpu", "memory", "nvidia.com/gpu")


def test_guarantees_above_that_of_the_parent_are_reported_with_each_child():
    tree = QueueTree(
        (
            queue("org", guarantee={"nvidia.com/gpu": "8"}),
            queue("a", parent="org", guarantee={"nvidia.com/gpu": "8"}),
            queue("b", parent="org", guarantee={"nvidia.com/gpu": "4"}),
        )
    )
    (one,) = find_inconsistent_settings(tree, KNOWN)
    assert (one.object, one.field) == ("Queue org", "spec.guarantee.nvidia.com/gpu")
    assert one.message == (
        "the guarantees of its children add up to 12 (a 8, b 4), more than its own guarantee of 8, in base units; "
        "they are scaled down to it: raise it, or lower the guarantees of the children"
    )


def test_guarantees_of_children_may_not_exceed_the_limit_of_a_parent_without_a_guarantee():
    tree = QueueTree((queue("org", limit={"cpu": "4"}), queue("a", parent="org", guarantee={"cpu": "3"})))
    assert find_inconsistent_settings(tree, KNOWN) == ()
    tree = QueueTree((queue("org", limit={"cpu": "2"}), queue("a", parent="org", guarantee={"cpu": "3"})))
    assert [one.field for one in find_inconsistent_settings(tree, KNOWN)] == ["spec.limit.cpu"]


def test_resource_that_no_node_offers_is_reported_with_the_nearest_name():
    tree = QueueTree((queue("a", limit={"nvidia.com/gpus": "8", "cpu": "1"}, userLimits={"memroy": "1Gi"}),))
    found = find_inconsistent_settings(tree, KNOWN)
    assert [(one.field, one.message) for one in found] == [
        (
            "spec.limit.nvidia.com/gpus",
            "no node offers 'nvidia.com/gpus'; did you mean nvidia.com/gpu?",
        ),
        ("spec.userLimits.memroy", "no node offers 'memroy'; did you mean memory?"),
    ]


def test_resources_are_not_checked_in_a_cluster_without_nodes():
    assert find_inconsistent_settings(QueueTree((queue("a", limit={"nvidia.com/gpu": "8"}),)), ()) == ()
