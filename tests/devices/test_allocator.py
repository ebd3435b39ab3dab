import time
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from batchsched.config.kubernetes_release import RELEASES
from batchsched.devices.ledger import DeviceLedger
from batchsched.devices.requests import AllocationError, NodeRefused
from tests.devices.objects import (
    allocate,
    allocated,
    bare_node,
    claim,
    device_class,
    gpu,
    names,
    request,
    slice_of,
)

FOUR = slice_of("a", [gpu(f"gpu-{number}") for number in range(4)])


def test_devices_are_allocated_in_the_order_of_the_slice():
    (result,) = allocate([FOUR], claim("mine", request(count=2)))
    assert names(result) == ["gpu-0", "gpu-1"]
    assert result.node_selector.matches({}, "a")
    assert not result.node_selector.matches({}, "b")


def test_a_device_in_use_is_not_allocated_again():
    (result,) = allocate([FOUR], claim(), in_use=[allocated("other", "gpu-0", "gpu-2")])
    assert names(result) == ["gpu-1"]
    assert (
        allocate([FOUR], claim("mine", request(count=3)), in_use=[allocated("other", "gpu-0", "gpu-2")])
        is None
    )


def test_admin_access_may_use_a_device_in_use_and_leaves_it_to_others():
    (result,) = allocate(
        [FOUR], claim("mine", request(adminAccess=True)), in_use=[allocated("other", "gpu-0")]
    )
    assert names(result) == ["gpu-0"]
    watched = allocated("admin", "gpu-0", adminAccess=True)
    assert names(allocate([FOUR], claim(), in_use=[watched])[0]) == ["gpu-0"]


def test_two_claims_of_a_pod_get_different_devices():
    first, second = allocate([FOUR], claim("one", request(count=3)), claim("two"))
    assert names(first) == ["gpu-0", "gpu-1", "gpu-2"]
    assert names(second) == ["gpu-3"]


def test_all_allocates_every_matching_device_or_none():
    every = claim("mine", request(allocationMode="All", count=0))
    assert names(allocate([FOUR], every)[0]) == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]
    assert allocate([FOUR], every, in_use=[allocated("other", "gpu-3")]) is None


def test_the_first_alternative_with_enough_devices_is_used():
    wish = {
        "name": "r",
        "firstAvailable": [
            {"name": "many", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 5},
            {"name": "few", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2},
        ],
    }
    (result,) = allocate([FOUR], claim("mine", wish))
    assert [device.request for device in result.devices.results] == ["r/few", "r/few"]


def test_a_claim_for_more_devices_than_its_status_can_hold_is_an_error():
    with pytest.raises(AllocationError, match="exceeds the claim limit of 32"):
        allocate([FOUR], claim("mine", request(count=33)))


def test_match_attribute_searches_until_the_devices_agree():
    devices = [
        gpu(f"gpu-{number}", attributes={"root": {"string": root}})
        for number, root in enumerate(["x", "y", "z", "y"])
    ]
    wish = claim(
        "mine", request(count=2), devices={"constraints": [{"matchAttribute": "gpu.example.com/root"}]}
    )
    assert names(allocate([slice_of("a", devices)], wish)[0]) == ["gpu-1", "gpu-3"]


def test_distinct_attribute_skips_devices_that_agree():
    devices = [
        gpu(f"gpu-{number}", attributes={"root": {"string": root}})
        for number, root in enumerate(["x", "x", "y"])
    ]
    wish = claim(
        "mine", request(count=2), devices={"constraints": [{"distinctAttribute": "gpu.example.com/root"}]}
    )
    assert names(allocate([slice_of("a", devices)], wish)[0]) == ["gpu-0", "gpu-2"]


def test_distinct_attribute_of_1_36_forgets_the_values_of_a_request_with_a_removed_device():
    roots = ["x", "y", "x"]
    devices = [
        gpu(f"gpu-{number}", attributes={"root": {"string": root}}) for number, root in enumerate(roots)
    ]
    attribute = "gpu.example.com/root"
    constraints = [{"distinctAttribute": attribute}, {"matchAttribute": attribute}]
    wish = claim("mine", request(count=2), devices={"constraints": constraints})
    offered = [slice_of("a", devices)]
    assert allocate(offered, wish) is None
    # Source: distinctAttributeConstraint.remove of k8s.io/dynamic-resource-allocation v0.36.3.
    assert names(allocate(offered, wish, rules=RELEASES["1.36"].devices)[0]) == ["gpu-0", "gpu-2"]


def test_partitions_share_the_counters_of_their_pool():
    def partition(name, memory):
        consumption = [{"counterSet": "card", "counters": {"memory": {"value": memory}}}]
        return gpu(name, consumesCounters=consumption)

    counters = slice_of(
        "a",
        [],
        {"resourceSliceCount": 2},
        sharedCounters=[{"name": "card", "counters": {"memory": {"value": "80Gi"}}}],
    )
    devices = slice_of(
        "a",
        [partition("whole", "80Gi"), partition("half-0", "40Gi"), partition("half-1", "40Gi")],
        {"resourceSliceCount": 2},
    )
    counters = msgspec.structs.replace(
        counters, metadata=msgspec.structs.replace(counters.metadata, name="counters")
    )
    wish = claim("mine", request(count=2))
    assert names(allocate([counters, devices], wish)[0]) == ["half-0", "half-1"]
    assert allocate([counters, devices], claim(), in_use=[allocated("other", "whole")]) is None


def test_a_taint_needs_a_toleration():
    taint = {"key": "broken", "effect": "NoSchedule"}
    offered = [
        slice_of("a", [gpu("gpu-0", taints=[taint]), gpu("gpu-1", taints=[{**taint, "effect": "None"}])])
    ]
    assert names(allocate(offered, claim())[0]) == ["gpu-1"]
    tolerant = claim("mine", request(tolerations=[{"key": "broken", "operator": "Exists"}]))
    assert names(allocate(offered, tolerant)[0]) == ["gpu-0"]


def shared_gpu(capacity: str, value: str, policy: Mapping[str, Any]) -> dict[str, Any]:
    """A device for several claims, with one capacity that they consume."""
    capacities = {capacity: {"value": value, "requestPolicy": policy}}
    return gpu("gpu-0", allowMultipleAllocations=True, capacity=capacities)


def test_shared_capacity_is_consumed_in_the_steps_of_its_policy():
    policy = {"default": "10Gi", "validRange": {"min": "10Gi", "step": "10Gi"}}
    shared = shared_gpu("memory", "80Gi", policy)
    wish = claim("mine", request(capacity={"requests": {"memory": "25Gi"}}))
    (result,) = allocate([slice_of("a", [shared])], wish)
    assert result.devices.results[0].consumed_capacity == {"memory": "30Gi"}
    used = allocated("other", "gpu-0", shareID="s", consumedCapacity={"memory": "60Gi"})
    assert allocate([slice_of("a", [shared])], wish, in_use=[used]) is None
    assert allocate([slice_of("a", [shared])], claim(), in_use=[used]) is not None


def test_steps_of_capacity_are_whole_numbers():
    policy = {"default": "500m", "validRange": {"min": "500m", "step": "500m"}}
    shared = shared_gpu("cores", "4", policy)
    wish = claim("mine", request(capacity={"requests": {"cores": "500m"}}))
    (result,) = allocate([slice_of("a", [shared])], wish)
    # With its default gates, kube-scheduler 1.37 counts in whole numbers: DRAFractionalCapacityRange is off.
    assert result.devices.results[0].consumed_capacity == {"cores": "1"}


def test_an_incomplete_pool_serves_nobody_and_makes_all_fail():
    half = slice_of("a", [gpu("gpu-0")], {"resourceSliceCount": 2})
    assert allocate([half], claim()) is None
    with pytest.raises(AllocationError, match="is currently being updated"):
        allocate([half], claim("mine", request(allocationMode="All")))


def test_only_the_newest_generation_of_a_pool_counts():
    old = slice_of("a", [gpu("old")])
    new = slice_of("a", [gpu("new")], {"generation": 2})
    assert names(allocate([old, new], claim())[0]) == ["new"]


def test_a_pool_with_two_devices_of_one_name_refuses_its_node():
    with pytest.raises(NodeRefused, match="invalid resource pools were encountered"):
        allocate([slice_of("a", [gpu("gpu-0"), gpu("gpu-0")])], claim())


def test_a_network_device_is_usable_from_all_nodes_that_its_slice_selects():
    selector = {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]}]
    }
    fabric = slice_of("fabric", [gpu("nic")], nodeSelector=selector)
    assert allocate([fabric], claim(), node=bare_node("a", zone="other")) is None
    (result,) = allocate([fabric], claim(), node=bare_node("a", zone="z"))
    assert result.node_selector.matches({"zone": "z"}, "b")


def test_each_device_may_state_its_own_nodes():
    devices = [gpu("far", nodeName="b"), gpu("near", nodeName="a")]
    offered = [slice_of("fabric", devices, perDeviceNodeSelection=True)]
    assert names(allocate(offered, claim())[0]) == ["near"]


def test_configuration_of_the_class_comes_before_that_of_the_claim():
    configured = device_class(config=[{"opaque": {"driver": "gpu.example.com", "parameters": {"a": 1}}}])
    own = [{"requests": ["r"], "opaque": {"driver": "gpu.example.com", "parameters": {"b": 2}}}]
    (result,) = allocate([FOUR], claim("mine", devices={"config": own}), classes=[configured])
    assert [(one.source, one.opaque.parameters) for one in result.devices.config] == [
        ("FromClass", {"a": 1}),
        ("FromClaim", {"b": 2}),
    ]


def test_a_selector_that_reads_a_missing_attribute_is_an_error():
    expression = 'device.attributes["gpu.example.com"].missing == 1'
    wish = claim("mine", request(selectors=[{"cel": {"expression": expression}}]))
    with pytest.raises(AllocationError, match="claim default/mine: selector #0"):
        allocate([FOUR], wish)


def test_a_request_with_derived_attributes_names_the_field():
    wish = claim("mine", request(derivedAttributes=[{"name": "a/b", "expression": "1"}]))
    with pytest.raises(AllocationError, match="derivedAttributes"):
        allocate([FOUR], wish)


LACKING = device_class("lacking", 'device.driver == "none"')


@pytest.mark.parametrize(
    "last, devices",
    [
        (request("last", "lacking"), {}),
        (
            request("last"),
            {"constraints": [{"requests": ["r0", "last"], "matchAttribute": "gpu.example.com/index"}]},
        ),
    ],
    ids=["no device", "constraint"],
)
def test_the_devices_that_a_search_tries_are_counted(monkeypatch, last, devices):
    reads = []
    use_of = DeviceLedger.use_of

    def counted(self, device):
        reads.append(device)
        return use_of(self, device)

    monkeypatch.setattr(DeviceLedger, "use_of", counted)
    many = [gpu(f"gpu-{number}", attributes={"index": {"int": number}}) for number in range(128)]
    hostile = claim("mine", *(request(f"r{number}") for number in range(31)), last, devices=devices)
    with pytest.raises(NodeRefused, match="node a: timed out trying to allocate devices"):
        allocate([slice_of("a", many)], hostile, classes=[device_class(), LACKING])
    assert len(reads) < 200_000


def test_capacities_that_are_compared_count_as_steps():
    capacity = {f"c{number}": {"value": "1"} for number in range(32)}
    shared = [gpu(f"gpu-{number}", capacity=capacity, allowMultipleAllocations=True) for number in range(64)]
    hostile = claim("mine", *(request(f"r{number}") for number in range(31)), request("last", "lacking"))
    started = time.process_time()
    with pytest.raises(NodeRefused, match="timed out"):
        allocate([slice_of("a", shared)], hostile, classes=[device_class(), LACKING])
    assert time.process_time() - started < 2


def test_an_expression_that_takes_too_long_is_not_evaluated():
    numbers = f"[{','.join(map(str, range(99)))}]"
    body = "&&".join(['quantity("1").sign() == 1'] * 300)
    slow = request(selectors=[{"cel": {"expression": f"{numbers}.all(x, {numbers}.all(y, {body}))"}}])
    started = time.process_time()
    with pytest.raises(NodeRefused, match="timed out"):
        allocate([FOUR], claim("mine", slow))
    assert time.process_time() - started < 1


def test_a_pod_with_more_claims_than_the_search_can_follow_is_an_error():
    many = [gpu(f"gpu-{number}") for number in range(128)]
    claims = [claim(f"c{number}") for number in range(120)]
    assert len(allocate([slice_of("a", many)], *claims)) == 120
    with pytest.raises(
        AllocationError, match="the pod has 121 claims, and with their requests and devices they are 363"
    ):
        allocate([slice_of("a", many)], *claims, claim("one-more"))


def test_a_claim_with_very_long_expressions_is_an_error_before_they_are_compiled():
    def selectors(number):
        return [{"cel": {"expression": f"{number} == {number}" + " " * 9_000}}]

    few = claim("few", *(request(f"r{number}", selectors=selectors(number)) for number in range(4)))
    assert allocate([FOUR], few) is not None
    equal = claim("equal", request("r", count=4, selectors=selectors(0) * 8))
    assert allocate([FOUR], equal) is not None
    many = claim("many", *(request(f"r{number}", selectors=selectors(number)) for number in range(32)))
    with pytest.raises(
        AllocationError, match=r"claim default/many: its expressions have 288,.* at most 65,536"
    ):
        allocate([FOUR], many)
