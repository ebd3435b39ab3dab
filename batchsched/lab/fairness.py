"""Measures fairness: compares at each time what each queue used with its fair share at that time.

All policies are measured by the same definition, which shares no code with the scheduler. The demand-capped fair
share of a queue is computed from the root of the tree downwards. It is first the guarantee, up to the demand of the
queue. Then the surplus is divided among siblings by weight, up to their demand (water-filling). Two figures follow:

- The fairness error, Σ max(0, fair share - held), as a fraction of the cluster: the total deficit of the queues.
- Jain's index of held ÷ fair share over the queues with demand: 1 if all queues get the same fraction of their fair
  share, 1/n if one of n queues gets everything.

Source: Armada's scheduler simulator, for the error; Jain, Chiu and Hawe, A Quantitative Measure of Fairness and
Discrimination for Resource Allocation in Shared Computer Systems, DEC-TR-301, 1984, for the index.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from batchsched.api.crd.base import parse_quantities_in_base_units
from batchsched.api.crd.queue import Queue
from batchsched.lab.run_columns import Floats
from batchsched.simulator.result import RunResult

_EPSILON: Final = 1e-12
_ROOT: Final = ""
_OWN: Final = "/"
"""Suffix for the row of the own gangs of a queue with children. Names of queues cannot contain it."""


@dataclass(frozen=True, slots=True, eq=False)
class QueueShareSeries:
    """The usage, the requests and the fair shares of Q queues at T times, as fractions of the capacity.

    A value is valid until the following time.

    Args:
      resource: The resource that was measured.
      queues: [Q] names of the queues with demand, sorted.
      times: [T] seconds since 1970, ascending.
      held, requested, fair: [T, Q] fractions of the capacity; only `requested` may exceed 1.
    """

    resource: str
    queues: tuple[str, ...]
    times: Floats
    held: Floats
    requested: Floats
    fair: Floats

    @property
    def fairness_error_over_time(self) -> Floats:
        """The fairness error at each time [T]: the sum of what each queue lacks of its fair share."""
        missing: Floats = np.maximum(0.0, self.fair - self.held).sum(axis=1)
        return missing

    @property
    def jain_index_over_time(self) -> Floats:
        """Jain's fairness index at each time [T]: 1 if all queues use the same fraction of their fair shares.

        Only queues that request resources at that time count. The index is also 1 if no queue uses anything.
        """
        wants = self.requested > _EPSILON
        got = np.where(wants, self.held / np.maximum(self.fair, _EPSILON), 0.0)
        count = wants.sum(axis=1)
        squares = (got**2).sum(axis=1)
        index = got.sum(axis=1) ** 2 / np.maximum(count * squares, _EPSILON)
        # If no queue holds anything, all queues are treated equally.
        return np.where(squares > _EPSILON, index, 1.0)


def measure_queue_shares(
    result: RunResult, queues: Sequence[Queue], resource: str | None = None
) -> QueueShareSeries:
    """Return the usage and the fair share of each queue over the time of a run, for one resource.

    Args:
      result: The run.
      queues: The queue tree; other queues are children of the root.
      resource: The resource to measure; None selects the most requested GPU resource, or cpu if there is none.
    """
    series = result.queues
    chosen = resource or _most_wanted(result)
    names = tuple(sorted(set(series.queues)))
    times = np.array(sorted(set(series.times)), dtype=np.float64)
    if chosen not in series.resources or not names:
        nothing = np.zeros((len(times), len(names)))
        return QueueShareSeries(chosen, names, times, nothing, nothing, nothing)
    resource_index = series.resources.index(chosen)
    rows = np.searchsorted(times, series.times)
    columns = np.searchsorted(names, series.queues)
    held = _hold_samples(
        rows, columns, [row[resource_index] for row in series.held], (len(times), len(names))
    )
    demand = _hold_samples(
        rows, columns, [row[resource_index] for row in series.requested], (len(times), len(names))
    )
    capacity = _capacity(result, chosen, times)
    fair = _Tree(queues, names, chosen).fair_shares(demand, capacity)
    scale = np.maximum(capacity, 1.0)[:, None]
    return QueueShareSeries(chosen, names, times, held / scale, demand / scale, fair / scale)


def _most_wanted(result: RunResult) -> str:
    series = result.queues
    peaks = dict.fromkeys(series.resources, 0)
    for row in series.requested:
        for name, amount in zip(series.resources, row, strict=True):
            peaks[name] = max(peaks[name], amount)
    devices = [name for name in series.resources if name.endswith("/gpu") and peaks[name]]
    return max(devices, key=lambda name: peaks[name], default="cpu")


def _hold_samples(rows: object, columns: object, values: Sequence[int], shape: tuple[int, int]) -> Floats:
    """Spread samples over all times. Each value holds until the next sample of its queue; before the first it is 0."""
    laid = np.full(shape, np.nan)
    laid[rows, columns] = values  # type: ignore[index]
    last = np.where(np.isnan(laid), -1, np.arange(shape[0])[:, None])
    last = np.maximum.accumulate(last, axis=0)
    taken = np.take_along_axis(laid, np.maximum(last, 0), axis=0)
    return np.where(last < 0, 0.0, taken)


def _capacity(result: RunResult, resource: str, times: Floats) -> Floats:
    series = result.series
    total = np.array(series.total[resource], dtype=np.float64)
    index = np.searchsorted(np.array(series.times, dtype=np.float64), times, side="right") - 1
    return total[np.maximum(index, 0)]


class _Tree:
    """The queue tree and the fair shares in it, for one resource at T times.

    The own gangs of a queue with children count as one more child with weight 1. The guarantee of a queue without one
    is the sum of its children's. If the guarantees of children exceed their parent's, they are scaled down.
    """

    def __init__(self, queues: Sequence[Queue], names: Sequence[str], resource: str) -> None:
        self._resource = resource
        self._specs = {queue.name: queue.spec for queue in queues}
        below: dict[str, list[str]] = {}
        for name in sorted({*self._specs, *names}):
            below.setdefault(self._parent(name), []).append(name)
        self._rows = [_ROOT]
        """Rows of the tree, parents before their children, the root first."""
        self._children: list[list[int]] = []
        self._column: dict[int, int] = {}
        """Column of the demand for each row that has gangs of its own."""
        columns = {name: index for index, name in enumerate(names)}
        for name in self._rows:
            children = [
                *below.get(name, ()),
                *([f"{name}{_OWN}"] if name in below and name in columns else ()),
            ]
            self._children.append([len(self._rows) + index for index in range(len(children))])
            self._rows.extend(children)
        for row, name in enumerate(self._rows):
            queue = name.removesuffix(_OWN)
            if queue in columns and (queue != name or not self._children[row]):
                self._column[row] = columns[queue]

    def fair_shares(self, demand: Floats, capacity: Floats) -> Floats:
        """Return the fair shares [T, Q] of Q queues at T times, from their demands [T, Q] and the capacities [T].

        A fair share is at most the demand of the queue. All amounts are in base units.
        """
        guarantee = self._guarantees(capacity)
        floor, ceiling = self._bounds(demand, guarantee)
        share = floor.copy()
        share[:, 0] = capacity
        fair = np.zeros_like(demand)
        for row, children in enumerate(self._children):
            if children:
                surplus = np.maximum(0.0, share[:, row] - floor[:, children].sum(axis=1))
                weights = np.array([self._weight(child) for child in children])
                share[:, children] += _by_weight(ceiling[:, children] - floor[:, children], weights, surplus)
            if row in self._column:
                column = self._column[row]
                # An unused guarantee that is not lent belongs to its queue but is no deficit.
                fair[:, column] = np.minimum(share[:, row], demand[:, column])
        return fair

    def _guarantees(self, capacity: Floats) -> Floats:
        """Return the guarantee of each queue [T, rows], within its limit.

        If the guarantees of child queues exceed that of their parent, they are scaled down.
        """
        limit = self._amounts("limit", np.inf)
        amounts = self._amounts("guarantee", np.nan)
        summed = np.zeros(len(amounts))
        for row in reversed(range(len(amounts))):
            backed = sum(min(summed[child], limit[child]) for child in self._children[row])
            summed[row] = backed if np.isnan(amounts[row]) else amounts[row]
        guarantees = np.repeat(np.minimum(summed, limit)[None, :], len(capacity), axis=0)
        guarantees[:, 0] = capacity
        for row, children in enumerate(self._children):
            claimed = guarantees[:, children].sum(axis=1)
            part = np.minimum(1.0, guarantees[:, row] / np.maximum(claimed, _EPSILON))
            guarantees[:, children] *= part[:, None]
        return guarantees

    def _bounds(self, demand: Floats, guarantee: Floats) -> tuple[Floats, Floats]:
        """Return each queue's share before the surplus is divided, and its maximum share, both [T, rows]."""
        limit, lending = self._amounts("limit", np.inf), self._amounts("lending_limit", np.inf)
        most = np.minimum(limit, guarantee + self._amounts("borrowing_limit", np.inf))
        floor, ceiling, kept = np.zeros((3, *guarantee.shape))
        for row in reversed(range(1, len(self._rows))):
            children = self._children[row]
            wants = demand[:, self._column[row]] if row in self._column else ceiling[:, children].sum(axis=1)
            lent = np.maximum(0.0, guarantee[:, row] - kept[:, children].sum(axis=1))
            kept[:, row] = np.maximum(0.0, lent - lending[row])
            least = np.maximum(np.maximum(wants, kept[:, row]), floor[:, children].sum(axis=1))
            floor[:, row] = np.minimum(guarantee[:, row], least)
            ceiling[:, row] = np.maximum(np.minimum(wants, most[:, row]), floor[:, row])
        return floor, ceiling

    def _amounts(self, field: str, default: float) -> Floats:
        """Return the amount that each queue [rows] states in a field of its spec, or a default."""
        amounts = np.full(len(self._rows), default)
        for row, name in enumerate(self._rows):
            if name in self._specs:
                amounts[row] = parse_quantities_in_base_units(getattr(self._specs[name], field)).get(
                    self._resource, default
                )
        return amounts

    def _parent(self, name: str) -> str:
        parent = self._specs[name].parent if name in self._specs else None
        return parent if parent in self._specs else _ROOT

    def _weight(self, row: int) -> float:
        spec = self._specs.get(self._rows[row])
        return spec.weight if spec is not None else 1.0


def _by_weight(caps: Floats, weights: Floats, budget: Floats) -> Floats:
    """Divide a budget among the queues with a weight, and the rest equally among the queues without one."""
    poured = water_fill(caps, weights, budget)
    if (weights > 0).all():
        return poured
    return poured + water_fill(caps, np.where(weights > 0, 0.0, 1.0), budget - poured.sum(axis=1))


def water_fill(caps: Floats, weights: Floats, budget: Floats) -> Floats:
    """Divide each of T amounts among C recipients in proportion to their weights, up to each one's maximum.

    Args:
      caps: [T, C] the maximum for each recipient.
      weights: [C] not negative; a recipient with weight 0 gets nothing.
      budget: [T] the amounts to divide.

    Returns:
      [T, C]: min(cap, weight · λ), where λ uses up the budget or reaches all caps.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        levels = np.where(weights > 0, caps / weights, np.inf)
    order = np.argsort(levels, axis=1, kind="stable")
    levels = np.take_along_axis(levels, order, axis=1)
    heavy = weights[order]
    full = np.where(np.isfinite(levels), np.take_along_axis(caps, order, axis=1), 0.0)
    below = np.cumsum(full, axis=1) - full
    rest = np.cumsum(heavy[:, ::-1], axis=1)[:, ::-1]
    needed = np.where(np.isfinite(levels), below + np.where(np.isfinite(levels), levels, 0.0) * rest, np.inf)
    count = (needed <= np.maximum(budget, 0.0)[:, None]).sum(axis=1)
    # If all caps are reached, the last level holds; the padding keeps the index in range.
    used = np.concatenate([below, full.sum(axis=1, keepdims=True)], axis=1)
    padded = np.concatenate([rest, np.zeros((len(rest), 1))], axis=1)
    rows = np.arange(len(caps))
    weight_left = padded[rows, count]
    level = np.where(
        weight_left > 0,
        (np.maximum(budget, 0.0) - used[rows, count]) / np.maximum(weight_left, _EPSILON),
        np.inf,
    )
    with np.errstate(invalid="ignore"):
        poured = np.where(weights > 0, weights * level[:, None], 0.0)
    return np.minimum(caps, poured)
