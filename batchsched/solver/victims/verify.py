"""Independent check of victims: the units may be evicted, the gang fits then, and every eviction is needed.

The check shares no code with the rest, only the dataclasses: a mistake made in both places would not be found.
"""

from collections.abc import Iterator

import numpy as np

from batchsched.solver.problem import NONE, IntArray, VictimProblem, VictimSet


def verify_victims(problem: VictimProblem, answer: VictimSet) -> tuple[str, ...]:
    """Return all faults of an answer, one sentence each; empty if it is correct.

    Checked are: the units and their cost, bonds and limits, the placement (masks, counts, the minimums of the gang
    and its subgroups, one domain, quotas, room), and that the placement needs each eviction. Rows of plugins are not
    checked: the session sends the placement through the pipeline.
    """
    units = answer.units.tolist()
    if units != sorted(set(units)) or any(not 0 <= unit < len(problem.cost) for unit in units):
        return ("the units are not in order, or one of them does not exist",)
    if np.any(answer.counts <= 0):
        return ("a count is not positive",)
    checks = (
        _account(problem, answer),
        _leaving(problem, units),
        _whole(problem, answer),
        _domains(problem, answer),
        _quotas(problem, answer),
        _room(problem, answer),
    )
    return tuple(fault for check in checks for fault in check)


def _account(problem: VictimProblem, answer: VictimSet) -> Iterator[str]:
    cost = sum(int(problem.cost[unit]) for unit in answer.units.tolist())
    if cost != answer.cost:
        yield f"the units cost {cost} and the answer says {answer.cost}"
    if answer.bound > answer.cost:
        yield f"the bound {answer.bound} is above the cost {cost}"
    if answer.greedy >= 0 and cost > answer.greedy:
        yield f"the units cost {cost}, a greedy's {answer.greedy}"


def _leaving(problem: VictimProblem, units: list[int]) -> Iterator[str]:
    leaving = set(units)
    for unit, other in zip(problem.bond_unit.tolist(), problem.bond_with.tolist(), strict=True):
        if unit in leaving and other not in leaving:
            yield f"unit {unit} leaves and unit {other} does not"
    taken = [0] * len(problem.limit)
    for row, unit, amount in zip(
        problem.limit_row.tolist(),
        problem.limit_unit.tolist(),
        problem.limit_amount.tolist(),
        strict=True,
    ):
        taken[row] += amount if unit in leaving else 0
    for row, (amount, most) in enumerate(zip(taken, problem.limit.tolist(), strict=True)):
        if amount > max(0, most):
            yield f"limit {row} allows {most} and {amount} is taken"
    for number, cut in enumerate(problem.cuts):
        if leaving <= set(cut.tolist()):
            yield f"cut {number} is not kept"


def _whole(problem: VictimProblem, answer: VictimSet) -> Iterator[str]:
    wanted = problem.wanted
    placed = [0] * len(wanted.classes.count)
    inside = [0] * len(wanted.subgroups.need)
    for class_index, node, count in zip(
        answer.classes.tolist(), answer.nodes.tolist(), answer.counts.tolist(), strict=True
    ):
        placed[class_index] += count
        if wanted.classes.subgroup[class_index] != NONE:
            inside[wanted.classes.subgroup[class_index]] += count
        if not wanted.kinds.mask[wanted.classes.kind[class_index], node]:
            yield f"class {class_index} is on node {node}, which its mask refuses"
    for class_index, count in enumerate(placed):
        if count > wanted.classes.count[class_index]:
            yield f"class {class_index} has {wanted.classes.count[class_index]} pods and {count} are placed"
    least = max(int(wanted.gangs.need[0]), int(wanted.subgroups.need.sum()))
    if sum(placed) < least:
        yield f"the gang needs {least} pods and {sum(placed)} are placed"
    for sub, need in enumerate(wanted.subgroups.need.tolist()):
        if inside[sub] < need:
            yield f"subgroup {sub} needs {need} pods and {inside[sub]} are placed"


def _domains(problem: VictimProblem, answer: VictimSet) -> Iterator[str]:
    wanted = problem.wanted
    subs = wanted.classes.subgroup[answer.classes]
    parts = [("the gang", np.ones(len(subs), np.bool_), wanted.gangs.required[0], wanted.gangs.pinned[0])]
    parts += [
        (f"subgroup {sub}", subs == sub, level, wanted.subgroups.pinned[sub])
        for sub, level in enumerate(wanted.subgroups.required.tolist())
    ]
    for name, mine, level, pinned in parts:
        domains = set() if level == NONE else set(wanted.nodes.levels[level][answer.nodes[mine]].tolist())
        if len(domains) > 1 or NONE in domains or (pinned != NONE and domains - {int(pinned)}):
            yield f"{name} is in domains {sorted(domains)} of its required level {level}"


def _requests(problem: VictimProblem, answer: VictimSet) -> IntArray:
    """[N, R] what the placement requests."""
    asked = np.zeros(problem.free.shape, np.int64)
    for class_index, node, count in zip(
        answer.classes.tolist(), answer.nodes.tolist(), answer.counts.tolist(), strict=True
    ):
        asked[node] += problem.wanted.classes.demand[class_index] * count
    return asked


def _quotas(problem: VictimProblem, answer: VictimSet) -> Iterator[str]:
    if not len(problem.wanted.quotas.gangs):
        return
    asked = _requests(problem, answer).sum(axis=0)
    for quota in np.flatnonzero(problem.wanted.quotas.covers[:, 0]).tolist():
        left, gangs = problem.quota_left[quota].copy(), int(problem.gangs_left[quota])
        for share, unit in enumerate(problem.unit.tolist()):
            if unit in answer.units and problem.quota_unit[quota, unit]:
                left += problem.freed[share]
        gangs += sum(
            bool(problem.quota_unit[quota, unit] and problem.ends[unit]) for unit in answer.units.tolist()
        )
        for r in np.flatnonzero((asked > left) & (asked > 0)).tolist():
            yield f"quota {quota} leaves {left[r]} of resource {r} and {asked[r]} is placed"
        if problem.wanted.gangs.fresh[0] and gangs < 1:
            yield f"quota {quota} leaves no room for a gang"


def _room(problem: VictimProblem, answer: VictimSet) -> Iterator[str]:
    """The placement uses only free room, and needs each unit's eviction, or that of a unit that requires it."""
    asked = _requests(problem, answer)
    free = problem.free.copy()
    leaving = set(answer.units.tolist())
    for share, unit in enumerate(problem.unit.tolist()):
        if unit in leaving:
            free[problem.node[share]] += problem.freed[share]
    for node, r in np.argwhere((asked > free) & (asked > 0)).tolist():
        yield f"node {node} has {free[node, r]} of resource {r} free and {asked[node, r]} is placed"
    if len(problem.wanted.quotas.gangs) or problem.cuts:  # a unit may be needed for another reason than room
        return
    behind = {
        other
        for unit, other in zip(problem.bond_unit.tolist(), problem.bond_with.tolist(), strict=True)
        if unit in leaving
    }
    for unit in sorted(leaving - behind):
        shares = [share for share, other in enumerate(problem.unit.tolist()) if other == unit]
        if not any(
            np.any(
                (asked[problem.node[share]] > 0)
                & (free[problem.node[share]] - problem.freed[share] < asked[problem.node[share]])
            )
            for share in shares
        ):
            yield f"unit {unit} leaves and the placement does without its room"
