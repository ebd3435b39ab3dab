import msgspec
from msgspec.structs import replace

from batchsched.api.core.device import AllocationResult
from batchsched.api.core.pod import Pod
from batchsched.api.pod_devices import ExtendedResourceClaim, PodDevices, ReservedClaimDevices
from batchsched.devices.ledger import DeviceKey, DeviceLedger
from tests.devices.objects import (
    DRIVER,
    allocate,
    allocated,
    bare_node,
    claim,
    gpu,
    request,
    slice_of,
)

GPU = DeviceKey(DRIVER, "a", "gpu-0")
OPEN = claim("open")
TAKEN = allocated("taken", "gpu-0").status.allocation or AllocationResult()


def reserved(name="default/open"):
    return PodDevices((ReservedClaimDevices(name, TAKEN),), (name,))


def test_a_reserved_device_is_free_again_after_the_last_pod_that_shares_the_claim_reverts():
    ledger = DeviceLedger({OPEN.key: OPEN})
    ledger.reserve_devices("default/x", reserved())
    ledger.reserve_devices("default/y", reserved())
    assert ledger.use_of(GPU).exclusive == 1
    assert ledger.count_pods_with_reserved_claim("default/open") == 2
    ledger.release_reserved_devices("default/x")
    assert ledger.use_of(GPU).exclusive == 1
    ledger.release_reserved_devices("default/y")
    assert ledger.use_of(GPU).is_free
    assert ledger.reserved_allocation_of_claim("default/open") is None


def test_a_pod_that_reserved_nothing_can_be_reverted():
    DeviceLedger({}).release_reserved_devices("default/x")


def test_a_reservation_that_the_snapshot_shows_by_now_counts_once():
    before = DeviceLedger({OPEN.key: OPEN})
    before.reserve_devices("default/x", reserved())
    now = DeviceLedger({"default/open": allocated("open", "gpu-0")})
    now.copy_reservations_of_pods_being_bound(before, lambda pod, _: pod == "default/x")
    assert now.use_of(GPU).exclusive == 1
    now.release_reserved_devices("default/x")
    assert now.use_of(GPU).exclusive == 1


def test_reservations_of_other_profiles_count_as_long_as_they_last_and_are_not_passed_on():
    own, other, third = (DeviceLedger({OPEN.key: OPEN}) for _ in range(3))
    other.reserve_devices("default/x", reserved())
    own.copy_devices_reserved_by_other_profiles([other], lambda *_: True)
    third.copy_devices_reserved_by_other_profiles([own], lambda *_: True)
    assert (own.use_of(GPU).exclusive, third.use_of(GPU).exclusive) == (1, 0)
    own.copy_devices_reserved_by_other_profiles([other], lambda *_: True)
    assert own.use_of(GPU).exclusive == 1
    later = DeviceLedger({OPEN.key: OPEN})
    later.copy_reservations_of_pods_being_bound(own, lambda *_: True)
    assert later.use_of(GPU).is_free
    other.release_reserved_devices("default/x")
    other.reserve_devices("default/x", PodDevices((), ("default/open",)))
    own.copy_devices_reserved_by_other_profiles([other], lambda *_: True)
    assert own.use_of(GPU).is_free
    own.copy_devices_reserved_by_other_profiles([other], lambda *_: False)
    assert own.count_pods_with_reserved_claim("default/open") == 0


def test_shares_of_a_device_add_up_and_are_released():
    one = allocated("one", "gpu-0", shareID="1", consumedCapacity={"memory": "10Gi"})
    two = allocated("two", "gpu-0", shareID="2", consumedCapacity={"memory": "5Gi"})
    assert two.status.allocation is not None
    ledger = DeviceLedger({one.key: one})
    ledger.reserve_devices(
        "default/x",
        PodDevices((ReservedClaimDevices("default/two", two.status.allocation),), ("default/two",)),
    )
    assert ledger.use_of(GPU).shares == 2
    assert ledger.use_of(GPU).consumed == {"memory": 15 * 2**30}
    ledger.release_reserved_devices("default/x")
    assert ledger.use_of(GPU).consumed == {"memory": 10 * 2**30}


def test_a_device_with_admin_access_is_not_in_use():
    watched = allocated("admin", "gpu-0", adminAccess=True)
    assert DeviceLedger({watched.key: watched}).use_of(GPU).is_free


def test_a_consumed_amount_of_more_than_63_bits_leaves_nothing_until_it_is_released():
    huge = allocated("huge", "gpu-0", shareID="s", consumedCapacity={"memory": "16Ei"})
    shared = gpu("gpu-0", capacity={"memory": {"value": "7Ei"}}, allowMultipleAllocations=True)
    wish = claim("mine", request(capacity={"requests": {"memory": "1"}}))
    assert allocate([slice_of("a", [shared])], wish, in_use=[huge]) is None
    other = slice_of("b", [shared])
    assert allocate([slice_of("a", [shared]), other], wish, in_use=[huge], node=bare_node("b")) is not None


def test_a_deleted_pod_keeps_its_devices_until_its_binding_ends_although_a_new_pod_has_its_name():
    ledger = DeviceLedger({OPEN.key: OPEN})
    ledger.reserve_devices("default/x", replace(reserved(), uid="old"))
    other = allocated("other", "gpu-1").status.allocation or AllocationResult()
    ledger.reserve_devices(
        "default/x", PodDevices((ReservedClaimDevices("default/new", other),), ("default/new",), uid="new")
    )
    assert len(ledger.uses) == 2
    assert ledger.devices_reserved_for_pod("default/x", "old") == replace(reserved(), uid="old")
    ledger.release_reserved_devices("default/x", "old")
    assert ledger.use_of(GPU).is_free
    assert len(ledger.uses) == 1
    ledger.release_reserved_devices("default/x", "new")
    assert not ledger.uses


def test_devices_of_a_deleted_pod_are_copied_until_its_binding_ends_and_other_profiles_follow_them():
    ledger, other = DeviceLedger({OPEN.key: OPEN}), DeviceLedger({OPEN.key: OPEN})
    ledger.reserve_devices("default/x", replace(reserved(), uid="old"))
    ledger.reserve_devices("default/x", PodDevices((), (), uid="new"))
    in_flight = {"old", "new"}
    later = DeviceLedger({OPEN.key: OPEN})
    later.copy_reservations_of_pods_being_bound(ledger, lambda _, uid: uid in in_flight)
    other.copy_devices_reserved_by_other_profiles([later], lambda _, uid: uid in in_flight)
    assert (later.use_of(GPU).exclusive, other.use_of(GPU).exclusive) == (1, 1)
    assert later.devices_reserved_for_pod("default/x", "old") == replace(reserved(), uid="old")
    in_flight.remove("old")
    last = DeviceLedger({OPEN.key: OPEN})
    last.copy_reservations_of_pods_being_bound(later, lambda _, uid: uid in in_flight)
    other.copy_devices_reserved_by_other_profiles([later], lambda _, uid: uid in in_flight)
    assert last.use_of(GPU).is_free
    assert other.use_of(GPU).is_free


def test_a_claim_that_a_deleted_pod_and_its_namesake_share_is_free_without_both():
    ledger = DeviceLedger({OPEN.key: OPEN})
    for uid in ("old", "new"):
        ledger.reserve_devices("default/x", replace(reserved(), uid=uid))
    assert (ledger.use_of(GPU).exclusive, ledger.count_pods_with_reserved_claim("default/open")) == (1, 2)
    ledger.release_reserved_devices("default/x", "new")
    assert ledger.use_of(GPU).exclusive == 1
    ledger.release_reserved_devices("default/x", "old")
    assert ledger.use_of(GPU).is_free


def test_devices_for_extended_resources_count_once_after_their_claim_was_created():
    created = ExtendedResourceClaim("default/x/<extended-resources>", claim("x-extended-resources-1"), ())
    devices = PodDevices((ReservedClaimDevices(created.key, TAKEN),), (created.key,), created)
    before = DeviceLedger({})
    before.reserve_devices("default/x", devices)
    now = DeviceLedger({"default/x-extended-resources-1": allocated("x-extended-resources-1", "gpu-0")})
    now.copy_reservations_of_pods_being_bound(before, lambda *_: True)
    assert now.use_of(GPU).exclusive == 1
    now.release_reserved_devices("default/x")
    assert now.use_of(GPU).exclusive == 1


def test_a_ledger_begins_with_what_pods_of_earlier_sessions_reserved():
    before = DeviceLedger({OPEN.key: OPEN})
    before.reserve_devices("default/x", reserved())
    now = DeviceLedger({OPEN.key: OPEN}, before.list_reserved_devices())
    assert now.use_of(GPU).exclusive == 1
    assert now.devices_reserved_for_pod("default/x") == reserved()


def test_a_claim_that_gets_the_devices_reserved_for_it_changes_no_use():
    ledger = DeviceLedger({OPEN.key: OPEN})
    ledger.reserve_devices("default/x", reserved())
    assert not ledger.update_claims([allocated("open", "gpu-0")], ())
    assert ledger.use_of(GPU).exclusive == 1
    assert ledger.list_reserved_devices()[0].devices.allocations == ()
    assert (
        ledger.devices_reserved_for_pod("default/x") == reserved()
    )  # its binding may fail, and then undoes the allocation
    ledger.release_reserved_devices("default/x")
    assert ledger.use_of(GPU).exclusive == 1
    assert ledger.update_claims([OPEN], ())
    assert ledger.use_of(GPU).is_free


def test_devices_of_a_claim_that_is_released_during_a_binding_stay_reserved_for_its_pod():
    ledger = DeviceLedger({OPEN.key: OPEN})
    ledger.reserve_devices("default/x", reserved())
    ledger.update_claims([allocated("open", "gpu-0")], ())
    assert not ledger.update_claims((), [OPEN.key])
    assert ledger.reserved_allocation_of_claim(OPEN.key) == TAKEN
    ledger.release_reserved_devices("default/x")
    assert ledger.use_of(GPU).is_free


def test_a_bound_pod_keeps_its_reservation_until_its_claim_has_the_devices():
    ledger = DeviceLedger({OPEN.key: OPEN})
    ledger.reserve_devices("default/x", reserved())
    ledger.release_reservations_of_pods_not_being_bound(lambda *_: False, lambda *_: True)
    assert ledger.devices_reserved_for_pod("default/x") is not None
    ledger.update_claims([allocated("open", "gpu-0")], ())
    ledger.release_reservations_of_pods_not_being_bound(lambda *_: False, lambda *_: True)
    assert ledger.devices_reserved_for_pod("default/x") is None
    assert ledger.use_of(GPU).exclusive == 1


def test_devices_of_a_withdrawn_pod_count_once_afterwards_if_its_claim_has_them():
    ledger = DeviceLedger({OPEN.key: OPEN})
    ledger.reserve_devices("default/x", reserved())
    ledger.update_claims([allocated("open", "gpu-0")], ())
    leaving = msgspec.convert({"metadata": {"name": "x", "namespace": "default"}}, Pod)
    ledger.simulate_deletion_of_pod(leaving)
    ledger.undo_simulated_deletion_of_pod(leaving)
    assert ledger.use_of(GPU).exclusive == 1


def test_the_claim_created_for_extended_resources_gets_the_devices_reserved_for_it():
    created = ExtendedResourceClaim("default/x/<extended-resources>", OPEN, ())
    ledger = DeviceLedger({})
    ledger.reserve_devices(
        "default/x", PodDevices((ReservedClaimDevices(created.key, TAKEN),), (created.key,), created)
    )
    assert not ledger.update_claims([allocated("open", "gpu-0")], ())
    assert ledger.use_of(GPU).exclusive == 1
    ledger.release_reserved_devices("default/x")
    assert ledger.update_claims((), [OPEN.key])
    assert ledger.use_of(GPU).is_free


def test_a_reader_that_is_far_behind_reads_all_uses_again(monkeypatch):
    monkeypatch.setattr("batchsched.devices.ledger.MAX_KEPT_CHANGES", 4)
    ledger = DeviceLedger({OPEN.key: OPEN})
    for _ in range(4):
        ledger.reserve_devices("default/x", reserved())
        ledger.release_reserved_devices("default/x")
    assert ledger.change_count == 8
    assert ledger.devices_changed_since(0) is None
    assert ledger.devices_changed_since(7) == [GPU]


def test_the_claim_for_extended_resources_of_a_pod_is_found_by_the_uid_of_the_pod_as_claims_change():
    metadata = {
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        "ownerReferences": [{"name": "x", "uid": "old", "controller": True}],
    }
    created = claim("x-extended-resources-1", metadata=metadata)
    old, new = (
        msgspec.convert({"metadata": {"name": "x", "namespace": "default", "uid": uid}}, Pod)
        for uid in ("old", "new")
    )
    ledger = DeviceLedger({OPEN.key: OPEN})
    assert ledger.find_extended_resource_claim(old) is None
    ledger.update_claims([created], ())
    assert ledger.find_extended_resource_claim(old) == created
    assert ledger.find_extended_resource_claim(new) is None
    ledger.update_claims((), [created.key])
    assert ledger.find_extended_resource_claim(old) is None
