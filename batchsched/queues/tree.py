"""The queue tree: parents, children, and the limits of every ancestor.

networkx holds the tree and finds its cycles. Relations that a session needs often are computed once.

Inconsistent settings are reported by `find_inconsistent_settings`: guarantees above the parent's, and resources that
no node offers. Such a queue still takes part in sessions; the excess has no effect. Parents that do not exist and
cycles are reported by `api.crd.validation`.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pydantic.alias_generators import to_camel

from batchsched.api.crd.base import parse_quantities_in_base_units
from batchsched.api.crd.podgroup import DEFAULT_QUEUE
from batchsched.api.crd.queue import Queue, QueueSpec
from batchsched.api.crd.validation import suggest_name
from batchsched.api.decision import SetAside
from batchsched.errors import InvalidInput

ENTITLING: Final = frozenset({"guarantee", "weight", "priority", "policy"})
"""Fields of a Queue that divide capacity. If no queue sets one of them, queues have no entitlements."""


NO_USER: Final = "(none)"
"""Stands for the pods without a user, which count together as one user; no value of a label contains a bracket."""


@dataclass(frozen=True, slots=True)
class QueueLimit:
    """A limit on the usage of a queue or of one of its users, or, for a kept guarantee, of all other queues.

    The usage of a queue includes the usage of its descendants. A limit on all other queues protects kept guarantees:
    guarantees that their queues do not lend.

    Args:
      name: name of the queue.
      resources: limits in base units; a resource that is absent is unlimited.
      pod_groups: maximum number of running PodGroups, or None.
      user: the user that the limit applies to, NO_USER for all pods without a user, "" for all pods together.
      kept: names of the queues with unlent guarantees that the limit protects; it then applies to all queues outside
        their subtrees. Empty for a limit on the queue itself.
      bound_by_borrowing: the resources that guarantee and borrowingLimit restrict more than the field `limit`.
    """

    name: str
    resources: Mapping[str, int]
    pod_groups: int | None = None
    user: str = ""
    kept: tuple[str, ...] = ()
    bound_by_borrowing: frozenset[str] = frozenset()

    def limiting_setting(self, resources: Collection[str]) -> str:
        """Return which setting limits the given resources: `limit`, or guarantee plus borrowing limit.

        The text, for messages, is `limit` or `guarantee plus borrowingLimit`.
        """
        by_borrowing = self.bound_by_borrowing.issuperset(resources)
        return "guarantee plus borrowingLimit" if by_borrowing else "limit"


class QueueTree:
    """The tree of all queues: it finds a queue's ancestors and the limits that queues impose.

    The queue `default` exists without a Queue object.
    """

    def __init__(self, queues: Iterable[Queue]) -> None:
        self._queues = {queue.name: queue for queue in queues}
        for name, queue in self._queues.items():
            if queue.spec.parent is not None and queue.spec.parent not in self:
                raise InvalidInput(
                    f"no queue is named {queue.spec.parent!r}", object=f"Queue {name}", field="spec.parent"
                )
        if find_cycles(self._queues.values()):
            raise InvalidInput("the queues form a cycle", object="Queue", field="spec.parent")
        self._guarantees = self._add_up_guarantees()
        self._limits = {
            name: _limit_of_subtree(name, queue.spec, self._guarantees[name])
            for name, queue in self._queues.items()
        }

    def _add_up_guarantees(self) -> dict[str, dict[str, int]]:
        guarantees: dict[str, dict[str, int]] = {}
        of_children: defaultdict[str | None, Counter[str]] = defaultdict(Counter)
        depths = {name: len(self.queue_and_ancestors(name)) for name in (DEFAULT_QUEUE, *self._queues)}
        # The deepest queues first: a queue comes after all its children.
        for name in sorted(depths, key=depths.__getitem__, reverse=True):
            spec = self._queues[name].spec if name in self._queues else QueueSpec()
            guarantees[name] = {**of_children[name], **parse_quantities_in_base_units(spec.guarantee)}
            limit = parse_quantities_in_base_units(spec.limit)
            for resource, amount in guarantees[name].items():
                of_children[spec.parent][resource] += min(amount, limit.get(resource, amount))
        return guarantees

    @property
    def guarantees(self) -> Mapping[str, Mapping[str, int]]:
        """The guarantee of each queue by resource, in base units, before it is scaled down to that of its parent.

        For a resource without a guarantee of its own, a queue has the sum of the guarantees of its children, each up to
        the limit of the child.
        """
        return self._guarantees

    @property
    def has_entitlements(self) -> bool:
        """True if any queue sets a field that divides capacity among queues, such as a guarantee."""
        return any(ENTITLING & queue.spec.model_fields_set for queue in self._queues.values())

    @property
    def queues(self) -> Mapping[str, Queue]:
        """The Queue objects by name."""
        return self._queues

    def __contains__(self, name: str) -> bool:
        """Return whether a queue exists."""
        return name in self._queues or name == DEFAULT_QUEUE

    def queue_and_ancestors(self, name: str) -> tuple[str, ...]:
        """Return the names of a queue and of its ancestors, from the queue up to the root of the tree."""
        chain = []
        current: str | None = name
        while current is not None:
            chain.append(current)
            queue = self._queues.get(current)
            current = queue.spec.parent if queue else None
        return tuple(chain)

    def find_queue_with_user_limits(self, name: str) -> str:
        """Return the name of the nearest queue with `userLimits` among a queue and its ancestors; "" if none."""
        limiting = (
            queue
            for queue in self.queue_and_ancestors(name)
            if queue in self._queues and self._queues[queue].spec.user_limits
        )
        return next(limiting, "")

    def inherited_max_min_runtime_seconds(self, name: str) -> int | None:
        """Return maxMinRuntimeSeconds of a queue, or of the nearest ancestor that sets it; None if none does."""
        maximums = (
            self._queues[queue].spec.max_min_runtime_seconds
            for queue in self.queue_and_ancestors(name)
            if queue in self._queues
        )
        return next((seconds for seconds in maximums if seconds is not None), None)

    @property
    def has_kept_guarantees(self) -> bool:
        """True if any queue sets `lendingLimit`, so that it may keep a part of its guarantee for itself."""
        return any(queue.spec.lending_limit for queue in self._queues.values())

    def limits(
        self, users: Iterable[tuple[str, str]] = (), kept: Mapping[str, Mapping[str, int]] | None = None
    ) -> tuple[QueueLimit, ...]:
        """Return all limits on usage that queues impose, ordered by the name of the queue.

        Args:
          users: the pairs of a queue and a user that have bound or pending pods.
          kept: by queue and resource, the kept guarantees. They depend on the capacity of the cluster, by which
            guarantees are scaled down; see `entitlements.kept_guarantees`.
        """
        plain = (limit for limit in self._limits.values() if limit.resources or limit.pod_groups is not None)
        return tuple(
            sorted(
                (*plain, *self._of_users(users), *self._of_others(kept or {})),
                key=lambda limit: (limit.name, limit.kept, limit.user),
            )
        )

    def _of_users(self, users: Iterable[tuple[str, str]]) -> Iterable[QueueLimit]:
        if not any(queue.spec.user_limits for queue in self._queues.values()):
            return
        # Without a limit of their own, pods without the label would evade the limit.
        above = {(name, user or NO_USER) for queue, user in users for name in self.queue_and_ancestors(queue)}
        for name, user in sorted(above):
            queue = self._queues.get(name)
            if queue is not None and queue.spec.user_limits:
                yield QueueLimit(name, parse_quantities_in_base_units(queue.spec.user_limits), user=user)

    def _of_others(self, kept: Mapping[str, Mapping[str, int]]) -> Iterable[QueueLimit]:
        for name, amounts in kept.items():
            yield QueueLimit(name, amounts, kept=(name,))
        highest = tuple(
            name for name in sorted(kept) if not kept.keys() & set(self.queue_and_ancestors(name)[1:])
        )
        if len(highest) > 1:
            together: Counter[str] = Counter()
            for name in highest:
                together.update(kept[name])
            yield QueueLimit(", ".join(highest), together, kept=highest)


def _limit_of_subtree(name: str, spec: QueueSpec, guarantee: Mapping[str, int]) -> QueueLimit:
    """Return the maximum usage of a queue by resource: its limit, and its guarantee plus its borrowing limit."""
    most = dict(parse_quantities_in_base_units(spec.limit))
    bound_by_borrowing: set[str] = set()
    for resource, borrowed in parse_quantities_in_base_units(spec.borrowing_limit).items():
        bound = guarantee.get(resource, 0) + borrowed
        if resource not in most or bound < most[resource]:
            most[resource] = bound
            bound_by_borrowing.add(resource)
    return QueueLimit(
        name, most, spec.max_running_pod_groups, bound_by_borrowing=frozenset(bound_by_borrowing)
    )


def find_cycles(queues: Iterable[Queue]) -> tuple[tuple[str, ...], ...]:
    """Return the cycles in the parent relation of queues, each as a sorted tuple of queue names."""
    edges = [(queue.name, queue.spec.parent) for queue in queues if queue.spec.parent is not None]
    if not edges:
        return ()
    import networkx as nx  # 20 MiB that a cluster without a tree of queues does without

    graph = nx.DiGraph(edges)
    rings = (part for part in nx.strongly_connected_components(graph))
    return tuple(
        sorted(tuple(sorted(ring)) for ring in rings if len(ring) > 1 or graph.has_edge(*(2 * tuple(ring))))
    )


AMOUNTS: Final = ("guarantee", "limit", "lending_limit", "borrowing_limit", "user_limits")


def find_inconsistent_settings(tree: QueueTree, resources: Collection[str]) -> tuple[SetAside, ...]:
    """Return all inconsistent queue settings, such as guarantees that together exceed the parent's guarantee.

    Args:
      tree: the queues.
      resources: the resources that nodes offer; if empty, unknown resources are not reported.
    """
    findings: list[SetAside] = []
    guarantees_by_parent: dict[str | None, dict[str, dict[str, int]]] = {}
    for name, queue in sorted(tree.queues.items()):
        guarantees_by_parent.setdefault(queue.spec.parent, {})[name] = parse_quantities_in_base_units(
            queue.spec.guarantee
        )
    for name, queue in sorted(tree.queues.items()):
        findings += _above_the_parents(queue, guarantees_by_parent.get(name, {}))
        if resources:
            findings += _unknown(queue, sorted(resources))
    return tuple(findings)


def _above_the_parents(queue: Queue, children: Mapping[str, Mapping[str, int]]) -> Iterator[SetAside]:
    """Yield queues with children that are guaranteed more than the queue's own guarantee or limit."""
    own, limit = (
        parse_quantities_in_base_units(queue.spec.guarantee),
        parse_quantities_in_base_units(queue.spec.limit),
    )
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
                    f"no node offers {resource!r}; {suggest_name(resource, offered)}",
                )
