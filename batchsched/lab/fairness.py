"""The yardstick of fairness: who held how much, and what each was entitled to at that moment.

Every policy is measured with the same one, whatever it divides by itself. The demand-capped fair share of a queue:
first its guarantee, as far as it wants that much; then the surplus goes to siblings by weight, nobody getting more than
wanted (water-filling), from the root downwards. Of it follow

- the fairness error, Σ max(0, fair share - held), as a share of the cluster: what queues miss of what is theirs;
- Jain's index of held ÷ fair share over the queues that want anything: 1 when all get the same part of what is theirs,
  1/n when one of n gets all.

Source: Armada's scheduler simulator, for the error; Jain, Chiu and Hawe, A Quantitative Measure of Fairness and
Discrimination for Resource Allocation in Shared Computer Systems, DEC-TR-301, 1984, for the index.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from batchsched.lab.trial import Floats
from batchsched.model.custom import in_base_units
from batchsched.model.queue import Queue
from batchsched.sim.result import RunResult

_EPSILON: Final = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class Fairness:
    """Q queues over T moments, in shares of the cluster; a moment's figures hold until the next.

    Args:
      resource: what was measured.
      queues: [Q] those that wanted anything, by name.
      times: [T] seconds since 1970, ascending.
      held, wanted, fair: [T, Q] shares of what the cluster has, 0 to 1 but for `wanted`.
    """

    resource: str
    queues: tuple[str, ...]
    times: Floats
    held: Floats
    wanted: Floats
    fair: Floats

    @property
    def error(self) -> Floats:
        """[T] the fairness error."""
        missing: Floats = np.maximum(0.0, self.fair - self.held).sum(axis=1)
        return missing

    @property
    def jain(self) -> Floats:
        """[T] Jain's index; 1 while nobody wants anything."""
        wants = self.wanted > _EPSILON
        got = np.where(wants, self.held / np.maximum(self.fair, _EPSILON), 0.0)
        count = wants.sum(axis=1)
        squares = (got**2).sum(axis=1)
        index = got.sum(axis=1) ** 2 / np.maximum(count * squares, _EPSILON)
        # Where nobody has anything of what is theirs, all are treated alike.
        return np.where(squares > _EPSILON, index, 1.0)


def measure(result: RunResult, queues: Sequence[Queue], resource: str | None = None) -> Fairness:
    """Measure a run.

    Args:
      result: the run.
      queues: the tree; queues that are not in it stand under the root.
      resource: what counts; None: the GPUs that are asked for most, or cpu where none is.
    """
    told = result.queues
    chosen = resource or _most_wanted(result)
    names = tuple(sorted(set(told.queues)))
    times = np.array(sorted(set(told.times)), dtype=np.float64)
    if chosen not in told.resources or not names:
        nothing = np.zeros((len(times), len(names)))
        return Fairness(chosen, names, times, nothing, nothing, nothing)
    at = told.resources.index(chosen)
    rows = np.searchsorted(times, told.times)
    columns = np.searchsorted(names, told.queues)
    held = _filled(rows, columns, [row[at] for row in told.held], (len(times), len(names)))
    wanted = _filled(rows, columns, [row[at] for row in told.wanted], (len(times), len(names)))
    capacity = _capacity(result, chosen, times)
    fair = _Tree(queues, names, chosen).divide(wanted, capacity)
    scale = np.maximum(capacity, 1.0)[:, None]
    return Fairness(chosen, names, times, held / scale, wanted / scale, fair / scale)


def _most_wanted(result: RunResult) -> str:
    told = result.queues
    peaks = dict.fromkeys(told.resources, 0)
    for row in told.wanted:
        for name, amount in zip(told.resources, row, strict=True):
            peaks[name] = max(peaks[name], amount)
    devices = [name for name in told.resources if name.endswith("/gpu") and peaks[name]]
    return max(devices, key=lambda name: peaks[name], default="cpu")


def _filled(rows: object, columns: object, values: Sequence[int], shape: tuple[int, int]) -> Floats:
    """Lay samples out, each holding until the next of its queue; before the first it is 0."""
    laid = np.full(shape, np.nan)
    laid[rows, columns] = values  # type: ignore[index]
    last = np.where(np.isnan(laid), -1, np.arange(shape[0])[:, None])
    last = np.maximum.accumulate(last, axis=0)
    taken = np.take_along_axis(laid, np.maximum(last, 0), axis=0)
    return np.where(last < 0, 0.0, taken)


def _capacity(result: RunResult, resource: str, times: Floats) -> Floats:
    series = result.series
    total = np.array(series.total[resource], dtype=np.float64)
    at = np.searchsorted(np.array(series.times, dtype=np.float64), times, side="right") - 1
    return total[np.maximum(at, 0)]


class _Tree:
    """Queues under their parents, and what they may have of one resource."""

    def __init__(self, queues: Sequence[Queue], names: Sequence[str], resource: str) -> None:
        self._columns = {name: at for at, name in enumerate(names)}
        self._resource = resource
        self._queues = {queue.name: queue for queue in queues}
        self._children: dict[str | None, list[str]] = {}
        for queue in queues:
            parent = queue.spec.parent if queue.spec.parent in self._queues else None
            self._children.setdefault(parent, []).append(queue.name)
        self._children.setdefault(None, []).extend(name for name in names if name not in self._queues)

    def divide(self, wanted: Floats, capacity: Floats) -> Floats:
        """[T, Q] fair shares in base units, of [T, Q] demands and [T] capacities."""
        fair = np.zeros_like(wanted)
        demands: dict[str, Floats] = {}
        for name in self._children[None]:
            self._demand(name, wanted, demands)
        self._hand_down(None, capacity, demands, fair)
        return fair

    def _demand(self, name: str, wanted: Floats, demands: dict[str, Floats]) -> None:
        own = self._own(name, wanted)
        for child in self._children.get(name, ()):
            self._demand(child, wanted, demands)
            own = own + demands[child]
        demands[name] = np.minimum(own, self._amount(name, "limit", np.inf))

    def _own(self, name: str, wanted: Floats) -> Floats:
        at = self._columns.get(name)
        nothing: Floats = np.zeros(len(wanted))
        return nothing if at is None else wanted[:, at]

    def _hand_down(
        self, parent: str | None, budget: Floats, demands: Mapping[str, Floats], fair: Floats
    ) -> None:
        names = self._children.get(parent, [])
        if not names:
            return
        wants = np.stack([demands[name] for name in names], axis=1)
        guarantee = np.array([self._amount(name, "guarantee", 0.0) for name in names])
        lending = np.array([self._amount(name, "lending_limit", np.inf) for name in names])
        borrowing = np.array([self._amount(name, "borrowing_limit", np.inf) for name in names])
        weights = np.array([self._weight(name) for name in names])
        # Guarantees that add up to more than there is are met in part, all in the same one.
        scale = np.minimum(1.0, budget / max(guarantee.sum(), _EPSILON))
        promised = guarantee[None, :] * scale[:, None]
        wants = np.minimum(wants, promised + borrowing[None, :])
        base = np.minimum(wants, promised)
        kept = np.maximum(base, np.minimum(promised, np.maximum(0.0, guarantee - lending)[None, :]))
        shares = base + water_filled(wants - base, weights, budget - kept.sum(axis=1))
        for at, name in enumerate(names):
            column = self._columns.get(name)
            below = shares[:, at]
            if column is not None:
                # What is left of a queue's share when its children have theirs is for its own gangs.
                deeper = sum((demands[child] for child in self._children.get(name, ())), np.zeros(len(below)))
                fair[:, column] = np.maximum(0.0, below - deeper)
                below = below - fair[:, column]
            self._hand_down(name, below, demands, fair)

    def _amount(self, name: str, field: str, default: float) -> float:
        queue = self._queues.get(name)
        stated = in_base_units(getattr(queue.spec, field)) if queue is not None else {}
        return float(stated.get(self._resource, default))

    def _weight(self, name: str) -> float:
        queue = self._queues.get(name)
        return queue.spec.weight if queue is not None else 1.0


def water_filled(caps: Floats, weights: Floats, budget: Floats) -> Floats:
    """Divide budgets by weight, nobody getting more than a cap.

    Args:
      caps: [T, C] the most that each may get.
      weights: [C] not negative; who has none gets nothing.
      budget: [T] what there is.

    Returns:
      [T, C]: min(cap, weight · λ), λ so that the budget is used up or everyone is full.
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
    # With everyone full the last level holds; padding makes the look-up legal.
    used = np.concatenate([below, full.sum(axis=1, keepdims=True)], axis=1)
    left = np.concatenate([rest, np.zeros((len(rest), 1))], axis=1)
    rows = np.arange(len(caps))
    weight_left = left[rows, count]
    level = np.where(
        weight_left > 0,
        (np.maximum(budget, 0.0) - used[rows, count]) / np.maximum(weight_left, _EPSILON),
        np.inf,
    )
    with np.errstate(invalid="ignore"):
        poured = np.where(weights > 0, weights * level[:, None], 0.0)
    return np.minimum(caps, poured)
