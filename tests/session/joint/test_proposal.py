"""Joint selection: what the walk refuses is cut, solved again, and tried by the pipeline at last."""

import numpy as np
from typing_extensions import override

from batchsched.config.schema import SolverSettings
from batchsched.framework.status import Verdict
from batchsched.framework.traits import PlacementEffect, PluginTraits
from tests.session import audit
from tests.session.clusters import random_cluster
from tests.session.scenario import alone, cluster, gang, nodes, placed, reasons, schedule
from tests.session.test_permit import Recorder, decide_with


class Shy(Recorder):
    """Does not want two of its pods on one node, and tells the solver nothing of it."""

    name = "Shy"
    traits = PluginTraits(placement_effect=PlacementEffect.ANY)

    @override
    def filter(self, pod, nodes, state):
        taken = np.array(
            [any(True for _ in nodes.table.pod_table.pods_on(int(at))) for at in nodes.node_indexes]
        )
        return Verdict.refuse(taken.reshape(len(nodes)), "already has company", unresolvable=False)


class Counting(Recorder):
    """Allows a maximum number of pods on a node, and implements `allows_bulk_placement` for several pods."""

    name = "Counting"
    traits = PluginTraits(placement_effect=PlacementEffect.USES_CAPACITY)

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self.asked = 0

    def signature(self, pod):
        return ""

    @override
    def filter(self, pod, nodes, state):
        taken = self._on(nodes.table, nodes.node_indexes)
        return Verdict.refuse(taken >= self._most, "is full", unresolvable=False)

    def allows_bulk_placement(self, pod, table, nodes, counts):
        self.asked += 1
        return bool((self._on(table, nodes) + counts <= self._most).all())

    def _on(self, table, nodes):
        return np.array([len(list(table.pod_table.pods_on(int(at)))) for at in nodes], np.int64)


def test_plugin_is_asked_once_for_equal_single_pods():
    plugin = Counting(most=4)
    decision, _ = decide_with(plugin, cluster(nodes(3, cpu=4), alone(12, cpu=1)))
    assert len(placed(decision)) == 12
    assert plugin.asked == 1


def test_equal_single_pods_are_placed_one_by_one_if_not_all_are_admitted():
    decision, sessions = decide_with(Counting(most=1), cluster(nodes(3, cpu=4), alone(4, cpu=1)))
    assert sorted(placed(decision).values()) == ["n0", "n1", "n2"]
    assert not sessions.tables.node_table.requested.any()


def test_equal_single_pods_are_placed_one_by_one_if_admits_raises():
    class Breaking(Counting):
        @override
        def allows_bulk_placement(self, pod, table, nodes, counts):
            if counts.sum() > 1:
                raise RuntimeError("out of cheese")
            return super().allows_bulk_placement(pod, table, nodes, counts)

    decision, _ = decide_with(Breaking(most=4), cluster(nodes(3, cpu=4), alone(12, cpu=1)))
    assert len(placed(decision)) == 12
    assert reasons(decision) == {}


def test_placement_that_the_pipeline_refuses_is_cut_and_solved_again():
    decision, _ = decide_with(Shy(), cluster(nodes(3, gpu=4), gang("bert", 3)))
    assert sorted(placed(decision).values()) == ["n0", "n1", "n2"]


def test_gang_that_the_pipeline_always_refuses_does_not_affect_other_gangs():
    decision, sessions = decide_with(Shy(), cluster(nodes(3, gpu=4), gang("bert", 4), gang("gpt", 2)))
    assert {name.split("-")[0] for name in placed(decision)} == {"gpt"}
    assert reasons(decision) == {"team/bert": "PluginConstraint"}
    assert "already has company" in decision.refusals[0].message
    assert not sessions.tables.node_table.requested.any()


def test_bound_includes_rejected_gangs_and_the_objective_only_placed_ones():
    decision, _ = decide_with(Shy(), cluster(nodes(2, gpu=4), gang("bert", 4), gang("gpt", 2)))
    (tier,) = decision.solver.tiers
    assert 0 < tier.objective < tier.bound
    assert 0 < decision.solver.gap < 1


def test_one_round_is_enough_if_the_pipeline_refuses_no_pod():
    decision, _ = decide_with(
        Recorder(), cluster(nodes(2, gpu=1), gang("bert", 2)), solver=SolverSettings(rounds=1)
    )
    assert len(placed(decision)) == 2
    assert decision.solver.gap == 0


def test_gang_placed_without_some_of_its_surplus_is_not_placed_twice():
    cluster_of_many_rules = random_cluster(4658)
    decision = schedule(cluster_of_many_rules)
    there = {one.pod_key: one.node for one in decision.assignments}
    assert len(there) == len(decision.assignments)
    assert audit.violations(cluster_of_many_rules, there) == []
