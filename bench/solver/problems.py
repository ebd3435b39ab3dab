"""An instance as the arrays that the solver reads."""

import numpy as np

from batchsched.solver.problem import (
    NONE,
    UNLIMITED,
    Problem,
    ProblemClassKinds,
    ProblemGangs,
    ProblemNodes,
    ProblemPodClasses,
    ProblemQuotas,
)
from bench.solver.instances import DAY, MAX_PODS, Instance


def to_problem(instance: Instance) -> Problem:
    """Return an instance as a `Problem`."""
    nodes, gangs = instance.nodes, instance.gangs
    capacity = np.array([[n.type.cpu, n.type.memory, n.type.gpu, MAX_PODS] for n in nodes], np.int64)
    used = np.array([[*n.used, 1 if n.used[0] else 0] for n in nodes], np.int64)
    levels = np.array([[n.zone, n.block, n.rack] for n in nodes], np.int32).T.copy()
    tainted = np.array([n.tainted for n in nodes])
    types = np.array([n.type.name for n in nodes])
    group = np.array([n.group for n in nodes])
    kinds = sorted({(gang.tolerates, gang.selects, gang.groups) for gang in gangs})
    mask = np.array(
        [
            (tol | ~tainted) & ((sel == "") | (types == sel)) & (np.isin(group, groups) | (not groups))
            for tol, sel, groups in kinds
        ]
    )
    owner = [g for g, gang in enumerate(gangs) for _ in gang.templates]
    templates = [template for gang in gangs for template in gang.templates]
    demand = np.array([[t.cpu, t.memory, t.gpu, 1] for t in templates], np.int64)
    youngest = min(gang.age for gang in gangs)
    bonus = np.array([1 + 0.5 * min(1.0, (gang.age - youngest) / DAY) for gang in gangs])
    share = (demand[:, :3] / np.maximum(1, capacity[:, :3].sum(axis=0))).max(axis=1)
    tier = np.array([gang.tier for gang in gangs], np.int32)
    order = sorted(range(len(gangs)), key=lambda g: (gangs[g].priority, -gangs[g].age, gangs[g].name))
    rank = np.empty(len(gangs), np.int32)
    rank[order] = np.arange(len(gangs), dtype=np.int32)
    none = np.full(len(gangs), NONE, np.int32)
    return Problem(
        nodes=ProblemNodes(free=capacity - used, capacity=capacity, levels=levels),
        kinds=ProblemClassKinds(mask=mask, score=np.zeros(mask.shape, np.int64)),
        classes=ProblemPodClasses(
            demand=demand,
            kind=np.array(
                [kinds.index((gangs[g].tolerates, gangs[g].selects, gangs[g].groups)) for g in owner],
                np.int32,
            ),
            gang=np.array(owner, np.int32),
            subgroup=np.full(len(owner), NONE, np.int32),
            count=np.array([t.count for t in templates], np.int32),
            weight=share * bonus[owner],
        ),
        gangs=ProblemGangs(
            need=np.array([gang.min_member for gang in gangs], np.int32),
            tier=tier,
            rank=rank,
            required=np.array([gang.required for gang in gangs], np.int32),
            preferred=np.array([gang.preferred for gang in gangs], np.int32),
            pinned=none.copy(),
            fresh=np.ones(len(gangs), np.bool_),
            allowed=np.ones(len(gangs), np.bool_),
        ),
        quotas=ProblemQuotas(
            covers=_members(instance),
            free=np.array([[q.cpu, UNLIMITED, q.gpu, UNLIMITED] for q in instance.queues], np.int64),
            gangs=np.full(len(instance.queues), UNLIMITED, np.int64),
        ),
        pod_resource=3,
    )


def _members(instance: Instance) -> np.ndarray:
    member = np.zeros((len(instance.queues), len(instance.gangs)), np.bool_)
    for g, gang in enumerate(instance.gangs):
        queue = gang.queue
        while queue >= 0:
            member[queue, g] = True
            queue = instance.queues[queue].parent
    return member
