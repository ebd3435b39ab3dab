import pytest

from batchsched.framework.plugin_support.resource_scores import (
    CPU_AND_MEMORY,
    ResourceSpec,
    asked_amounts,
    is_extended,
    is_scalar,
    scored_resources,
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
def test_kinds_of_resources(resource, extended, scalar):
    assert (is_extended(resource), is_scalar(resource)) == (extended, scalar)


def test_scalar_resources_count_only_where_they_are_asked_for():
    made = table([node("n", {GPU.name: "4"})])
    resources = (*CPU_AND_MEMORY, GPU, ResourceSpec(name="pods"), ResourceSpec(name="nobody.has/it"))
    assert len(scored_resources(class_of(made, pod()), made, resources, nonzero=True)) == 2
    found = scored_resources(class_of(made, pod(requests={GPU.name: "1"})), made, resources, nonzero=True)
    assert [(one.weight, one.asked, one.capacity(made.all()).tolist()) for one in found[2:]] == [(5, 1, [4])]


def test_defaults_stand_in_for_missing_requests_only_where_they_are_wanted():
    made = table([node("n")], {"n": [pod("a")]})
    wish = class_of(made, pod())
    assert asked_amounts(wish, made, CPU_AND_MEMORY, nonzero=True) == (100, 200 * MEBIBYTE)
    assert asked_amounts(wish, made, CPU_AND_MEMORY, nonzero=False) == (0, 0)
    assert [
        one.taken(made.all()).tolist() for one in scored_resources(wish, made, CPU_AND_MEMORY, nonzero=True)
    ] == [
        [100],
        [200 * MEBIBYTE],
    ]


def test_pod_level_requests_count_without_defaults_and_not_with_them():
    made = table([node("n")])
    wish = class_of(made, pod(resources={"requests": {"cpu": "2", "memory": "1Gi"}}))
    assert asked_amounts(wish, made, CPU_AND_MEMORY, nonzero=False) == (2000, 1024 * MEBIBYTE)
    assert asked_amounts(wish, made, CPU_AND_MEMORY, nonzero=True) == (100, 200 * MEBIBYTE)
