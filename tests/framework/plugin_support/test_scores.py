import numpy as np
import pytest

from batchsched.framework.plugin_support.scores import (
    CPU_AND_MEMORY,
    ResourceSpec,
    UtilizationShapePoint,
    check_increasing_utilization,
    default_normalize,
    is_extended_resource,
    is_scalar_resource,
    requested_amounts,
    scored_resources,
    utilization_score_table,
)
from tests.plugins.cluster import class_of, node, pod, table

GPU = ResourceSpec(name="nvidia.com/gpu", weight=5)
MEBIBYTE = 1024 * 1024


@pytest.mark.parametrize(
    "resource, extended, scalar",
    [
        ("nvidia.com/gpu", True, True),
        ("hugepages-2Mi", False, True),
        ("attachable-volumes-csi", False, True),
        ("example.kubernetes.io/x", False, True),
        ("cpu", False, False),
        ("pods", False, False),
        ("requests.example.com/x", False, False),
    ],
)
def test_extended_and_scalar_resources_are_recognised_by_name(resource, extended, scalar):
    assert (is_extended_resource(resource), is_scalar_resource(resource)) == (extended, scalar)


def test_scalar_resources_count_only_if_requested():
    made = table([node("n", {GPU.name: "4"})])
    resources = (*CPU_AND_MEMORY, GPU, ResourceSpec(name="pods"), ResourceSpec(name="example.com/missing"))
    assert len(scored_resources(class_of(made, pod()), made, resources, nonzero=True)) == 2
    found = scored_resources(class_of(made, pod(requests={GPU.name: "1"})), made, resources, nonzero=True)
    assert [
        (one.weight, one.request, one.allocatable(made.all_nodes_view()).tolist()) for one in found[2:]
    ] == [(5, 1, [4])]


def test_defaults_replace_missing_requests_only_for_nonzero_amounts():
    made = table([node("n")], {"n": [pod("a")]})
    wish = class_of(made, pod())
    assert requested_amounts(wish, made, CPU_AND_MEMORY, nonzero=True) == (100, 200 * MEBIBYTE)
    assert requested_amounts(wish, made, CPU_AND_MEMORY, nonzero=False) == (0, 0)
    assert [
        one.requested(made.all_nodes_view()).tolist()
        for one in scored_resources(wish, made, CPU_AND_MEMORY, nonzero=True)
    ] == [
        [100],
        [200 * MEBIBYTE],
    ]


def test_pod_level_requests_count_without_defaults_and_not_with_them():
    made = table([node("n")])
    wish = class_of(made, pod(resources={"requests": {"cpu": "2", "memory": "1Gi"}}))
    assert requested_amounts(wish, made, CPU_AND_MEMORY, nonzero=False) == (2000, 1024 * MEBIBYTE)
    assert requested_amounts(wish, made, CPU_AND_MEMORY, nonzero=True) == (100, 200 * MEBIBYTE)


@pytest.mark.parametrize(
    "scores, reverse, expected",
    [
        ([1, 2, 3], False, [33, 66, 100]),
        ([1, 2, 3], True, [67, 34, 0]),
        ([0, 0], False, [0, 0]),
        ([0, 0], True, [100, 100]),
        ([], True, []),
    ],
)
def test_scores_are_scaled_by_their_maximum_in_whole_numbers(scores, reverse, expected):
    assert default_normalize(np.asarray(scores, np.int64), reverse).tolist() == expected


def points(*pairs):
    return [UtilizationShapePoint(utilization=at, score=score) for at, score in pairs]


def test_scores_follow_the_line_and_are_constant_beyond_its_ends():
    line = utilization_score_table(points((20, 0), (40, 10)))
    assert line[[0, 20, 21, 30, 40, 41, 100]].tolist() == [0, 0, 5, 50, 100, 100, 100]


def test_falling_lines_are_rounded_toward_zero():
    assert utilization_score_table(points((0, 10), (3, 9)))[:5].tolist() == [100, 97, 94, 90, 90]


@pytest.mark.parametrize("pairs", [[(5, 1), (5, 2)], [(5, 1), (4, 2)]], ids=["twice", "back"])
def test_a_line_with_points_out_of_order_is_refused(pairs):
    check_increasing_utilization(points((1, 1), (2, 0)))
    with pytest.raises(ValueError, match="must rise from point to point"):
        check_increasing_utilization(points(*pairs))
