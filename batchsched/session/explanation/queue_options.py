"""Options to loosen a restriction of a queue: a limit, the number of PodGroups, or a kept guarantee.

They do not raise guarantees, weights or priorities, which would take from other queues.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from batchsched.api.core.quantity import format_quantity, parse_quantity_in_base_units
from batchsched.api.core.requests import pod_requests
from batchsched.api.crd.base import parse_quantities_in_base_units
from batchsched.api.crd.queue import Queue
from batchsched.api.decision import InputChange
from batchsched.api.snapshot import Snapshot
from batchsched.queues.tree import QueueLimit
from batchsched.session.explanation.changed_input import json_pointer, queue_reference
from batchsched.session.explanation.gang_view import GangView
from batchsched.session.explanation.job_options import request_reduction_steps_by_resource
from batchsched.session.explanation.options import ChangeOption

_WHOLE_UNITS: Final = {"cpu": 1000, "memory": 2**30}


class TotalPodRequests:
    """The requests of all pods in a Snapshot: for each resource their sum, and their greatest common divisor.

    Args:
      snapshot: the input of the session.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    @cached_property
    def _requests(self) -> list[tuple[int, dict[str, int]]]:
        """How many pods have each distinct spec, and what one of them requests."""
        counts = Counter(id(pod.spec) for pod in self.snapshot.pods)
        pods = {id(pod.spec): pod for pod in self.snapshot.pods}
        return [(count, pod_requests(pods[spec])) for spec, count in counts.items()]

    def total_request(self, resource: str) -> int:
        """Return the amount of a resource that all pods request together."""
        return sum(count * requests.get(resource, 0) for count, requests in self._requests)

    def common_unit_of_requests(self, resource: str) -> int:
        """Return the largest amount that divides the request of each pod for a resource; 0 if no pod requests it."""
        return math.gcd(*(requests.get(resource, 0) for _, requests in self._requests))


def queue_limit_options(view: GangView, requested: TotalPodRequests) -> list[ChangeOption]:
    """Return options to raise the queue limits that restrict a refused gang, limits of its own queue first.

    Args:
      view: the gang in the tables after the decision of its session, when other gangs have their nodes.
      requested: the amounts that the pods of the session request.
    """
    snapshot = requested.snapshot
    queues = {queue.name: queue for queue in snapshot.queues}
    chain = view.tables.queues.queue_and_ancestors(view.gang.queue)
    rows = sorted(
        view.restricting_limit_indexes,
        key=lambda row: (
            chain.index(name) if (name := view.queue_limits.limits[row].name) in chain else len(chain)
        ),
    )
    options: list[ChangeOption] = []
    for row in rows:
        limit = view.queue_limits.limits[row]
        if limit.kept:
            for name in limit.kept:
                (kept,) = (one for one in view.queue_limits.limits if one.kept == (name,))
                options += _lending_options(view, row, kept, queues[name], requested)
            continue
        options += _amount_options(view, row, limit, queues[limit.name], requested)
        if limit.pod_groups is not None:
            options.append(_pod_groups_option(view, row, limit, snapshot))
    return options


def _amount_options(
    view: GangView, row: int, limit: QueueLimit, queue: Queue, requested: TotalPodRequests
) -> Iterator[ChangeOption]:
    spec = queue.spec
    guarantee = view.tables.queues.guarantees[queue.name]
    # Each restricted field with what usage it allows beyond its value: a borrowing limit counts from the guarantee.
    fields = (
        [("userLimits", parse_quantities_in_base_units(spec.user_limits), {})]
        if limit.user
        else [
            ("limit", parse_quantities_in_base_units(spec.limit), {}),
            ("borrowingLimit", parse_quantities_in_base_units(spec.borrowing_limit), guarantee),
        ]
    )
    for resource, needed in view.minimum_requests.items():
        remaining = view.remaining_amount_of_limit(row, resource)
        if remaining is None:
            continue
        usage = limit.resources[resource] - remaining
        for name, values, extra in fields:
            if resource in values:
                allowed = values[resource] + extra.get(resource, 0)
                yield _raised_amount(
                    queue_reference(queue.name),
                    json_pointer("spec", name, resource),
                    resource,
                    _Amount(
                        values[resource], extra.get(resource, 0), usage + needed, usage + needed > allowed
                    ),
                    _common_unit(view, requested, resource),
                    _most(view, requested, resource),
                )


@dataclass(frozen=True, slots=True)
class _Amount:
    """An amount in the spec of a queue: its value, what is allowed beyond it, and the usage that is to be allowed."""

    value: int
    beyond: int
    required: int
    binding: bool


def _raised_amount(
    target: str, path: str, resource: str, amount: _Amount, unit: int, most: int
) -> ChangeOption:
    """Return the option to raise an amount. Only usage in multiples of `unit` can occur."""
    floor = (amount.value + amount.beyond) // unit * unit

    def changes_that_raise_amount(steps: int) -> tuple[InputChange, ...]:
        value = format_quantity(resource, floor + steps * unit - amount.beyond)
        return (InputChange(set=target, path=path, value=value),)

    steps = max(1, -(-(most - floor) // unit))
    guess = min(steps, max(1, -(-(amount.required - floor) // unit)))
    return ChangeOption(
        changes_that_raise_amount, most=steps, guess=guess, field=target + path, binding=amount.binding
    )


def _common_unit(view: GangView, requested: TotalPodRequests, resource: str) -> int:
    """Return an amount that divides every usage of a resource, also if the gang's pods become smaller.

    It divides a core or GiB: fair shares depend on limits, so that an amount between two usages may make a difference.
    """
    unit, step = (
        requested.common_unit_of_requests(resource),
        request_reduction_steps_by_resource(view).get(resource, 0),
    )
    return math.gcd(unit, step, _WHOLE_UNITS.get(resource, 0)) or 1


def _most(view: GangView, requested: TotalPodRequests, resource: str) -> int:
    """Return an amount that no usage of a resource exceeds."""
    capacity = int(view.tables.node_table.allocatable[:, view.tables.node_table.column[resource]].sum())
    return max(capacity, requested.total_request(resource))


def _pod_groups_option(view: GangView, row: int, limit: QueueLimit, snapshot: Snapshot) -> ChangeOption:
    target, path = queue_reference(limit.name), "/spec/maxRunningPodGroups"
    allowed = limit.pod_groups or 0

    def changes_that_raise_max_pod_groups(steps: int) -> tuple[InputChange, ...]:
        return (InputChange(set=target, path=path, value=allowed + steps),)

    most = len(snapshot.pod_groups) + len(snapshot.pods)
    guess = max(1, 1 - int(view.queue_limits.remaining_gangs[row]))
    binding = view.gang.has_no_bound_pod and int(view.queue_limits.remaining_gangs[row]) < 1
    return ChangeOption(
        changes_that_raise_max_pod_groups,
        most=most,
        guess=min(guess, most),
        field=target + path,
        binding=binding,
    )


def _lending_options(
    view: GangView, row: int, kept: QueueLimit, queue: Queue, requested: TotalPodRequests
) -> Iterator[ChangeOption]:
    """Yield options to lend more of a guarantee that a queue keeps for itself.

    Args:
      view: the gang.
      row: index of the limit that restricts it, which may protect the guarantees of several queues.
      kept: the limit that protects the guarantee of this queue only.
      queue: the queue.
      requested: the amounts that the pods of the session request.
    """
    spec_guarantee = queue.spec.guarantee or {}
    for resource, lent in parse_quantities_in_base_units(queue.spec.lending_limit).items():
        remaining = view.remaining_amount_of_limit(row, resource)
        needed = view.minimum_requests.get(resource, 0)
        if remaining is None or not needed or not kept.resources.get(resource):
            continue
        # The guarantee as it is scaled down. Queues below may keep more than the queue itself.
        guarantee = min(
            lent + kept.resources[resource], parse_quantity_in_base_units(resource, spec_guarantee[resource])
        )
        unit = math.gcd(
            _common_unit(view, requested, resource),
            lent,
            guarantee,
            *(
                parse_quantity_in_base_units(resource, (node.status.allocatable or {}).get(resource, 0))
                for node in requested.snapshot.nodes
            ),
        )
        yield _raised_amount(
            queue_reference(queue.name),
            json_pointer("spec", "lendingLimit", resource),
            resource,
            _Amount(lent, 0, lent + needed - remaining, needed > remaining),
            unit or 1,
            guarantee,
        )
