"""The queue tree laid out as `QueueTable`, and the policy of every row.

    lay_out(tree, Capacity(resources, amounts, weighed), Load(usage, request, history)) -> Shares
    policies_of(shares, default, chosen) -> [Q] policies: that of row q divides among its children

A queue's own amounts go in by its name; parents' sums come out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from batchsched.api.crd.base import in_base_units
from batchsched.api.crd.podgroup import DEFAULT_QUEUE
from batchsched.api.crd.queue import QueueSpec
from batchsched.queues.gang_order.policy import FloatArray, IntArray
from batchsched.queues.queue_table import OWN, ROOT, QueueTable
from batchsched.queues.sharing.policy import FairnessPolicy
from batchsched.queues.sharing.sibling_queues import UNLIMITED, BoolArray
from batchsched.queues.tree import QueueTree

Number = TypeVar("Number", np.int64, np.float64)
_PLAIN = QueueSpec()


@dataclass(frozen=True, slots=True, eq=False)
class TotalCapacity:
    """What the cluster has.

    Args:
      resources: R names.
      amounts: [R] of all nodes together, in base units.
      weighed: [R] the resources by which shares are measured; limits and guarantees hold for all.
    """

    resources: tuple[str, ...]
    amounts: IntArray
    weighed: BoolArray


@dataclass(frozen=True, slots=True, eq=False)
class QueueDemand:
    """What queues have and want of their own, without their children's; a queue that is not named has none.

    Args:
      usage: by queue [R], what its pods have, in base units.
      request: by queue [R], what its pods have and what waits in it.
      history: by queue [R], decayed usage of its pods in base units.
    """

    usage: Mapping[str, IntArray]
    request: Mapping[str, IntArray]
    history: Mapping[str, FloatArray] = field(default_factory=dict)


class _Rows:
    """Names, parents and settings of all rows, level by level."""

    def __init__(self, tree: QueueTree, busy: frozenset[str]) -> None:
        self.names, self.parent, self.specs = [ROOT], [-1], [_PLAIN]
        below: dict[str, list[str]] = {}
        for name in sorted({*tree.queues, DEFAULT_QUEUE}):
            spec = tree.queues[name].spec if name in tree.queues else _PLAIN
            below.setdefault(spec.parent or ROOT, []).append(name)
        at = 0
        while at < len(self.names):
            name = self.names[at]
            children = below.get(name, [])
            for child in children:
                self._add(child, at, tree.queues[child].spec if child in tree.queues else _PLAIN)
            if children and name in busy and name != ROOT:
                self._add(f"{name}{OWN}", at, _PLAIN)
            at += 1
        self.row = {name: row for row, name in enumerate(self.names)}

    def _add(self, name: str, parent: int, spec: QueueSpec) -> None:
        self.names.append(name)
        self.parent.append(parent)
        self.specs.append(spec)


def lay_out(tree: QueueTree, capacity: TotalCapacity, load: QueueDemand) -> QueueTable:
    """Lay out the queues; what a queue's own pods hold and want is given by its name.

    Args:
      tree: the queues.
      capacity: what the nodes have.
      load: what queues have and want. Queues that do not exist are passed over.
    """
    rows = _Rows(tree, frozenset(load.usage) | frozenset(load.request) | frozenset(load.history))
    count, width = len(rows.names), len(capacity.resources)
    column = {name: at for at, name in enumerate(capacity.resources)}
    amounts = {
        "guarantee": np.zeros((count, width), np.int64),
        "limit": np.full((count, width), UNLIMITED, np.int64),
        "lending_limit": np.full((count, width), UNLIMITED, np.int64),
        "borrowing_limit": np.full((count, width), UNLIMITED, np.int64),
    }
    stated = np.zeros((count, width), np.bool_)
    for row, spec in enumerate(rows.specs):
        if spec is _PLAIN:
            continue
        for setting, into in amounts.items():
            for resource, amount in in_base_units(getattr(spec, setting)).items():
                if resource in column:
                    into[row, column[resource]] = min(amount, UNLIMITED)
                    stated[row, column[resource]] |= setting == "guarantee"
    shares = QueueTable(
        names=tuple(rows.names),
        parent=np.array(rows.parent, np.int64),
        guarantee=amounts["guarantee"],
        limit=amounts["limit"],
        lending=amounts["lending_limit"],
        borrowing=amounts["borrowing_limit"],
        weight=np.array([spec.weight for spec in rows.specs]),
        priority=np.array([spec.priority for spec in rows.specs], np.int64),
        usage=_own(rows, load.usage, np.zeros((count, width), np.int64)),
        request=_own(rows, load.request, np.zeros((count, width), np.int64)),
        history=_own(rows, load.history, np.zeros((count, width))),
        capacity=capacity.amounts,
        weighed=capacity.weighed,
    )
    _add_up(shares, stated)
    return shares


def policies_of(
    shares: QueueTable, default: FairnessPolicy, chosen: Mapping[str, FairnessPolicy]
) -> tuple[FairnessPolicy, ...]:
    """Return the policy of every row: the queue's own, else its parent's, and `default` at the root.

    Args:
      shares: the rows.
      default: for the queues without a parent.
      chosen: the policies that queues state, made, by the queue's name.
    """
    found: list[FairnessPolicy] = []
    for row, name in enumerate(shares.names):
        inherited = found[int(shares.parent[row])] if row else default
        found.append(chosen.get(name, inherited))
    return tuple(found)


def _own(rows: _Rows, given: Mapping[str, NDArray[Number]], into: NDArray[Number]) -> NDArray[Number]:
    for name, amount in given.items():
        row = rows.row.get(f"{name}{OWN}", rows.row.get(name))
        if row is not None:
            into[row] += amount
    return into


def _add_up(shares: QueueTable, stated: BoolArray) -> None:
    """Sum up to the root: use, requests as far as limits allow, guarantees where a queue states none."""
    for level in reversed(shares.levels()):
        parents = shares.parent[level]
        np.add.at(shares.usage, parents, shares.usage[level])
        np.add.at(shares.history, parents, shares.history[level])
        np.add.at(shares.request, parents, np.minimum(shares.request[level], shares.limit[level]))
        backed = np.zeros_like(shares.guarantee)
        np.add.at(backed, parents, np.minimum(shares.guarantee[level], shares.limit[level]))
        shares.guarantee[:] = np.where(stated, shares.guarantee, np.maximum(shares.guarantee, backed))
