"""Joint sessions against brute force: subGroups, surplus, required and preferred levels, queues and priorities."""

import itertools
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from batchsched.api.core.metadata import parse_timestamp
from batchsched.api.core.pod import Pod
from batchsched.api.core.requests import pod_requests
from batchsched.api.decision import Decision
from batchsched.api.snapshot import Snapshot
from batchsched.session.joint.formulation import Formulation
from batchsched.solver.problem import Problem
from tests.session import audit
from tests.session.clusters import NO_RULES, TINY, clusters
from tests.session.scenario import NOW, profile, schedule
from tests.session.scenes import inside
from tests.solver.brute import brute, preferred

pytestmark = pytest.mark.properties
EXACT = profile(solver={"gap": 0.0})


def counts_of(formulation: Formulation, decision: Decision) -> dict[tuple[int, int], int]:
    """What was assigned, by class and node of the problem."""
    nodes = {one.pod: one.node for one in decision.assignments}
    names = {f"n{at}": at for at in range(len(formulation.problem.nodes.free))}
    counts: dict[tuple[int, int], int] = {}
    for at, (_, part) in enumerate(formulation.parts):
        for pod in part.pods:
            if pod.name in nodes:
                key = at, names[nodes[pod.name]]
                counts[key] = counts.get(key, 0) + 1
    return counts


def priorities(formulation: Formulation) -> list[int]:
    """The priorities of a formulation, the highest first."""
    return sorted({priority for _, priority in formulation.tiers}, reverse=True)


def by_priority(formulation: Formulation, tiers: Iterable[float]) -> list[float]:
    """The values of tiers as in a decision: partially bound gangs together with the others of their priority."""
    found = dict.fromkeys(priorities(formulation), 0.0)
    for (_, priority), value in zip(formulation.tiers, tiers, strict=True):
        found[priority] += value
    return list(found.values())


@given(cluster=clusters(NO_RULES))
def test_tiers_gangs_and_preferred_levels_reach_the_optimum(cluster: Snapshot):
    formulation = inside(cluster, EXACT).joint()
    best = brute(formulation.problem)
    decision = schedule(cluster, EXACT)
    reached = [tier.objective for tier in decision.solver.tiers]
    assert [tier.priority for tier in decision.solver.tiers] == priorities(formulation)
    assert reached == pytest.approx(by_priority(formulation, best.tiers), rel=1e-9, abs=1e-12)
    assert [tier.bound for tier in decision.solver.tiers] == pytest.approx(reached, rel=1e-9, abs=1e-12)
    counts = counts_of(formulation, decision)
    assert taken(formulation.problem, counts) == best.gangs
    assert preferred(formulation.problem, counts) == pytest.approx(best.cost, rel=1e-9, abs=1e-9)


def taken(problem: Problem, counts: dict[tuple[int, int], int]) -> int:
    with_pods = {int(problem.classes.gang[c]) for c, _ in counts}
    return sum(problem.gangs.need[g] == 0 or g in with_pods for g in range(len(problem.gangs.need)))


@given(cluster=clusters(NO_RULES))
def test_refused_gang_cannot_be_added_even_when_this_sessions_pods_may_move(cluster: Snapshot):
    formulation = inside(cluster, EXACT).joint()
    problem = formulation.problem
    decision = schedule(cluster, EXACT)
    placed = np.zeros(len(problem.classes.gang), np.int32)
    for (c, _), count in counts_of(formulation, decision).items():
        placed[c] += count
    held = np.bincount(problem.classes.gang, placed, minlength=len(problem.gangs.need)).astype(np.int32)
    refused = {one.pod_group for one in decision.refusals}
    for number, gang in enumerate(formulation.gangs):
        if gang.key not in refused:
            continue
        kept = held > 0
        wanted = replace(
            problem,
            classes=replace(
                problem.classes,
                count=np.where(kept[problem.classes.gang], placed, problem.classes.count),
                weight=np.zeros_like(problem.classes.weight),
            ),
            gangs=replace(
                problem.gangs,
                need=np.where(kept, held, problem.gangs.need),
                allowed=kept | (np.arange(len(kept)) == number),
                fresh=problem.gangs.fresh & ~(kept & (problem.gangs.need == 0)),
            ),
        )
        assert brute(wanted).gangs < int((wanted.gangs.allowed | (wanted.gangs.need == 0)).sum())


@given(cluster=clusters(TINY))
def test_no_valid_placement_has_a_higher_value(cluster: Snapshot):
    """Evaluates every placement of every pod by the objects only, so that the formulation is tested too."""
    waiting = [pod for pod in cluster.pods if not pod.node_name]
    tier_of = tiers_of(cluster)
    shares = {pod.key: weight(cluster, pod) for pod in waiting}
    tiers = sorted(set(tier_of.values()), reverse=True)

    def value(places: dict[str, str]) -> tuple[float, ...]:
        return tuple(round(sum(shares[key] for key in places if tier_of[key] == tier), 9) for tier in tiers)

    found = schedule(cluster, EXACT)
    mine = value({one.pod_key: one.node for one in found.assignments})
    names = ("", *(node.name for node in cluster.nodes))
    for choice in itertools.product(names, repeat=len(waiting)):
        places = {pod.key: name for pod, name in zip(waiting, choice, strict=True) if name}
        if value(places) > mine:
            assert audit.violations(cluster, places), places


def tiers_of(cluster: Snapshot) -> dict[str, tuple[bool, int]]:
    """By pod, whether its gang is partially bound, which comes first, and its priority."""
    values = {one.metadata.name: one.value for one in cluster.priority_classes}
    found: dict[str, tuple[bool, int]] = {}
    for group, pods in audit.gangs(cluster).values():
        half = any(pod.node_name for pod in pods) and not audit.complete(group, pods, {})
        priority = values.get(group.spec.priority_class_name, 0) if group else 0
        found |= {pod.key: (half, priority) for pod in pods}
    return found


def weight(cluster: Snapshot, pod: Pod) -> float:
    """The dominant share with the age bonus, as the decision format states it."""
    totals: dict[str, int] = {}
    for node in cluster.nodes:
        for resource, amount in node.parse_allocatable_in_base_units().items():
            totals[resource] = totals.get(resource, 0) + amount
    counted = [name for name in totals if name in ("cpu", "memory") or name.endswith("/gpu")]
    share = max(pod_requests(pod).get(name, 0) / totals[name] if totals[name] else 0.0 for name in counted)
    ages = {
        key: NOW - min(parse_timestamp(one.metadata.creation_timestamp) for one in pods)
        for key, (_, pods) in audit.gangs(cluster).items()
        if any(not one.node_name for one in pods)
    }
    age = ages[audit.group_of(pod)] - min(ages.values())
    return share * (1 + 0.5 * min(1.0, age / 86400))
