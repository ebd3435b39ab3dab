"""Objects of devices and claims with unusable quantities are set aside, and the message names the field."""

from typing import Any

import msgspec
import pytest

from batchsched.api.snapshot import KIND_BY_GROUP_AND_NAME
from batchsched.manifests.decode import Decoder, ObjectDecodeError
from batchsched.manifests.documents import Document, Envelope


def decode(kind: str, spec: dict[str, Any], **more: Any) -> Any:
    raw = msgspec.json.encode({"metadata": {"name": "x"}, "spec": spec, **more})
    document = Document("", "", raw, msgspec.json.decode(raw, type=Envelope))
    return Decoder().decode(document, KIND_BY_GROUP_AND_NAME["resource.k8s.io", kind])


def claim_spec(amount: str) -> dict[str, Any]:
    capacity = {"capacity": {"requests": {"memory": amount}}}
    return {
        "devices": {
            "requests": [
                {"name": "a", "exactly": {}},
                {"name": "b", "firstAvailable": [{"name": "c", **capacity}]},
            ]
        }
    }


def device(**fields: Any) -> dict[str, Any]:
    return {"devices": [{"name": "a"}, {"name": "b", **fields}]}


def capacity(value: str = "1Gi", **policy: Any) -> dict[str, Any]:
    return device(capacity={"memory": {"value": value, "requestPolicy": policy}})


def counters(value: str) -> list[dict[str, Any]]:
    return [{"name": "set", "counterSet": "set", "counters": {"slots": {"value": value}}}]


REQUEST = "devices.requests[1].firstAvailable[0].capacity.requests.memory"
POLICY = "spec.devices[1].capacity.memory.requestPolicy"
CASES: list[tuple[str, dict[str, Any], str]] = [
    ("ResourceClaim", claim_spec("16Ei"), f"spec.{REQUEST}"),
    ("ResourceClaimTemplate", {"spec": claim_spec("much")}, f"spec.spec.{REQUEST}"),
    ("ResourceSlice", capacity("16Ei"), "spec.devices[1].capacity.memory.value"),
    ("ResourceSlice", capacity(default="1e999"), f"{POLICY}.default"),
    ("ResourceSlice", capacity(validValues=["1", "x"]), f"{POLICY}.validValues[1]"),
    ("ResourceSlice", capacity(validRange={"min": "1", "max": "-"}), f"{POLICY}.validRange.max"),
    ("ResourceSlice", capacity(validRange={"min": "1", "step": "1 Gi"}), f"{POLICY}.validRange.step"),
    (
        "ResourceSlice",
        device(consumesCounters=counters("16Ei")),
        "spec.devices[1].consumesCounters[0].counters.slots.value",
    ),
    ("ResourceSlice", {"sharedCounters": counters("a")}, "spec.sharedCounters[0].counters.slots.value"),
]


@pytest.mark.parametrize("kind, spec, field", CASES, ids=[field for _, _, field in CASES])
def test_a_quantity_that_cannot_be_used_is_named_by_its_field(kind, spec, field):
    with pytest.raises(ObjectDecodeError) as refused:
        decode(kind, spec)
    (problem,) = refused.value.complaints
    assert problem.field == field
    assert "is not a usable quantity" in problem.message


def test_usable_quantities_are_accepted():
    decode("ResourceClaim", claim_spec("7Ei"))
    decode("ResourceClaimTemplate", {"spec": claim_spec("500m")})
    decode("ResourceSlice", capacity("80Gi", default="1", validRange={"min": "1", "step": "1"}))
    decode("ResourceSlice", {**device(consumesCounters=counters("1")), "sharedCounters": counters("7")})


def test_a_claim_with_a_consumed_amount_that_cannot_be_used_keeps_its_devices():
    result = {"device": "gpu-0", "shareID": "s", "consumedCapacity": {"memory": "16Ei"}}
    status = {"allocation": {"devices": {"results": [result]}}}
    claim = decode("ResourceClaim", claim_spec("1"), status=status)
    assert claim.status.allocation.devices.results[0].device == "gpu-0"
