"""Options to change a refused gang itself: its tolerations, constraints, levels, requests or queue."""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from typing import Final

import numpy as np

from batchsched.api.core.node import Taint
from batchsched.api.core.pod import QUEUE_LABEL, USER_LABEL
from batchsched.api.core.quantity import format_quantity
from batchsched.api.crd.podgroup import DEFAULT_QUEUE, SubGroupTopology, TopologyRequest
from batchsched.api.crd.topology import TopologySpec
from batchsched.api.decision import InputChange
from batchsched.api.snapshot import Snapshot
from batchsched.framework.plugin_support.node_selection import REFUSING_EFFECTS, untolerated_taints
from batchsched.session.explanation.changed_input import (
    json_pointer,
    pending_pods_reference,
    pod_group_reference,
)
from batchsched.session.explanation.gang_view import GangView
from batchsched.session.explanation.options import MAX_ALTERNATIVES, ChangeOption

NODE_CONDITION_TAINT: Final = "node.kubernetes.io/"
"""Prefix of the taints that state a problem of a node; to tolerate one cures nothing."""
MILLICORES: Final = 1000
MEBIBYTE: Final = 2**20


def gang_change_options(view: GangView, snapshot: Snapshot) -> list[ChangeOption]:
    """Return options to change a refused gang itself, for example its tolerations, levels or requests."""
    return [
        *_tolerations(view),
        *_selectors(view),
        *_constraints(view),
        *_levels(view, snapshot),
        *_sizes(view),
        *_members(view),
        *_gates(view),
        *_users(view),
        *_other_queues(view),
    ]


def _single(
    *changes: InputChange, field: str = "", binding: bool = True, parts: tuple[ChangeOption, ...] = ()
) -> ChangeOption:
    field = field or changes[0].set + changes[0].path
    return ChangeOption(lambda _: changes, field=field, binding=binding, parts=parts)


# Tolerations and selectors


def _tolerations(view: GangView) -> Iterator[ChangeOption]:
    """Yield options that tolerate all taints of some nodes, those of selected nodes first, then the fewest taints.

    The taints of other nodes stop the gang only together with its node selector.
    """
    sets: Counter[tuple[Taint, ...]] = Counter()
    selected_sets: set[tuple[Taint, ...]] = set()
    selected = set(np.flatnonzero(view.node_selector_mask.any(axis=0)).tolist())
    for index, node in enumerate(view.tables.node_table.nodes):
        refusing = {
            taint
            for pod in view.distinct_pods
            for taint in untolerated_taints(node.taints, pod.tolerations, REFUSING_EFFECTS)
        }
        taints = tuple(taint for taint in node.taints if taint in refusing)
        has_problem = any(taint.key.startswith(NODE_CONDITION_TAINT) for taint in taints)
        if taints and not has_problem:
            sets[taints] += 1
            if index in selected:
                selected_sets.add(taints)
    ordered = sorted(
        sets,
        key=lambda taints: (
            taints not in selected_sets,
            len(taints),
            -sets[taints],
            [taint.key for taint in taints],
        ),
    )
    single = {
        taint: _single(_tolerate(view.gang.key, taint), field=f"toleration {taint}", binding=False)
        for taint in itertools.chain.from_iterable(ordered)
    }
    for taints in ordered[:MAX_ALTERNATIVES]:
        parts = tuple(single[taint] for taint in taints)
        yield _single(
            *(change for part in parts for change in part.changes(1)),
            field=f"tolerations {taints}",
            binding=taints in selected_sets,
            parts=parts,
        )


def _tolerate(key: str, taint: Taint) -> InputChange:
    toleration = {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}
    if not taint.value:
        toleration = {"key": taint.key, "operator": "Exists", "effect": taint.effect}
    return InputChange(set=pending_pods_reference(key), path="/spec/tolerations/-", value=toleration)


def _selectors(view: GangView) -> Iterator[ChangeOption]:
    """Yield options that select nodes by another value of a label, or by one label less if no node has the label."""
    selectors = {tuple(sorted((pod.spec.node_selector or {}).items())) for pod in view.pending_pods}
    if len(selectors) != 1:
        return
    selector = dict(selectors.pop())
    target = pending_pods_reference(view.gang.key)
    for key, value in selector.items():
        values = Counter(node.labels[key] for node in view.tables.node_table.nodes if key in node.labels)
        other_values = sorted(
            (other for other in values if other != value), key=lambda other: (-values[other], other)
        )
        for other in other_values[:MAX_ALTERNATIVES]:
            yield _single(
                InputChange(set=target, path=json_pointer("spec", "nodeSelector", key), value=other)
            )
        if not values:
            remaining = {name: label for name, label in selector.items() if name != key}
            yield _single(InputChange(set=target, path="/spec/nodeSelector", value=remaining))


def _constraints(view: GangView) -> Iterator[ChangeOption]:
    """Yield options that remove a hard constraint on nodes and on other pods: affinities and spread constraints."""
    target, specs = pending_pods_reference(view.gang.key), [pod.spec for pod in view.distinct_pods]
    affinities = [spec.affinity for spec in specs if spec.affinity is not None]
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    kinds = (
        ("nodeAffinity", [affinity.node_affinity for affinity in affinities]),
        ("podAffinity", [affinity.pod_affinity for affinity in affinities]),
        ("podAntiAffinity", [affinity.pod_anti_affinity for affinity in affinities]),
    )
    for field, pod_terms in kinds:
        if any(
            terms is not None and terms.required_during_scheduling_ignored_during_execution
            for terms in pod_terms
        ):
            yield _single(
                InputChange(set=target, path=json_pointer("spec", "affinity", field, required), value=None)
            )
    if any(
        constraint.when_unsatisfiable == "DoNotSchedule"
        for spec in specs
        for constraint in spec.topology_spread_constraints or ()
    ):
        yield _single(InputChange(set=target, path="/spec/topologySpreadConstraints", value=None))


# Levels, sizes and members


def _levels(view: GangView, snapshot: Snapshot) -> Iterator[ChangeOption]:
    group = view.gang.members.group
    if group is None:
        return
    target, topology = pod_group_reference(group.key), group.spec.topology
    topologies = {item.name: item.spec for item in snapshot.topologies}
    if topology is not None and (topology.required or topology.preferred):
        yield from _level_options(target, ("spec", "topology"), topology, topologies, topology.name)
    for number, subgroup in enumerate(group.spec.sub_groups):
        inner = subgroup.topology
        if inner is not None and (inner.required or inner.preferred):
            place = ("spec", "subGroups", number, "topology")
            name = group.spec.topology_name_of_subgroup(subgroup)
            yield from _level_options(target, place, inner, topologies, name)


def _level_options(
    target: str,
    place: tuple[str | int, ...],
    topology: TopologyRequest | SubGroupTopology,
    topologies: Mapping[str, TopologySpec],
    name: str,
) -> Iterator[ChangeOption]:
    required, preferred = topology.required, topology.preferred
    spec = topologies.get(name)
    if spec is None:
        for other in sorted(topologies)[:MAX_ALTERNATIVES]:
            yield _single(InputChange(set=target, path=json_pointer(*place, "name"), value=other))
        yield _single(InputChange(set=target, path=json_pointer(*place), value=None))
        return
    if preferred is not None and spec.find_level_index(preferred) is None:
        yield _single(InputChange(set=target, path=json_pointer(*place, "preferred"), value=None))
    if required is None:
        return
    if required == preferred and topology.preferred_wait_seconds:
        # The level may be required only as long as the wait lasts.
        yield _single(InputChange(set=target, path=json_pointer(*place, "preferredWaitSeconds"), value=None))
    # All levels are wider than an unknown one.
    wider_levels = spec.levels[: spec.find_level_index(required)]
    # The nearest wider level first; the last step requires no level at all.
    wider = [*(level.name for level in reversed(wider_levels)), None]

    def changes_that_widen_level(steps: int) -> tuple[InputChange, ...]:
        return (InputChange(set=target, path=json_pointer(*place, "required"), value=wider[steps - 1]),)

    # A node may have the label of a level and not that of a wider one, which then excludes it.
    field = target + json_pointer(*place, "required")
    yield ChangeOption(changes_that_widen_level, most=len(wider), field=field, monotone=False)


def _sizes(view: GangView) -> Iterator[ChangeOption]:
    """Yield options to lower the requests that exceed the largest node with taints that the pods tolerate."""
    for resource, step in request_reduction_steps_by_resource(view).items():
        yield _size_option(view, resource, step)


def request_reduction_steps_by_resource(view: GangView) -> dict[str, int]:
    """Return the unit by which to lower a pod's request, for each resource that no node has enough of.

    The unit is one core, one MiB, or 1 of any other resource. If the largest request or the largest node is not a
    multiple of the unit, the unit is one milli-CPU or one byte.

    The result is empty for pods with several containers.
    """
    if any(len(pod.spec.containers) != 1 or pod.spec.init_containers for pod in view.pending_pods):
        return {}
    steps = {}
    for resource in view.tables.node_table.column:
        requested, largest = _largest_request(view, resource), _largest_node(view, resource)
        if resource != "pods" and 0 < largest < requested:
            step = {"cpu": MILLICORES, "memory": MEBIBYTE}.get(resource, 1)
            steps[resource] = 1 if requested % step or largest % step else step
    return steps


def _largest_request(view: GangView, resource: str) -> int:
    column = view.tables.node_table.column[resource]
    return max(int(part.pod_class.requests[column]) for part in view.gang.parts)


def _largest_node(view: GangView, resource: str) -> int:
    """Return the largest amount of a resource on a node with taints that the pods tolerate."""
    table = view.tables.node_table
    tolerated = view.toleration_mask.any(axis=0)
    return int(table.allocatable[tolerated, table.column[resource]].max(initial=0))


def _size_option(view: GangView, resource: str, step: int) -> ChangeOption:
    """Return the option to lower the request of all pods for a resource."""
    requested = _largest_request(view, resource)
    resources = [pod.spec.containers[0].resources for pod in view.pending_pods]
    limited = any(item is not None and resource in (item.limits or {}) for item in resources)
    target = pending_pods_reference(view.gang.key)

    def changes_that_lower_requests(steps: int) -> tuple[InputChange, ...]:
        value = format_quantity(resource, requested - steps * step)
        place = ("spec", "containers", 0, "resources")
        kinds = ("requests", "limits") if limited else ("requests",)
        return tuple(
            InputChange(set=target, path=json_pointer(*place, kind, resource), value=value) for kind in kinds
        )

    guess = -(-(requested - _largest_node(view, resource)) // step)
    return ChangeOption(
        changes_that_lower_requests,
        most=max(guess, requested // step - 1),
        guess=guess,
        field=f"{target} {resource}",
    )


def _members(view: GangView) -> Iterator[ChangeOption]:
    """Yield an option that lowers minMember to the number of pods that exist."""
    group = view.gang.members.group
    if group is None:
        return
    count = view.gang.members.to_pod_counts()
    target = pod_group_reference(group.key)
    changes = [
        InputChange(set=target, path=json_pointer("spec", "subGroups", number, "minMember"), value=existing)
        for number, (subgroup, least) in enumerate(
            zip(group.spec.sub_groups, group.spec.subgroup_tree.minimums, strict=True)
        )
        # Slices divide minMember, so that it cannot be lowered to any number.
        if (existing := count.sub_existing.get(subgroup.name, 0)) < least and subgroup.topology_slices is None
    ]
    if "min_member" in group.spec.model_fields_set and count.existing < group.spec.min_member:
        # minMember may not be below the sum of the subgroups, which is at most the number of pods that exist now.
        changes.append(InputChange(set=target, path="/spec/minMember", value=count.existing))
    if changes:
        yield _single(*changes)


def _gates(view: GangView) -> Iterator[ChangeOption]:
    if any(pod.spec.scheduling_gates for pod in view.pending_pods):
        yield _single(
            InputChange(set=pending_pods_reference(view.gang.key), path="/spec/schedulingGates", value=[])
        )


def _users(view: GangView) -> Iterator[ChangeOption]:
    """Yield options that charge the gang to one user if its pods have several."""
    members = view.gang.members
    users = sorted(user for user in members.users_of_pods if user)
    if len(members.users_of_pods) > 1 and members.group is not None:
        for user in users[:MAX_ALTERNATIVES]:
            path = json_pointer("metadata", "labels", USER_LABEL)
            yield _single(InputChange(set=pod_group_reference(members.key), path=path, value=user))


def _other_queues(view: GangView) -> Iterator[ChangeOption]:
    """Yield options that name another queue if the gang may not use its own: it does not exist, or is for others."""
    tables, members = view.tables, view.gang.members
    if members.queue in tables.queues and tables.queue_access.allows_namespace(
        members.queue, members.namespace
    ):
        return
    usable = [
        name for name in tables.queues.queues if tables.queue_access.allows_namespace(name, members.namespace)
    ]
    usable.sort(key=lambda name: (-SequenceMatcher(None, name, members.queue).ratio(), name))
    # The queue `default` exists even if no object declares it.
    default = [] if DEFAULT_QUEUE in tables.queues.queues else [DEFAULT_QUEUE]
    for name in (*usable[:MAX_ALTERNATIVES], *default):
        if members.group is not None:
            yield _single(InputChange(set=pod_group_reference(members.key), path="/spec/queue", value=name))
        else:
            path = json_pointer("metadata", "labels", QUEUE_LABEL)
            yield _single(InputChange(set=pending_pods_reference(members.key), path=path, value=name))
