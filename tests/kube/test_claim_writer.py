"""ResourceClaims are allocated and reserved once, also if other clients write them or answers are lost."""

from contextlib import asynccontextmanager
from dataclasses import replace

import msgspec
import pytest

from batchsched.api.core.device import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from batchsched.api.core.pod import Pod, extended_resource_claim_name
from batchsched.errors import BindFailed
from batchsched.kube.claim_writer import FINALIZER, ResourceClaimWriter
from batchsched.kube.connection import Connection
from batchsched.kube.credentials import CredentialsReader
from batchsched.kube.writer import Writer
from batchsched.plugins.dynamic_resources.extended_resources import (
    build_extended_resource_claim,
    extended_resource_request_mappings,
)
from batchsched.ports.claims import (
    ExtendedResourceClaimRelease,
    ExtendedResourceClaimReservation,
    ResourceClaimRelease,
    ResourceClaimReservation,
)
from tests.controlplane.devices import DRIVER, GROUP, claim, claims, consumers, devices_of
from tests.controlplane.proxy import lost, page, status
from tests.devices.objects import device_class as gpu_class
from tests.kube.virtual import Hurried


@asynccontextmanager
async def writing(plane, network=None, seen=None):
    config = plane.kubeconfig(server=network.url if network else None)
    async with Connection(CredentialsReader(config), Hurried()) as connection:
        handle = [].append if seen is None else seen.append
        yield ResourceClaimWriter(Writer(connection, Hurried()), Hurried(), handle, lambda _: None)


def allocation(device: str = "gpu-0") -> AllocationResult:
    one = DeviceRequestAllocationResult(request="gpus", driver=DRIVER, pool="node-0", device=device)
    return AllocationResult(devices=DeviceAllocationResult(results=(one,)))


def reservation(namespace, pod: str = "one", **more) -> ResourceClaimReservation:
    (there,) = claims(namespace)
    stated = {"claim": "open", "uid": there["metadata"]["uid"], "allocation": allocation(), **more}
    return ResourceClaimReservation(namespace=namespace.name, pod=pod, pod_uid=f"uid-{pod}", **stated)


def release(made: ResourceClaimReservation, deallocates: bool = True) -> ResourceClaimRelease:
    freed = made.allocation if deallocates else None
    return ResourceClaimRelease(made.namespace, made.claim, made.uid, frozenset({made.pod_uid}), freed)


@pytest.fixture
def open_claim(namespace):
    claim(namespace, "open")
    return namespace


def the_claim(namespace):
    (there,) = claims(namespace)
    return there


async def test_a_claim_is_allocated_and_reserved_once_and_the_state_gets_it(plane, open_claim):
    seen: list[bytes] = []
    made = reservation(open_claim)
    async with writing(plane, seen=seen) as writer:
        await writer.reserve_resource_claim(made)
        await writer.reserve_resource_claim(made)
    there = the_claim(open_claim)
    assert devices_of(there) == ["node-0/gpu-0"]
    assert [one["name"] for one in there["status"]["reservedFor"]] == ["one"]
    assert there["metadata"]["finalizers"] == [FINALIZER]
    assert there["status"]["allocation"]["allocationTimestamp"]
    shown = msgspec.json.decode(seen[-1], type=ResourceClaim)
    assert shown.metadata.resource_version == there["metadata"]["resourceVersion"]


async def test_pods_that_share_a_claim_reserve_it_one_after_the_other(plane, open_claim):
    async with writing(plane) as writer:
        await writer.reserve_resource_claim(reservation(open_claim, "one"))
        await writer.reserve_resource_claim(reservation(open_claim, "two"))
        await writer.reserve_resource_claim(reservation(open_claim, "three", allocation=None))
    assert consumers(the_claim(open_claim)) == {"one", "two", "three"}


async def test_a_claim_of_a_pod_group_is_reserved_once_for_the_group(plane, open_claim):
    group = {"pod_group": "bert", "pod_group_uid": "uid-bert"}
    async with writing(plane) as writer:
        await writer.reserve_resource_claim(reservation(open_claim, "one", **group))
        await writer.reserve_resource_claim(reservation(open_claim, "two", **group))
        await writer.release_resource_claim(release(reservation(open_claim, "one", **group)))
        consumer = {
            "apiGroup": "scheduling.k8s.io",
            "resource": "podgroups",
            "name": "bert",
            "uid": "uid-bert",
        }
        assert the_claim(open_claim)["status"]["reservedFor"] == [consumer]
        assert devices_of(the_claim(open_claim)) == ["node-0/gpu-0"]
        made = reservation(open_claim)
        unused = ResourceClaimRelease(
            made.namespace, made.claim, made.uid, frozenset({"uid-bert"}), made.allocation
        )
        await writer.release_resource_claim(unused)
    assert devices_of(the_claim(open_claim)) == []


async def test_a_claim_that_got_other_devices_or_was_replaced_is_not_reserved(plane, open_claim):
    async with writing(plane) as writer:
        await writer.reserve_resource_claim(reservation(open_claim))
        with pytest.raises(BindFailed, match="got other devices"):
            await writer.reserve_resource_claim(
                reservation(open_claim, "two", allocation=allocation("gpu-1"))
            )
        with pytest.raises(BindFailed):
            await writer.reserve_resource_claim(reservation(open_claim, "two", uid="other"))
        with pytest.raises(BindFailed):
            await writer.reserve_resource_claim(reservation(open_claim, "two", claim="absent"))
    assert consumers(the_claim(open_claim)) == {"one"}


async def test_devices_that_another_client_allocated_meanwhile_are_not_freed(plane, open_claim):
    theirs, ours = reservation(open_claim, "theirs"), reservation(open_claim, allocation=allocation("gpu-1"))
    async with writing(plane) as writer:
        await writer.reserve_resource_claim(theirs)
        await writer.release_resource_claim(release(theirs, deallocates=False))
        with pytest.raises(BindFailed, match="got other devices"):
            await writer.reserve_resource_claim(ours)
        await writer.release_resource_claim(release(ours))
        assert devices_of(the_claim(open_claim)) == ["node-0/gpu-0"]
        with pytest.raises(BindFailed, match="got other devices"):
            await writer.reserve_resource_claim(
                replace(ours, allocation=None, present_allocation=ours.allocation)
            )
    assert consumers(the_claim(open_claim)) == set()


async def test_a_claim_without_devices_is_not_reserved_if_the_decision_allocates_none(plane, open_claim):
    async with writing(plane) as writer:
        with pytest.raises(BindFailed, match="lost its devices"):
            await writer.reserve_resource_claim(reservation(open_claim, allocation=None))


@pytest.mark.parametrize("fault", [status(409), status(500), page(502)], ids=["409", "500", "502"])
async def test_a_write_that_is_not_carried_out_is_repeated_on_the_present_claim(
    plane, proxy, open_claim, fault
):
    proxy.on(fault, method="PATCH", path="/status$", count=2)
    made = reservation(open_claim)
    async with writing(plane, proxy) as writer:
        await writer.reserve_resource_claim(made)
    assert consumers(the_claim(open_claim)) == {"one"}
    assert proxy.count("PATCH", "/status$") == 3


async def test_a_write_without_an_answer_is_repeated_and_counts_once(plane, proxy, open_claim):
    made = reservation(open_claim)
    async with writing(plane, proxy) as writer:
        proxy.on(lost(), method="PATCH", path="/resourceclaims/", count=3)
        await writer.reserve_resource_claim(made)
    assert [one["name"] for one in the_claim(open_claim)["status"]["reservedFor"]] == ["one"]


async def test_the_last_release_frees_the_devices_if_the_session_allocated_them(plane, open_claim):
    one, two = reservation(open_claim, "one"), reservation(open_claim, "two")
    async with writing(plane) as writer:
        await writer.reserve_resource_claim(one)
        await writer.reserve_resource_claim(two)
        await writer.release_resource_claim(release(one))
        await writer.release_resource_claim(release(one))
        assert consumers(the_claim(open_claim)) == {"two"}
        assert devices_of(the_claim(open_claim)) == ["node-0/gpu-0"]
        await writer.release_resource_claim(release(two))
        assert devices_of(the_claim(open_claim)) == []
        await writer.reserve_resource_claim(one)
        await writer.release_resource_claim(release(one, deallocates=False))
        assert consumers(the_claim(open_claim)) == set()
        assert devices_of(the_claim(open_claim)) == ["node-0/gpu-0"]
        open_claim.api.merge(
            open_claim.path("resourceclaims", "open", group=GROUP), {"metadata": {"finalizers": None}}
        )
        open_claim.api.delete(open_claim.path("resourceclaims", "open", group=GROUP))
        await writer.release_resource_claim(release(one))


def extended(pod) -> ExtendedResourceClaimReservation:
    made = build_extended_resource_claim(pod, ["example.com/gpu"], {"example.com/gpu": gpu_class("gpu")})
    metadata = msgspec.structs.replace(made.metadata, name=extended_resource_claim_name(pod))
    device = DeviceRequestAllocationResult(
        request="container-0-request-0", driver=DRIVER, pool="node-0", device="gpu-0"
    )
    return ExtendedResourceClaimReservation(
        claim=msgspec.structs.replace(made, metadata=metadata),
        pod=pod.name,
        pod_uid=pod.metadata.uid,
        allocation=AllocationResult(devices=DeviceAllocationResult(results=(device,))),
        mappings=extended_resource_request_mappings(
            pod, ["example.com/gpu"], {"example.com/gpu": gpu_class("gpu")}
        ),
    )


@pytest.fixture
def requesting(namespace):
    """A pod that requests an extended resource."""
    return msgspec.convert(namespace.pod("lone", **{"example.com/gpu": 1}), Pod)


async def test_a_claim_for_extended_resources_is_created_once_although_answers_are_lost(
    plane, proxy, namespace, requesting
):
    proxy.on(lost(), method="POST", path="/resourceclaims", count=1)
    proxy.on(lost(), method="PATCH", path="/pods/lone/status", count=1)
    made = extended(requesting)
    async with writing(plane, proxy) as writer:
        await writer.reserve_extended_resource_claim(made)
    created = the_claim(namespace)
    assert (devices_of(created), consumers(created)) == (["node-0/gpu-0"], {"lone"})
    status = namespace.get("lone")["status"]["extendedResourceClaimStatus"]
    assert status["resourceClaimName"] == created["metadata"]["name"]
    assert status["requestMappings"] == [
        {"containerName": "main", "resourceName": "example.com/gpu", "requestName": "container-0-request-0"}
    ]


async def test_a_claim_for_extended_resources_is_deleted_with_its_finalizer_and_no_other_one(
    plane, namespace, requesting
):
    made = extended(requesting)
    deletion = ExtendedResourceClaimRelease(namespace.name, made.claim.name, made.pod_uid)
    async with writing(plane) as writer:
        await writer.reserve_extended_resource_claim(made)
        await writer.delete_extended_resource_claim(replace(deletion, pod_uid="other"))
        await writer.delete_extended_resource_claim(deletion, lambda: False)
        assert len(claims(namespace)) == 1
        await writer.delete_extended_resource_claim(deletion)
        assert claims(namespace) == []
        await writer.delete_extended_resource_claim(deletion)


async def test_nothing_is_released_that_is_used_by_now(plane, open_claim):
    made = reservation(open_claim)
    async with writing(plane) as writer:
        await writer.reserve_resource_claim(made)
        await writer.release_resource_claim(release(made), lambda: False)
    assert consumers(the_claim(open_claim)) == {"one"}
