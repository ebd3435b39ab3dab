"""What pods count for, against the rules of k8s.io/component-helpers/resource."""

import msgspec
import pytest

from batchsched.api.core.pod import (
    Container,
    ContainerStatus,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)
from batchsched.api.core.requests import (
    NONZERO_CPU,
    NONZERO_MEMORY,
    InPlaceResizeRequestRule,
    nonzero_requests,
    pod_and_nonzero_requests,
    pod_requests,
)

GI = 2**30


def container(name="c", restart=None, **amounts):
    asked = {key.replace("gpu", "nvidia.com/gpu"): value for key, value in amounts.items()}
    return Container(name=name, resources=ResourceRequirements(requests=asked), restart_policy=restart)


def pod(*containers, init=(), **spec):
    return Pod(spec=PodSpec(containers=containers, init_containers=tuple(init) or None, **spec))


def status_of(name="c", allocated=None, **amounts):
    resources = ResourceRequirements(requests=amounts)
    return ContainerStatus(name=name, resources=resources, allocated_resources=allocated)


def test_containers_add_up():
    assert pod_requests(pod(container(cpu="1", memory="1Gi"), container(cpu="500m", gpu="2"))) == {
        "cpu": 1500,
        "memory": GI,
        "nvidia.com/gpu": 2,
    }


def test_init_containers_count_by_the_largest_alone():
    spec = pod(container(cpu="2"), init=[container(cpu="3"), container(cpu="1", memory="1Gi")])
    assert pod_requests(spec) == {"cpu": 3000, "memory": GI}


def test_sidecars_run_beside_the_containers_and_beside_later_init_containers():
    sidecar = container(restart="Always", cpu="1")
    assert pod_requests(pod(container(cpu="2"), init=[sidecar])) == {"cpu": 3000}
    assert pod_requests(pod(container(cpu="2"), init=[sidecar, container(cpu="4")])) == {"cpu": 5000}
    assert pod_requests(pod(container(cpu="2"), init=[container(cpu="4"), sidecar])) == {"cpu": 4000}


def test_overhead_comes_on_top():
    assert pod_requests(pod(container(cpu="1"), overhead={"cpu": "250m", "memory": "1Gi"})) == {
        "cpu": 1250,
        "memory": GI,
    }


def test_pod_level_amounts_replace_those_of_the_containers():
    level = ResourceRequirements(requests={"cpu": "4", "hugepages-2Mi": "4Mi", "nvidia.com/gpu": "9"})
    spec = pod(container(cpu="1", memory="1Gi", gpu="1"), resources=level, overhead={"cpu": "1"})
    assert pod_requests(spec) == {"cpu": 5000, "memory": GI, "hugepages-2Mi": 4 * 2**20, "nvidia.com/gpu": 1}


def test_nothing_requested_counts_for_nothing_and_scores_with_defaults():
    assert pod_requests(pod(Container(name="c"))) == {}
    assert nonzero_requests(pod(Container(name="c"), Container(name="d"))) == (
        2 * NONZERO_CPU,
        2 * NONZERO_MEMORY,
    )


@pytest.mark.parametrize(
    "some",
    [
        pod(container(cpu="1", memory="1Gi"), container(cpu="0", memory="2Gi"), overhead={"cpu": "1"}),
        pod(container(cpu="1", memory="1Gi"), container(cpu="1")),
        pod(container(cpu="1", memory="1Gi"), init=[container(memory="4Gi")]),
        pod(
            container(cpu="1", memory="1Gi"),
            init=[container(restart="Always", cpu="1", memory="1Gi"), container(cpu="9", memory="1Gi")],
        ),
        pod(container(cpu="1"), resources=ResourceRequirements(requests={"memory": "8Gi"})),
        pod(container(cpu="1", memory="1Gi"), resources=ResourceRequirements(requests={"cpu": "3"})),
        pod(Container(name="c")),
    ],
)
def test_requests_and_their_amounts_for_scores_are_those_that_are_computed_one_by_one(some: Pod):
    assert pod_and_nonzero_requests(some) == (pod_requests(some), nonzero_requests(some))


def test_zero_requests_are_left_out():
    assert pod_requests(pod(container(cpu="0", gpu="0"))) == {}


def test_resize_counts_the_larger_of_asked_and_given():
    status = PodStatus(container_statuses=(status_of(cpu="3", allocated={"cpu": "2"}),))
    running = Pod(spec=PodSpec(node_name="n", containers=(container(cpu="1"),)), status=status)
    assert pod_requests(running) == {"cpu": 3000}
    waiting = Pod(spec=PodSpec(containers=(container(cpu="1"),)), status=status)
    assert pod_requests(waiting) == {"cpu": 1000}


def test_infeasible_resize_counts_what_was_given():
    status = PodStatus(
        conditions=(PodCondition(type="PodResizePending", status="True", reason="Infeasible"),),
        container_statuses=(status_of(cpu="1"),),
    )
    running = Pod(spec=PodSpec(node_name="n", containers=(container(cpu="8"),)), status=status)
    assert pod_requests(running) == {"cpu": 1000}


def test_given_zero_is_a_request_and_scores_without_the_default():
    # component-helpers/resource, `applyNonMissing`: a name that is there, with whatever amount, gets no default.
    status = PodStatus(container_statuses=(status_of(cpu="0", memory="1Gi"),))
    running = Pod(spec=PodSpec(node_name="n", containers=(Container(name="c"),)), status=status)
    assert nonzero_requests(running) == (0, GI)


def test_pod_level_request_leaves_no_default_where_a_container_asks_for_nothing_in_words():
    level = ResourceRequirements(requests={"memory": "1Gi"})
    assert nonzero_requests(pod(container(cpu="0"), Container(name="d"), resources=level)) == (0, GI)


def test_init_containers_that_end_do_not_count_what_they_were_given():
    status = PodStatus(init_container_statuses=(status_of("i", cpu="9"),))
    running = Pod(spec=PodSpec(node_name="n", init_containers=(container("i", cpu="1"),)), status=status)
    assert pod_requests(running) == {"cpu": 1000}


def test_pod_level_amounts_given_count_for_what_the_pod_states_alone():
    level = ResourceRequirements(requests={"cpu": "1"})
    given = PodStatus(resources=ResourceRequirements(requests={"cpu": "3", "memory": "1Gi"}))
    running = pod(container(cpu="500m", memory="64Mi"), resources=level, node_name="n")
    grown = Pod(spec=running.spec, status=given)
    assert pod_requests(grown) == {"cpu": 3000, "memory": 64 * 2**20}


def test_allocated_pod_level_amounts_count_only_beside_given_ones():
    level = ResourceRequirements(requests={"cpu": "1"})
    spec = pod(container(cpu="500m"), resources=level, node_name="n").spec
    assert pod_requests(Pod(spec=spec, status=PodStatus(allocated_resources={"cpu": "4"}))) == {"cpu": 1000}


def infeasible(*statuses, **status):
    condition = PodCondition(type="PodResizePending", status="True", reason="Infeasible")
    return PodStatus(conditions=(condition,), container_statuses=statuses or None, **status)


def test_resize_by_pod_counts_the_largest_sum_and_not_the_sum_of_the_largest():
    # component-helpers v0.37.2, `AggregateContainerRequests`.
    statuses = (status_of("a", cpu="3", allocated={"cpu": "3"}), status_of("b", cpu="1"))
    containers = (container("a", cpu="1"), container("b", cpu="3"))
    spec = PodSpec(node_name="n", containers=containers)
    running = Pod(spec=spec, status=PodStatus(container_statuses=statuses))
    assert pod_requests(running, InPlaceResizeRequestRule.BY_CONTAINER) == {"cpu": 6000}
    # Allocated: 3 for `a`, and what the spec of `b` requests, because its status has no allocated amounts.
    assert pod_requests(running, InPlaceResizeRequestRule.BY_POD) == {"cpu": 6000}
    given = (*statuses[:1], status_of("b", cpu="1", allocated={"cpu": "1"}))
    running = Pod(spec=spec, status=PodStatus(container_statuses=given))
    assert pod_requests(running, InPlaceResizeRequestRule.BY_CONTAINER) == {"cpu": 6000}
    assert pod_requests(running, InPlaceResizeRequestRule.BY_POD) == {"cpu": 4000}


def test_infeasible_resize_by_pod_counts_only_the_status():
    level = ResourceRequirements(requests={"memory": "2Gi"})
    spec = pod(container(cpu="8", memory="1Gi"), resources=level, node_name="n").spec
    status = infeasible(
        resources=ResourceRequirements(requests={"memory": "1Gi"}), allocated_resources={"memory": "3Gi"}
    )
    running = Pod(spec=spec, status=status)
    assert pod_requests(running, InPlaceResizeRequestRule.BY_POD) == {"memory": 3 * GI}
    assert pod_requests(running, InPlaceResizeRequestRule.BY_CONTAINER) == {"cpu": 8000, "memory": 3 * GI}


def test_pod_level_amounts_in_the_status_count_by_pod_though_the_spec_names_others():
    level = ResourceRequirements(requests={"cpu": "1"})
    status = PodStatus(resources=ResourceRequirements(requests={"cpu": "3", "memory": "1Gi"}))
    running = Pod(
        spec=pod(container(cpu="500m", memory="64Mi"), resources=level, node_name="n").spec, status=status
    )
    assert pod_requests(running, InPlaceResizeRequestRule.BY_POD) == {"cpu": 3000, "memory": GI}


def test_a_pending_pod_counts_alike_by_container_and_by_pod():
    spec = pod(container(cpu="1"), init=[container("i", "Always", cpu="2")], overhead={"cpu": "100m"})
    for resize in InPlaceResizeRequestRule:
        assert pod_requests(spec, resize) == {"cpu": 3100}
        assert pod_requests(Pod(spec=msgspec.structs.replace(spec.spec, node_name="n")), resize) == {
            "cpu": 3100
        }
