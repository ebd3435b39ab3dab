"""The domain fence: the domains of its required levels that a gang may use while it is placed pod by pod.

The first pod of a gang, or of a subGroup, that gets a node determines the domain of the others.
"""

from collections.abc import Iterator

import numpy as np

from batchsched.framework.status import BoolArray, IndexArray
from batchsched.session.joint.formulation import SessionContext, pinned
from batchsched.session.tables.gang import PendingGang
from batchsched.solver.problem import NONE


class DomainFence:
    """The permitted domains of one gang: of its own level at index -1, and of its subGroups from index 0."""

    def __init__(self, domains: IndexArray, levels: dict[int, int], pins: dict[int, int]) -> None:
        self._domains = domains
        self._levels = levels
        self._pins = dict(pins)

    @classmethod
    def of(cls, context: SessionContext, gang: PendingGang) -> "DomainFence":
        """Return the fence of a gang: any domain, except for levels with running pods."""
        group = gang.members.group
        if group is None:  # a single pod has no required level
            return cls(context.levels.domains, {}, {})
        choices = {-1: context.levels.of(group)} | dict(enumerate(context.levels.of_subgroups(group)))
        names = {-1: ""} | {at: sub.name for at, sub in enumerate(group.spec.sub_groups)}
        levels = {at: choice.required for at, choice in choices.items() if choice.required != NONE}
        pins = {at: pinned(context, gang.members, level, names[at]) for at, level in levels.items()}
        return cls(context.levels.domains, levels, pins)

    def allows(self, subgroup: int) -> BoolArray | None:
        """Return [N] the nodes that pods of a subGroup (-1: none) may use; None for all nodes."""
        allowed: BoolArray | None = None
        for at in {-1, subgroup} & set(self._levels):
            domains, pin = self._domains[self._levels[at]], self._pins[at]
            inside = domains >= 0 if pin == NONE else domains == pin
            allowed = inside if allowed is None else allowed & inside
        return allowed

    def enter(self, subgroup: int, node: int) -> None:
        """Restrict the fence to the domains of a node."""
        for at in {-1, subgroup} & set(self._levels):
            self._pins[at] = int(self._domains[self._levels[at]][node])

    def each(self) -> "Iterator[DomainFence]":
        """Yield one fence for each domain of the first level without a determined domain."""
        at = next((at for at in sorted(self._levels) if self._pins[at] == NONE), None)
        if at is None:
            return
        for domain in np.unique(self._domains[self._levels[at]]).tolist():
            if domain >= 0:
                yield DomainFence(self._domains, self._levels, self._pins | {at: domain})
