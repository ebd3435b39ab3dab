"""The problem of one gang that is kept for later sessions: only what follows from nodes and the gang itself."""

import pytest
from typing_extensions import override

from batchsched.config.schema import Profile
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.runtime.registry import standard_registry
from batchsched.framework.status import PreFilterAnswer
from batchsched.framework.traits import PlacementEffect, PluginTraits
from batchsched.ports.external import NoTelemetry
from batchsched.session.joint.formulation import lasting_problem
from batchsched.session.session import Session
from batchsched.session.statement import Statement
from tests.session.clusters import on
from tests.session.scenario import NOW, cluster, gang, nodes, pod, profile
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
        names = [name for at, name in enumerate(table.names) if not any(True for _ in table.pods.pods_on(at))]
        return PreFilterAnswer(nodes=frozenset(names))


def session_of(snapshot, *plugins):
    usual = standard_registry().create_pipeline(profile())
    return Session(snapshot, Profile(), Pipeline((*usual.plugins, *plugins), usual.weights))


def inside(session):
    session.tables.refresh()
    run = session._new_run(Statement(session.tables, NOW), frozenset(), NOW, 0, NoTelemetry())
    return Inside(session, run, run.context())


@pytest.mark.parametrize("plugins, opened", [((Solitary(),), [False, True]), ((), [True, True])])
def test_problem_of_a_gang_is_rebuilt_after_a_deletion_if_a_plugin_reads_pods(plugins, opened):
    neighbour = on(pod("old", gpu=1), "n0")
    session = session_of(cluster(nodes(2, gpu=4), gang("bert", 1), pods=(neighbour,)), *plugins)
    masks = []
    for leaving in ((), (neighbour,)):
        for one in leaving:
            session.tables.remove_pod(one)
        scene = inside(session)
        problem = lasting_problem(scene.context, scene.gang("team/bert"))
        masks.append(bool(problem.kinds.mask[0, 0]))
    assert masks == opened
