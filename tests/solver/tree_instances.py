"""Random problems of one gang with nested subgroups and slices, and their exhaustive solution."""

from collections.abc import Iterator

import numpy as np

from batchsched.solver.problem import (
    NONE,
    Problem,
    ProblemClassKinds,
    ProblemGangs,
    ProblemNodes,
    ProblemPodClasses,
    ProblemSubgroups,
    RunningSlicePodCounts,
)


def ints(values) -> np.ndarray:
    return np.array(values, np.int32)


def random_tree(
    seed: int, *, nodes: int = 4, pods: int = 6, running: bool = False, sizes: int = 2, gangs: int = 1
) -> Problem:
    """A gang with up to three levels of subgroups, on nodes in racks in blocks; level 0 is blocks, level 1 racks."""
    rng = np.random.default_rng(seed)
    rack = rng.integers(0, max(2, nodes // 2) + 1, nodes) - (rng.random(nodes) < 0.1)
    block = np.where(rack < 0, rng.integers(-1, 2, nodes), rack // 2)
    columns = _Columns(rng, running)
    for _ in range(gangs):
        columns.add_gang(pods)
    free = rng.integers(0, 5, (nodes, 1)).astype(np.int64)
    return columns.problem(free, np.stack([block, rack]).astype(np.int32), sizes)


class _Columns:
    """The columns of a problem, subgroup by subgroup."""

    def __init__(self, rng: np.random.Generator, running: bool) -> None:
        self.rng, self._running = rng, running
        self.gangs: list[dict[str, int]] = []
        self.subs: list[dict[str, int]] = []
        self.classes: list[dict[str, int]] = []
        self.slices: list[tuple[int, int, int, int]] = []

    def add_gang(self, pods: int) -> None:
        rng, gang = self.rng, len(self.gangs)
        row = self._levels() | {"gang": gang, "min_children": NONE, "slice_level": NONE, "slice_size": 0}
        self.gangs.append(row)
        if rng.random() < 0.25:
            row["need"] = self._leaf(row, gang, NONE, pods)
            return
        roots = int(rng.integers(1, 4))
        missing = sorted(self._subgroup(gang, NONE, max(1, pods // roots), 1) for _ in range(roots))
        if rng.random() < 0.4:
            row["min_children"] = int(rng.integers(1, roots + 1))
            missing = missing[: row["min_children"]]
        row["need"] = sum(missing)
        if rng.random() < 0.2:
            row["need"] += 1

    def _levels(self) -> dict[str, int]:
        rng = self.rng
        return {
            "required": int(rng.choice([NONE, NONE, 0, 1])),
            "preferred": int(rng.choice([NONE, NONE, NONE, 1])),
            "pinned": NONE,
        }

    def _subgroup(self, gang: int, parent: int, pods: int, depth: int) -> int:
        """Add a subgroup with those below it; return the pods that it needs."""
        rng, number = self.rng, len(self.subs)
        row = self._levels() | {"gang": gang, "parent": parent, "need": 0, "min_children": NONE}
        row |= {"slice_level": NONE, "slice_size": 0}
        self.subs.append(row)
        if depth < 3 and pods > 1 and rng.random() < 0.4:
            count = int(rng.integers(1, 3))
            missing = sorted(self._subgroup(gang, number, pods // count, depth + 1) for _ in range(count))
            if rng.random() < 0.3:
                row["min_children"] = int(rng.integers(1, count + 1))
                missing = missing[: row["min_children"]]
            return sum(missing)
        row["need"] = self._leaf(row, gang, number, pods)
        return row["need"]

    def _leaf(self, row: dict[str, int], gang: int, sub: int, pods: int) -> int:
        """Add the pods of a group; return how many of them are needed."""
        rng = self.rng
        minimum = int(rng.integers(1, pods + 1))
        bound = 0
        if rng.random() < 0.4:
            row["slice_size"] = int(rng.integers(1, max(1, pods // 2) + 1))
            row["slice_level"] = int(rng.integers(0, 2))
            minimum = -(-minimum // row["slice_size"]) * row["slice_size"]
            if self._running and rng.random() < 0.5:
                bound = int(rng.integers(1, minimum + 1))
                self.slices.append((gang, sub, int(rng.integers(0, 2)), bound))
        left = max(minimum - bound, 0) + int(rng.integers(0, 3)) * int(rng.random() < 0.3)
        several = left > 1 and rng.random() < 0.3
        for count in (1, left - 1) if several else (left,):
            if count:
                self.classes.append({"gang": gang, "subgroup": sub, "count": count})
        return max(0, minimum - bound)

    def problem(self, free: np.ndarray, levels: np.ndarray, sizes: int) -> Problem:
        """The problem of all gangs on these nodes."""
        rng, count, gangs = self.rng, len(self.classes), len(self.gangs)
        names = ("need", "required", "preferred", "pinned", "min_children", "slice_level", "slice_size")
        nested = {name: ints([row[name] for row in self.subs]) for name in (*names, "gang", "parent")}
        slices = [ints(column) for column in zip(*self.slices, strict=True)] or [ints([])] * 4
        return Problem(
            nodes=ProblemNodes(free, np.maximum(free, 1), levels, ()),
            kinds=ProblemClassKinds(
                rng.random((count, len(free))) < 0.95, np.zeros((count, len(free)), np.int64)
            ),
            classes=ProblemPodClasses(
                kind=np.arange(count, dtype=np.int32),
                gang=ints([row["gang"] for row in self.classes]),
                subgroup=ints([row["subgroup"] for row in self.classes]),
                count=ints([row["count"] for row in self.classes]),
                demand=rng.integers(1, sizes + 1, (count, 1)).astype(np.int64),
                weight=np.ones(count),
            ),
            gangs=ProblemGangs(
                tier=np.zeros(gangs, np.int32),
                rank=np.arange(gangs, dtype=np.int32),
                fresh=np.ones(gangs, np.bool_),
                allowed=np.ones(gangs, np.bool_),
                **{name: ints([row[name] for row in self.gangs]) for name in names},
            ),
            subgroups=ProblemSubgroups(**nested),
            running_slice_pods=RunningSlicePodCounts(*slices),
        )


def placements(problem: Problem) -> Iterator[np.ndarray]:
    """Every legal placement of the first gang, [C, N], by trying all; the empty one is not among them."""
    counts = np.zeros((len(problem.classes.count), len(problem.nodes.free)), np.int64)
    free = problem.nodes.free.tolist()
    demand = [
        [(r, amount) for r, amount in enumerate(row) if amount] for row in problem.classes.demand.tolist()
    ]

    def fill(class_index: int, node: int, left: int) -> Iterator[np.ndarray]:
        if class_index == len(counts):
            if counts.any() and legal(problem, counts):
                yield counts
            return
        if node == len(free):
            more = int(problem.classes.count[class_index + 1]) if class_index + 1 < len(counts) else 0
            yield from fill(class_index + 1, 0, more)
            return
        usable = problem.kinds.mask[class_index, node]
        requests = demand[class_index]
        most = min([left, *(free[node][r] // amount for r, amount in requests)]) if usable else 0
        for pods in range(most, -1, -1):
            counts[class_index, node] = pods
            for r, amount in requests:
                free[node][r] -= pods * amount
            yield from fill(class_index, node + 1, left - pods)
            for r, amount in requests:
                free[node][r] += pods * amount
        counts[class_index, node] = 0

    if len(counts):
        yield from fill(0, 0, int(problem.classes.count[0]))


def legal(problem: Problem, counts: np.ndarray) -> bool:
    """Whether a placement keeps the tree of the first gang, its levels and its slices."""
    parts, gangs = problem.subgroups, problem.gangs
    classes_of = {s: np.flatnonzero(problem.classes.subgroup == s) for s in range(-1, len(parts.gang))}

    def rows_below(s: int) -> list[int]:
        below = classes_of[s].tolist() if s >= 0 else list(range(len(counts)))
        for child in np.flatnonzero(parts.parent == s).tolist() if s >= 0 else ():
            below += rows_below(child)
        return below

    def runs(s: int) -> bool:
        children = np.flatnonzero(parts.parent == s).tolist()
        if not children and s >= 0:
            return bool(counts[classes_of[s]].sum() >= parts.need[s])
        least = parts.min_children[s] if s >= 0 else gangs.min_children[0]
        return bool(sum(map(runs, children)) >= (len(children) if least == NONE else least))

    if not runs(-1) or counts.sum() < gangs.need[0]:
        return False
    for s in range(-1, len(parts.gang)):
        table, index = (parts, s) if s >= 0 else (gangs, 0)
        nodes = np.flatnonzero(counts[rows_below(s)].any(axis=0))
        if nodes.size and not runs(s):
            return False
        if not in_one_domain(problem, int(table.required[index]), nodes):
            return False
        if table.slice_size[index] and not even(problem, counts[classes_of[s]].sum(axis=0), s):
            return False
    return True


def in_one_domain(problem: Problem, level: int, nodes: np.ndarray) -> bool:
    """Whether nodes are in one domain of a required level, if there is one."""
    if level == NONE or not nodes.size:
        return True
    domains = set(problem.nodes.levels[level][nodes].tolist())
    return len(domains) == 1 and -1 not in domains


def even(problem: Problem, pods: np.ndarray, s: int) -> bool:
    """Whether the pods [N] of a group are in whole slices, and these are even where the session could decide."""
    table, index = (problem.subgroups, s) if s >= 0 else (problem.gangs, 0)
    size, place = int(table.slice_size[index]), problem.nodes.levels[table.slice_level[index]]
    if not pods.any():
        return True
    if pods[place < 0].any():
        return False
    running = running_pods(problem, s)
    total = {
        d: running.get(d, 0) + int(pods[place == d].sum()) for d in {*place.tolist(), *running} if d >= 0
    }
    heights = {d: count // size for d, count in total.items() if count}
    if any(count % size for count in total.values()):
        return False
    grown = [heights[d] for d in heights if heights[d] > -(-running.get(d, 0) // size)]
    return bool(max(grown, default=0) <= min(heights.values()) + 1)


def running_pods(problem: Problem, s: int) -> dict[int, int]:
    """The running pods of a group with slices by domain."""
    table = problem.running_slice_pods
    return {
        int(domain): int(pods)
        for part, domain, pods in zip(table.subgroup, table.domain, table.pods, strict=True)
        if part == s
    }
