"""The node table records changed nodes and follows Node objects: it always equals a new table."""

from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.core.pod import Pod
from batchsched.api.core.selector import NodeSelector, NodeSelectorTerm, SelectorRequirement
from batchsched.framework.nodes.node_table import NodeTable
from batchsched.framework.plugin_support.node_selection import (
    mask_nodes_matching_selector,
    untolerated_taint_counts,
)
from tests.plugins.cluster import land, node, pod, table

NAMES = "abcdef"
DISKS = NodeSelector(
    node_selector_terms=(
        NodeSelectorTerm(
            match_expressions=(SelectorRequirement(key="disk", operator="In", values=("ssd",)),)
        ),
        NodeSelectorTerm(
            match_fields=(SelectorRequirement(key="metadata.name", operator="In", values=("b", "e")),)
        ),
        NodeSelectorTerm(match_expressions=(SelectorRequirement(key="disk", operator="DoesNotExist"),)),
    )
)
HARD = frozenset({"NoSchedule"})


def test_added_and_removed_pods_are_recorded_as_moves_of_their_nodes():
    made = table([node(f"n{at}") for at in range(4)])
    start, guest = made.moves.generation, pod("a")
    land(made, guest, "n2")
    land(made, pod("b"), "n0")
    between = made.moves.generation
    made.remove_pods([guest])
    assert made.moves.nodes_changed_since(start).tolist() == [0, 2]
    assert made.moves.nodes_changed_since(between).tolist() == [2]
    assert made.changes.generation == 0


def test_changed_node_object_is_recorded_as_a_change_and_a_move():
    nodes = [node(name) for name in "abc"]
    made = table(nodes)
    nodes[1] = node("b", labels={"disk": "ssd"})
    assert made.replace_all_nodes(nodes) is None
    assert made.changes.nodes_changed_since(0).tolist() == [1]
    assert made.moves.nodes_changed_since(0).tolist() == [1]


def some_node(name):
    labels = st.sampled_from([None, {"disk": "ssd"}, {"disk": "hdd"}])
    taints = st.sampled_from([(), [{"key": "own", "value": "", "effect": "NoSchedule"}]])
    cpu = st.sampled_from(["1", "2"])
    made = st.builds(
        lambda labels, taints, cpu: node(name, labels=labels, taints=taints, allocatable={"cpu": cpu}),
        labels,
        taints,
        cpu,
    )
    return st.one_of(st.none(), made)


def some_nodes():
    """Some of six nodes, in any order."""
    drawn = st.tuples(*(some_node(name) for name in NAMES))
    return drawn.map(lambda nodes: [one for one in nodes if one]).flatmap(st.permutations)


def said(made: NodeTable) -> list:
    """Everything that is computed from a table."""
    return [
        made.names,
        made.index,
        made.allocatable.tolist(),
        made.requested.tolist(),
        made.nonzero_requested.tolist(),
        (made.label_indexes_and_values("disk")[0].tolist(), made.label_indexes_and_values("disk")[1]),
        mask_nodes_matching_selector(made, DISKS).tolist(),
        untolerated_taint_counts(made, (), HARD).tolist(),
        made.cached_value_of_nodes(
            "cpu", lambda table: sum(one.parse_allocatable_in_base_units()["cpu"] for one in table.nodes)
        ),
        [[pod.key for pod in made.pod_table.pods_on(at)] for at in range(len(made.names))],
        sorted((pod.key, at) for pod, at in made.pod_table.pods_with_node_indexes()),
        made.pod_table.count_pods_passing_test_by_node(lambda _: True).tolist(),
    ]


@given(versions=st.lists(some_nodes(), min_size=2, max_size=5), asked=st.lists(st.booleans(), min_size=5))
def test_table_that_followed_its_nodes_equals_a_new_table(versions, asked):
    followed = table(versions[0])
    there: dict[str, Pod] = {}
    for nodes, ask in zip(versions, asked, strict=False):
        if ask:
            said(followed)
        names = {one.name for one in nodes}
        for at in [at for at in there if at not in names]:
            followed.remove_pods([there.pop(at)])
        followed.replace_all_nodes(nodes)
        if nodes and nodes[0].name not in there:
            guest = there[nodes[0].name] = pod(f"on-{nodes[0].name}", requests={"cpu": "1"})
            land(followed, guest, nodes[0].name)
        afresh = table(nodes)
        for name, guest in there.items():
            land(afresh, guest, name)
        assert said(followed) == said(afresh)
