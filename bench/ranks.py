"""The cost of consecutive ranks on a topology of three levels at 90 % load, beside its lower bound and job by job."""

import argparse
import csv
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from batchsched.api.core.metadata import ObjectMeta
from batchsched.api.core.node import Node, NodeStatus
from batchsched.api.core.pod import POD_GROUP_LABEL, Container, Pod, PodSpec, ResourceRequirements
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.crd.topology import Topology
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.session.session import decide
from batchsched.solver.domain_tree import NODE_COST, network_costs_by_level

NOW = 1767225600.0
DEVICES = 8
"""GPUs of each host."""
GPU = "nvidia.com/gpu"
RANK_LABEL = "batch.kubernetes.io/job-completion-index"
PODS = (8, 16, 32, 64, 128, 256, 24, 48, 96)
"""Sizes of gangs, in pods of one GPU each."""


@dataclass(frozen=True, slots=True)
class Host:
    """A host of the topology: its name and the path of its domains, the widest first."""

    name: str
    path: tuple[str, ...]


def read_hosts(file: Path) -> list[Host]:
    """Read hosts from a table with the columns ip, DSW, PSW and ASW: a host and its switches, the widest first."""
    with file.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    # Names of switches repeat below different switches of the level above.
    return [
        Host(
            f"host-{number:04}",
            (row["DSW"], f"{row['DSW']}.{row['PSW']}", f"{row['DSW']}.{row['PSW']}.{row['ASW']}"),
        )
        for number, row in enumerate(rows)
    ]


def generated_hosts() -> list[Host]:
    """Return 848 hosts below 3 spines with leaves of 5 to 9 hosts, for use without a table."""
    rng, hosts = random.Random(0), list[Host]()
    for leaf in range(120):
        path = ("core", f"spine-{leaf % 3}", f"leaf-{leaf}")
        hosts += [Host(f"host-{len(hosts) + number:04}", path) for number in range(rng.randint(5, 9))]
    return hosts[:848]


class Cluster:
    """Hosts with gangs that come and go, so that the free GPUs are scattered as on a cluster in use."""

    def __init__(self, hosts: Sequence[Host], *, ranks: bool, seed: int) -> None:
        self._hosts = hosts
        self._index = {host.name: number for number, host in enumerate(hosts)}
        names = ("core", "spine", "leaf")
        self._topology = Topology.model_validate(
            {
                "metadata": {"name": "default"},
                "spec": {"levels": [{"name": name, "nodeLabel": f"net/{name}"} for name in names]},
            }
        )
        self._nodes = tuple(
            Node(
                metadata=ObjectMeta(
                    name=host.name,
                    labels={
                        "kubernetes.io/hostname": host.name,
                        **{f"net/{name}": domain for name, domain in zip(names, host.path, strict=True)},
                    },
                ),
                status=NodeStatus(allocatable={"cpu": "64", "pods": "110", GPU: str(DEVICES)}),
            )
            for host in hosts
        )
        self._ranks = ranks
        self._rng = random.Random(seed)
        self._running: dict[str, tuple[Pod, ...]] = {}
        self.used = np.zeros(len(hosts), np.int64)

    @property
    def load(self) -> float:
        """The share of all GPUs that are in use."""
        return float(self.used.sum()) / (DEVICES * len(self._hosts))

    def make_room(self, pods: int, load: float) -> None:
        """End random gangs until the next gang keeps the load at most."""
        most = load * DEVICES * len(self._hosts)
        while self.used.sum() + pods > most:
            name = self._rng.choice(sorted(self._running))
            for pod in self._running.pop(name):
                self.used[self._index[pod.node_name]] -= 1

    def place(self, name: str, pods: int) -> list[int]:
        """Decide about one gang, and return the host of each rank.

        Raises:
          RuntimeError: the gang was refused.
        """
        members = tuple(self._pod(name, rank, "") for rank in range(pods))
        topology = {"rankLabel": RANK_LABEL} if self._ranks else {}
        group = PodGroup.model_validate(
            {
                "metadata": {"name": name, "namespace": "team"},
                "spec": {"minMember": pods, "topology": topology},
            }
        )
        running = tuple(pod for gang in self._running.values() for pod in gang)
        snapshot = Snapshot(
            nodes=self._nodes,
            pods=(*running, *members),
            pod_groups=(group,),
            topologies=(self._topology,),
        )
        decision = decide(snapshot, Profile.model_validate({"placement": "pack"}), NOW, 0)
        if len(decision.assignments) != pods:
            raise RuntimeError(f"the gang {name} was refused although {pods} GPUs are free")
        host_of = {assignment.pod: assignment.node for assignment in decision.assignments}
        placed = tuple(self._pod(name, rank, host_of[pod.name]) for rank, pod in enumerate(members))
        self._running[name] = placed
        ranks = [self._index[pod.node_name] for pod in placed]
        np.add.at(self.used, ranks, 1)
        return ranks

    def _pod(self, name: str, rank: int, node: str) -> Pod:
        container = Container(name="main", resources=ResourceRequirements(requests={"cpu": "1", GPU: "1"}))
        return Pod(
            metadata=ObjectMeta(
                name=f"{name}-{rank}",
                namespace="team",
                labels={POD_GROUP_LABEL: name, RANK_LABEL: str(rank)},
            ),
            spec=PodSpec(scheduler_name="batchsched", node_name=node, containers=(container,)),
        )


def cost_of_hops(hosts: Sequence[Host], ranks: Sequence[int]) -> int:
    """Return the cost of all hops between consecutive ranks, each by the widest domain that it leaves."""
    prices = [NODE_COST + sum(network_costs_by_level(3)[level:]) for level in range(3)]
    total = 0
    for first, second in itertools.pairwise(ranks):
        if first == second:
            continue
        paths = zip(hosts[first].path, hosts[second].path, strict=True)
        total += next((prices[level] for level, (one, other) in enumerate(paths) if one != other), NODE_COST)
    return total


def lower_bound(hosts: Sequence[Host], free: "np.ndarray[tuple[int], np.dtype[np.int64]]", pods: int) -> int:
    """Return a lower bound of the cost: the fewest hosts and, level by level, the fewest domains that have room."""

    def fewest(room: Sequence[int]) -> int:
        return int(np.searchsorted(np.cumsum(sorted(room, reverse=True)), pods)) + 1

    bound = NODE_COST * (fewest(free.tolist()) - 1)
    for level, price in enumerate(network_costs_by_level(3)):
        room: dict[tuple[str, ...], int] = {}
        for host, devices in zip(hosts, free.tolist(), strict=True):
            path = host.path[: level + 1]
            room[path] = room.get(path, 0) + devices
        bound += price * (fewest(list(room.values())) - 1)
    return bound


def main(arguments: list[str]) -> int:
    """Print mean costs with ranks and without, and their lower bounds."""
    parser = argparse.ArgumentParser(prog="python -m bench ranks", description=__doc__)
    parser.add_argument(
        "--hosts", type=Path, help="table of hosts (ip, DSW, PSW, ASW); default: 848 generated ones"
    )
    parser.add_argument("--gangs", type=int, default=300, help="gangs to place (default: 300)")
    parser.add_argument("--warm-up", type=int, default=100, help="gangs that are not measured (default: 100)")
    parser.add_argument("--load", type=float, default=0.9, help="share of the GPUs in use (default: 0.9)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    hosts = read_hosts(options.hosts) if options.hosts else generated_hosts()
    print(f"{len(hosts)} hosts, {options.gangs - options.warm_up} gangs, load {options.load:.0%}")
    print(f"{'placement':<12} {'cost':>8} {'bound':>8} {'above':>8}")
    for name, ranks in (("ranks", True), ("no ranks", False)):
        cluster = Cluster(hosts, ranks=ranks, seed=options.seed)
        sizes = random.Random(options.seed)
        costs, bounds = [], []
        for number in range(options.gangs):
            pods = sizes.choice(PODS)
            cluster.make_room(pods, options.load)
            free = DEVICES - cluster.used
            placed = cluster.place(f"gang-{number}", pods)
            if number >= options.warm_up:
                costs.append(cost_of_hops(hosts, placed))
                bounds.append(lower_bound(hosts, free, pods))
        above = sum(costs) / max(1, sum(bounds)) - 1
        print(f"{name:<12} {np.mean(costs):>8.2f} {np.mean(bounds):>8.2f} {above:>8.1%}", flush=True)
    return 0
