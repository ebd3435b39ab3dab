"""Evaluation of node selectors and tolerations for all nodes at once, with masks over the nodes as results.

An expression is evaluated once for each value of its label. Nodes with equal taints form a group, and tolerations are
checked once for a group. The masks are kept on the table, because many classes select the same nodes.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np

from batchsched.api.core.node import Node, Taint
from batchsched.api.core.pod import Pod, Toleration
from batchsched.api.core.selector import NodeSelector, NodeSelectorTerm, SelectorRequirement
from batchsched.framework.nodes.node_table import Nodes, NodeTable
from batchsched.framework.status import BoolArray, IndexArray, IntArray

FIELD_NAME = "metadata.name"
REFUSING_EFFECTS: Final = frozenset({"NoSchedule", "NoExecute"})
"""The effects of taints that keep a pod off a node unless the pod tolerates them."""


def mask_nodes_matching_selector(table: NodeTable, selector: NodeSelector) -> BoolArray:
    """Return a mask [N]: True for each node that matches at least one term of a node selector.

    Raises:
      InvalidSelector: an expression has an unknown operator.
    """

    def mask_nodes_matching_any_term(nodes: Nodes) -> BoolArray:
        mask = np.zeros(len(nodes), np.bool_)
        for term in selector.node_selector_terms:
            mask |= mask_nodes_matching_term(table, term)[nodes.where]
        return mask

    return table.cached_array(("selected", selector), mask_nodes_matching_any_term)


def mask_nodes_matching_term(table: NodeTable, term: NodeSelectorTerm) -> BoolArray:
    """Return a mask [N]: True for each node that matches all expressions of a node selector term.

    A term with neither `matchExpressions` nor `matchFields` matches no node.

    Raises:
      InvalidSelector: an expression has an unknown operator.
    """
    return table.cached_array(("matching", term), lambda nodes: _matching(nodes, term))


def _matching(nodes: Nodes, term: NodeSelectorTerm) -> BoolArray:
    if not term.match_expressions and not term.match_fields:
        return np.zeros(len(nodes), np.bool_)
    mask = np.ones(len(nodes), np.bool_)
    for expression in term.match_expressions or ():
        mask &= _expression(nodes.table, expression)[nodes.where]
    for field in term.match_fields or ():
        mask &= _field(nodes, field)
    return mask


def mask_nodes_with_labels(table: NodeTable, labels: dict[str, str]) -> BoolArray:
    """Return a mask [N]: True for each node that has all of the given labels."""
    mask = np.ones(len(table.nodes), np.bool_)
    for key, value in labels.items():
        mask &= _expression(table, SelectorRequirement(key=key, operator="In", values=(value,)))
    return mask


def mask_nodes_selected_by_pod(table: NodeTable, pod: Pod) -> BoolArray:
    """Return a mask [N]: True for each node that matches a pod's nodeSelector and required node affinity.

    Source: `GetRequiredNodeAffinity` of k8s.io/component-helpers/scheduling/corev1/nodeaffinity.
    """
    mask = mask_nodes_with_labels(table, pod.spec.node_selector or {})
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    terms = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    return mask if terms is None else mask & mask_nodes_matching_selector(table, terms)


def is_node_selected_by_pod(pod: Pod, node: Node) -> bool:
    """Return True if a node matches a pod's nodeSelector and required node affinity.

    Raises:
      InvalidSelector: an expression has an unknown operator.
    """
    labels = pod.spec.node_selector or {}
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    terms = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    return all(node.labels.get(key) == value for key, value in labels.items()) and (
        terms is None or terms.matches(node.labels, node.name)
    )


def _expression(table: NodeTable, expression: SelectorRequirement) -> BoolArray:
    return table.cached_array(("expression", expression), lambda nodes: _by_value(nodes, expression))


def _by_value(nodes: Nodes, expression: SelectorRequirement) -> BoolArray:
    codes, values = nodes.label_indexes_and_values(expression.key)
    if expression.operator in ("In", "NotIn"):
        # The host name has one value for each node: look up the few named nodes instead of testing all values.
        value_indexes = [at for at, value in enumerate(values) if value in (expression.values or ())]
        inside = np.isin(codes, value_indexes)
        return inside if expression.operator == "In" else ~inside
    answers = [expression.matches({expression.key: value}) for value in values]
    return np.asarray([*answers, expression.matches({})], np.bool_)[codes]


def _field(nodes: Nodes, field: SelectorRequirement) -> BoolArray:
    if field.key == FIELD_NAME and field.operator == "In":
        index = nodes.table.index
        node_indexes = [index[name] for name in field.values or () if name in index]
        return np.isin(nodes.node_indexes, node_indexes)
    return nodes.mask_where(lambda node: field.matches({FIELD_NAME: node.name}))


def taint_set_indexes_and_sets(table: NodeTable) -> tuple[IndexArray, tuple[tuple[Taint, ...], ...]]:
    """Return for each node [N] the index of its set of taints, and the distinct sets to which the indexes refer.

    A set may belong to no node any more.
    """
    group_numbers: dict[tuple[Taint, ...], int] = table.cached_value_of_cluster_objects(
        "taint groups", lambda _: {}
    )

    def taint_set_indexes(nodes: Nodes) -> IndexArray:
        numbers = (group_numbers.setdefault(node.taints, len(group_numbers)) for node in nodes.node_objects)
        return np.fromiter(numbers, np.int32, len(nodes))

    return table.cached_array("taint groups", taint_set_indexes), tuple(group_numbers)


def untolerated_taint_counts(
    table: NodeTable, tolerations: tuple[Toleration, ...], effects: frozenset[str]
) -> IntArray:
    """Return for each node [N] how many of its taints have one of the given effects and are not tolerated."""

    def count_untolerated_taints(nodes: Nodes) -> IntArray:
        codes, groups = taint_set_indexes_and_sets(table)
        counts = [len(untolerated_taints(taints, tolerations, effects)) for taints in groups]
        return np.asarray(counts, np.int64)[codes[nodes.where]]

    return table.cached_array(("untolerated", tolerations, effects), count_untolerated_taints)


def untolerated_taints(
    taints: Iterable[Taint], tolerations: tuple[Toleration, ...], effects: frozenset[str]
) -> list[Taint]:
    """Return those of the given taints that have one of the given effects and match no toleration."""
    return [
        taint
        for taint in taints
        if taint.effect in effects and not any(one.tolerates(taint) for one in tolerations)
    ]
