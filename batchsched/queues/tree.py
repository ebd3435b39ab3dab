"""The queue tree: who stands under whom, and what every ancestor allows.

networkx holds the tree and finds its cycles; what the session needs often is read off once, by name.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from batchsched.api.crd.base import in_base_units
from batchsched.api.crd.podgroup import DEFAULT_QUEUE
from batchsched.api.crd.queue import Queue, QueueSpec
from batchsched.errors import InvalidInput

ENTITLING: Final = frozenset({"guarantee", "weight", "priority", "policy"})
"""Settings of a Queue by which capacity is divided; without any of them queues are entitled to nothing."""


@dataclass(frozen=True, slots=True)
class QueueLimit:
    """What one queue allows in its subtree, to all or to one user; or what it allows to others.

    Args:
      name: of the queue.
      resources: limits in base units; a resource that is not named has none.
      pod_groups: how many PodGroups may run, or None.
      user: who is limited, "" for everybody together.
      kept: of the guarantees of which queues this keeps what they do not lend: it holds for everybody outside
        their subtrees; none for a limit on the queue itself.
    """

    name: str
    resources: Mapping[str, int]
    pod_groups: int | None = None
    user: str = ""
    kept: tuple[str, ...] = ()


class QueueTree:
    """Queues by name, with their ancestors. The queue `default` exists without being made."""

    def __init__(self, queues: Iterable[Queue]) -> None:
        self._queues = {queue.name: queue for queue in queues}
        self._limits = {
            name: QueueLimit(name, _at_most(queue.spec), queue.spec.max_running_pod_groups)
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
    def entitles(self) -> bool:
        """True when some queue states what divides capacity between queues."""
        return any(ENTITLING & queue.spec.model_fields_set for queue in self._queues.values())

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

    def limits(self, users: Iterable[tuple[str, str]] = ()) -> tuple[QueueLimit, ...]:
        """Return all that queues limit, by name.

        Args:
          users: (queue, user) of whoever has pods or wants them.
        """
        plain = (one for one in self._limits.values() if one.resources or one.pod_groups is not None)
        return tuple(
            sorted(
                (*plain, *self._of_users(users), *self._of_others()),
                key=lambda one: (one.name, one.kept, one.user),
            )
        )

    def _of_users(self, users: Iterable[tuple[str, str]]) -> Iterable[QueueLimit]:
        if not any(queue.spec.user_limits for queue in self._queues.values()):
            return
        above = {(name, user) for queue, user in users if user for name in self.ancestry(queue)}
        for name, user in sorted(above):
            queue = self._queues.get(name)
            if queue is not None and queue.spec.user_limits:
                yield QueueLimit(name, in_base_units(queue.spec.user_limits), user=user)

    def _of_others(self) -> Iterable[QueueLimit]:
        kept = {name: found for name, queue in sorted(self._queues.items()) if (found := _kept(queue.spec))}
        for name, amounts in kept.items():
            yield QueueLimit(name, amounts, kept=(name,))
        highest = tuple(name for name in kept if not kept.keys() & set(self.ancestry(name)[1:]))
        if len(highest) > 1:
            together: Counter[str] = Counter()
            for name in highest:
                together.update(kept[name])
            yield QueueLimit(", ".join(highest), together, kept=highest)


def _at_most(spec: QueueSpec) -> dict[str, int]:
    """By resource, what a queue may use: its limit, and no more above its guarantee than it may borrow."""
    most, guarantee = dict(in_base_units(spec.limit)), in_base_units(spec.guarantee)
    for resource, borrowed in in_base_units(spec.borrowing_limit).items():
        bound = guarantee.get(resource, 0) + borrowed
        most[resource] = min(most.get(resource, bound), bound)
    return most


def _kept(spec: QueueSpec) -> dict[str, int]:
    """By resource, how much of its guarantee a queue does not lend, where that is something."""
    guarantee = in_base_units(spec.guarantee)
    lending = in_base_units(spec.lending_limit)
    return {one: guarantee[one] - lent for one, lent in lending.items() if lent < guarantee[one]}


def cycles(queues: Iterable[Queue]) -> tuple[tuple[str, ...], ...]:
    """Return the cycles among the queues' parents, each as sorted names."""
    edges = [(queue.name, queue.spec.parent) for queue in queues if queue.spec.parent is not None]
    if not edges:
        return ()
    import networkx as nx  # 20 MiB that a cluster without a tree of queues does without

    graph = nx.DiGraph(edges)
    rings = (part for part in nx.strongly_connected_components(graph))
    return tuple(
        sorted(tuple(sorted(ring)) for ring in rings if len(ring) > 1 or graph.has_edge(*(2 * tuple(ring))))
    )
