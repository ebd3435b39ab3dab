"""Small clusters with labels, and pods that care for each other: builders and hypothesis strategies."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec
import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from batchsched.api.core.cluster_objects import Namespace, Service
from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.api.snapshot import Snapshot
from batchsched.framework.constrain import (
    ALL_NODES,
    EVERY_NODE,
    CandidatePods,
    CandidateSet,
    ConstraintRow,
    Sense,
)
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.nodes.node_table import LEADING, NodeTable
from batchsched.framework.pod_class import PodClass
from batchsched.framework.status import BoolArray, Code
from tests.plugins.cluster import class_of, drawn_cases, filtered, named, put, take

ZONE, HOST, RACK = "topology.kubernetes.io/zone", "kubernetes.io/hostname", "rack"


def node(
    name: str, labels: Mapping[str, str] | None = None, taints: Sequence[Mapping[str, str]] = ()
) -> Node:
    content = {
        "metadata": {"name": name, "labels": {HOST: name, **(labels or {})}},
        "spec": {"taints": list(taints)},
        "status": {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110"}},
    }
    return msgspec.convert(content, Node)


def pod(name: str, labels: Mapping[str, str] | None = None, namespace: str = "default", **spec: Any) -> Pod:
    """A pod; `terminating=True` marks it deleted, all other arguments are fields of its spec in camelCase."""
    metadata: dict[str, Any] = {"name": name, "namespace": namespace, "labels": dict(labels or {})}
    if spec.pop("terminating", False):
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return msgspec.convert({"metadata": metadata, "spec": spec}, Pod)


def spread(key: str, app: str, skew: int = 1, **fields: Any) -> dict[str, Any]:
    return {
        "topologyKey": key,
        "maxSkew": skew,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app}},
        **fields,
    }


def near(key: str, **labels: str) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": {"matchLabels": labels}}


def required(*, together: Iterable[Any] = (), apart: Iterable[Any] = ()) -> dict[str, Any]:
    named = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"podAffinity": {named: list(together)}, "podAntiAffinity": {named: list(apart)}}


def preferred(*, together: Iterable[Any] = (), apart: Iterable[Any] = ()) -> dict[str, Any]:
    """(weight, term) pairs."""
    named = "preferredDuringSchedulingIgnoredDuringExecution"

    def weighted(pairs: Iterable[Any]) -> dict[str, Any]:
        return {named: [{"weight": weight, "podAffinityTerm": term} for weight, term in pairs]}

    return {"podAffinity": weighted(together), "podAntiAffinity": weighted(apart)}


def table_of(
    nodes: Sequence[Node],
    bound: Iterable[tuple[Pod, int]] = (),
    namespaces: Sequence[Namespace] = (),
    services: Sequence[Service] = (),
) -> NodeTable:
    snapshot = Snapshot(nodes=tuple(nodes), namespaces=tuple(namespaces), services=tuple(services))
    table = NodeTable(snapshot, LEADING)
    for one, at in bound:
        put(table, one, at)
    return table


def fits(plugin: Any, table: NodeTable, one: Pod) -> list[str]:
    """The names of the nodes that a plugin does not refuse."""
    accepted = filtered(plugin, one, table).feasible_mask
    return [name for name, good in zip(table.names, accepted, strict=True) if good]


@dataclass(frozen=True)
class Gang:
    """Classes of equal pods: (a pod, how many)."""

    classes: tuple[tuple[Pod, int], ...]
    rigid: bool


@dataclass(frozen=True)
class World:
    """A cluster, and gangs that wait."""

    nodes: tuple[Node, ...]
    bound: tuple[tuple[Pod, int], ...]
    gangs: tuple[Gang, ...]
    namespaces: tuple[Namespace, ...]

    def table(self) -> NodeTable:
        return table_of(self.nodes, self.bound, self.namespaces)


def batch_of(world: World, table: NodeTable, reach: BoolArray | None = None) -> CandidateSet:
    """The candidates of all gangs, each in a subgroup of its own."""
    candidates: list[CandidatePods] = []
    for number, gang in enumerate(world.gangs):
        for one, count in gang.classes:
            at = len(candidates)
            candidates.append(
                CandidatePods(at, class_of(table, one), number, count, gang.rigid, reach, subgroup=at)
            )
    return CandidateSet(candidates)


def walk(plugin: Any, world: World, random: Random, reach: BoolArray) -> tuple[np.ndarray, np.ndarray]:
    """Place pods one by one in some order, each on some node that the plugin accepts then.

    A rigid gang of which a pod fits nowhere is left out, and the walk begins again without it.
    Returns ([C, N] pods of each class on each node, [G] gangs taken).
    """
    classes = [(g, one, count) for g, gang in enumerate(world.gangs) for one, count in gang.classes]
    taking = [g for g in range(len(world.gangs)) if random.random() < 0.8]
    while True:
        placed = np.zeros((len(classes), len(world.nodes)), np.int64)
        table = world.table()
        waiting = [c for c, (g, _, count) in enumerate(classes) if g in taking for _ in range(count)]
        random.shuffle(waiting)
        stuck = None
        for number, c in enumerate(waiting):
            gang, one, _ = classes[c]
            free = np.flatnonzero(filtered(plugin, one, table).feasible_mask & reach)
            if len(free):
                at = int(random.choice(free.tolist()))
                put(table, named(one, f"w{number}"), at)
                placed[c, at] += 1
            elif world.gangs[gang].rigid:
                stuck = gang
                break
        if stuck is None:
            break
        taking.remove(stuck)
    taken = np.zeros(len(world.gangs), np.int64)
    for c, (g, _, _) in enumerate(classes):
        taken[g] |= int(placed[c].any())
    return placed, taken


def asking(plugin: Any, world: World, table: NodeTable) -> tuple[Pod, PodClass, CycleState]:
    """The first pod that waits, its class, and what a plugin that has something to say of it kept at PreFilter."""
    pod, state = world.gangs[0].classes[0][0], CycleState()
    one = class_of(table, pod)
    assume(plugin.prefilter(one, table.all_nodes_view(), state).status.code is Code.SUCCESS)
    return pod, one, state


def judged_as_one_by_one(plugin: Any, world: World, data: st.DataObject) -> None:
    """See that a plugin says of all nodes at once, and of some in any order, what it says of each alone."""
    table = world.table()
    _, one, state = asking(plugin, world, table)
    whole = plugin.filter(one, table.all_nodes_view(), state)
    chosen = np.asarray(data.draw(st.permutations(range(len(world.nodes)))), np.int32)
    some = plugin.filter(one, table.selected_nodes_view(chosen), state)
    for place, at in enumerate(chosen.tolist()):
        alone = plugin.filter(one, table.node_view(at), state)
        assert alone.reasons_at(0) == whole.reasons_at(at) == some.reasons_at(place)
        assert alone.unresolvable[0] == whole.unresolvable[at] == some.unresolvable[place]


def come_and_go(
    plugin: Any, world: World, table: NodeTable, one: PodClass, state: CycleState, random: Random
) -> Iterator[None]:
    """Add or remove one pod at a time, and notify the plugin."""
    present = list(world.bound)
    for number in range(8):
        if present and random.random() < 0.4:
            pod, at = present.pop(random.randrange(len(present)))
            take(table, pod)
            plugin.remove_pod(one, pod, at, table, state)
        else:
            waiting = [pod for gang in world.gangs for pod, _ in gang.classes]
            pod, at = random.choice(waiting), random.randrange(len(world.nodes))
            pod = named(pod, f"late{number}")
            put(table, pod, at)
            present.append((pod, at))
            plugin.add_pod(one, pod, at, table, state)
        yield


def broken(row: ConstraintRow, batch: CandidateSet, placed: np.ndarray, taken: np.ndarray) -> list[int]:
    """The domains in which a row does not hold."""
    size = placed.shape[1]
    special = {ALL_NODES: np.zeros(size, np.int64), EVERY_NODE: np.arange(size)}
    place = special[row.partition] if row.partition < 0 else batch.partitions[row.partition]
    assert len(row.right) == place.max() + 1
    left = np.zeros(len(row.right), np.int64)
    for klass, coefficient in zip(row.classes, row.coefficients, strict=True):
        np.add.at(left, place[place >= 0], coefficient * placed[klass][place >= 0])
    if len(row.gangs):
        left += row.gang_coefficients @ taken[row.gangs]
    over = left > row.right if row.sense is Sense.AT_MOST else left < row.right
    if row.on_second_side is not None:
        sides = np.zeros((2, len(row.right)), np.int64)
        for klass, second in zip(row.classes, row.on_second_side.astype(int), strict=True):
            np.add.at(sides[second], place[place >= 0], placed[klass][place >= 0])
        over |= (sides > 0).all(axis=0)
    return [int(d) for d in np.flatnonzero(over)]


@st.composite
def worlds(draw: st.DrawFn, area: str) -> World:
    """A drawn cluster, and gangs of pods that state what the pods of its area state."""
    case = draw(drawn_cases(area))
    pods = [case.pod, *(other.pod for other in draw(st.lists(drawn_cases(area), max_size=3)))]
    gangs = []
    for number in range(draw(st.integers(1, 3))):
        classes = tuple(
            (named(draw(st.sampled_from(pods)), f"g{number}-{part}"), draw(st.integers(1, 5)))
            for part in range(draw(st.integers(1, 2)))
        )
        gangs.append(Gang(classes, draw(st.booleans())))
    index = {node.name: at for at, node in enumerate(case.nodes)}
    bound = tuple((one, index[one.node_name]) for one in case.pods)
    return World(case.nodes, bound, tuple(gangs), case.namespaces)
