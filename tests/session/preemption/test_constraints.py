"""What budgets leave, as rows over units."""

from typing import Any

import msgspec
import numpy as np

from batchsched.api.core.cluster_objects import PodDisruptionBudget
from batchsched.api.core.pod import Pod
from batchsched.framework.runtime.registry import standard_registry
from batchsched.session.preemption.constraints import DisruptionBudgets, EvictionConstraints, EvictionOption
from batchsched.session.preemption.eligibility import VictimCandidates
from batchsched.session.tables.session_tables import SessionTables
from tests.session.preemption.running import at_work, budget, running
from tests.session.scenario import NOW, cluster, nodes, pod, profile, schedule
from tests.solver.victims.instances import victims_of


def test_budget_counts_the_pods_of_each_unit_that_it_protects():
    made = running("g", ["n0", "n1"], requests={"gpu": 1})
    tables = SessionTables(cluster(nodes(2, gpu=8), made), standard_registry().create_pipeline(profile()))
    tables.update_pending_gangs_and_indexes()
    causes = [
        EvictionOption(unit, "Preempted")
        for one in VictimCandidates(tables, NOW, "batchsched").unprotected_candidates
        for unit in one.eviction_units
    ]
    selector = {"matchLabels": dict(made.pods[0].labels)}
    budget = msgspec.convert(
        {
            "metadata": {"name": "b", "namespace": "team"},
            "spec": {"selector": selector},
            "status": {"disruptionsAllowed": 1},
        },
        PodDisruptionBudget,
    )
    problem = EvictionConstraints(causes, DisruptionBudgets([budget])).problem_with_constraints(
        victims_of([[8]], {"pods": 1, "demand": [8]}, [(1, {0: [8]})])
    )
    assert problem.limit.tolist() == [1]
    assert problem.limit_amount.tolist() == [2]
    without = EvictionConstraints(causes, DisruptionBudgets([]))
    assert without.problem_with_constraints(problem).limit.tolist() == []
    assert problem.limit_unit.dtype == np.int32


def test_each_pod_is_matched_once_in_a_session_and_only_with_budgets_that_select_its_labels(monkeypatch):
    apps = [f"app{at}" for at in range(4)]
    pods = tuple(
        at_work(pod(f"{app}-{place}", gpu=4, labels={"app": app}), place)
        for app, place in zip(apps, ["n0", "n0", "n1", "n1"], strict=True)
    )
    budgets = tuple(budget(1, app=app) for app in apps)
    wishes = tuple(pod(f"wish{at}", priority=10, gpu=4) for at in range(3))
    snapshot = cluster(nodes(2, gpu=8), pods=(*pods, *wishes), pod_disruption_budgets=budgets)
    matched: list[tuple[str, str]] = []
    protects = PodDisruptionBudget.counts_eviction_of

    def recorded(one: Any, shown: Pod) -> bool:
        matched.append((one.spec.selector.match_labels["app"], shown.labels["app"]))
        return protects(one, shown)

    monkeypatch.setattr(PodDisruptionBudget, "counts_eviction_of", recorded)
    assert len(schedule(snapshot).evictions) == 3
    assert sorted(matched) == [(app, app) for app in apps]


def test_pods_are_protected_by_budgets_of_their_namespace_until_their_eviction_is_counted():
    db, web = pod("db", labels={"app": "db"}), pod("web", labels={"app": "web"})
    budgets = DisruptionBudgets(
        [
            budget(2, app="db"),
            _in_namespace(budget(2, app="web"), "other"),
            _with_selector({"matchExpressions": [{"key": "app", "operator": "Exists"}]}),
            _with_selector({}),
        ]
    )
    assert budgets.protecting_budgets([db, web]) == {"team/db": [0, 2], "team/web": [2]}
    budgets.count_eviction(db)
    assert budgets.protecting_budgets([db, web]) == {"team/db": [], "team/web": [2]}
    assert [budgets.disruptions_allowed(number) for number in range(3)] == [1, 2, 0]


def _in_namespace(one: PodDisruptionBudget, namespace: str) -> PodDisruptionBudget:
    return msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, namespace=namespace))


def _with_selector(selector: dict[str, Any]) -> PodDisruptionBudget:
    stated = {
        "metadata": {"name": "b", "namespace": "team"},
        "spec": {"selector": selector},
        "status": {"disruptionsAllowed": 1},
    }
    return msgspec.convert(stated, PodDisruptionBudget)


def test_a_budget_that_allows_less_than_nothing_admits_sets_that_it_does_not_protect():
    made = running("g", ["n0"], requests={"gpu": 1})
    tables = SessionTables(cluster(nodes(2, gpu=8), made), standard_registry().create_pipeline(profile()))
    tables.update_pending_gangs_and_indexes()
    options = [
        EvictionOption(unit, "Preempted")
        for one in VictimCandidates(tables, NOW, "batchsched").unprotected_candidates
        for unit in one.eviction_units
    ]
    overdrawn = {
        "metadata": {"name": "b", "namespace": "team"},
        "spec": {"selector": {"matchLabels": dict(made.pods[0].labels)}},
        "status": {"disruptionsAllowed": -1},
    }
    budgets = DisruptionBudgets([msgspec.convert(overdrawn, PodDisruptionBudget)])
    constraints = EvictionConstraints(options, budgets)
    problem = victims_of([[8]], {"pods": 1, "demand": [8]}, [(1, {0: [8]})])
    assert constraints.problem_with_constraints(problem).limit.tolist() == [0]
