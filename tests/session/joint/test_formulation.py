"""The problem of one gang that is kept for later sessions: only what follows from nodes and the gang itself."""

from typing import Any

import pytest
from typing_extensions import override

from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.runtime.registry import standard_registry
from batchsched.framework.status import PreFilterAnswer
from batchsched.framework.traits import PlacementEffect, PluginTraits
from batchsched.ports.external import NoTelemetry
from batchsched.session.joint.formulation import problem_at_later_time
from batchsched.session.session import Session
from batchsched.session.statement import Statement
from tests.session.clusters import on
from tests.session.scenario import (
    NOW,
    cluster,
    gang,
    node,
    nodes,
    placed,
    pod,
    profile,
    queue,
    schedule,
    topology,
)
from tests.session.scenes import Inside
from tests.session.test_permit import Recorder


class Solitary(Recorder):
    """Takes only nodes without pods."""

    name = "Solitary"
    traits = PluginTraits(placement_effect=PlacementEffect.ANY)

    def signature(self, pod):
        return ""

    @override
    def prefilter(self, pod, nodes, state):
        table = nodes.table
        names = [
            name for at, name in enumerate(table.names) if not any(True for _ in table.pod_table.pods_on(at))
        ]
        return PreFilterAnswer(nodes=frozenset(names))


def session_of(snapshot, *plugins):
    usual = standard_registry().create_pipeline(profile())
    return Session(snapshot, Profile(), Pipeline((*usual.plugins, *plugins), usual.weights))


def inside(session):
    session.tables.update_pending_gangs_and_indexes()
    run = session._new_run(Statement(session.tables, NOW), frozenset(), NOW, 0, NoTelemetry())
    return Inside(session, run, run.formulation_input())


@pytest.mark.parametrize("plugins, opened", [((Solitary(),), [False, True]), ((), [True, True])])
def test_problem_of_a_gang_is_rebuilt_after_a_deletion_if_a_plugin_reads_pods(plugins, opened):
    neighbour = on(pod("old", gpu=1), "n0")
    session = session_of(cluster(nodes(2, gpu=4), gang("bert", 1), pods=(neighbour,)), *plugins)
    masks = []
    for leaving in ((), (neighbour,)):
        for one in leaving:
            session.tables.remove_pod(one)
        scene = inside(session)
        problem = problem_at_later_time(scene.inputs, scene.gang("team/bert"))
        masks.append(bool(problem.kinds.mask[0, 0]))
    assert masks == opened


@pytest.mark.parametrize("rack", ["a", "b", "c"])
def test_a_running_gang_grows_in_the_domain_that_it_prefers_and_uses(rack):
    level: dict[str, Any] = {"topology": {"preferred": "rack"}}
    there = tuple(node(f"n-{name}", {"rack": name}, gpu=4) for name in "abc")
    first, second = gang("g", 2, **level).pods
    snapshot = cluster(
        there,
        Snapshot(pods=(on(first, f"n-{rack}"), second), pod_groups=gang("g", 2, **level).pod_groups),
        topologies=(topology("rack"),),
    )
    assert placed(schedule(snapshot, profile())) == {"g-1": f"n-{rack}"}


def test_a_pod_bound_to_an_unknown_node_pins_its_gang_to_no_domain():
    level: dict[str, Any] = {"topology": {"required": "rack"}}
    there = (node("n-a", {"rack": "a"}, gpu=4), node("n-b", {"rack": "b"}))
    first, second = gang("g", 2, **level).pods
    snapshot = cluster(
        there,
        Snapshot(pods=(on(first, "deleted"), second), pod_groups=gang("g", 2, **level).pod_groups),
        topologies=(topology("rack"),),
    )
    assert placed(schedule(snapshot, profile())) == {"g-1": "n-a"}


def test_a_missing_pod_of_a_running_gang_does_not_count_as_another_gang_of_its_queue():
    made = gang("g", 2, queue="q")
    snapshot = cluster(
        nodes(2, gpu=1),
        Snapshot(pods=(on(made.pods[0], "n0"), made.pods[1]), pod_groups=made.pod_groups),
        queues=(queue("q", maxRunningPodGroups=1),),
    )
    assert placed(schedule(snapshot, profile())) == {"g-1": "n1"}


def test_the_bound_of_a_second_window_is_the_weight_of_all_its_pods():
    small = [gang(f"g{number}", 2, age=90 - number) for number in range(3)]
    decision = schedule(cluster(nodes(2, gpu=1), *small), profile(sessionWindow=1))
    assert len(placed(decision)) == 2
    (tier,) = decision.solver.tiers
    assert tier.bound == pytest.approx(3 * tier.objective, rel=1e-4)
