"""Sentences about refused gangs: why one can never start, which gangs go first, and what would change it."""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from batchsched.api.core.node import Node
from batchsched.api.core.pod import QUEUE_LABEL, Pod
from batchsched.api.core.quantity import (
    format_quantities_in_same_unit,
    format_quantity,
    parse_quantity_in_base_units,
    pluralize,
)
from batchsched.api.crd.base import parse_quantities_in_base_units
from batchsched.api.crd.podgroup import DEFAULT_QUEUE, PodGroup
from batchsched.api.decision import InputChange, PrecedingGang
from batchsched.api.external.group_tree import composite_group_with_missing_groups
from batchsched.api.external.pod_group import is_converted_from_kubernetes
from batchsched.api.gang import gang_key_of_pod
from batchsched.api.queue_access import stated_queue_name
from batchsched.api.snapshot import Snapshot
from batchsched.framework.filter_result import FilterResult
from batchsched.framework.plugin_support.node_selection import REFUSING_EFFECTS, untolerated_taints
from batchsched.session.explanation.changed_input import json_pointer, json_pointer_tokens
from batchsched.session.explanation.gang_view import GangView
from batchsched.session.explanation.gangs_ahead import MAX_AHEAD

MAX_NAMED = 3
"""Maximum number of gangs, taints or values that one sentence names."""


def format_names(names: Sequence[str], *, complete: bool = True) -> str:
    """Join the first names of a list, as in `a, b, c and 4 more`; `and others` if the total is unknown."""
    shown = list(names[:MAX_NAMED])
    if len(names) > MAX_NAMED:
        shown.append(f"{len(names) - MAX_NAMED} more" if complete else "others")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


# Why a gang can never start


class NeverStartableExplanation(NamedTuple):
    """The sentence and reason code for a refused gang that exceeds a limit even in an empty cluster."""

    reason: str
    sentence: str


def explain_why_gang_can_never_start(view: GangView) -> NeverStartableExplanation | None:
    """Return the first reason found why a gang could not start alone in the cluster; None if none is found.

    A reason is a limit that the gang exceeds even if the cluster is empty and no queue is in use.

    Args:
      view: the gang alone in the cluster.
    """
    for reason, describe in (
        ("QueueLimit", _exceeded_queue_limit),
        ("NoFeasibleNode", _too_large_pod),
        ("NoFeasibleNode", _no_open_node),
        ("InsufficientTopologyCapacity", _too_small_domains),
        ("InsufficientResources", _too_little_in_sum),
    ):
        sentence = describe(view)
        if sentence:
            return NeverStartableExplanation(reason, sentence)
    return None


def _exceeded_queue_limit(view: GangView) -> str:
    for row in view.restricting_limit_indexes:
        limit = view.queue_limits.limits[row]
        for resource, needed in view.minimum_requests.items():
            remaining = view.remaining_amount_of_limit(row, resource)
            if remaining is None or needed <= remaining:
                continue
            if limit.kept:
                amount, free = format_quantities_in_same_unit(resource, needed, max(0, remaining))
                return (
                    f"asks for {amount} {resource}, and {limit.name} lends so little of its guarantee that "
                    f"{free} {resource} are left for others"
                )
            amount, maximum = format_quantities_in_same_unit(resource, needed, remaining)
            setting = limit.limiting_setting((resource,))
            return (
                f"asks for {amount} {resource}, the {setting} of {view.limit_description(limit)} is {maximum}"
            )
        if (
            limit.pod_groups is not None
            and view.queue_limits.remaining_gangs[row] < 1
            and view.gang.has_no_bound_pod
        ):
            most = pluralize(limit.pod_groups, "PodGroup", separator="")
            return f"queue {limit.name} may run {most} (maxRunningPodGroups)"
    return ""


def _too_large_pod(view: GangView) -> str:
    table = view.tables.node_table
    for part in view.gang.parts:
        nodes = _selects(view, part.pods[0])
        offered = table.allocatable[nodes] if nodes.any() else table.allocatable
        for resource, column in table.column.items():
            requested = int(part.pod_class.requests[column])
            largest = int(offered[:, column].max(initial=0))
            if resource != "pods" and requested > largest:
                amount, maximum = format_quantities_in_same_unit(resource, requested, largest)
                usable = "that it may use " if nodes.any() else ""
                return f"a pod asks for {amount} {resource}, the largest node {usable}has {maximum}"
    return ""


def _selects(view: GangView, pod: Pod) -> np.ndarray:
    """Return a mask [N] of the nodes that a pod selects by nodeSelector and tolerates."""
    return np.array([not _obstacle(pod, node) for node in view.tables.node_table.nodes], np.bool_)


def _obstacle(pod: Pod, node: Node) -> str:
    """Return why a node does not accept a pod, whatever its resources; "" if nothing is known against it."""
    for key, value in (pod.spec.node_selector or {}).items():
        if node.labels.get(key) != value:
            return f"do not match the nodeSelector {key}={value}"
    refusing_taints = untolerated_taints(node.taints, pod.tolerations, REFUSING_EFFECTS)
    if refusing_taints:
        taint = refusing_taints[0]
        value = f"={taint.value}" if taint.value else ""
        return f"have the taint {taint.key}{value}:{taint.effect}, which the pod does not tolerate"
    if node.spec.unschedulable:
        return "are unschedulable"
    return ""


def _no_open_node(view: GangView) -> str:
    for row, part in enumerate(view.gang.parts):
        if view.feasible_node_mask[row].any():
            continue
        pod, nodes, result = part.pods[0], view.tables.node_table.nodes, view.filter_results[row]
        if result is not None and not result.status.ok:
            return f"no node accepts a pod: {', '.join(result.status.reasons)}"
        obstacles = Counter(
            _obstacle(pod, node) or _filter_reasons(result, index) for index, node in enumerate(nodes)
        )
        if len(nodes) == 1:
            (obstacle,) = obstacles
            text = _singular(obstacle)
            return f"the only node refuses a pod: {text if text == obstacle else f'it {text}'}"
        reasons = ", ".join(
            f"{count} {_singular(text) if count == 1 else text}"
            for text, count in sorted(obstacles.items(), key=lambda item: (-item[1], item[0]))
        )
        return f"none of the {len(nodes)} nodes accepts a pod: {reasons}"
    return ""


def _filter_reasons(result: FilterResult | None, node: int) -> str:
    """Return the reasons for which the Filter plugins refuse a node."""
    reasons = result.reasons_at(node) if result is not None else ()
    return " and ".join(reasons) or "are refused by a plugin"


def _singular(obstacle: str) -> str:
    """Return what is said about several nodes as a statement about one node; reasons of plugins do not change."""
    verb, _, rest = obstacle.partition(" ")
    singular_verb = {"do": "does", "have": "has", "are": "is"}.get(verb, verb)
    return f"{singular_verb} {rest}"


def _too_small_domains(view: GangView) -> str:
    """Return how many nodes a gang needs in one domain, if it has one class of pods and no domain has as many."""
    gang, level, table = view.gang, view.required_level, view.tables.node_table
    if level is None or len(gang.parts) != 1:
        return ""
    each = np.where(view.feasible_node_mask[0], gang.parts[0].count_fitting_pods(table.allocatable), 0)
    domains: dict[str, list[int]] = {}
    for node, room in zip(table.nodes, each.tolist(), strict=True):
        if room and level.node_label in node.labels:
            domains.setdefault(node.labels[level.node_label], []).append(room)
    name = level.name
    if not domains:
        return f"no node that accepts its pods is in a {name}"
    most = max(sum(rooms) for rooms in domains.values())
    if most >= gang.need:
        return ""
    rooms = {room for found in domains.values() for room in found}
    if len(rooms) == 1:
        sizes = {len(found) for found in domains.values()}
        has = f"{name}s have {max(sizes)}" if len(sizes) == 1 else f"the largest has {max(sizes)}"
        return f"needs {-(-gang.need // rooms.pop())} nodes in one {name}, {has}"
    return f"needs {pluralize(gang.need, 'pod', separator='')} in one {name}, the largest has room for {most}"


def _too_little_in_sum(view: GangView) -> str:
    table, accepted = view.tables.node_table, view.feasible_node_mask.any(axis=0)
    for resource, needed in view.minimum_requests.items():
        offered = int(table.allocatable[accepted][:, table.column[resource]].sum())
        if needed > offered:
            amount, has = format_quantities_in_same_unit(resource, needed, offered)
            return f"asks for {amount} {resource}, the nodes that it may use have {has}"
    if len(view.gang.parts) == 1:
        room = int(view.gang.parts[0].count_fitting_pods(table.allocatable[accepted]).sum())
        if room < view.gang.need:
            needed_pods = pluralize(view.gang.need, "pod", separator="")
            return f"the nodes that it may use have room for {room} of its {needed_pods}"
    return ""


# Which gangs go first

_RIGHTS = {
    "Guarantee": (
        "goes first: it is inside the guarantee of its queue",
        "go first: they are inside the guarantee of their queue",
    ),
    "FairShare": (
        "goes first: it is inside the fair share of its queue",
        "go first: they are inside the fair share of their queue",
    ),
    "Priority": ("goes first by its priority", "go first by their priority"),
    "Order": ("comes first in the order of the policy", "come first in the order of the policy"),
    "Weight": (
        "was chosen instead, since the chosen gangs have more weight together",
        "were chosen instead, since they have more weight together",
    ),
    "Running": ("runs there", "run there"),
}
_PROTECTIONS = {
    "": ("", ""),
    "SystemCritical": (" and has system-critical pods", " and have system-critical pods"),
    "NotPreemptible": (" and is not preemptible", " and are not preemptible"),
    "MinRuntime": (
        " and is protected by its minRuntimeSeconds",
        " and are protected by their minRuntimeSeconds",
    ),
    "ReclaimMinRuntime": (
        " and is protected by the reclaimMinRuntimeSeconds of its queue",
        " and are protected by the reclaimMinRuntimeSeconds of their queue",
    ),
    "DisruptionBudget": (
        " and is protected by a PodDisruptionBudget",
        " and are protected by PodDisruptionBudgets",
    ),
}
_USES_LIMIT = ("counts against this limit", "count against this limit")


def preceding_gangs_clause(ahead: Sequence[PrecedingGang], reason: str) -> str:
    """Return a text that states which gangs precede a refused gang and why; "" if no gang precedes it.

    Args:
      ahead: the gangs. If these are MAX_AHEAD, there may be more.
      reason: that of the refusal.
    """
    parts = []
    rights, protections = list(_RIGHTS), list(_PROTECTIONS)

    def right_and_protection(entry: PrecedingGang) -> tuple[int, int]:
        return rights.index(entry.because), protections.index(entry.protection)

    for (right_index, protection_index), entries in groupby(
        sorted(ahead, key=right_and_protection), key=right_and_protection
    ):
        names = [entry.pod_group for entry in entries]
        right, protection = rights[right_index], protections[protection_index]
        is_running_in_queue = right == "Running" and reason == "QueueLimit"
        verbs = _USES_LIMIT if is_running_in_queue else _RIGHTS[right]
        is_plural = len(names) > 1
        named = format_names(names, complete=len(ahead) < MAX_AHEAD)
        parts.append(f"{named} {verbs[is_plural]}{_PROTECTIONS[protection][is_plural]}")
    return "; ".join(parts)


# Which change would help


QUEUE_PATHS = ("/spec/queue", json_pointer("metadata", "labels", QUEUE_LABEL))
"""Where a PodGroup, or a pod without one, names its queue."""


def describe_changes(changes: Sequence[InputChange], snapshot: Snapshot, key: str) -> str:
    """Describe changes of the input in words, such as `2 more nodes like n1`; return "" for no change."""
    texts = list(dict.fromkeys(_change_text(change, snapshot, key) for change in changes))
    return "; and ".join(text for text in texts if text)


def _change_text(change: InputChange, snapshot: Snapshot, key: str) -> str:
    if change.copy:
        more = "more node" if change.count == 1 else "more nodes"
        return f"{change.count} {more} like {change.copy.partition('/')[2]}"
    kind, _, name = change.set.partition("/")
    if kind == "Queue":
        return _queue_text(change, name, snapshot)
    if change.path in QUEUE_PATHS:
        return _queue_choice_text(change.value, snapshot, key)
    if kind == "PodTemplate":
        return _pod_text(change)
    return _pod_group_text(change, next(group for group in snapshot.pod_groups if group.key == key))


def _queue_text(change: InputChange, name: str, snapshot: Snapshot) -> str:
    raised = raised_resource_and_amount(change, snapshot)
    if raised is None:
        return f"set {json_pointer_tokens(change.path)[1]} of queue {name} to {change.value}"
    resource, more = raised
    field, by = json_pointer_tokens(change.path)[1], format_quantity(resource, more)
    return f"raise the {field} of queue {name} by {by} to {change.value} {resource}"


def _queue_choice_text(queue: str, snapshot: Snapshot, key: str) -> str:
    """Return the text of naming another queue; a queue that does not exist may be created instead."""
    groups = {group.key: group for group in snapshot.pod_groups}
    pod = next(pod for pod in snapshot.pods if gang_key_of_pod(pod) == key)
    current = stated_queue_name(groups.get(key), pod)
    exists = current in ("", DEFAULT_QUEUE, *(existing.name for existing in snapshot.queues))
    return f"use queue {queue}" if exists else f"use queue {queue}, or create queue {current}"


def raised_resource_and_amount(change: InputChange, snapshot: Snapshot) -> tuple[str, int] | None:
    """Return the resource and the amount by which a change raises a setting of a Queue; None if it raises none."""
    kind, _, name = change.set.partition("/")
    tokens = json_pointer_tokens(change.path)
    if kind != "Queue" or len(tokens) != 3:
        return None
    _, field, resource = tokens
    spec = next(queue.spec for queue in snapshot.queues if queue.name == name)
    old_amounts = parse_quantities_in_base_units(spec.model_dump(by_alias=True)[field])
    return resource, parse_quantity_in_base_units(resource, change.value) - old_amounts.get(resource, 0)


_AFFINITIES = {
    "nodeAffinity": "node affinity",
    "podAffinity": "pod affinity",
    "podAntiAffinity": "pod anti-affinity",
}


def _pod_text(change: InputChange) -> str:
    match json_pointer_tokens(change.path):
        case ["spec", "tolerations", "-"]:
            value = f"={change.value['value']}" if change.value.get("value") else ""
            return f"tolerate the taint {change.value['key']}{value}:{change.value['effect']}"
        case ["spec", "nodeSelector", label]:
            return f"select nodes with {label}={change.value}"
        case ["spec", "nodeSelector"]:
            labels = ", ".join(f"{label}={text}" for label, text in change.value.items())
            return f"select nodes by {labels} only" if labels else "remove the nodeSelector of its pods"
        case ["spec", "containers", "0", "resources", _, resource]:
            return f"ask for at most {change.value} {resource} in a pod"
        case ["spec", "affinity", field, _]:
            return f"remove the required {_AFFINITIES[field]} of its pods"
        case ["spec", "topologySpreadConstraints"]:
            return "remove the topology spread constraints of its pods"
        case ["spec", "schedulingGates"]:
            return "remove the scheduling gates of its pods"
        case tokens:
            return f"set {'.'.join(tokens)} of its pods to {change.value}"


def _kubernetes_group_text(change: InputChange, group: PodGroup) -> str:
    """Return the text for a change of groups of Kubernetes, by their own fields; "" if no field corresponds."""
    match json_pointer_tokens(change.path):
        case ["spec", "topology"] | ["spec", "topology", "required"] if not change.value:
            return "remove spec.schedulingConstraints.topology"
        case ["spec", "minMember"]:
            return f"set spec.schedulingPolicy.gang.minCount to {change.value}"
        case ["spec", "subGroups", number, "minMember"]:
            name = group.spec.sub_groups[int(number)].name
            parent = composite_group_with_missing_groups(name)
            if parent:
                return f"lower spec.schedulingPolicy.gang.minGroupCount of CompositePodGroup {parent}"
            return f"set spec.schedulingPolicy.gang.minCount of PodGroup {name} to {change.value}"
        case _:
            return ""


def _pod_group_text(change: InputChange, group: PodGroup) -> str:
    if is_converted_from_kubernetes(group) and (text := _kubernetes_group_text(change, group)):
        return text
    match json_pointer_tokens(change.path):
        case ["spec", "topology", "required"]:
            return f"require the level {change.value}" if change.value else "require no topology level"
        case ["spec", "subGroups", number, "topology", "required"]:
            level = f"the level {change.value}" if change.value else "no topology level"
            return f"require {level} for subGroup {group.spec.sub_groups[int(number)].name}"
        case ["spec", "subGroups", number, "minMember"]:
            return f"set minMember of subGroup {group.spec.sub_groups[int(number)].name} to {change.value}"
        case ["spec", "minMember"]:
            return f"set minMember to {change.value}"
        case tokens:
            field = ".".join(tokens)
            return f"set {field} to {change.value}" if change.value is not None else f"remove {field}"
