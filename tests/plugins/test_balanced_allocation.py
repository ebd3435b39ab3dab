from dataclasses import replace

import pytest
from pydantic import ValidationError

from batchsched.framework.cycle_state import CycleState
from batchsched.framework.status import Code
from batchsched.plugins.balanced_allocation import BalancedAllocation, BalancedAllocationArgs
from tests.devices import objects as devices
from tests.plugins.cluster import class_of, node, pod, scores, table

GPU = "nvidia.com/gpu"


def balancing(*resources):
    listed = [{"name": name} for name in resources]
    return BalancedAllocation(BalancedAllocationArgs.model_validate({"resources": listed}))


def test_a_pod_that_balances_a_node_scores_above_one_that_unbalances_it():
    lopsided = {"n": [pod("a", {"cpu": "4"})]}
    made = table([node("n"), node("empty")], lopsided)
    # Used half and nothing: 75 of 100 without the pod; half and half with it, 100. The empty node goes the other way.
    assert scores(BalancedAllocation(), pod(requests={"memory": "16Gi"}), made) == [
        50 + 75 // 2,
        50 + 25 // 2,
    ]


def test_a_pod_that_does_not_change_the_balance_has_the_middle_score():
    assert scores(BalancedAllocation(), pod(requests={"cpu": "2", "memory": "8Gi"}), table([node("n")])) == [
        75
    ]


def test_pods_without_requests_do_not_change_the_balance_of_a_node():
    made = table([node("n"), node("empty")], {"n": [pod(f"p{at}") for at in range(20)]})
    on_used, on_empty = scores(BalancedAllocation(), pod(requests={"cpu": "2"}), made)
    assert on_used == on_empty


def test_three_resources_are_measured_by_their_deviation():
    made = table([node("n", {GPU: "2"})])
    wish = pod(requests={"cpu": "8", "memory": "32Gi", GPU: "1"})
    # Fractions 1, 1, 0.5: standard deviation 0.2357, so 76 against 100.
    assert scores(balancing("cpu", "memory", GPU), wish, made) == [50 + (50 + 76 - 100) // 2]


def test_a_resource_that_the_node_lacks_is_left_out():
    made = table([node("n")], extra=[GPU])
    wish = pod(requests={"cpu": "8", GPU: "1"})
    assert scores(balancing("cpu", GPU), wish, made) == [75]


def test_devices_in_use_count_where_they_serve_a_resource():
    served = devices.device_class("gpu", extendedResourceName=GPU)
    made = table([node("n")], extra=[GPU], device_classes=[served])
    made.cluster_objects = replace(
        made.cluster_objects,
        resource_slices=(devices.slice_of("n", [devices.gpu(f"g{at}") for at in range(4)]),),
        resource_claims=(devices.allocated("used", "g0", "g1", pool="n"),),
    )
    # A half of the devices is in use: 75 of 100 without the pod; three quarters of both with it, 100.
    assert scores(balancing("cpu", GPU), pod(requests={"cpu": "6", GPU: "1"}), made) == [50 + 75 // 2]


def test_a_pod_without_requests_is_not_scored():
    made = table([node("n")])
    assert (
        BalancedAllocation().prescore(class_of(made, pod()), made.all_nodes_view(), CycleState()).code
        is Code.SKIP
    )
    assert balancing(GPU).score(class_of(made, pod()), made.all_nodes_view(), CycleState()).tolist() == [75]


def test_at_least_one_resource_is_needed():
    with pytest.raises(ValidationError, match="resources"):
        balancing()
