"""The independent check of subgroup trees and topology slices in a solution.

It is a part of `solver.verify`, and like it shares no code with the rest of the solver.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

import numpy as np

from batchsched.solver.problem import NONE, Problem, Solution


def mask_gangs_with_trees(problem: Problem) -> list[bool]:
    """Return a mask [G] of the gangs with nested subgroups, optional subgroups or topology slices."""
    gangs, parts = problem.gangs, problem.subgroups
    trees = [
        size > 0 or least != NONE
        for size, least in zip(gangs.slice_size.tolist(), gangs.min_children.tolist(), strict=True)
    ]
    for gang, parent, least, size in zip(
        parts.gang.tolist(),
        parts.parent.tolist(),
        parts.min_children.tolist(),
        parts.slice_size.tolist(),
        strict=True,
    ):
        trees[gang] = trees[gang] or parent != NONE or least != NONE or size > 0
    return trees


def list_children_by_subgroup(problem: Problem) -> list[list[int]]:
    """Return the subgroups directly below each subgroup."""
    parents = problem.subgroups.parent.tolist()
    children: list[list[int]] = [[] for _ in parents]
    for child, parent in enumerate(parents):
        if parent != NONE:
            children[parent].append(child)
    return children


def subgroups_and_all_below(subgroups: Iterable[int], children: list[list[int]]) -> list[int]:
    """Return some subgroups and all subgroups below them; each one precedes those below it.

    Args:
      subgroups: the subgroups, of which none is below another one.
      children: the subgroups directly below each subgroup (`list_children_by_subgroup`).
    """
    inside = list(subgroups)
    for s in inside:
        inside += children[s]
    return inside


def find_subgroup_tree_faults(problem: Problem, solution: Solution) -> Iterator[str]:
    """Yield a sentence for each gang and subgroup with placed pods that still has too few pods to run."""
    if not any(trees := mask_gangs_with_trees(problem)):
        return
    by_subgroup: Counter[int] = Counter()
    by_gang: Counter[int] = Counter()
    for class_index, count in zip(solution.classes.tolist(), solution.counts.tolist(), strict=True):
        by_subgroup[int(problem.classes.subgroup[class_index])] += count
        by_gang[int(problem.classes.gang[class_index])] += count
    owners, children = problem.subgroups.gang.tolist(), list_children_by_subgroup(problem)
    roots: dict[int, list[int]] = {gang: [] for gang, tree in enumerate(trees) if tree}
    for s in np.flatnonzero(problem.subgroups.parent == NONE).tolist():
        roots.setdefault(owners[s], []).append(s)
    order = subgroups_and_all_below(chain.from_iterable(roots.values()), children)
    runs = _mask_running_subgroups(problem, order, children, by_subgroup)
    for s in reversed(order):
        by_subgroup[s] += sum(by_subgroup[child] for child in children[s])  # from here on, with those below
        if trees[owners[s]] and by_subgroup[s] and not runs[s]:
            yield f"subgroup {s} of gang {owners[s]} has pods, and does not run with them"
    for gang, least in enumerate(problem.gangs.min_children.tolist()):
        if trees[gang] and by_gang[gang] and not _enough_run(runs, roots[gang], least):
            running = sum(runs[s] for s in roots[gang])
            yield f"gang {gang} has pods, and only {running} of its subgroups run with them"


def _mask_running_subgroups(
    problem: Problem, order: list[int], children: list[list[int]], pods: Mapping[int, int]
) -> list[bool]:
    """Return a mask [S] of the subgroups that run.

    Args:
      problem: the problem.
      order: all subgroups, each one before those below it.
      children: the subgroups directly below each subgroup.
      pods: the placed pods of each subgroup, without those of subgroups below it.
    """
    runs = [False] * len(children)
    needs, least = problem.subgroups.need.tolist(), problem.subgroups.min_children.tolist()
    for s in reversed(order):
        runs[s] = _enough_run(runs, children[s], least[s]) if children[s] else pods[s] >= needs[s]
    return runs


def _enough_run(runs: list[bool], children: list[int], least: int) -> bool:
    """Whether enough of the subgroups directly below a gang or a subgroup run: `least`, or all of them for NONE."""
    return sum(runs[s] for s in children) >= (len(children) if least == NONE else least)


def find_slice_faults(problem: Problem, solution: Solution) -> Iterator[str]:
    """Yield a sentence for each gang or subgroup with slices that are incomplete or unevenly spread over domains."""
    gangs, parts = problem.gangs, problem.subgroups
    groups = [(g, NONE) for g, size in enumerate(gangs.slice_size.tolist()) if size]
    groups += [(int(parts.gang[s]), s) for s, size in enumerate(parts.slice_size.tolist()) if size]
    if not groups:
        return
    placed = _placed_pods_by_node(problem, solution)
    running = _running_pods(problem)
    for gang, s in groups:
        size = int(gangs.slice_size[gang] if s == NONE else parts.slice_size[s])
        level = int(gangs.slice_level[gang] if s == NONE else parts.slice_level[s])
        name = f"gang {gang}" if s == NONE else f"subgroup {s}"
        new: Counter[int] = Counter()
        for node, count in placed.get((gang, s), ()):
            new[int(problem.nodes.levels[level][node])] += count
        if not new:
            continue
        yield from _faults_of_slices(name, size, new, running.get((gang, s), Counter()))


def _placed_pods_by_node(
    problem: Problem, solution: Solution
) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Gang and subgroup of pods → the nodes where they are placed, each with a number of pods."""
    placed: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for class_index, node, count in zip(
        solution.classes.tolist(), solution.nodes.tolist(), solution.counts.tolist(), strict=True
    ):
        group = int(problem.classes.gang[class_index]), int(problem.classes.subgroup[class_index])
        placed.setdefault(group, []).append((node, count))
    return placed


def _running_pods(problem: Problem) -> dict[tuple[int, int], Counter[int]]:
    """Gang and subgroup of slices → the pods that run in each domain already."""
    table = problem.running_slice_pods
    running: dict[tuple[int, int], Counter[int]] = {}
    for owner, part, domain, pods in zip(
        table.gang.tolist(), table.subgroup.tolist(), table.domain.tolist(), table.pods.tolist(), strict=True
    ):
        if domain != NONE:
            running.setdefault((owner, part), Counter())[domain] += pods
    return running


def _faults_of_slices(name: str, size: int, new: Counter[int], running: Counter[int]) -> Iterator[str]:
    if NONE in new:
        yield f"{name} has pods in slices on nodes without a domain of the slices' level"
    total = new + running
    for domain, pods in sorted(total.items()):
        if pods % size:
            yield f"{name} has {pods} pods in domain {domain}, which are no whole slices of {size}"
    slices = {domain: pods // size for domain, pods in total.items()}
    fewest = min(slices.values())
    for domain, count in sorted(slices.items()):
        # Slices that run already may be uneven; no other slice may make them more so.
        added = count > -(-running[domain] // size)
        if added and count > fewest + 1:
            yield f"{name} has {count} slices in domain {domain} and {fewest} in another one"
