"""The amounts that queue limits and plugin constraints still allow while gangs are placed one by one."""

from typing import Final

import numpy as np

from batchsched.solver.objective import (
    count_allowed_pods_by_class,
    count_pods_still_required,
    lower_bound_of_minimum_requests,
)
from batchsched.solver.problem import (
    EVERY_NODE,
    UNLIMITED,
    BoolArray,
    ConstraintRow,
    IndexArray,
    IntArray,
    Problem,
    Sense,
)

_EXACT: Final = 2.0**53
"""Below this, floats add whole numbers without an error."""
_ROUNDING: Final = 1e-9
"""More than the relative error of a larger sum over the pods of a session."""


def limits_each_node_separately(row: ConstraintRow) -> bool:
    """Tell whether a plugin's constraint is an upper limit for each node by itself, like the capacity of a node."""
    return (
        row.partition == EVERY_NODE
        and row.sense is Sense.AT_MOST
        and row.gangs.size == 0
        and row.on_second_side is None
        and bool((row.coefficients >= 0).all())
    )


class RemainingQuotas:
    """The amounts that each queue limit still allows while gangs are placed and placements are undone."""

    def __init__(self, problem: Problem) -> None:
        quota, gang = np.nonzero(problem.quotas.covers)
        self.binding = (
            _binding(problem, quota, gang) if quota.size else np.zeros(len(problem.quotas.gangs), bool)
        )
        self.remaining: list[list[int]] = problem.quotas.free.tolist()
        self.gangs_left: list[int] = problem.quotas.gangs.tolist()
        self._fresh = problem.gangs.fresh
        # Only gangs under a quota that may refuse them ask for the least amounts.
        self._least = lower_bound_of_minimum_requests(problem).tolist() if self.binding.any() else []
        self._of_gang: list[list[int]] = [[] for _ in range(len(problem.gangs.need))]
        kept = self.binding[quota]
        for q, g in zip(quota[kept].tolist(), gang[kept].tolist(), strict=True):
            self._of_gang[g].append(q)

    def is_gang_limited(self, gang: int) -> bool:
        """Tell whether the limit of any queue may prevent the gang from being placed."""
        return bool(self._of_gang[gang])

    def count_admitted_pods(self, gang: int, pod_request: tuple[tuple[int, int], ...], want: int) -> int:
        """Return how many pods of a gang, at most `want`, the limits of its queue and all ancestors admit.

        `pod_request` has a (resource, amount) pair for each resource that one pod requests.
        """
        for q in self._of_gang[gang]:
            remaining = self.remaining[q]
            for r, amount in pod_request:
                if r < len(remaining) and remaining[r] < amount * want:
                    want = max(0, remaining[r] // amount)
        return want

    def deduct_pods(self, gang: int, pod_request: tuple[tuple[int, int], ...], pods: int) -> None:
        """Subtract the requests of a gang's pods from the amounts that its queue limits still allow.

        A negative number of pods undoes the subtraction.
        """
        for q in self._of_gang[gang]:
            remaining = self.remaining[q]
            for r, amount in pod_request:
                if r < len(remaining) and remaining[r] < UNLIMITED:
                    remaining[r] -= amount * pods

    def allows_one_more_running_gang(self, gang: int) -> bool:
        """Tell whether a gang's queue and all ancestors may have one more running gang.

        A gang with running members is counted already.
        """
        return not self._fresh[gang] or all(self.gangs_left[q] > 0 for q in self._of_gang[gang])

    def may_admit_minimum(self, gang: int) -> bool:
        """Return whether queue limits may admit a gang's minimum: False is certain, but True may be wrong.

        True may be wrong, because the limits are compared with the smallest possible requests of the minimum number of
        pods. The caller ensures that no pod of the gang is placed yet.
        """
        return all(
            amount <= 0 or amount <= available
            for q in self._of_gang[gang]
            for amount, available in zip(self._least[gang], self.remaining[q], strict=False)
        )

    def deduct_gang(self, gang: int, sign: int) -> None:
        """Count a gang against queue limits on the number of gangs (sign 1), or undo that (sign -1)."""
        if self._fresh[gang]:
            for q in self._of_gang[gang]:
                if self.gangs_left[q] < UNLIMITED:
                    self.gangs_left[q] -= sign


def _binding(problem: Problem, quota: IntArray, gang: IntArray) -> BoolArray:
    """Which quotas [Q] are exceeded if all gangs are placed that may be. The other quotas never refuse a gang.

    Args:
      problem: the session.
      quota: [M] the quota of each pair of a quota and a gang that it covers.
      gang: [M] the gang of the same pair.
    """
    # In floats, since one gang may request more than 2^63 of a resource.
    pods = count_allowed_pods_by_class(problem).astype(np.float64)
    requests = np.zeros((len(problem.gangs.need), problem.classes.demand.shape[1]))
    np.add.at(requests, problem.classes.gang, problem.classes.demand * pods[:, None])
    together = np.zeros(problem.quotas.free.shape)
    np.add.at(together, quota, requests[gang])
    fresh = problem.gangs.allowed & problem.gangs.fresh & (count_pods_still_required(problem) > 0)
    many = np.bincount(quota, fresh[gang], minlength=len(problem.quotas.gangs))
    # A sum that was rounded down must not switch a quota off.
    together[together >= _EXACT] *= 1 + _ROUNDING
    exceeded: BoolArray = (together > problem.quotas.free).any(axis=1) | (many > problem.quotas.gangs)
    return exceeded


class RowTally:
    """The sums on the left sides of the plugins' linear constraints, updated when pods are placed or removed.

    Constraints that limit each node by itself are left out: they count as resources (`demand_with_plugin_limits`).
    """

    def __init__(self, problem: Problem) -> None:
        self.rows = [row for row in problem.rows if not limits_each_node_separately(row)]
        self.domains = [row.domain_by_node(problem.nodes) for row in self.rows]
        self.left_side = [np.zeros(len(row.right), np.int64) for row in self.rows]
        self._pods_by_side = [_pods_by_side(row) for row in self.rows]
        self._side: dict[tuple[int, int], int] = {}
        """Row with two sides and pod class → the side of the class, 0 or 1."""
        self.of_class: dict[int, list[tuple[int, int]]] = {}
        self.of_gang: dict[int, list[tuple[int, int]]] = {}
        self.touching: dict[int, list[int]] = {}
        for i, row in enumerate(self.rows):
            for c, coefficient in zip(row.classes.tolist(), row.coefficients.tolist(), strict=True):
                self.of_class.setdefault(c, []).append((i, coefficient))
            if row.on_second_side is not None:
                sides = zip(row.classes.tolist(), row.on_second_side.tolist(), strict=True)
                self._side |= {(i, c): int(second) for c, second in sides}
            for j, g in enumerate(row.gangs.tolist()):
                self.of_gang.setdefault(g, []).append((i, j))
            owners = {*problem.classes.gang[row.classes].tolist(), *row.gangs.tolist()}
            for g in owners:
                self.touching.setdefault(g, []).append(i)
        for g in np.flatnonzero(count_pods_still_required(problem) == 0).tolist():
            self.add_placed_gang(g, 1)
        # A row that is violated before anything is placed must only not become more violated.
        self.right = [
            np.maximum(row.right, left_side)
            if row.sense is Sense.AT_MOST
            else np.minimum(row.right, left_side)
            for row, left_side in zip(self.rows, self.left_side, strict=True)
        ]

    def add_placed_gang(self, gang: int, sign: int) -> None:
        """Count a gang as placed in the plugin constraints that name it (sign 1), or undo that (sign -1)."""
        for i, j in self.of_gang.get(gang, ()):
            self.left_side[i] += sign * self.rows[i].gang_coefficients[:, j]

    def add_pods(self, class_index: int, nodes: IntArray, counts: IntArray) -> None:
        """Count pods of a pod class on nodes in the plugin constraints; negative counts undo that."""
        for i, coefficient in self.of_class.get(class_index, ()):
            domain = self.domains[i][nodes]
            inside = domain >= 0
            np.add.at(self.left_side[i], domain[inside], coefficient * counts[inside])
            if (pods := self._pods_by_side[i]) is not None:
                np.add.at(pods[self._side[i, class_index]], domain[inside], counts[inside])

    def clip_pod_limits_to_rows(self, class_index: int, nodes: IntArray, caps: IntArray) -> IntArray:
        """Return `caps`, the maximum number of pods on each node, reduced to what plugin constraints allow.

        Only AT_MOST constraints reduce these numbers. In each domain, earlier nodes have priority.
        """
        for i, coefficient in self.of_class.get(class_index, ()):
            row = self.rows[i]
            if coefficient <= 0 or row.sense is not Sense.AT_MOST:
                continue
            room = np.maximum(0, self.right[i] - self.left_side[i]) // coefficient
            if (pods := self._pods_by_side[i]) is not None:
                room[pods[1 - self._side[i, class_index]] > 0] = 0
            caps = _clip_to_domains(caps, self.domains[i][nodes], room)
        return caps

    def missing_pods_by_domain(self, class_index: int) -> list[tuple[IndexArray, IntArray]]:
        """Return how many pods of a class each domain lacks to satisfy plugin constraints with a lower limit.

        For each such row, the result has the domains of the nodes, and the missing pods of each domain.
        """
        result = []
        for i, coefficient in self.of_class.get(class_index, ()):
            row = self.rows[i]
            if coefficient > 0 and row.sense is Sense.AT_LEAST:
                lack = np.maximum(0, -((self.left_side[i] - self.right[i]) // coefficient))
                if lack.any():
                    result.append((self.domains[i], lack))
        return result

    def rows_of_gang_are_satisfied(self, gang: int) -> bool:
        """Tell whether all plugin constraints that name the gang or its pods are satisfied."""
        for i in self.touching.get(gang, ()):
            over = self.left_side[i] - self.right[i]
            # Both senses are relative to `right`, which the constructor moved to what holds without placements.
            if (over > 0).any() if self.rows[i].sense is Sense.AT_MOST else (over < 0).any():
                return False
        return True


def _pods_by_side(row: ConstraintRow) -> IntArray | None:
    """Return the counter [2, D] of the pods that are placed of each side, None if the row has no sides."""
    if row.on_second_side is None:
        return None
    pods = np.zeros((2, len(row.right)), np.int64)
    if row.used_side is not None:
        used = np.flatnonzero(row.used_side >= 0)
        pods[row.used_side[used], used] = 1  # or more: only whether there are any is read
    return pods


def _clip_to_domains(caps: IntArray, domain: IndexArray, room: IntArray) -> IntArray:
    """Caps reduced so that their sum in each domain is at most the domain's room; earlier nodes have priority."""
    order = np.argsort(domain, kind="stable")
    # Sorted by domain, a running sum tells what earlier nodes of the same domain take.
    inside, sorted_caps = domain[order], caps[order]
    running = np.cumsum(sorted_caps)
    starts = np.flatnonzero(np.r_[True, inside[1:] != inside[:-1]])
    before = np.repeat(running[starts] - sorted_caps[starts], np.diff(np.r_[starts, len(inside)]))
    limit = np.where(inside >= 0, room[inside], UNLIMITED)
    clipped = np.clip(limit - (running - before - sorted_caps), 0, sorted_caps)
    result = np.empty_like(caps)
    result[order] = clipped
    return result
