from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from batchsched.api.core.device import DeviceClass, DeviceClassSpec
from batchsched.api.core.metadata import ObjectMeta
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.plugin_support.scores import utilization_score_table
from batchsched.plugins.node_resources_fit import NodeResourcesFit, NodeResourcesFitArgs
from tests.devices import objects as devices
from tests.plugins.cluster import class_of, filtered, node, pod, refusals, scores, table

GPU = "nvidia.com/gpu"


def fit(**arguments):
    return NodeResourcesFit(NodeResourcesFitArgs.model_validate(arguments))


def strategy(kind, *resources, **more):
    listed = [{"name": name, "weight": weight} for name, weight in resources]
    return fit(scoringStrategy={"type": kind, "resources": listed, **more})


def test_every_missing_resource_is_named_in_the_order_of_the_table():
    made = table([node("n", {"cpu": "1", "memory": "1Gi", GPU: "1"})])
    wish = pod(requests={"cpu": "2", "memory": "2Gi", GPU: "2"})
    assert refusals(fit(), wish, made) == {
        "n": ("Insufficient cpu", "Insufficient memory", "Insufficient nvidia.com/gpu")
    }


def test_eviction_helps_on_a_full_node_and_not_on_a_node_that_is_too_small():
    made = table(
        [node("full", {"cpu": "2"}), node("small", {"cpu": "1"})], {"full": [pod("a", {"cpu": "2"})]}
    )
    verdict = filtered(fit(), pod(requests={"cpu": "2"}), made)
    assert verdict.unresolvable.tolist() == [False, True]


def test_a_resource_that_devices_serve_does_not_make_a_full_node_too_small():
    served = DeviceClass(metadata=ObjectMeta(name="gpu"), spec=DeviceClassSpec(extended_resource_name=GPU))
    made = table(
        [node("full", {"cpu": "2"}), node("plugin", {"cpu": "2", GPU: "1"})],
        {"full": [pod("a", {"cpu": "2"})]},
        device_classes=[served],
    )
    verdict = filtered(fit(), pod(requests={"cpu": "2", GPU: "2"}), made)
    assert [verdict.reasons_at(at) for at in range(2)] == [
        ("Insufficient cpu",),
        ("Insufficient nvidia.com/gpu",),
    ]
    assert verdict.unresolvable.tolist() == [False, True]


def test_a_full_pod_count_is_always_resolvable():
    made = table([node("n", {"pods": "0"})])
    verdict = filtered(fit(), pod(), made)
    assert verdict.reasons_at(0) == ("Too many pods",)
    assert not verdict.unresolvable[0]


def test_a_pod_without_requests_lands_on_an_overcommitted_node():
    made = table([node("n", {"cpu": "1"})], {"n": [pod("a", {"cpu": "2"})]})
    assert refusals(fit(), pod(), made) == {}


def test_ignored_resources_and_groups_are_extended_ones_only():
    made = table([node("n", {"cpu": "1"})], extra=[GPU, "example.com/fpga"])
    wish = pod(requests={"cpu": "2", GPU: "1", "example.com/fpga": "1"})
    plugin = fit(ignoredResources=[GPU, "cpu"], ignoredResourceGroups=["example.com"])
    assert refusals(plugin, wish, made) == {"n": ("Insufficient cpu",)}


def test_least_allocated_prefers_the_emptier_node():
    made = table([node("used"), node("empty")], {"used": [pod("a", {"cpu": "4", "memory": "16Gi"})]})
    assert scores(fit(), pod(requests={"cpu": "2", "memory": "8Gi"}), made) == [25, 75]


def test_most_allocated_prefers_the_fuller_node_by_weight():
    made = table([node("used"), node("empty")], {"used": [pod("a", {"cpu": "4"})]})
    plugin = strategy("MostAllocated", ("cpu", 3), ("memory", 1))
    assert scores(plugin, pod(requests={"cpu": "2", "memory": "8Gi"}), made) == [(3 * 75 + 25) // 4, 25]


def test_a_scalar_resource_counts_only_where_the_pod_asks_for_it():
    made = table([node("n", {GPU: "4"})])
    plugin = strategy("MostAllocated", ("cpu", 1), (GPU, 1))
    assert scores(plugin, pod(requests={"cpu": "4"}), made) == [50]
    assert scores(plugin, pod(requests={"cpu": "4", GPU: "4"}), made) == [75]


SERVED = devices.device_class("gpu", extendedResourceName=GPU)


def with_devices(made, *slices, claims=()):
    made.cluster_objects = replace(
        made.cluster_objects, resource_slices=slices, resource_claims=tuple(claims)
    )
    return made


def slice_of(name, count=4, **spec):
    return devices.slice_of(name, [devices.gpu(f"g{at}") for at in range(count)], **spec)


def served_table(*names, classes=(SERVED,), **bound):
    return table([node(name) for name in names], bound, [GPU], device_classes=classes)


@pytest.mark.parametrize("kind, expected", [("MostAllocated", [100, 25]), ("LeastAllocated", [0, 75])])
def test_devices_in_use_count_in_the_score_of_a_resource_that_they_serve(kind, expected):
    # plugins/noderesources, `calculateResourceAllocatableRequest`, in 1.36 and 1.37
    made = with_devices(
        served_table("a", "b"),
        slice_of("a"),
        slice_of("b"),
        claims=[devices.allocated("used", "g0", "g1", "g2")],
    )
    wish = pod(requests={GPU: "1"})
    assert scores(strategy(kind, (GPU, 1)), wish, made) == expected


def test_a_device_plugin_counts_before_devices_of_a_class():
    made = with_devices(
        table([node("a", {GPU: "2"}), node("b", {GPU: "0"})], {}, device_classes=[SERVED]),
        slice_of("a"),
        slice_of("b"),
    )
    assert scores(strategy("MostAllocated", (GPU, 1)), pod(requests={GPU: "1"}), made) == [50, 25]


def test_each_slice_counts_its_devices_and_a_failing_selector_counts_none():
    failing = devices.device_class("gpu", 'device.attributes["none"].size > 1', extendedResourceName=GPU)
    older = slice_of("a", 2, pool={"generation": 0})
    made = with_devices(served_table("a", "b"), slice_of("a", 2), older, slice_of("b"))
    wish = pod(requests={GPU: "1"})
    assert scores(strategy("MostAllocated", (GPU, 1)), wish, made) == [25, 25]
    made = with_devices(served_table("a", "b", classes=[failing]), slice_of("a"), slice_of("b"))
    assert scores(strategy("MostAllocated", (GPU, 1)), wish, made) == [0, 0]


def test_devices_that_several_nodes_reach_count_on_each_of_them():
    everywhere = slice_of("net", 2, allNodes=True)
    each = [devices.gpu("g0", nodeName="a"), devices.gpu("g1", allNodes=True)]
    some = devices.slice_of("some", each, perDeviceNodeSelection=True)
    made = with_devices(served_table("a", "b"), everywhere, some)
    assert scores(strategy("MostAllocated", (GPU, 1)), pod(requests={GPU: "1"}), made) == [25, 33]


def test_a_node_without_the_resource_is_scored_by_the_others():
    made = table([node("gpu", {GPU: "4"}), node("plain")])
    plugin = strategy("LeastAllocated", ("cpu", 1), (GPU, 1))
    assert scores(plugin, pod(requests={"cpu": "4", GPU: "1"}), made) == [(50 + 75) // 2, 50]


def test_a_container_without_requests_is_scored_as_if_it_had_the_defaults():
    made = table([node("n", {"cpu": "1", "memory": "400Mi"})])
    assert scores(fit(), pod(), made) == [(90 + 50) // 2]


def test_pod_level_requests_do_not_count_in_the_score_of_the_pod_itself():
    made = table([node("n", {"cpu": "1", "memory": "400Mi"})])
    wish = pod(resources={"requests": {"cpu": "900m", "memory": "300Mi"}})
    assert scores(fit(), wish, made) == [(90 + 50) // 2]


def test_requested_to_capacity_ratio_follows_its_shape_and_omits_resources_without_a_score():
    made = table([node("n")])
    line = {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}
    plugin = strategy("RequestedToCapacityRatio", ("cpu", 1), (GPU, 1), requestedToCapacityRatio=line)
    assert scores(plugin, pod(requests={"cpu": "4"}), made) == [50]


def test_a_falling_line_rounds_toward_zero():
    shape = fit(
        scoringStrategy={
            "type": "RequestedToCapacityRatio",
            "requestedToCapacityRatio": {
                "shape": [{"utilization": 0, "score": 10}, {"utilization": 3, "score": 9}]
            },
        }
    ).args.scoring_strategy.requested_to_capacity_ratio.shape
    assert utilization_score_table(shape)[:5].tolist() == [100, 97, 94, 90, 90]


@pytest.mark.parametrize(
    "arguments, word",
    [
        ({"scoringStrategy": {"type": "RequestedToCapacityRatio"}}, "shape"),
        ({"scoringStrategy": {"type": "Best"}}, "type"),
        ({"ignored": ["cpu"]}, "ignored"),
        ({"scoringStrategy": {"resources": [{"name": "cpu", "weight": 0}]}}, "weight"),
        (
            {
                "scoringStrategy": {
                    "type": "RequestedToCapacityRatio",
                    "requestedToCapacityRatio": {"shape": [{"utilization": 5}, {"utilization": 5}]},
                }
            },
            "must rise",
        ),
    ],
)
def test_invalid_arguments_are_refused_by_name(arguments, word):
    with pytest.raises(ValidationError, match=word):
        fit(**arguments)


def test_several_pods_are_admitted_as_long_as_all_of_them_fit():
    made = table([node("a", {"cpu": "4"}), node("b", {"cpu": "2"})])
    wish = class_of(made, pod(requests={"cpu": "1"}))
    nodes = np.asarray([0, 1], np.int32)
    assert fit().allows_bulk_placement(wish, made, nodes, np.asarray([4, 2], np.int32))
    assert not fit().allows_bulk_placement(wish, made, nodes, np.asarray([4, 3], np.int32))


def test_the_verdict_follows_the_pods_that_land():
    made = table([node("n", {"cpu": "2"})])
    plugin, state = fit(), CycleState()
    wish = class_of(made, pod(requests={"cpu": "1"}))
    plugin.prefilter(wish, made.all_nodes_view(), state)
    for name in ("a", "b"):
        assert plugin.filter(wish, made.node_view(0), state).feasible_mask[0]
        made.add_pods([(pod(name, {"cpu": "1"}), 0)], wish.requests, wish.nonzero)
    assert plugin.filter(wish, made.node_view(0), state).reasons_at(0) == ("Insufficient cpu",)
