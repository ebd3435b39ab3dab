"""What budgets leave, as rows over units."""

import msgspec
import numpy as np

from batchsched.api.core.cluster_objects import PodDisruptionBudget
from batchsched.framework.runtime.registry import standard_registry
from batchsched.session.preemption.constraints import EvictionConstraints, EvictionOption
from batchsched.session.preemption.eligibility import VictimCandidates
from batchsched.session.tables.session_tables import SessionTables
from tests.session.preemption.running import running
from tests.session.scenario import NOW, cluster, nodes, profile
from tests.solver.victims.instances import victims_of


def test_budget_counts_the_pods_of_each_unit_that_it_protects():
    made = running("g", ["n0", "n1"], requests={"gpu": 1})
    tables = SessionTables(cluster(nodes(2, gpu=8), made), standard_registry().create_pipeline(profile()))
    tables.refresh()
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
    problem = EvictionConstraints(causes, [budget]).problem_with_constraints(
        victims_of([[8]], {"pods": 1, "demand": [8]}, [(1, {0: [8]})])
    )
    assert problem.limit.tolist() == [1]
    assert problem.limit_amount.tolist() == [2]
    assert EvictionConstraints(causes, []).problem_with_constraints(problem).limit.tolist() == []
    assert problem.limit_unit.dtype == np.int32


def test_a_budget_that_allows_less_than_nothing_admits_sets_that_it_does_not_protect():
    made = running("g", ["n0"], requests={"gpu": 1})
    tables = SessionTables(cluster(nodes(2, gpu=8), made), standard_registry().create_pipeline(profile()))
    tables.refresh()
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
    constraints = EvictionConstraints(options, [msgspec.convert(overdrawn, PodDisruptionBudget)])
    problem = victims_of([[8]], {"pods": 1, "demand": [8]}, [(1, {0: [8]})])
    assert constraints.problem_with_constraints(problem).limit.tolist() == [0]
