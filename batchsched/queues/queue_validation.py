"""Settings of queues that do not fit the rest: guarantees above the parent's, resources that nobody knows.

A queue takes part all the same; what does not fit counts only as far as it fits, and this says so. Parents that do not
exist, and cycles, are `model.relations`'.
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


def misfits(tree: QueueTree, resources: Collection[str]) -> tuple[SetAside, ...]:
    """Return what does not fit, queue by queue.

    Args:
      tree: the queues.
      resources: the names that some node offers; none: nobody can tell yet.
    """
    found: list[SetAside] = []
    below: dict[str | None, dict[str, dict[str, int]]] = {}
    for name, queue in sorted(tree.queues.items()):
        below.setdefault(queue.spec.parent, {})[name] = in_base_units(queue.spec.guarantee)
    for name, queue in sorted(tree.queues.items()):
        found += _above_the_parents(queue, below.get(name, {}))
        if resources:
            found += _unknown(queue, sorted(resources))
    return tuple(found)


def _above_the_parents(queue: Queue, children: Mapping[str, Mapping[str, int]]) -> Iterator[SetAside]:
    """The guarantees of a queue's children, where together they are above its own, or above its limit."""
    own, limit = in_base_units(queue.spec.guarantee), in_base_units(queue.spec.limit)
    for resource in sorted({resource for amounts in children.values() for resource in amounts}):
        claimed = sum(amounts.get(resource, 0) for amounts in children.values())
        word, bound = (
            ("guarantee", own[resource]) if resource in own else ("limit", limit.get(resource, claimed))
        )
        if claimed > bound:
            who = ", ".join(
                f"{name} {amounts[resource]}" for name, amounts in children.items() if resource in amounts
            )
            yield SetAside(
                "",
                f"Queue {queue.name}",
                f"spec.{word}.{resource}",
                f"the guarantees of its children come to {claimed} ({who}), more than its own {word} of {bound}, in "
                "base units; they count scaled down to it: raise it, or lower theirs",
            )


def _unknown(queue: Queue, known: list[str]) -> Iterator[SetAside]:
    """Resources that no node offers."""
    for setting in AMOUNTS:
        for resource in sorted(getattr(queue.spec, setting) or {}):
            if resource not in known:
                yield SetAside(
                    "",
                    f"Queue {queue.name}",
                    f"spec.{to_camel(setting)}.{resource}",
                    f"no node offers {resource!r}; {nearest(resource, known)}",
                )
