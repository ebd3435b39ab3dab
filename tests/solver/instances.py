"""Random small problems: everything the contract knows, on few nodes."""

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from batchsched.solver.problem import ALL_NODES, EVERY_NODE, UNLIMITED, Cut, Problem, Row, Sense


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
    default = dict(
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
    return Problem(**(default | more))


@st.composite
def problems(draw, *, max_nodes: int = 5, max_gangs: int = 4, extras: bool = True) -> Problem:
    """At most `max_nodes` nodes, `max_gangs` gangs, two levels; with extras also quotas, rows and cuts."""
    nodes = draw(st.integers(1, max_nodes))
    gangs = draw(st.integers(1, max_gangs))
    resources = 2
    ints = lambda low, high, *shape: np.array(  # noqa: E731
        draw(st.lists(st.integers(low, high), min_size=int(np.prod(shape)), max_size=int(np.prod(shape)))),
        np.int64,
    ).reshape(shape)
    free = ints(0, 8, nodes, resources)
    rack = ints(-1, 2, nodes)
    zone = np.where(rack < 0, ints(-1, 1, nodes), rack // 2)
    gang, subgroup, count = [], [], []
    sub = {"sub_gang": [], "sub_need": [], "sub_required": [], "sub_preferred": [], "sub_pinned": []}
    need, left = [], 10
    levels = st.sampled_from([-1, -1, 0, 1])
    for g in range(gangs):
        pods = []
        parts = draw(st.integers(1, 2))
        grouped = draw(st.booleans()) and parts == 2
        for _ in range(parts):
            amount = min(left, draw(st.integers(1, 3)))
            if amount == 0:
                break
            left -= amount
            gang.append(g)
            count.append(amount)
            pods.append(amount)
            subgroup.append(-1)
            if grouped:
                subgroup[-1] = len(sub["sub_gang"])
                sub["sub_gang"].append(g)
                sub["sub_need"].append(draw(st.integers(0, amount)))
                sub["sub_required"].append(draw(levels))
                sub["sub_preferred"].append(draw(levels))
                sub["sub_pinned"].append(-1)
        total = sum(pods)
        need.append(draw(st.one_of(st.just(total), st.integers(0, total))))
    classes = len(gang)
    weights = st.one_of(st.just(1.0), st.sampled_from([0.125, 0.25, 0.37251, 0.5, 0.61803398875, 2.0]))
    problem = Problem(
        free=free,
        capacity=np.maximum(free, 8),
        mask=ints(0, 3, 2, nodes) > 0,
        score=ints(0, 5, 2, nodes),
        demand=ints(0, 4, classes, resources),
        kind=ints(0, 1, classes).astype(np.int32),
        gang=np.array(gang, np.int32),
        subgroup=np.array(subgroup, np.int32),
        count=np.array(count, np.int32),
        weight=np.array([draw(weights) for _ in range(classes)], np.float64),
        need=np.array(need, np.int32),
        tier=ints(0, 1, gangs).astype(np.int32),
        rank=np.arange(gangs, dtype=np.int32),
        required=np.array([draw(levels) for _ in range(gangs)], np.int32),
        preferred=np.array([draw(levels) for _ in range(gangs)], np.int32),
        pinned=np.full(gangs, -1, np.int32),
        fresh=ints(0, 3, gangs) > 0,
        allowed=ints(0, 7, gangs) > 0,
        levels=np.stack([zone, rack]).astype(np.int32),
        **{name: np.array(values, np.int32) for name, values in sub.items()},
        spread=draw(st.booleans()),
    )
    return draw(extended(problem)) if extras else problem


@st.composite
def extended(draw, problem: Problem) -> Problem:
    """The problem with pins, used domains, quotas, rows and cuts drawn onto it."""
    gangs, nodes, classes = len(problem.need), len(problem.free), len(problem.gang)
    pinned = problem.pinned.copy()
    for g in range(gangs):
        if problem.required[g] >= 0 and draw(st.integers(0, 3)) == 0:
            pinned[g] = draw(st.integers(0, 2))
    used = [
        (g, -1, int(problem.preferred[g]), draw(st.integers(0, 1)))
        for g in range(gangs)
        if problem.preferred[g] >= 0 and draw(st.booleans())
    ]
    columns = np.array(used, np.int32).reshape(-1, 4).T
    quotas = draw(st.integers(0, 2))
    limit = st.one_of(st.just(UNLIMITED), st.integers(0, 12))
    rows, cuts = [], []
    for _ in range(draw(st.integers(0, 2))):
        kind = draw(st.sampled_from([ALL_NODES, EVERY_NODE, 0]))
        domains = {ALL_NODES: 1, EVERY_NODE: nodes, 0: 3}[kind]
        some = sorted(draw(st.sets(st.integers(0, classes - 1), min_size=1)))
        if draw(st.booleans()):
            right = np.array([draw(st.integers(0, 4)) for _ in range(domains)], np.int64)
            ones = np.array([draw(st.integers(1, 2)) for _ in some], np.int64)
            rows.append(Row(kind, np.array(some, np.int32), ones, right))
        else:
            g = draw(st.integers(0, gangs - 1))
            rows.append(
                Row(
                    kind,
                    np.array(some, np.int32),
                    np.ones(len(some), np.int64),
                    np.zeros(domains, np.int64),
                    Sense.AT_LEAST,
                    np.array([g], np.int32),
                    np.full((domains, 1), -draw(st.integers(0, 1)), np.int64),
                )
            )
    for _ in range(draw(st.integers(0, 2))):
        c, n = draw(st.integers(0, classes - 1)), draw(st.integers(0, nodes - 1))
        k = draw(st.integers(1, 2))
        one = lambda value: np.array([value], np.int32)  # noqa: E731
        cuts.append(Cut(int(problem.gang[c]), one(c), one(n), one(k)))
    return replace(
        problem,
        pinned=pinned,
        used_gang=columns[0],
        used_sub=columns[1],
        used_level=columns[2],
        used_domain=columns[3],
        quota_member=np.array(
            [[draw(st.booleans()) for _ in range(gangs)] for _ in range(quotas)], np.bool_
        ).reshape(quotas, gangs),
        quota_free=np.array([[draw(limit), draw(limit)] for _ in range(quotas)], np.int64).reshape(quotas, 2),
        quota_gangs=np.array(
            [draw(st.sampled_from([UNLIMITED, UNLIMITED, 1, 2])) for _ in range(quotas)], np.int64
        ),
        partitions=(np.array([draw(st.integers(-1, 2)) for _ in range(nodes)], np.int32),),
        rows=tuple(rows),
        cuts=tuple(cuts),
    )
