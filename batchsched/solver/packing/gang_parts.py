"""The classes and subgroups of a gang, in the order in which they are placed."""

from dataclasses import dataclass
from functools import partial

from batchsched.solver.packing.node_order import NodeOrder
from batchsched.solver.problem import NONE, IndexArray, Problem


@dataclass(frozen=True, slots=True)
class SubgroupMembers:
    """A subgroup, or the pods of a gang outside any subgroup (index -1)."""

    index: int
    need: int
    required: int
    preferred: int
    pinned: int
    classes: tuple[int, ...]  # the largest pods first


@dataclass(frozen=True, slots=True)
class GangMembers:
    """A gang's classes, the largest pods first, and its parts, those with a required level first."""

    classes: tuple[int, ...]
    parts: tuple[SubgroupMembers, ...]
    pods: int
    levelled: bool  # some level, of the gang or of a part, is asked for


def find_members(
    problem: Problem, slots: NodeOrder, gang: int, owned: list[int], subgroups: list[int]
) -> GangMembers:
    """Return a gang's members from its classes and subgroups."""
    classes = sorted(owned, key=partial(_size, slots))
    parts = []
    for s in subgroups:
        own = tuple(c for c in classes if problem.classes.subgroup[c] == s)
        needs = (
            int(problem.subgroups.need[s]),
            int(problem.subgroups.required[s]),
            int(problem.subgroups.preferred[s]),
        )
        parts.append(SubgroupMembers(int(s), *needs, int(problem.subgroups.pinned[s]), own))
    loose = tuple(c for c in classes if problem.classes.subgroup[c] == NONE)
    if loose:
        parts.append(SubgroupMembers(-1, 0, NONE, NONE, NONE, loose))
    parts.sort(key=lambda part: (part.required == NONE, -part.required, _size(slots, part.classes[0])
                                 if part.classes else (0, 0.0, 0)))  # fmt: skip
    levelled = bool(problem.gangs.required[gang] != NONE or problem.gangs.preferred[gang] != NONE) or any(
        part.required != NONE or part.preferred != NONE for part in parts
    )
    return GangMembers(
        tuple(classes), tuple(parts), sum(int(problem.classes.count[c]) for c in classes), levelled
    )


def _size(slots: NodeOrder, class_index: int) -> tuple[int, float, int]:
    """Sort key: the largest pods first, by devices, then by dominant share; in plain packings the given order."""
    if slots.plain:
        return (0, 0.0, class_index)
    device = slots.device_of[class_index]
    return (
        -int(slots.demand[class_index, device]) if device >= 0 else 0,
        -slots.dominant(class_index),
        class_index,
    )


def group_by(owner: IndexArray, size: int) -> list[list[int]]:
    """Return, for each owner 0..size-1, the indices that belong to it."""
    result: list[list[int]] = [[] for _ in range(size)]
    for index, g in enumerate(owner.tolist()):
        result[g].append(index)
    return result
