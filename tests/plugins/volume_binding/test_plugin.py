import asyncio

import numpy as np
import pytest
from pydantic import ValidationError

from batchsched.config.kubernetes_release import RELEASES
from batchsched.errors import PluginError
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.runtime.binding_cycle import (
    BindingCycleInput,
    run_binding_cycle,
    unreserve_after_session,
)
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.status import SKIP, Code
from batchsched.plugins.volume_binding import VolumeBinding
from batchsched.plugins.volume_binding.plugin import VolumeBindingArgs
from batchsched.plugins.volume_binding.search import BIND_CONFLICT
from batchsched.ports.cluster import PersistentVolumeBinding as Given
from batchsched.ports.cluster import VolumeClaimSelectedNode
from tests.plugins.binder import Written
from tests.plugins.cluster import class_of, filtered, land, node, pod, refusals
from tests.plugins.storage import ZONE, claim, claiming, storage_class, stored, volume

NODES = [node("a", labels={ZONE: "a"}), node("b", labels={ZONE: "b"})]
STATIC = storage_class(provisioner="kubernetes.io/no-provisioner")


def prefilter(one, made):
    return VolumeBinding().prefilter(class_of(made, one), made.all_nodes_view(), CycleState()).status


def reserve(one, name, made):
    status = VolumeBinding().reserve(one, made.index[name], made, CycleState())
    if status.ok:
        land(made, one, name)
    return status


def test_prefilter_skips_pods_without_claims_and_refuses_missing_claims():
    made = stored(NODES, claim("c"), storage_class())
    assert prefilter(pod(), made).code is Code.SKIP
    assert prefilter(claiming("x", "c"), made).code is Code.SUCCESS
    refused = prefilter(claiming("x", "gone"), made)
    assert (refused.code, refused.reasons) == (Code.UNRESOLVABLE, ('persistentvolumeclaim "gone" not found',))


def test_refusals_for_volumes_are_unresolvable():
    made = stored(NODES, claim("c"), STATIC)
    assert filtered(VolumeBinding(), claiming("x", "c"), made).unresolvable.all()


def test_a_volume_assumed_for_a_pod_is_not_available_to_the_next_pod():
    made = stored(NODES, claim("c"), claim("d"), STATIC, volume("v"))
    assert reserve(claiming("x", "c"), "a", made).ok
    assert refusals(VolumeBinding(), claiming("y", "d"), made) == {
        "a": (BIND_CONFLICT,),
        "b": (BIND_CONFLICT,),
    }
    assert refusals(VolumeBinding(), claiming("z", "c"), made) == {}
    assert reserve(claiming("y", "d"), "b", made).reasons == (BIND_CONFLICT,)


def test_other_pods_of_a_claim_must_use_the_node_selected_for_it():
    made = stored(NODES, claim("c"), storage_class())
    assert reserve(claiming("x", "c"), "b", made).ok
    assert refusals(VolumeBinding(), claiming("y", "c"), made) == {"a": (BIND_CONFLICT,)}
    assert reserve(claiming("y", "c"), "b", made).ok


def test_unreserved_volumes_are_available_again():
    made = stored(NODES, claim("c"), claim("d"), STATIC, volume("v"))
    one, plugin, state = claiming("x", "c"), VolumeBinding(), CycleState()
    assert plugin.reserve(one, 0, made, state).ok
    plugin.unreserve(one, 0, made, state)
    plugin.unreserve(one, 0, made, state)
    assert refusals(VolumeBinding(), claiming("y", "d"), made) == {}


def test_unreserve_of_a_pod_keeps_the_assumption_of_an_earlier_pod_with_the_same_claim():
    made = stored(NODES, claim("c"), storage_class())
    assert reserve(claiming("x", "c"), "b", made).ok
    second = claiming("y", "c")
    assert VolumeBinding().reserve(second, 1, made, CycleState()).ok
    VolumeBinding().unreserve(second, 1, made, CycleState())
    assert list(refusals(VolumeBinding(), claiming("z", "c"), made)) == ["a"]


def test_reserve_succeeds_for_bound_claims_and_for_pods_without_claims():
    made = stored(NODES, claim("c", "v"), volume("v"))
    assert VolumeBinding().reserve(claiming("x", "c"), 0, made, CycleState()).ok
    assert VolumeBinding().reserve(pod(), 0, made, CycleState()).ok
    assert not VolumeBinding().reserve(claiming("x", "gone"), 0, made, CycleState()).ok


def test_equal_pods_are_admitted_at_once_where_their_claims_are_bound():
    made = stored(NODES, claim("c", "v"), volume("v", zones="a"), claim("d"), storage_class())
    both = np.asarray([0, 1], np.int32)

    def admits(one, *counts):
        return VolumeBinding().allows_bulk_placement(
            class_of(made, one), made, both, np.asarray(counts, np.int32)
        )

    assert admits(pod(), 3, 3)
    assert admits(claiming("x", "c"), 9, 0)
    assert not admits(claiming("x", "c"), 9, 1)
    assert admits(claiming("x", "d"), 0, 1)
    assert not admits(claiming("x", "d"), 0, 2)
    assert not admits(claiming("x", "gone"), 1, 0)
    assert admits(claiming("x", "gone"), 0, 0)


def test_arguments_equal_those_of_kube_scheduler():
    assert VolumeBindingArgs.model_validate({"bindTimeoutSeconds": 30}).bind_timeout_seconds == 30
    with pytest.raises(ValidationError):
        VolumeBindingArgs.model_validate({"bindTimeoutSeconds": -1})


def bound(one, name, made, binder, **args):
    plugin = VolumeBinding(VolumeBindingArgs(**args))
    status = asyncio.run(plugin.prebind(one, name, BindingCycleInput.from_placed_pods([one], made, binder)))
    return status.code


def test_prebind_writes_the_assumed_volumes_and_waits_for_the_claims():
    made = stored(NODES, claim("c"), claim("d", size="2Gi"), storage_class(), volume("v"))
    one, binder = claiming("x", "c", "d"), Written()
    assert reserve(one, "b", made).ok
    assert bound(one, "b", made, binder, bind_timeout_seconds=5) is Code.SUCCESS
    assert binder.writes == [
        Given("v", "default", "c", "uid-c"),
        VolumeClaimSelectedNode("default", "d", "b"),
    ]
    assert binder.awaited == [(("default/c", "default/d"), 5.0)]


def test_prebind_writes_the_node_of_a_claim_for_each_pod_since_the_binding_of_another_one_may_fail():
    made = stored(NODES, claim("c"), storage_class())
    assert reserve(claiming("x", "c"), "b", made).ok
    assert reserve(claiming("y", "c"), "b", made).ok
    binder = Written()
    assert bound(claiming("y", "c"), "b", made, binder) is Code.SUCCESS
    assert binder.writes == [VolumeClaimSelectedNode("default", "c", "b")]
    assert binder.awaited == [(("default/c",), 600.0)]


def test_the_volume_of_a_claim_is_available_again_after_the_last_pod_with_the_claim_is_unreserved():
    made = stored(NODES, claim("c"), claim("d"), STATIC, volume("v"))
    first, second, plugin = claiming("x", "c"), claiming("y", "c"), VolumeBinding()
    for one in (first, second):
        assert plugin.reserve(one, 0, made, CycleState()).ok
    plugin.unreserve(first, 0, made, CycleState())
    assert list(refusals(VolumeBinding(), claiming("z", "d"), made)) == ["a", "b"]
    plugin.unreserve(second, 0, made, CycleState())
    assert refusals(VolumeBinding(), claiming("z", "d"), made) == {}


@pytest.mark.parametrize("order", [("old", "new"), ("new", "old")])
def test_a_deleted_pod_and_the_new_pod_of_its_name_reserve_a_volume_until_both_are_unreserved(order):
    made = stored(NODES, claim("c"), claim("d"), STATIC, volume("v"))
    pods = {uid: claiming("x", "c", uid=uid) for uid in ("old", "new")}
    for one in pods.values():
        assert VolumeBinding().reserve(one, 0, made, CycleState()).ok
    first, last = (pods[uid] for uid in order)
    VolumeBinding().unreserve(first, 0, made, CycleState())
    assert list(refusals(VolumeBinding(), claiming("z", "d"), made)) == ["a", "b"]
    binder = Written()
    assert bound(last, "a", made, binder) is Code.SUCCESS
    assert binder.writes == [Given("v", "default", "c", "uid-c")]
    VolumeBinding().unreserve(last, 0, made, CycleState())
    assert refusals(VolumeBinding(), claiming("z", "d"), made) == {}


def test_a_pod_that_waits_at_permit_and_is_reserved_again_keeps_its_volume():
    made = stored(NODES, claim("c"), STATIC, volume("v"))
    one, binder = claiming("x", "c"), Written()
    for _ in range(2):
        assert VolumeBinding().reserve(one, 0, made, CycleState()).ok
    assert bound(one, "a", made, binder) is Code.SUCCESS
    assert binder.writes == [Given("v", "default", "c", "uid-c")]


def test_prebind_skips_bound_claims_and_pods_without_claims():
    made = stored(NODES, claim("c", "v"), volume("v"))
    binder = Written()
    for one in (claiming("x", "c"), pod()):
        assert bound(one, "a", made, binder) is SKIP.code
    assert (binder.writes, binder.awaited) == ([], [])
    assert bound(claiming("x", "gone"), "a", made, binder) is Code.UNRESOLVABLE


def test_claims_not_bound_before_the_timeout_are_an_error_and_release_their_volumes():
    made = stored(NODES, claim("c"), claim("d"), STATIC, volume("v"))
    one, plugin = claiming("x", "c"), VolumeBinding(VolumeBindingArgs(bind_timeout_seconds=7))
    assert plugin.reserve(one, 0, made, CycleState()).ok
    cycle = BindingCycleInput.from_placed_pods([one], made, Written(bound=False))
    with pytest.raises(PluginError, match="binding volumes: default/c not bound within 7 s"):
        asyncio.run(run_binding_cycle(Pipeline([plugin]), one, "a", cycle))
    assert unreserve_after_session(Pipeline([plugin]), one, "a", made) == ()
    assert refusals(VolumeBinding(), claiming("y", "d"), made) == {}


def test_nodes_are_scored_in_1_36_only_if_the_arguments_have_a_shape():
    made = stored(NODES, claim("c"), storage_class())
    made.release = RELEASES["1.36"]
    state, wish = CycleState(), class_of(made, claiming("x", "c"))
    VolumeBinding().prefilter(wish, made.all_nodes_view(), state)
    assert VolumeBinding().prescore(wish, made.all_nodes_view(), state) is SKIP
    assert VolumeBinding().score(wish, made.all_nodes_view(), state).tolist() == [0, 0]
    line = VolumeBindingArgs.model_validate({"shape": [{"utilization": 0, "score": 10}]})
    assert VolumeBinding(line).prescore(wish, made.all_nodes_view(), state).code is Code.SUCCESS
    assert VolumeBinding(line).prescore(wish, made.all_nodes_view(), CycleState()) is SKIP
    assert VolumeBinding(line).score(wish, made.all_nodes_view(), CycleState()).tolist() == [0, 0]


@pytest.mark.parametrize("shape", [[], [{"utilization": 50}, {"utilization": 50}]], ids=["empty", "flat"])
def test_an_invalid_shape_is_refused(shape):
    with pytest.raises(ValidationError):
        VolumeBindingArgs.model_validate({"shape": shape})
