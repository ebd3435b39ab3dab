"""The queue tree: who stands under whom, and what every ancestor allows.

networkx holds the tree and finds its cycles; what the session needs often is read off once, by name.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import networkx as nx
from pydantic.alias_generators import to_camel

from batchsched.errors import InvalidInput
from batchsched.model.custom import in_base_units
from batchsched.model.podgroup import DEFAULT_QUEUE
from batchsched.model.queue import Queue

WITHOUT_EFFECT: Final = (
    "weight",
    "priority",
    "guarantee",
    "lending_limit",
    "borrowing_limit",
    "user_limits",
    "reclaim_min_runtime_seconds",
    "policy",
)
"""Settings of a Queue that are validated, and set aside while queues have no entitlements."""


@dataclass(frozen=True, slots=True)
class QueueLimit:
    """What one queue allows in its subtree.

    Args:
      name: of the queue.
      resources: limits in base units; a resource that is not named has none.
      pod_groups: how many PodGroups may run, or None.
    """

    name: str
    resources: Mapping[str, int]
    pod_groups: int | None


class QueueTree:
    """Queues by name, with their ancestors. The queue `default` exists without being made."""

    def __init__(self, queues: Iterable[Queue]) -> None:
        self._queues = {queue.name: queue for queue in queues}
        self._limits = {
            name: QueueLimit(name, in_base_units(queue.spec.limit), queue.spec.max_running_pod_groups)
            for name, queue in self._queues.items()
        }
        for name, queue in self._queues.items():
            if queue.spec.parent is not None and queue.spec.parent not in self:
                raise InvalidInput(
                    f"no queue is named {queue.spec.parent!r}", object=f"Queue {name}", field="spec.parent"
                )
        if cycles(self._queues.values()):
            raise InvalidInput("the queues form a cycle", object="Queue", field="spec.parent")

    @property
    def queues(self) -> Mapping[str, Queue]:
        """The queues that were made, by name."""
        return self._queues

    def __contains__(self, name: str) -> bool:
        """Tell whether a queue exists."""
        return name in self._queues or name == DEFAULT_QUEUE

    def ancestry(self, name: str) -> tuple[str, ...]:
        """Return a queue and those above it, from itself to the root."""
        chain = []
        at: str | None = name
        while at is not None:
            chain.append(at)
            queue = self._queues.get(at)
            at = queue.spec.parent if queue else None
        return tuple(chain)

    def limits(self) -> tuple[QueueLimit, ...]:
        """Return the queues that limit anything, by name."""
        return tuple(
            limit
            for _, limit in sorted(self._limits.items())
            if limit.resources or limit.pod_groups is not None
        )


def cycles(queues: Iterable[Queue]) -> tuple[tuple[str, ...], ...]:
    """Return the cycles among the queues' parents, each as sorted names."""
    graph = nx.DiGraph((queue.name, queue.spec.parent) for queue in queues if queue.spec.parent is not None)
    rings = (part for part in nx.strongly_connected_components(graph))
    return tuple(
        sorted(tuple(sorted(ring)) for ring in rings if len(ring) > 1 or graph.has_edge(*(2 * tuple(ring))))
    )


def without_effect(queues: Iterable[Queue]) -> str:
    """Say in one sentence which settings of queues have no effect yet; "" when none is stated."""
    stated = [
        f"{queue.name} {to_camel(field)}"
        for queue in queues
        for field in WITHOUT_EFFECT
        if field in queue.spec.model_fields_set
    ]
    if not stated:
        return ""
    return (
        f"these settings of queues are checked and have no effect yet: {', '.join(stated)}; "
        "limit and maxRunningPodGroups count"
    )
