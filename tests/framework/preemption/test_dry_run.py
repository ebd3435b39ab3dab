"""Nodes that are tried together are judged as each in a trial of its own."""

import numpy as np
import pytest

from batchsched.errors import PluginError
from batchsched.framework.preemption.post_filter import Handle, Nominations
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.status import PreFilterAnswer, Verdict
from batchsched.framework.traits import PlacementEffect, PluginTraits, ResultScope
from batchsched.plugins.inter_pod_affinity import InterPodAffinity
from batchsched.plugins.node_ports import NodePorts
from batchsched.plugins.node_resources_fit import NodeResourcesFit
from batchsched.plugins.taint_toleration import TaintToleration
from tests.plugins.cluster import class_of, node, pod, table, with_ports
from tests.plugins.neighbours import near, required
from tests.plugins.storage import ZONE

TAINT = {"key": "a", "effect": "NoSchedule"}


def handle_of(one, *plugins, nominated=()):
    bound = {f"n{at}": [pod(f"p{at}", {"cpu": "3"}), pod(f"q{at}", {"cpu": "1"})] for at in range(3)}
    nodes = [node(f"n{at}", {"cpu": "4"}, taints=[TAINT] if at == 2 else []) for at in range(3)]
    made = table(nodes, bound)
    pipeline = Pipeline(plugins)
    wish = class_of(made, one)
    nominations = Nominations.of(nominated, made)
    return Handle(pipeline, wish, made, pipeline.scan(wish, made), nominations), bound


def rows(*some):
    return np.asarray(some, np.int32)


def test_pods_leave_and_come_back_and_the_table_stays_as_it_is():
    handle, bound = handle_of(pod("x", {"cpu": "2"}), NodeResourcesFit(), TaintToleration())
    before = handle.table.requested.copy()
    trials = handle.trials([0, 1, 2])
    everyone = [one for some in bound.values() for one in some]
    trials.remove(rows(0, 0, 1, 1, 2, 2), everyone)
    assert [one.ok for one in trials.refusals()] == [True, True, False]
    trials.add(rows(0, 1), [bound["n0"][0], bound["n1"][1]])
    assert trials.fits(rows(0, 1)).tolist() == [False, True]
    assert (handle.table.requested == before).all()


def test_each_row_says_what_its_own_trial_says():
    handle, bound = handle_of(pod("x", {"cpu": "5"}), NodeResourcesFit(), TaintToleration())
    trials = handle.trials([0, 2])
    trials.remove(rows(0, 1), [bound["n0"][0], bound["n2"][0]])
    for at, status in zip((0, 2), trials.refusals(), strict=True):
        with handle.trial(at) as trial:
            trial.remove(bound[f"n{at}"][0])
            assert trial.refusal() == status


def test_node_that_somebody_waits_for_is_tried_alone():
    handle, _ = handle_of(pod("x", {"cpu": "5"}), NodeResourcesFit())
    nominated = pod("y", {"cpu": "1"}, priority=1)
    handle = Handle(handle.pipeline, handle.pod, handle.table, handle.scan, Nominations({1: (nominated,)}))
    assert handle.trials([0, 1, 2]).nodes == (0, 2)


class Counted:
    """Says that counts say it all, and breaks."""

    name = "Counted"
    traits = PluginTraits(
        placement_effect=PlacementEffect.USES_CAPACITY, result_scope=ResultScope.NODE_AND_ITS_PODS
    )

    def signature(self, pod):
        return None

    def filter(self, pod, nodes, state):
        return Verdict.accept(len(nodes) + 1) if len(nodes) == 1 else Verdict.accept(len(nodes))


def test_nonsense_is_named():
    handle, _ = handle_of(pod("x", {"cpu": "5"}), Counted())
    with pytest.raises(PluginError, match="plugin Counted failed in Filter"):
        handle.trials([0]).refusals()


class Unknown:
    """Does not say how far it looks."""

    name = "Unknown"

    def prefilter(self, pod, nodes, state):
        return PreFilterAnswer()

    def filter(self, pod, nodes, state):
        return Verdict.accept(len(nodes))


@pytest.mark.parametrize(
    "one, plugin, together",
    [
        (pod("x"), NodeResourcesFit(), True),
        (pod("x"), TaintToleration(), True),
        (pod("x"), NodePorts(), True),
        (with_ports("x", {"hostPort": 80}), NodePorts(), False),
        (pod("x"), InterPodAffinity(), True),
        (pod("x", affinity=required(apart=[near(ZONE, app="a")])), InterPodAffinity(), False),
        (pod("x"), Unknown(), False),
    ],
    ids=["fit", "taints", "no ports", "ports", "alone", "apart", "unknown"],
)
def test_nodes_are_tried_together_where_nobody_looks_at_the_pods_on_them(one, plugin, together):
    handle, _ = handle_of(one, plugin)
    assert handle.trials([0, 1]).nodes == ((0, 1) if together else ())
