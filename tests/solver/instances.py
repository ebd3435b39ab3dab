"""Random small problems: everything the contract knows, on few nodes."""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from batchsched.solver.problem import (
    ALL_NODES,
    EVERY_NODE,
    UNLIMITED,
    ConstraintRow,
    Cut,
    Problem,
    ProblemClassKinds,
    ProblemGangs,
    ProblemNodes,
    ProblemPodClasses,
    ProblemQuotas,
    ProblemSubgroups,
    Sense,
    UsedPreferredDomains,
)

COLUMNS = {
    "nodes": (ProblemNodes, ("free", "capacity", "levels", "partitions")),
    "kinds": (ProblemClassKinds, ("mask", "score")),
    "classes": (ProblemPodClasses, ("kind", "gang", "subgroup", "count", "demand", "weight")),
    "gangs": (
        ProblemGangs,
        ("need", "tier", "rank", "required", "preferred", "pinned", "fresh", "allowed"),
    ),
    "subgroups": (
        ProblemSubgroups,
        ("sub_gang", "sub_need", "sub_required", "sub_preferred", "sub_pinned"),
    ),
    "used_domains": (UsedPreferredDomains, ("used_gang", "used_subgroup", "used_level", "used_domain")),
    "quotas": (ProblemQuotas, ("quota_covers", "quota_free", "quota_gangs")),
}
"""The tables of a problem and their columns, under names that no other column has."""


def from_columns(columns: dict[str, Any]) -> Problem:
    """A problem from columns of all its tables, named as in `COLUMNS`, and from its other fields."""
    rest = dict(columns)
    tables = {
        table: kind(
            **{name.removeprefix(_PREFIX.get(table, "")): rest.pop(name) for name in names if name in rest}
        )
        for table, (kind, names) in COLUMNS.items()
    }
    return Problem(**tables, **rest)


_PREFIX = {"subgroups": "sub_", "used_domains": "used_", "quotas": "quota_"}


def problem_of(
    free: list[list[int]],
    gangs: list[dict],
    *,
    levels: list[list[int]] | None = None,
    **more,
) -> Problem:
    """A problem from the bare facts: each gang a dict with pods, demand and what differs from the default."""
    room = np.array(free, np.int64)
    nodes = len(free)
    demand = [gang["demand"] for gang in gangs]
    total = [gang["pods"] for gang in gangs]
    default: dict = dict(  # noqa: C408 - reads as the call it becomes
        free=room,
        capacity=np.maximum(room, 8),
        mask=np.ones((1, nodes), np.bool_),
        score=np.zeros((1, nodes), np.int64),
        demand=np.array(demand, np.int64).reshape(len(gangs), room.shape[1]),
        kind=np.zeros(len(gangs), np.int32),
        gang=np.arange(len(gangs), dtype=np.int32),
        subgroup=np.full(len(gangs), -1, np.int32),
        count=np.array(total, np.int32),
        weight=np.array([gang.get("weight", float(sum(gang["demand"]))) for gang in gangs]),
        need=np.array([gang.get("need", gang["pods"]) for gang in gangs], np.int32),
        tier=np.array([gang.get("tier", 0) for gang in gangs], np.int32),
        rank=np.arange(len(gangs), dtype=np.int32),
        required=np.array([gang.get("required", -1) for gang in gangs], np.int32),
        preferred=np.array([gang.get("preferred", -1) for gang in gangs], np.int32),
        pinned=np.array([gang.get("pinned", -1) for gang in gangs], np.int32),
        fresh=np.ones(len(gangs), np.bool_),
        allowed=np.array([gang.get("allowed", True) for gang in gangs], np.bool_),
        levels=np.array(levels if levels is not None else np.zeros((0, nodes)), np.int32),
    )
    return from_columns(default | more)


def one_gang(need: int, classes: int) -> dict:
    """The columns for `problem_of` if the pod classes all belong to one gang, which needs so many pods."""
    none = np.full(1, -1, np.int32)
    return {
        "gang": np.zeros(classes, np.int32),
        "need": np.array([need], np.int32),
        "tier": np.zeros(1, np.int32),
        "rank": np.zeros(1, np.int32),
        **dict.fromkeys(("required", "preferred", "pinned"), none),
        **dict.fromkeys(("fresh", "allowed"), np.ones(1, np.bool_)),
    }


@st.composite
def problems(draw, *, max_nodes: int = 5, max_gangs: int = 4, extras: bool = True) -> Problem:
    """At most `max_nodes` nodes, `max_gangs` gangs, two levels; with extras also quotas, rows and cuts."""
    nodes, gangs = draw(st.integers(1, max_nodes)), draw(st.integers(1, max_gangs))
    extras = extras and draw(st.booleans())
    return random_problem(draw(st.integers(0, 2**32 - 1)), nodes, gangs, extras=extras)


def random_problem(seed: int, nodes: int, gangs: int, *, extras: bool = True) -> Problem:
    """A random problem of at most 10 pods: mixed demands, two levels, subgroups, two tiers, elastic gangs."""
    rng = np.random.default_rng(seed)
    parts = _parts(rng, gangs)
    classes = len(parts["gang"])
    free = rng.integers(1, 11, (nodes, 2))
    rack = rng.integers(-1, 3, nodes)
    total = np.bincount(parts["gang"], parts["count"], minlength=gangs).astype(np.int32)
    whole = rng.random(gangs) < 0.5
    columns = dict(
        free=free,
        capacity=np.maximum(free, 8),
        mask=rng.random((2, nodes)) < 0.9,
        score=rng.integers(0, 6, (2, nodes)),
        demand=rng.integers(0, 5, (classes, 2)),
        kind=rng.integers(0, 2, classes).astype(np.int32),
        weight=rng.choice([1.0, 1.0, 0.125, 0.25, 1525 / 4096, 0.5, 2531 / 4096, 2.0], classes),
        need=np.where(whole, total, rng.integers(0, total + 1)).astype(np.int32),
        tier=rng.integers(0, 2, gangs).astype(np.int32),
        rank=rng.permutation(gangs).astype(np.int32),
        required=_levels(rng, gangs),
        preferred=rng.choice([-1, 0, 1, 1], gangs).astype(np.int32),
        pinned=np.full(gangs, -1, np.int32),
        fresh=rng.random(gangs) < 0.8,
        allowed=rng.random(gangs) < 0.93,
        levels=np.stack([np.where(rack < 0, rng.integers(-1, 2, nodes), rack // 2), rack]).astype(np.int32),
        spread=bool(rng.random() < 0.5),
        **parts,
    )
    problem = from_columns(columns)
    return _extended(rng, problem) if extras else problem


def _levels(rng: np.random.Generator, size: int) -> np.ndarray:
    return rng.choice([-1, -1, -1, 0, 1], size).astype(np.int32)


def _parts(rng: np.random.Generator, gangs: int) -> dict[str, Any]:
    """Classes and subgroups of each gang: one or two classes of 1 to 3 pods."""
    gang: list[int] = []
    subgroup: list[int] = []
    count: list[int] = []
    sub_gang: list[int] = []
    sub_need: list[int] = []
    for g in range(gangs):
        sizes = rng.integers(1, 4, rng.integers(1, 3)).tolist()
        grouped = len(sizes) == 2 and rng.random() < 0.6
        for size in sizes:
            amount = min(size, 10 - sum(count) - (gangs - g - 1))
            if amount <= 0:
                continue
            gang.append(g)
            count.append(amount)
            subgroup.append(len(sub_gang) if grouped else -1)
            if grouped:
                sub_gang.append(g)
                sub_need.append(int(rng.integers(0, amount + 1)))
    named = {"gang": gang, "subgroup": subgroup, "count": count, "sub_gang": sub_gang, "sub_need": sub_need}
    arrays = {name: np.array(values, np.int32) for name, values in named.items()}
    subs = len(sub_gang)
    return arrays | {
        "sub_required": _levels(rng, subs),
        "sub_preferred": _levels(rng, subs),
        "sub_pinned": np.full(subs, -1, np.int32),
    }


def _extended(rng: np.random.Generator, problem: Problem) -> Problem:
    """The problem with pins, used domains, quotas, rows and cuts."""
    gangs, nodes = len(problem.gangs.need), len(problem.nodes.free)
    pins = (problem.gangs.required >= 0) & (rng.random(gangs) < 0.3)
    prefer = np.flatnonzero((problem.gangs.preferred >= 0) & (rng.random(gangs) < 0.5)).astype(np.int32)
    quotas = int(rng.integers(0, 3))
    unlimited = rng.random((quotas, 2)) < 0.4
    return replace(
        problem,
        gangs=replace(problem.gangs, pinned=np.where(pins, rng.integers(0, 3, gangs), -1).astype(np.int32)),
        used_domains=UsedPreferredDomains(
            gang=prefer,
            subgroup=np.full(len(prefer), -1, np.int32),
            level=problem.gangs.preferred[prefer],
            domain=rng.integers(0, 2, len(prefer)).astype(np.int32),
        ),
        quotas=ProblemQuotas(
            covers=rng.random((quotas, gangs)) < 0.6,
            free=np.where(unlimited, UNLIMITED, rng.integers(0, 16, (quotas, 2))),
            gangs=rng.choice([UNLIMITED, UNLIMITED, 1, 2], quotas),
        ),
        nodes=replace(problem.nodes, partitions=(rng.integers(-1, 3, nodes).astype(np.int32),)),
        rows=tuple(_row(rng, problem) for _ in range(rng.integers(0, 3))),
        cuts=tuple(_cut(rng, problem) for _ in range(rng.integers(0, 3))),
    )


def _row(rng: np.random.Generator, problem: Problem) -> ConstraintRow:
    nodes, classes = len(problem.nodes.free), len(problem.classes.gang)
    partition = int(rng.choice([ALL_NODES, EVERY_NODE, 0]))
    domains = {ALL_NODES: 1, EVERY_NODE: nodes, 0: 3}[partition]
    some = np.flatnonzero(rng.random(classes) < 0.5).astype(np.int32)
    if rng.random() < 0.6:
        sides = rng.random(len(some)) < 0.5 if rng.random() < 0.3 else None
        coefficients, right = rng.integers(1, 3, len(some)), rng.integers(0, 7, domains)
        return ConstraintRow(partition, some, coefficients, right, on_second_side=sides)
    gang = rng.integers(0, len(problem.gangs.need), 1).astype(np.int32)
    share = -rng.integers(0, 2, (domains, 1))
    ones, zeros = np.ones(len(some), np.int64), np.zeros(domains, np.int64)
    return ConstraintRow(partition, some, ones, zeros, Sense.AT_LEAST, gang, share)


def _cut(rng: np.random.Generator, problem: Problem) -> Cut:
    index = rng.integers(0, len(problem.classes.gang), 1).astype(np.int32)
    node = rng.integers(0, len(problem.nodes.free), 1).astype(np.int32)
    return Cut(int(problem.classes.gang[index[0]]), index, node, rng.integers(1, 3, 1).astype(np.int32))
