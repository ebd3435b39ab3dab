"""Invariants of allocation over random pools and claims."""

from decimal import Decimal
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.pod_devices import PodDevices, ReservedClaimDevices
from batchsched.devices.allocation import build_allocations
from batchsched.devices.allocator import remaining_counters
from batchsched.devices.requests import claim_requests
from tests.devices.objects import allocator, bare_node, claim, device_class, gpu, request, slice_of

pytestmark = pytest.mark.properties
NODE = bare_node("a")
CLASSES = {"gpu": device_class()}
TAINT = {"key": "broken", "effect": "NoExecute"}


@st.composite
def pools(draw):
    """One pool with a counter set: whole devices, partitions, tainted and shareable devices."""
    devices = []
    for number in range(draw(st.integers(1, 6))):
        fields: dict[str, Any] = {"attributes": {"root": {"string": draw(st.sampled_from("xy"))}}}
        if draw(st.booleans()):
            amount = draw(st.sampled_from(["1", "2", "3"]))
            fields["consumesCounters"] = [{"counterSet": "card", "counters": {"units": {"value": amount}}}]
        if draw(st.integers(0, 4)) == 0:
            fields["taints"] = [TAINT]
        if draw(st.integers(0, 3)) == 0:
            fields["allowMultipleAllocations"] = True
            fields["capacity"] = {"memory": {"value": "10", "requestPolicy": {"default": "4"}}}
        devices.append(gpu(f"gpu-{number}", **fields))
    units = draw(st.sampled_from(["2", "4"]))
    counters = slice_of(
        "a",
        [],
        {"resourceSliceCount": 2},
        sharedCounters=[{"name": "card", "counters": {"units": {"value": units}}}],
    )
    offered = slice_of("a", devices, {"resourceSliceCount": 2})
    return [
        counters.__class__(metadata=offered.metadata.__class__(name="counters"), spec=counters.spec),
        offered,
    ]


@st.composite
def wishes(draw):
    """Claims of pods that arrive one after the other."""
    found = []
    for number in range(draw(st.integers(1, 6))):
        fields: dict[str, Any] = {"count": draw(st.integers(1, 3))}
        if draw(st.booleans()):
            fields["tolerations"] = [{"key": "broken", "operator": "Exists"}]
        constraints = [{"matchAttribute": "gpu.example.com/root"}] if draw(st.booleans()) else []
        found.append(claim(f"c{number}", request(**fields), devices={"constraints": constraints}))
    return found


@given(pools(), wishes())
def test_no_device_is_allocated_twice_and_no_counter_is_negative_and_taints_are_respected(slices, claims):
    searching = allocator(slices)
    for one in claims:
        wanted = [claim_requests(one, CLASSES)]
        solution = searching.find_devices(NODE, wanted)
        if solution is None:
            continue
        for chosen in solution.devices[0]:
            assert chosen.request.tolerates(chosen.device)
        (allocation,) = build_allocations(solution, [one], "a", (None,))
        searching.ledger.reserve_devices(
            one.key, PodDevices((ReservedClaimDevices(one.key, allocation),), (one.key,))
        )
    (pool,) = searching.inventory.pools_of_node(NODE)
    offered = {device.key: device for devices in pool.slices for device in devices}
    for key, use in searching.ledger.uses.items():
        assert use.exclusive <= 1
        assert not (use.exclusive and use.shares)
        assert all(amount <= offered[key].capacity[name] for name, amount in use.consumed.items())
    assert all(
        amount >= Decimal(0)
        for counters in remaining_counters(pool, searching.ledger).values()
        for amount in counters.values()
    )
    for one in claims:
        searching.ledger.release_reserved_devices(one.key)
    assert not searching.ledger.uses


@given(pools(), st.integers(1, 3), st.booleans(), st.booleans())
def test_a_claim_is_refused_only_if_no_set_of_devices_serves_it(slices, count, tolerant, matching):
    fields: dict[str, Any] = {"tolerations": [{"key": "broken", "operator": "Exists"}]} if tolerant else {}
    constraints = [{"matchAttribute": "gpu.example.com/root"}] if matching else []
    wish = claim("mine", request(count=count, **fields), devices={"constraints": constraints})
    searching = allocator(slices)
    found = searching.find_devices(NODE, [claim_requests(wish, CLASSES)]) is not None
    (pool,) = searching.inventory.pools_of_node(NODE)
    devices = [device for slice_devices in pool.slices for device in slice_devices]
    units = pool.counters["card"]["units"]

    def serves(chosen):
        roots = {device.device.attributes["root"].string_value for device in chosen}
        used = sum(amount for device in chosen for _, _, amount in device.counters)
        tolerated = tolerant or not any(device.taints for device in chosen)
        return tolerated and used <= units and (not matching or len(roots) == 1)

    assert found == any(serves(chosen) for chosen in combinations(devices, count))
