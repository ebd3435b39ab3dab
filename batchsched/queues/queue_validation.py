"""Inconsistent queue settings: guarantees above the parent's, and resources that no node offers.

Such a queue still takes part in sessions; the excess has no effect, and this module reports it. Parents that do not
exist and cycles are reported by `api.crd.validation`.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from pydantic.alias_generators import to_camel

from batchsched.api.crd.base import in_base_units
from batchsched.api.crd.queue import Queue
from batchsched.api.crd.validation import nearest
from batchsched.api.decision import SetAside
from batchsched.queues.tree import QueueTree

AMOUNTS: Final = ("guarantee", "limit", "lending_limit", "borrowing_limit", "user_limits")


def invalid_settings(tree: QueueTree, resources: Collection[str]) -> tuple[SetAside, ...]:
    """Return the inconsistent settings of all queues.

    Args:
      tree: the queues.
      resources: the resources that nodes offer; if empty, unknown resources are not reported.
    """
    findings: list[SetAside] = []
    guarantees_by_parent: dict[str | None, dict[str, dict[str, int]]] = {}
    for name, queue in sorted(tree.queues.items()):
        guarantees_by_parent.setdefault(queue.spec.parent, {})[name] = in_base_units(queue.spec.guarantee)
    for name, queue in sorted(tree.queues.items()):
        findings += _above_the_parents(queue, guarantees_by_parent.get(name, {}))
        if resources:
            findings += _unknown(queue, sorted(resources))
    return tuple(findings)


def _above_the_parents(queue: Queue, children: Mapping[str, Mapping[str, int]]) -> Iterator[SetAside]:
    """Yield queues with children that are guaranteed more than the queue's own guarantee or limit."""
    own, limit = in_base_units(queue.spec.guarantee), in_base_units(queue.spec.limit)
    for resource in sorted({resource for amounts in children.values() for resource in amounts}):
        claimed = sum(amounts.get(resource, 0) for amounts in children.values())
        field, bound = (
            ("guarantee", own[resource]) if resource in own else ("limit", limit.get(resource, claimed))
        )
        if claimed > bound:
            claims = ", ".join(
                f"{name} {amounts[resource]}" for name, amounts in children.items() if resource in amounts
            )
            yield SetAside(
                "",
                f"Queue {queue.name}",
                f"spec.{field}.{resource}",
                f"the guarantees of its children add up to {claimed} ({claims}), more than its own {field} of "
                f"{bound}, "
                "in base units; they are scaled down to it: raise it, or lower the guarantees of the children",
            )


def _unknown(queue: Queue, offered: list[str]) -> Iterator[SetAside]:
    """Yield resources of a queue that no node offers."""
    for field in AMOUNTS:
        for resource in sorted(getattr(queue.spec, field) or {}):
            if resource not in offered:
                yield SetAside(
                    "",
                    f"Queue {queue.name}",
                    f"spec.{to_camel(field)}.{resource}",
                    f"no node offers {resource!r}; {nearest(resource, offered)}",
                )
