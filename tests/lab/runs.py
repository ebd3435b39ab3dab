"""Runs to draw: small, made up, and plausible."""

from collections import Counter

import numpy as np

from batchsched.api.core.metadata import ObjectMeta
from batchsched.api.core.node import Node, NodeStatus
from batchsched.simulator.result import ClusterSeries, GangRecord, RunResult

GPU = "nvidia.com/gpu"
START = 1_767_225_600
SIZES = (1, 1, 1, 1, 2, 4, 8, 8, 16, 32, 64)


def cluster(count, gpus=8):
    allocatable: dict[str, str | int | float] = {"cpu": "96", "memory": "768Gi", "pods": "110"}
    if gpus:
        allocatable[GPU] = str(gpus)
    return tuple(
        Node(metadata=ObjectMeta(name=f"node-{number}"), status=NodeStatus(allocatable=allocatable))
        for number in range(count)
    )


def played(policy, *, gangs=200, nodes=16, gpus=8, seed=1, shortest_first=False, queues=3):
    """Play a made-up workload by list scheduling, good enough to draw."""
    draw = np.random.default_rng(seed)
    size = np.minimum(draw.choice(SIZES, gangs), nodes * gpus)
    runtime = np.maximum(draw.lognormal(7.5, 1.6, gangs), 5).astype(int)
    submitted = START + np.cumsum(draw.exponential(160, gangs)).astype(int)
    queue = [("research", "production", "batch")[at % queues] for at in range(gangs)]
    free_at = np.full((nodes, gpus), float(START))
    left, now, records = list(range(gangs)), START, []
    while left:
        here = [at for at in left if submitted[at] <= now] or [min(left, key=lambda at: submitted[at])]
        head = min(here, key=lambda at: (size[at] * runtime[at] if shortest_first else submitted[at], at))
        flat = np.argsort(free_at, axis=None, kind="stable")[: size[head]]
        start = int(max(submitted[head], now, free_at.flat[flat].max()))
        free_at.flat[flat] = start + runtime[head]
        on = Counter(sorted(int(lane) // gpus for lane in flat))
        records.append((head, start, tuple((f"node-{node}", units) for node, units in on.items())))
        left.remove(head)
        now = start
    made = [
        GangRecord(
            key=f"ml/job-{at}",
            queue=queue[at],
            size=max(1, int(size[at]) // 8),
            gpus=int(size[at]),
            submitted=int(submitted[at]),
            started=start,
            ended=start + int(runtime[at]),
            runtime=int(runtime[at]),
            estimate=int(runtime[at]),
            placements=on,
        )
        for at, start, on in sorted(records)
    ]
    return RunResult("a made-up day", policy, tuple(made), series(made, nodes * gpus), sessions=gangs)


def series(gangs, total):
    times = sorted({moment for gang in gangs for moment in (gang.submitted, gang.started, gang.ended)})
    running = [[gang for gang in gangs if gang.started <= now < gang.ended] for now in times]
    used = tuple(sum(gang.gpus for gang in mine) for mine in running)
    return ClusterSeries(
        times=tuple(times),
        used={GPU: used, "cpu": tuple(12_000 * amount for amount in used)},
        total={GPU: (total,) * len(times), "cpu": (12_000 * total,) * len(times)},
        waiting=tuple(sum(gang.submitted <= now < gang.started for gang in gangs) for now in times),
        running=tuple(map(len, running)),
    )
