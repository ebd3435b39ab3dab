"""Generates workloads from a seed: random gangs like those of a machine-learning cluster.

What published traces agree on, and what is drawn here:

- Gangs are mostly one device, and powers of two beyond, up to 128; the few large ones hold most device hours.
- Run times are heavy-tailed over five orders of magnitude: log-normal, the longer the larger the gang. The medians
  follow a fit to the public Philly trace (68,503 jobs of October and November 2017).
- Arrivals follow the day and the week: a Poisson process with a rate that varies over the day and falls on
  weekends.
- A few queues submit most gangs (Zipf), and most gangs have the lowest priority.

Source: Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads, ATC 2019; Hu et al.,
Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU Datacenters, SC 2021; Weng et al., MLaaS
in the Wild: Workload Analysis and Scheduling in Large-Scale Heterogeneous GPU Clusters, NSDI 2022.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from batchsched.api.core.cluster_objects import PriorityClass
from batchsched.api.core.metadata import ObjectMeta
from batchsched.api.crd.base import CustomMeta
from batchsched.api.crd.queue import Queue
from batchsched.api.snapshot import Snapshot
from batchsched.simulator.workload import (
    TraceGang,
    Workload,
    create_nodes,
    create_pod_spec,
    create_rigid_arrival,
    split_gpus_into_pods,
)

IntArray = NDArray[np.int64]

HOUR: Final = 3600
DAY: Final = 24 * HOUR
WEEK: Final = 7 * DAY
FIRST_MONDAY_SECONDS: Final = 4 * DAY
"""Seconds from the start of 1970, a Thursday, to the first Monday."""
WEEKEND: Final = 0.6
"""Arrival rate on Saturdays and Sundays relative to other days."""
SIZES: Final = (
    (1, 0.62),
    (2, 0.09),
    (4, 0.10),
    (8, 0.12),
    (16, 0.04),
    (32, 0.02),
    (64, 0.007),
    (128, 0.003),
)
"""Devices of a gang, and their weights. In the Philly trace, 94 % of the jobs use one device."""
MEDIAN_RUNTIME: Final[Mapping[int, float]] = MappingProxyType(
    {1: 900.0, 2: 1800.0, 4: 5400.0, 8: 10800.0, 16: 14400.0, 32: 21600.0, 64: 28800.0, 128: 36000.0}
)
"""Seconds: Philly's e^μ (1: 960, 4: 8,000, 8: 13,400, 32: 30,600), smoothed so that they grow with the size."""
SPREAD: Final = 1.9
"""σ of the logarithm of the run time, as fitted to Philly's single-device jobs."""
MAX_RUNTIME_SECONDS: Final = 7 * DAY
PRIORITIES: Final = (("high", 1000, 0.1), ("normal", 100, 0.3), ("low", 0, 0.6))
"""Name, value and weight of each priority class."""
GPU: Final = "nvidia.com/gpu"
CPU_A_GPU: Final = 8
MEMORY_A_GPU: Final = 64  # GiB


def zipf_queue_shares(count: int) -> tuple[tuple[str, float], ...]:
    """Return (queue name, relative share of the gangs) for `count` queues; the shares follow Zipf's law."""
    return tuple((f"team-{rank}", 1.0 / (rank + 1)) for rank in range(count))


@dataclass(frozen=True, slots=True)
class GeneratorSettings:
    """The parameters of a workload that is generated from a seed.

    The schema of scenarios checks their ranges.

    Args:
      gangs: number of gangs.
      node_count, gpus_per_node: size of the cluster.
      load: requested device seconds ÷ available device seconds; above 1 the queue grows.
      swing: amplitude of the daily cycle, 0 (none) to below 1.
      overestimate: mean excess of the estimates over run times, as a fraction of the run time; 0: exact estimates.
      shares: pairs of a queue and its relative share of the gangs.
    """

    gangs: int = 1000
    node_count: int = 32
    gpus_per_node: int = 8
    load: float = 0.9
    swing: float = 0.5
    overestimate: float = 0.0
    shares: tuple[tuple[str, float], ...] = zipf_queue_shares(4)


def generate_workload(recipe: GeneratorSettings, seed: int) -> Workload:
    """Generate a random workload; equal parameters and an equal seed give the same workload.

    Gangs are never larger than the cluster.
    """
    draw = np.random.default_rng(seed)
    capacity = recipe.node_count * recipe.gpus_per_node
    fitting = [(size, weight) for size, weight in SIZES if size <= capacity]
    sizes = np.array([size for size, _ in fitting], np.int64)
    weights = np.array([weight for _, weight in fitting])
    gpus = draw.choice(sizes, recipe.gangs, p=weights / weights.sum())
    runtimes = _runtimes(gpus, draw)
    span = float((gpus * runtimes).sum()) / (recipe.load * capacity)
    times = _arrivals(recipe.gangs, span, recipe.swing, draw)
    shares = np.array([share for _, share in recipe.shares])
    owners = draw.choice(len(shares), recipe.gangs, p=shares / shares.sum())
    classes = draw.choice(len(PRIORITIES), recipe.gangs, p=[share for _, _, share in PRIORITIES])
    slack = 1.0 + draw.exponential(1.0, recipe.gangs) * recipe.overestimate
    estimates = np.ceil(runtimes * slack).astype(np.int64)
    spec = cache(lambda size, rank: create_pod_spec(_resources(size), priority_class=rank))
    arrivals = []
    columns = (column.tolist() for column in (times, gpus, runtimes, estimates, owners, classes))
    for number, (time, size, runtime, estimate, owner, rank) in enumerate(zip(*columns, strict=True)):
        priority = PRIORITIES[rank][0]
        split = split_gpus_into_pods(size, recipe.gpus_per_node)
        pods = tuple((spec(share, priority), count) for share, count in split)
        shape = TraceGang(f"g{number:05d}", pods, estimate, recipe.shares[owner][0], priority)
        arrivals.append(create_rigid_arrival(shape, time, runtime))
    cluster = Snapshot(
        nodes=create_nodes(recipe.node_count, _resources(recipe.gpus_per_node, spare=True)),
        queues=tuple(Queue(metadata=CustomMeta(name=name)) for name, _ in recipe.shares),
        priority_classes=tuple(
            PriorityClass(metadata=ObjectMeta(name=name), value=value) for name, value, _ in PRIORITIES
        ),
    )
    return Workload(f"generated-{seed}", cluster, tuple(arrivals))


def _runtimes(gpus: IntArray, draw: np.random.Generator) -> IntArray:
    sizes = np.array(sorted(MEDIAN_RUNTIME))
    medians = np.array([MEDIAN_RUNTIME[size] for size in sizes.tolist()])
    middle = np.interp(np.log2(gpus), np.log2(sizes), np.log(medians))
    drawn = np.exp(middle + SPREAD * draw.standard_normal(len(gpus)))
    return np.asarray(np.clip(np.ceil(drawn), 1, MAX_RUNTIME_SECONDS), np.int64)


def _arrivals(count: int, span: float, swing: float, draw: np.random.Generator) -> IntArray:
    """Return random arrival times in seconds, ascending, at a rate that varies over the day and the week.

    For a given number of arrivals, the times of a Poisson process are independent draws in proportion to its rate.
    """
    hours = max(1, round(span / HOUR))
    starts = FIRST_MONDAY_SECONDS + np.arange(hours) * HOUR
    weekday = (starts - FIRST_MONDAY_SECONDS) % WEEK < 5 * DAY
    rate = (1.0 + swing * np.sin(2 * np.pi * (starts % DAY - 8 * HOUR) / DAY)) * np.where(
        weekday, 1.0, WEEKEND
    )
    edges = np.concatenate([[0.0], np.cumsum(rate)]) / rate.sum()
    drawn = np.interp(np.sort(draw.random(count)), edges, np.arange(hours + 1) * (span / hours))
    return np.asarray(FIRST_MONDAY_SECONDS + np.floor(drawn), np.int64)


def _resources(gpus: int, *, spare: bool = False) -> dict[str, str]:
    """Return the CPU, memory and GPUs of a pod or node; with `spare`, more CPU and memory than pods use."""
    extra = int(spare)
    return {
        "cpu": str(CPU_A_GPU * gpus + 8 * extra),
        "memory": f"{MEMORY_A_GPU * gpus + 64 * extra}Gi",
        GPU: str(gpus),
    }
