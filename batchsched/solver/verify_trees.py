"""The independent check of subgroup trees and topology slices in a solution.

It is a part of `solver.verify`, and like it shares no code with the rest of the solver.
"""

from collections import Counter
from collections.abc import Iterator

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


def subgroup_and_all_below(problem: Problem, subgroup: int) -> list[int]:
    """Return a subgroup and all subgroups below it."""
    subgroups = [subgroup]
    for s in subgroups:
        subgroups += [child for child, parent in enumerate(problem.subgroups.parent.tolist()) if parent == s]
    return subgroups


def find_subgroup_tree_faults(problem: Problem, solution: Solution) -> Iterator[str]:
    """Yield a sentence for each gang and subgroup with placed pods that still has too few pods to run."""
    if not any(trees := mask_gangs_with_trees(problem)):
        return
    by_subgroup: Counter[int] = Counter()
    by_gang: Counter[int] = Counter()
    for class_index, count in zip(solution.classes.tolist(), solution.counts.tolist(), strict=True):
        by_subgroup[int(problem.classes.subgroup[class_index])] += count
        by_gang[int(problem.classes.gang[class_index])] += count
    parents, needs = problem.subgroups.parent.tolist(), problem.subgroups.need.tolist()
    owners = problem.subgroups.gang.tolist()

    def subgroup_runs(s: int) -> bool:
        children = [child for child, parent in enumerate(parents) if parent == s]
        if not children:
            return by_subgroup[s] >= int(needs[s])
        least = int(problem.subgroups.min_children[s])
        return sum(map(subgroup_runs, children)) >= (len(children) if least == NONE else least)

    for gang in [g for g, tree in enumerate(trees) if tree]:
        for s in [s for s, owner in enumerate(owners) if owner == gang]:
            if any(by_subgroup[inner] for inner in subgroup_and_all_below(problem, s)) and not subgroup_runs(
                s
            ):
                yield f"subgroup {s} of gang {gang} has pods, and does not run with them"
        roots = [s for s, owner in enumerate(owners) if owner == gang and parents[s] == NONE]
        least = int(problem.gangs.min_children[gang])
        running = sum(map(subgroup_runs, roots))
        if by_gang[gang] and running < (len(roots) if least == NONE else least):
            yield f"gang {gang} has pods, and only {running} of its subgroups run with them"


def find_slice_faults(problem: Problem, solution: Solution) -> Iterator[str]:
    """Yield a sentence for each gang or subgroup with slices that are incomplete or unevenly spread over domains."""
    gangs, parts = problem.gangs, problem.subgroups
    groups = [(g, NONE) for g, size in enumerate(gangs.slice_size.tolist()) if size]
    groups += [(int(parts.gang[s]), s) for s, size in enumerate(parts.slice_size.tolist()) if size]
    for gang, s in groups:
        size = int(gangs.slice_size[gang] if s == NONE else parts.slice_size[s])
        level = int(gangs.slice_level[gang] if s == NONE else parts.slice_level[s])
        name = f"gang {gang}" if s == NONE else f"subgroup {s}"
        new: Counter[int] = Counter()
        for class_index, node, count in zip(
            solution.classes.tolist(), solution.nodes.tolist(), solution.counts.tolist(), strict=True
        ):
            if (problem.classes.gang[class_index], problem.classes.subgroup[class_index]) == (gang, s):
                new[int(problem.nodes.levels[level][node])] += count
        if not new:
            continue
        yield from _faults_of_slices(name, size, new, _running_pods(problem, gang, s))


def _running_pods(problem: Problem, gang: int, subgroup: int) -> Counter[int]:
    table = problem.running_slice_pods
    running: Counter[int] = Counter()
    for owner, part, domain, pods in zip(
        table.gang.tolist(), table.subgroup.tolist(), table.domain.tolist(), table.pods.tolist(), strict=True
    ):
        if (owner, part) == (gang, subgroup) and domain != NONE:
            running[domain] += pods
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
