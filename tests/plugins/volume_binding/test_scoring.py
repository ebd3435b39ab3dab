"""How much of the storage a pod would use, and what that is worth."""

import numpy as np

from batchsched.config.kubernetes_release import RELEASES
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.plugin_support.scores import UtilizationShapePoint, utilization_score_table
from batchsched.framework.status import SKIP, SUCCESS
from batchsched.plugins.volume_binding import VolumeBinding
from batchsched.plugins.volume_binding.plugin import CLAIMS, VolumeBindingArgs
from batchsched.plugins.volume_binding.search import capacity_scores, find_pod_volumes
from tests.plugins.cluster import class_of, node
from tests.plugins.storage import ZONE, capacity, claim, claiming, driver, storage_class, stored, volume

NODES = [node(name, labels={ZONE: name}) for name in ("a", "b", "c")]
FALLING = [{"utilization": 0, "score": 10}, {"utilization": 100, "score": 0}]
"""The fuller, the less: what kube-scheduler assumes with its gate on."""


def scores(one, *objects, shape=FALLING):
    made = stored(NODES, *objects)
    plugin = VolumeBinding(VolumeBindingArgs.model_validate({"shape": shape}))
    state, wish = CycleState(), class_of(made, one)
    assert plugin.prefilter(wish, made.all_nodes_view(), state).status.ok
    return plugin.score(wish, made.all_nodes_view(), state).tolist()


def test_a_volume_is_scored_by_the_part_that_the_claim_uses():
    there = [volume("small", "1Gi", ["a"]), volume("large", "4Gi", ["b"])]
    late = storage_class(provisioner="kubernetes.io/no-provisioner")
    assert scores(claiming("x", "c"), claim("c"), late, *there) == [0, 75, 0]
    rising = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
    assert scores(claiming("x", "c"), claim("c"), late, *there, shape=rising) == [100, 25, 0]


def test_claims_of_one_class_are_summed_and_the_score_is_the_mean_over_classes():
    late = storage_class(provisioner="kubernetes.io/no-provisioner")
    other = storage_class("other", provisioner="kubernetes.io/no-provisioner")
    there = [volume("v", "2Gi", ["a"]), volume("w", "4Gi", ["a"])]
    claims = [claim("c", size="1Gi"), claim("d", size="3Gi")]
    # (1 + 3) of (2 + 4) GiB are 66 %.
    assert scores(claiming("x", "c", "d"), *claims, late, *there) == [34, 0, 0]
    more = volume("o", "10Gi", ["a"], storageClassName="other")
    third = claim("e", size="1Gi", storageClassName="other")
    # 34 and 90: the mean is 62.
    assert scores(claiming("x", "c", "d", "e"), *claims, third, late, other, *there, more) == [62, 0, 0]


def test_provisioned_claims_are_scored_by_the_capacity_that_the_driver_reports():
    reports = [capacity("a", "10Gi"), capacity("b", "2Gi"), capacity("c", "512Mi")]
    assert scores(claiming("x", "c"), claim("c"), storage_class(), driver(), *reports) == [90, 50, 0]
    two = [claim("c"), claim("d")]
    # A class has its capacity once, however many claims draw on it.
    assert scores(claiming("x", "c", "d"), *two, storage_class(), driver(), *reports) == [80, 0, 0]


def test_nodes_without_reported_capacity_score_nothing():
    assert scores(claiming("x", "c"), claim("c"), storage_class()) == [0, 0, 0]
    assert scores(claiming("x", "c"), claim("c"), storage_class(), driver(counts=False)) == [0, 0, 0]


def test_provisioned_claims_do_not_count_if_another_claim_has_a_volume():
    reports = [capacity("a", "100Gi"), capacity("b", "2Gi")]
    there = volume("v", "2Gi", ["a"])
    claims = [claim("c"), claim("d", size="1536Mi")]
    # On a the volume goes to c, 50 % of it, and d is made; on b both are made: more than there is.
    assert scores(claiming("x", "c", "d"), *claims, storage_class(), driver(), there, *reports) == [50, 0, 0]


def test_a_pod_without_delayed_claims_scores_nothing():
    made = stored(NODES, claim("v", "w"), volume("w"))
    line = utilization_score_table([UtilizationShapePoint(utilization=0, score=10)])
    state, wish = CycleState(), class_of(made, claiming("x", "v"))
    VolumeBinding().prefilter(wish, made.all_nodes_view(), state)
    some = made.selected_nodes_view(np.array([0, 2], np.int32))
    assert capacity_scores(find_pod_volumes(state.read(CLAIMS), some), some, line).tolist() == [0, 0]


def test_without_a_shape_1_37_prefers_free_capacity_and_1_36_does_not_score():
    reports = [capacity("a", "10Gi"), capacity("b", "2Gi"), capacity("c", "512Mi")]
    made, plugin = stored(NODES, claim("c"), storage_class(), driver(), *reports), VolumeBinding()
    made.release = RELEASES["1.36"]
    state, wish = CycleState(), class_of(made, claiming("x", "c"))
    assert plugin.prefilter(wish, made.all_nodes_view(), state).status.ok
    assert plugin.prescore(wish, made.all_nodes_view(), state) == SKIP
    made.release = RELEASES["1.37"]
    assert plugin.prescore(wish, made.all_nodes_view(), state) == SUCCESS
    assert plugin.score(wish, made.all_nodes_view(), state).tolist() == [90, 50, 0]


def test_a_pod_without_claims_scores_nothing_on_every_node_of_1_37():
    made, plugin = stored(NODES), VolumeBinding()
    made.release = RELEASES["1.37"]
    state, wish = CycleState(), class_of(made, claiming("x"))
    plugin.prefilter(wish, made.all_nodes_view(), state)
    assert plugin.prescore(wish, made.all_nodes_view(), state) == SUCCESS
    assert plugin.score(wish, made.all_nodes_view(), state).tolist() == [0, 0, 0]
    assert state.skip_score == {"VolumeBinding"}


def test_the_score_of_a_pod_with_claims_is_not_left_out():
    made, plugin = stored(NODES, claim("c"), storage_class(), driver()), VolumeBinding()
    made.release = RELEASES["1.37"]
    state, wish = CycleState(), class_of(made, claiming("x", "c"))
    plugin.prefilter(wish, made.all_nodes_view(), state)
    assert plugin.prescore(wish, made.all_nodes_view(), state) == SUCCESS
    assert state.skip_score == set()
