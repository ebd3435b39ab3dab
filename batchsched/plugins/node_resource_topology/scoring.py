"""Scores of nodes by the amounts that are available in their NUMA zones.

Source: `score.go` and the files of the strategies in `pkg/noderesourcetopology` of the scheduler-plugins project.
"""

from collections.abc import Mapping
from enum import StrEnum
from itertools import combinations
from typing import Final

import numpy as np
from pydantic import Field

from batchsched.api.crd.base import StrictModel
from batchsched.framework.nodes.node_table import Nodes
from batchsched.framework.plugin_support.scores import CPU_AND_MEMORY, MAX_SCORE, ResourceSpec
from batchsched.framework.status import BoolArray, FloatArray, IntArray
from batchsched.plugins.node_resource_topology.demands import AlignedDemand, Requests
from batchsched.plugins.node_resource_topology.zones import ABSENT, NodeNumaZones, ZoneTable

MAX_ZONES: Final = 8
"""The number of NUMA zones that the kubelet supports by default; nodes with more score 0 by LeastNUMANodes."""
_SCORE_PER_ZONE: Final = MAX_SCORE // MAX_ZONES
_UNKNOWN_COST: Final = 255
_MILLI: Final = 1000


class ZoneScoringStrategyType(StrEnum):
    """The names of the strategies that compute the score of a node from the available amounts in its NUMA zones."""

    LEAST_ALLOCATED = "LeastAllocated"
    MOST_ALLOCATED = "MostAllocated"
    BALANCED_ALLOCATION = "BalancedAllocation"
    LEAST_NUMA_NODES = "LeastNUMANodes"


class ZoneScoringArgs(StrictModel):
    """The plugin argument `scoringStrategy`: a strategy, and the weights of resources."""

    type: ZoneScoringStrategyType = ZoneScoringStrategyType.LEAST_ALLOCATED
    resources: tuple[ResourceSpec, ...] = Field(
        default=CPU_AND_MEMORY,
        description="Weights of resources; a requested resource that is not in the list has the weight 1.",
    )


class NodeResourceTopologyMatchArgs(StrictModel):
    """Arguments of NodeResourceTopologyMatch, as in the scheduler-plugins project."""

    scoring_strategy: ZoneScoringArgs = ZoneScoringArgs()
    cache_resync_period_seconds: int = Field(
        default=0, description="It has no effect: pods that the object does not contain yet always count."
    )
    discard_reserved_nodes: bool = Field(
        default=False, description="It has no effect: a node with pods that have not started is not refused."
    )


def score_nodes(scoring: ZoneScoringArgs, demand: AlignedDemand, zones: ZoneTable, nodes: Nodes) -> IntArray:
    """Return the scores of n nodes for a Guaranteed pod; 0 if a node has no NodeResourceTopology.

    Strategies other than LeastNUMANodes also score a node 0 if its policy is not `single-numa-node`.
    """
    scores = np.zeros(len(nodes), np.int64)
    by_number = scoring.type is ZoneScoringStrategyType.LEAST_NUMA_NODES
    scored = np.flatnonzero((zones.has_topology if by_number else zones.single_zone)[nodes.where])
    if not len(scored):
        return scores
    indexes = nodes.node_indexes[scored]
    free = _free_amounts(zones, nodes, indexes.tolist())
    pod_scope = zones.pod_scope[indexes]
    if by_number:
        for position, node in enumerate(indexes.tolist()):
            topology = zones.nodes[node]
            if topology is not None:
                scores[scored[position]] = zone_count_score(demand, zones, topology, free[position])
        return scores
    weights = {spec.name: spec.weight for spec in scoring.resources}
    listed = zones.listed[indexes]
    of_pod = _node_scores(scoring.type, weights, demand.total, zones, free, listed)
    containers = [requests for requests in (*demand.init, *demand.running) if requests]
    by_container = [
        _node_scores(scoring.type, weights, requests, zones, free, listed) for requests in containers
    ]
    mean = np.mean(by_container, axis=0).astype(np.int64) if by_container else np.zeros_like(of_pod)
    scores[scored] = np.where(pod_scope, of_pod, mean)
    return scores


def _free_amounts(zones: ZoneTable, nodes: Nodes, indexes: list[int]) -> IntArray:
    """Return the free amounts [n, Z, K]; uncounted pods are subtracted from each zone of their node."""
    free = zones.available[indexes].copy()
    for position, node in enumerate(indexes):
        for demand in zones.demands_of_uncounted_pods(node, nodes.table):
            used = zones.request_vector(demand.total)
            free[position] = np.where(free[position] == ABSENT, ABSENT, np.maximum(free[position] - used, 0))
    return free


def _node_scores(
    strategy: ZoneScoringStrategyType,
    weights: Mapping[str, int],
    requests: Requests,
    zones: ZoneTable,
    free: IntArray,
    listed: BoolArray,
) -> IntArray:
    """Return the score [n] of each node: the lowest score of a zone above 0, or 0."""
    counted = [name for name in requests if name in zones.columns]
    amounts = {name: _whole(name, np.asarray(requests[name])) for name in counted}
    capacity = {name: _whole(name, np.maximum(free[:, :, zones.columns[name]], 0)) for name in counted}
    aligned = {name: listed[:, zones.columns[name], np.newaxis] for name in counted}
    if strategy is ZoneScoringStrategyType.BALANCED_ALLOCATION:
        scores = _balanced(amounts, capacity, aligned, free.shape[:2])
    else:
        total, weight = np.zeros(free.shape[:2], np.int64), np.zeros(free.shape[:2], np.int64)
        for name in counted:
            offered = np.maximum(capacity[name], 1)
            part = (
                amounts[name]
                if strategy is ZoneScoringStrategyType.MOST_ALLOCATED
                else offered - amounts[name]
            )
            fits = capacity[name] >= amounts[name]
            total += np.where(fits & aligned[name], part * MAX_SCORE // offered, 0) * weights.get(name, 1)
            weight += np.where(aligned[name], weights.get(name, 1), 0)
        scores = total // np.maximum(weight, 1)
    exists = (free != ABSENT).any(axis=2)
    scores = np.where(exists & (scores > 0), scores, MAX_SCORE + 1).min(axis=1)
    return np.where(scores > MAX_SCORE, 0, scores)


def _whole(name: str, amounts: IntArray) -> IntArray:
    """Return amounts in whole cores, rounded up, as the scores of scheduler-plugins read them."""
    return -(-amounts // _MILLI) if name == "cpu" else amounts


def _balanced(
    amounts: Mapping[str, IntArray],
    capacity: Mapping[str, IntArray],
    aligned: Mapping[str, BoolArray],
    shape: tuple[int, int],
) -> IntArray:
    """Return the score [n, Z] of each zone: higher if the requested fractions of the resources are equal."""
    fractions: list[FloatArray] = []
    for name, amount in amounts.items():
        fraction = np.where(capacity[name] > 0, amount / np.maximum(capacity[name], 1), 1.0)
        fractions.append(np.where(aligned[name], fraction, np.nan))
    if not fractions:
        return np.zeros(shape, np.int64)
    every = np.stack(fractions)
    count = np.isfinite(every).sum(axis=0)
    mean = np.nansum(every, axis=0) / np.maximum(count, 1)
    variance = np.nansum((every - mean) ** 2, axis=0) / np.maximum(count - 1, 1)
    fits = ~(every > 1).any(axis=0)
    return np.where(fits, np.maximum(1 - variance, 0) * MAX_SCORE, 0).astype(np.int64)


def zone_count_score(demand: AlignedDemand, zones: ZoneTable, topology: NodeNumaZones, free: IntArray) -> int:
    """Return the score of a node: higher if the pod needs fewer NUMA zones, and if they are close together.

    Zones are close together if no other set of as many zones of the node has a smaller sum of distances.

    Args:
      demand: the requests of the pod.
      zones: the zones of all nodes.
      topology: the zones of the node.
      free: [Z, K] the free amounts of its zones.
    """
    if len(topology.zones) > MAX_ZONES:
        return 0
    free = free[: len(topology.zones)].copy()
    listed = (free != ABSENT).any(axis=0)
    costs = _costs(topology)
    parts = (demand.total,) if topology.pod_scope else (*demand.init, *demand.running)
    most, nearest = 0, True
    for requests in parts:
        amounts = np.where(listed, zones.request_vector(requests), 0)
        if not amounts.any():
            continue
        chosen = _fewest_zones(amounts, free, costs)
        if chosen is None:
            return 0
        places, is_nearest = chosen
        most, nearest = max(most, len(places)), nearest and is_nearest
        remaining = amounts.copy()
        for place in places:
            taken = np.minimum(np.maximum(free[place], 0), remaining)
            free[place] -= taken
            remaining -= taken
    if not most:
        return MAX_SCORE
    return MAX_SCORE - most * _SCORE_PER_ZONE + (_SCORE_PER_ZONE // 2 if nearest else 0)


def _fewest_zones(amounts: IntArray, free: IntArray, costs: IntArray) -> tuple[list[int], bool] | None:
    """Return the fewest zones that offer some amounts, the nearest ones first, and whether no others are nearer.

    Args:
      amounts: [K] the requested amounts.
      free: [Z, K] the free amounts of each zone.
      costs: [Z, Z] the distances between zones.
    """
    requested = amounts > 0
    needed, offered = amounts[requested], free[:, requested]
    usable = (offered != ABSENT).all(axis=1)
    # With n zones, each resource reaches at most the sum of its n largest amounts.
    largest = np.sort(np.where(usable[:, np.newaxis], offered, 0), axis=0)[::-1].cumsum(axis=0)
    if (largest[-1] < needed).any():
        return None
    fewest = int((largest < needed).sum(axis=0).max()) + 1
    for count in range(fewest, int(usable.sum()) + 1):
        sets = np.array(list(combinations(range(len(free)), count)))
        fits = usable[sets].all(axis=1) & (offered[sets].sum(axis=1) >= needed).all(axis=1)
        if fits.any():
            distances = costs[sets[:, :, np.newaxis], sets[:, np.newaxis, :]].sum(axis=(1, 2))
            fitting = np.flatnonzero(fits)
            chosen = fitting[distances[fitting].argmin()]
            return sets[chosen].tolist(), bool(distances[chosen] == distances.min())
    return None


def _costs(topology: NodeNumaZones) -> IntArray:
    """Return the distances [Z, Z] between the zones of a node, and of each zone to itself."""
    return np.array(
        [
            [zone.costs.get(other.number, _UNKNOWN_COST) for other in topology.zones]
            for zone in topology.zones
        ],
        np.int64,
    )
