"""Options: single changes of the input that may admit a refused gang, each in few steps or more.

Options of the job come before those of queues, and those before nodes. Options of queues only lift a restriction; they
do not raise guarantees, weights or priorities, which would take from other queues.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial
from typing import Final

import numpy as np

from batchsched.api.core.node import Taint
from batchsched.api.core.pod import QUEUE_LABEL, USER_LABEL
from batchsched.api.core.quantity import format_quantity, parse_amount
from batchsched.api.core.requests import pod_requests
from batchsched.api.crd.base import parse_amounts
from batchsched.api.crd.podgroup import DEFAULT_QUEUE, SubGroupTopology, TopologyRequest
from batchsched.api.crd.queue import Queue
from batchsched.api.decision import InputChange
from batchsched.api.snapshot import Snapshot
from batchsched.framework.plugin_support.node_selection import REFUSING_EFFECTS, untolerated_taints
from batchsched.queues.tree import QueueLimit
from batchsched.session.explanation.changed_input import (
    pod_group_object,
    pod_template_object,
    pointer,
    queue_object,
)
from batchsched.session.explanation.gang_view import GangView

NODE_CONDITION_TAINT: Final = "node.kubernetes.io/"
"""Prefix of the taints that state a problem of a node; to tolerate one cures nothing."""
MAX_ALTERNATIVES: Final = 4
"""Maximum alternatives of one kind, such as taints to tolerate, or types of nodes to add."""
MAX_COPIES: Final = 4096
MILLICORES: Final = 1000
MEBIBYTE: Final = 2**20


@dataclass(frozen=True, eq=False)
class Option:
    """A change of the input in steps: more steps admit whatever fewer steps admit.

    Args:
      changes: returns the changes of a number of steps.
      most: the number of steps beyond which nothing more is gained.
      guess: the number of steps that probably suffices.
      field: what the option sets; of the options with one field, only one can apply.
      binding: False if what the option lifts does not stop the gang by itself.
    """

    changes: Callable[[int], tuple[InputChange, ...]]
    most: int = 1
    guess: int = 1
    field: str = ""
    binding: bool = True


def _single(*changes: InputChange, field: str = "", binding: bool = True) -> Option:
    return Option(lambda _: changes, field=field or changes[0].set + changes[0].path, binding=binding)


def job_options(view: GangView, snapshot: Snapshot) -> list[Option]:
    """Return the options that change the gang itself: toleration, selector, constraint, level, size, queue."""
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


# Tolerations and selectors


def _tolerations(view: GangView) -> Iterator[Option]:
    """Yield options that tolerate all taints of some nodes, those of selected nodes first, then the fewest taints.

    The taints of other nodes stop the gang only together with its node selector.
    """
    sets: Counter[tuple[Taint, ...]] = Counter()
    selected_sets: set[tuple[Taint, ...]] = set()
    selected = set(np.flatnonzero(view.selected_nodes.any(axis=0)).tolist())
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
    for taints in ordered[:MAX_ALTERNATIVES]:
        yield _single(
            *(_tolerate(view.gang.key, taint) for taint in taints),
            field=f"tolerations {taints}",
            binding=taints in selected_sets,
        )


def _tolerate(key: str, taint: Taint) -> InputChange:
    toleration = {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}
    if not taint.value:
        toleration = {"key": taint.key, "operator": "Exists", "effect": taint.effect}
    return InputChange(set=pod_template_object(key), path="/spec/tolerations/-", value=toleration)


def _selectors(view: GangView) -> Iterator[Option]:
    """Yield options that select nodes by another value of a label, or by one label less if no node has the label."""
    selectors = {tuple(sorted((pod.spec.node_selector or {}).items())) for pod in view.pods}
    if len(selectors) != 1:
        return
    selector = dict(selectors.pop())
    target = pod_template_object(view.gang.key)
    for key, value in selector.items():
        values = Counter(node.labels[key] for node in view.tables.node_table.nodes if key in node.labels)
        other_values = sorted(
            (other for other in values if other != value), key=lambda other: (-values[other], other)
        )
        for other in other_values[:MAX_ALTERNATIVES]:
            yield _single(InputChange(set=target, path=pointer("spec", "nodeSelector", key), value=other))
        if not values:
            remaining = {name: label for name, label in selector.items() if name != key}
            yield _single(InputChange(set=target, path="/spec/nodeSelector", value=remaining))


def _constraints(view: GangView) -> Iterator[Option]:
    """Yield options that remove a hard constraint on nodes and on other pods: affinities and spread constraints."""
    target, specs = pod_template_object(view.gang.key), [pod.spec for pod in view.distinct_pods]
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
                InputChange(set=target, path=pointer("spec", "affinity", field, required), value=None)
            )
    if any(
        constraint.when_unsatisfiable == "DoNotSchedule"
        for spec in specs
        for constraint in spec.topology_spread_constraints or ()
    ):
        yield _single(InputChange(set=target, path="/spec/topologySpreadConstraints", value=None))


# Levels, sizes and members


def _levels(view: GangView, snapshot: Snapshot) -> Iterator[Option]:
    group = view.gang.members.group
    if group is None:
        return
    target, topology = pod_group_object(group.key), group.spec.topology
    levels_by_topology = {
        item.metadata.name: [(level.name, level.node_label) for level in item.spec.levels]
        for item in snapshot.topologies
    }
    if topology is not None and (topology.required or topology.preferred):
        yield from _level_options(target, ("spec", "topology"), topology, levels_by_topology, topology.name)
    inherited = topology.name if topology is not None else "default"
    for number, subgroup in enumerate(group.spec.sub_groups):
        inner = subgroup.topology
        if inner is not None and (inner.required or inner.preferred):
            place = ("spec", "subGroups", number, "topology")
            yield from _level_options(target, place, inner, levels_by_topology, inner.name or inherited)


def _level_options(
    target: str,
    place: tuple[str | int, ...],
    topology: TopologyRequest | SubGroupTopology,
    levels_by_topology: dict[str, list[tuple[str, str]]],
    name: str,
) -> Iterator[Option]:
    required, preferred = topology.required, topology.preferred
    levels = levels_by_topology.get(name)
    if levels is None:
        for other in sorted(levels_by_topology)[:MAX_ALTERNATIVES]:
            yield _single(InputChange(set=target, path=pointer(*place, "name"), value=other))
        yield _single(InputChange(set=target, path=pointer(*place), value=None))
        return
    if preferred is not None and not any(preferred in level for level in levels):
        yield _single(InputChange(set=target, path=pointer(*place, "preferred"), value=None))
    if required is None:
        return
    position = next((index for index, level in enumerate(levels) if required in level), len(levels))
    # The nearest wider level first; the last step requires no level at all.
    wider = [*(level for level, _ in reversed(levels[:position])), None]

    def changed(steps: int) -> tuple[InputChange, ...]:
        return (InputChange(set=target, path=pointer(*place, "required"), value=wider[steps - 1]),)

    yield Option(changed, most=len(wider), field=target + pointer(*place, "required"))


def _sizes(view: GangView) -> Iterator[Option]:
    """Yield options that make pods smaller that request more than any node has of which they tolerate the taints."""
    table, gang = view.tables.node_table, view.gang
    tolerated = view.tolerated_nodes.any(axis=0)
    for resource, column in table.column.items():
        requested = max(int(part.pod_class.requests[column]) for part in gang.parts)
        largest = int(table.allocatable[tolerated, column].max(initial=0))
        if resource == "pods" or not 0 < largest < requested:
            continue
        if any(len(pod.spec.containers) != 1 or pod.spec.init_containers for pod in view.pods):
            continue
        yield _size_option(view, resource, requested, largest)


def _size_option(view: GangView, resource: str, requested: int, largest: int) -> Option:
    unit = {"cpu": MILLICORES, "memory": MEBIBYTE}.get(resource, 1)
    if requested % unit or largest % unit:
        unit = 1
    resources = [pod.spec.containers[0].resources for pod in view.pods]
    limited = any(item is not None and resource in (item.limits or {}) for item in resources)
    target = pod_template_object(view.gang.key)

    def changed(steps: int) -> tuple[InputChange, ...]:
        value = format_quantity(resource, requested - steps * unit)
        place = ("spec", "containers", 0, "resources")
        kinds = ("requests", "limits") if limited else ("requests",)
        return tuple(
            InputChange(set=target, path=pointer(*place, kind, resource), value=value) for kind in kinds
        )

    guess = -(-(requested - largest) // unit)
    return Option(changed, most=max(guess, requested // unit - 1), guess=guess, field=f"{target} {resource}")


def _members(view: GangView) -> Iterator[Option]:
    """Yield an option that lowers minMember to the number of pods that exist."""
    group = view.gang.members.group
    if group is None:
        return
    count = view.gang.members.count_pods()
    target = pod_group_object(group.key)
    changes = [
        InputChange(set=target, path=pointer("spec", "subGroups", number, "minMember"), value=existing)
        for number, subgroup in enumerate(group.spec.sub_groups)
        if (existing := count.sub_existing.get(subgroup.name, 0)) < subgroup.min_member
    ]
    if "min_member" in group.spec.model_fields_set and count.existing < group.spec.min_member:
        # minMember may not be below the sum of the subgroups, which is at most the number of pods that exist now.
        changes.append(InputChange(set=target, path="/spec/minMember", value=count.existing))
    if changes:
        yield _single(*changes)


def _gates(view: GangView) -> Iterator[Option]:
    if any(pod.spec.scheduling_gates for pod in view.pods):
        yield _single(
            InputChange(set=pod_template_object(view.gang.key), path="/spec/schedulingGates", value=[])
        )


def _users(view: GangView) -> Iterator[Option]:
    """Yield options that charge the gang to one user if its pods have several."""
    members = view.gang.members
    users = sorted(user for user in members.users if user)
    if len(members.users) > 1 and members.group is not None:
        for user in users[:MAX_ALTERNATIVES]:
            path = pointer("metadata", "labels", USER_LABEL)
            yield _single(InputChange(set=pod_group_object(members.key), path=path, value=user))


def _other_queues(view: GangView) -> Iterator[Option]:
    """Yield options that name another queue if the gang may not use its own: it does not exist, or is for others."""
    tables, members = view.tables, view.gang.members
    if members.queue in tables.queues and tables.queue_access.selects(members.queue, members.namespace):
        return
    usable = [name for name in tables.queues.queues if tables.queue_access.selects(name, members.namespace)]
    usable.sort(key=lambda name: (-SequenceMatcher(None, name, members.queue).ratio(), name))
    # The queue `default` exists even if no object declares it.
    default = [] if DEFAULT_QUEUE in tables.queues.queues else [DEFAULT_QUEUE]
    for name in (*usable[:MAX_ALTERNATIVES], *default):
        if members.group is not None:
            yield _single(InputChange(set=pod_group_object(members.key), path="/spec/queue", value=name))
        else:
            path = pointer("metadata", "labels", QUEUE_LABEL)
            yield _single(InputChange(set=pod_template_object(members.key), path=path, value=name))


# Queues


def queue_options(view: GangView, snapshot: Snapshot) -> list[Option]:
    """Return the options that lift limits of queues, those of the gang's own queue first.

    Args:
      view: the gang after the decision of its session, when other gangs have their places.
      snapshot: the input of the session.
    """
    queues = {queue.name: queue for queue in snapshot.queues}
    chain = view.tables.queues.queue_and_ancestors(view.gang.queue)
    rows = sorted(
        view.limit_rows,
        key=lambda row: chain.index(name) if (name := view.limits.limits[row].name) in chain else len(chain),
    )
    options: list[Option] = []
    for row in rows:
        limit = view.limits.limits[row]
        if limit.kept:
            for name in limit.kept:
                options += _lending_options(view, row, queues[name], snapshot)
            continue
        options += _amount_options(view, row, limit, queues[limit.name], snapshot)
        if limit.pod_groups is not None:
            options.append(_pod_groups_option(view, row, limit, snapshot))
    return options


def _amount_options(
    view: GangView, row: int, limit: QueueLimit, queue: Queue, snapshot: Snapshot
) -> Iterator[Option]:
    spec = queue.spec
    guarantee = parse_amounts(spec.guarantee)
    # Each restricted field with what usage it allows beyond its value: a borrowing limit counts from the guarantee.
    fields = (
        [("userLimits", parse_amounts(spec.user_limits), {})]
        if limit.user
        else [
            ("limit", parse_amounts(spec.limit), {}),
            ("borrowingLimit", parse_amounts(spec.borrowing_limit), guarantee),
        ]
    )
    for resource, needed in view.requested.items():
        balance = view.balance(row, resource)
        if balance is None:
            continue
        usage = limit.resources[resource] - balance
        for name, values, extra in fields:
            if resource in values:
                allowed = values[resource] + extra.get(resource, 0)
                yield _raised_amount(
                    queue_object(queue.name),
                    pointer("spec", name, resource),
                    resource,
                    _Amount(
                        values[resource], extra.get(resource, 0), usage + needed, usage + needed > allowed
                    ),
                    _common_unit(snapshot, resource),
                    _most(view, snapshot, resource),
                )


@dataclass(frozen=True, slots=True)
class _Amount:
    """An amount in the spec of a queue: its value, what is allowed beyond it, and the usage that is to be allowed."""

    value: int
    beyond: int
    required: int
    binding: bool


def _raised_amount(target: str, path: str, resource: str, amount: _Amount, unit: int, most: int) -> Option:
    """Return the option to raise an amount. Only usage in multiples of `unit` can occur."""
    floor = (amount.value + amount.beyond) // unit * unit

    def changed(steps: int) -> tuple[InputChange, ...]:
        value = format_quantity(resource, floor + steps * unit - amount.beyond)
        return (InputChange(set=target, path=path, value=value),)

    steps = max(1, -(-(most - floor) // unit))
    guess = min(steps, max(1, -(-(amount.required - floor) // unit)))
    return Option(changed, most=steps, guess=guess, field=target + path, binding=amount.binding)


def _common_unit(snapshot: Snapshot, resource: str) -> int:
    """Return the greatest common divisor of all requests for a resource; usage is a multiple of it."""
    requests = {id(pod.spec): pod for pod in snapshot.pods}
    return math.gcd(*(pod_requests(pod).get(resource, 0) for pod in requests.values())) or 1


def _most(view: GangView, snapshot: Snapshot, resource: str) -> int:
    """Return an amount that no usage of a resource exceeds."""
    capacity = int(view.tables.node_table.allocatable[:, view.tables.node_table.column[resource]].sum())
    return max(capacity, sum(pod_requests(pod).get(resource, 0) for pod in snapshot.pods))


def _pod_groups_option(view: GangView, row: int, limit: QueueLimit, snapshot: Snapshot) -> Option:
    target, path = queue_object(limit.name), "/spec/maxRunningPodGroups"
    allowed = limit.pod_groups or 0

    def changed(steps: int) -> tuple[InputChange, ...]:
        return (InputChange(set=target, path=path, value=allowed + steps),)

    most = len(snapshot.pod_groups) + len(snapshot.pods)
    guess = max(1, 1 - int(view.limits.gang_balance[row]))
    binding = view.gang.has_no_bound_pod and int(view.limits.gang_balance[row]) < 1
    return Option(changed, most=most, guess=min(guess, most), field=target + path, binding=binding)


def _lending_options(view: GangView, row: int, queue: Queue, snapshot: Snapshot) -> Iterator[Option]:
    """Yield options to lend more of a guarantee that a queue keeps for itself."""
    guarantee = parse_amounts(queue.spec.guarantee)
    for resource, lent in parse_amounts(queue.spec.lending_limit).items():
        balance = view.balance(row, resource)
        needed = view.requested.get(resource, 0)
        if balance is None or not needed or lent >= guarantee.get(resource, 0):
            continue
        unit = math.gcd(
            _common_unit(snapshot, resource),
            lent,
            guarantee[resource],
            *(
                parse_amount(resource, (node.status.allocatable or {}).get(resource, 0))
                for node in snapshot.nodes
            ),
        )
        yield _raised_amount(
            queue_object(queue.name),
            pointer("spec", "lendingLimit", resource),
            resource,
            _Amount(lent, 0, lent + needed - balance, needed > balance),
            unit or 1,
            guarantee[resource],
        )


# Nodes


def node_options(view: GangView, emptied: GangView) -> list[Option]:
    """Return options to add nodes like existing ones, the types of which the fewest are probably needed first.

    Args:
      view: the gang after the decision of its session.
      emptied: the gang alone in the cluster, so that each node shows which pods it accepts.
    """
    table = emptied.tables.node_table
    passes = emptied.open_nodes
    domains = _required_domains(emptied)
    nodes_by_type: defaultdict[tuple[object, ...], list[int]] = defaultdict(list)
    for index in np.flatnonzero(passes.any(axis=0)).tolist():
        node = table.nodes[index]
        kind = (table.allocatable[index].tobytes(), node.taints, passes[:, index].tobytes(), *domains[index])
        nodes_by_type[kind].append(index)
    free = np.maximum(0, view.tables.node_table.allocatable - view.tables.node_table.requested)
    total = np.maximum(1, table.allocatable.sum(axis=0))

    def rank(nodes: list[int]) -> tuple[int, int, int, float, int, str]:
        """Return the sort key of a type: nodes for more parts first, then fewer, smaller and more common nodes."""
        index = nodes[0]
        return (
            -int(passes[:, index].sum()),
            _copies(emptied, index),
            -_room(emptied, free, domains, index),
            float((table.allocatable[index] / total).sum()),
            -len(nodes),
            table.names[index],
        )

    pending = sum(len(members.pending) for members in view.tables.gangs.values())
    return [
        Option(
            partial(_added_nodes, table.names[nodes[0]]), most=min(MAX_COPIES, max(1, pending)), field="nodes"
        )
        for nodes in sorted(nodes_by_type.values(), key=rank)[:MAX_ALTERNATIVES]
    ]


def _added_nodes(name: str, steps: int) -> tuple[InputChange, ...]:
    return (InputChange(copy=f"Node/{name}", count=steps),)


def _required_domains(view: GangView) -> list[tuple[str, ...]]:
    """Return for each node its values of the labels of the levels that the gang and its subgroups require."""
    group = view.gang.members.group
    keys: list[str] = []
    if group is not None:
        topologies = [group.spec.topology, *(subgroup.topology for subgroup in group.spec.sub_groups)]
        required = {
            topology.required for topology in topologies if topology is not None and topology.required
        }
        for item in view.tables.snapshot.topologies:
            keys += [
                level.node_label
                for level in item.spec.levels
                if level.name in required or level.node_label in required
            ]
    return [tuple(node.labels.get(key, "") for key in keys) for node in view.tables.node_table.nodes]


def _copies(view: GangView, index: int) -> int:
    """Return how many empty nodes of a type take the gang's pods that the type accepts, at least."""
    node, total = view.tables.node_table.allocatable[[index]], 0.0
    for row, part in enumerate(view.gang.parts):
        if view.open_nodes[row, index]:
            total += len(part.pods) / max(1, int(part.count_fitting_pods(node)[0]))
    return math.ceil(total)


def _room(view: GangView, free: np.ndarray, domains: Sequence[tuple[str, ...]], index: int) -> int:
    """Return how many pods of the gang's first part fit in the domain of a node."""
    inside = np.array([domain == domains[index] for domain in domains])
    each = view.gang.parts[0].count_fitting_pods(free)
    return int(each[inside & view.open_nodes[0]].sum())
