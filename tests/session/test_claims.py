"""Sessions over pods with ResourceClaims: devices are planned, reserved, and given back with the gang."""

from dataclasses import replace

import msgspec
import pytest

from batchsched.api.core.device import AllocationResult
from batchsched.api.core.pod import Pod, PodResourceClaim, PodResourceClaimStatus, PodSchedulingGroup
from batchsched.api.decision import without_measured_durations
from batchsched.api.pod_devices import PodDevices, ReservedClaimDevices, ReservedPodDevices
from batchsched.api.snapshot import Snapshot
from batchsched.plugins.dynamic_resources import node_search, plugin
from batchsched.session.session import Session
from tests.devices.objects import allocated, claim, device_class, gpu, names, request, slice_of
from tests.session import scenario
from tests.session.scenario import GPU, NOW, gang, nodes, pod, profile, schedule

ALONE = profile(solver={"enabled": False})
TOGETHER = profile()
BOTH_WAYS = pytest.mark.parametrize("way", [ALONE, TOGETHER], ids=["pod by pod", "solver"])


def cluster(some, *parts: Snapshot, **more) -> Snapshot:
    """A cluster with the claims of its parts."""
    claims = tuple(one for part in parts for one in part.resource_claims)
    return scenario.cluster(some, *parts, **{"resource_claims": claims, **more})


def offered(count: int, devices: int) -> tuple:
    return tuple(
        slice_of(f"n{at}", [gpu(f"gpu-{number}") for number in range(devices)]) for at in range(count)
    )


def with_own_claim(one: Pod, *requests) -> Snapshot:
    """A pod with a claim that was created for it from a template."""
    name = f"{one.name}-gpu"
    metadata = {
        "namespace": one.namespace,
        "ownerReferences": [{"uid": f"uid-{one.name}", "controller": True}],
    }
    own = claim(name, *requests, metadata=metadata)
    return Snapshot(
        pods=(
            msgspec.structs.replace(
                one,
                metadata=msgspec.structs.replace(one.metadata, uid=f"uid-{one.name}"),
                spec=msgspec.structs.replace(
                    one.spec,
                    resource_claims=(PodResourceClaim(name="gpu", resource_claim_template_name="t"),),
                ),
                status=msgspec.structs.replace(
                    one.status,
                    resource_claim_statuses=(PodResourceClaimStatus(name="gpu", resource_claim_name=name),),
                ),
            ),
        ),
        resource_claims=(own,),
    )


def gang_with_claims(name: str, count: int, minimum: int | None = None, *requests) -> Snapshot:
    whole = gang(name, count, minimum, requests={"cpu": 1})
    parts = [with_own_claim(one, *requests) for one in whole.pods]
    return replace(
        whole,
        pods=tuple(one for part in parts for one in part.pods),
        resource_claims=tuple(one for part in parts for one in part.resource_claims),
    )


def sharing(one: Pod, name: str) -> Pod:
    entries = (PodResourceClaim(name="c", resource_claim_name=name),)
    return msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, resource_claims=entries))


def devices_of(decision) -> dict[str, list[tuple[str, str]]]:
    """Pod → (node, device) of its claims."""
    return {
        one.pod: [
            (one.node, device) for each in one.claims if each.allocation for device in names(each.allocation)
        ]
        for one in decision.assignments
    }


@BOTH_WAYS
def test_every_pod_of_a_gang_gets_devices_of_its_own(way):
    decision = schedule(
        cluster(
            nodes(2),
            gang_with_claims("bert", 4),
            resource_slices=offered(2, 2),
            device_classes=(device_class(),),
        ),
        way,
    )
    used = [device for devices in devices_of(decision).values() for device in devices]
    assert len(used) == len(set(used)) == 4


@BOTH_WAYS
def test_a_gang_with_too_few_devices_is_refused_and_reserves_none(way):
    state = cluster(
        nodes(2),
        gang_with_claims("bert", 5),
        gang_with_claims("small", 4),
        resource_slices=offered(2, 2),
        device_classes=(device_class(),),
    )
    decision = schedule(state, way)
    assert {one.pod.partition("-")[0] for one in decision.assignments} == {"small"}
    assert [one.pod_group for one in decision.refusals] == ["team/bert"]
    session = Session(state, way)
    session.decide(NOW, 0)
    assert all(use.exclusive == 1 for use in session.node_table.device_ledger.uses.values())
    assert len(session.node_table.device_ledger.uses) == 4


@BOTH_WAYS
def test_a_device_that_a_claim_has_is_never_allocated(way):
    taken = allocated("taken", "gpu-0", pool="n0")
    decision = schedule(
        cluster(
            nodes(1),
            gang_with_claims("bert", 1),
            resource_slices=offered(1, 2),
            device_classes=(device_class(),),
        ),
        way,
    )
    assert devices_of(decision) == {"bert-0": [("n0", "gpu-0")]}
    state = cluster(
        nodes(1), gang_with_claims("bert", 1), resource_slices=offered(1, 2), device_classes=(device_class(),)
    )
    state = replace(state, resource_claims=(*state.resource_claims, taken))
    assert devices_of(schedule(state, way)) == {"bert-0": [("n0", "gpu-1")]}


@BOTH_WAYS
def test_pods_of_a_gang_that_share_a_claim_run_on_the_node_of_its_device(way):
    whole = gang("bert", 3, requests={"cpu": 1})
    whole = replace(whole, pods=tuple(sharing(one, "shared") for one in whole.pods))
    decision = schedule(
        cluster(
            nodes(3),
            whole,
            resource_slices=offered(3, 1),
            device_classes=(device_class(),),
            resource_claims=(claim("shared", metadata={"namespace": "team"}),),
        ),
        way,
    )
    assert len({one.node for one in decision.assignments}) == 1
    assert len(decision.assignments) == 3
    assert all(one.claims[0].allocation is not None for one in decision.assignments)


@BOTH_WAYS
def test_a_device_that_all_nodes_reach_is_given_once(way):
    fabric = slice_of("fabric", [gpu("nic-0"), gpu("nic-1")], allNodes=True)
    state = cluster(
        nodes(3),
        *(with_own_claim(pod(f"solo-{at}", cpu=1)) for at in range(4)),
        resource_slices=(fabric,),
        device_classes=(device_class(),),
    )
    decision = schedule(state, way)
    used = [device for devices in devices_of(decision).values() for _, device in devices]
    assert sorted(used) == ["nic-0", "nic-1"]
    assert len(decision.refusals) == 2


@BOTH_WAYS
def test_an_allocated_claim_keeps_its_pod_on_its_node(way):
    selector = {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
    }
    has = claim(
        "shared",
        metadata={"namespace": "team"},
        status={"allocation": {"devices": {"results": []}, "nodeSelector": selector}},
    )
    state = cluster(
        nodes(3),
        Snapshot(pods=(sharing(pod("solo", cpu=1), "shared"),)),
        resource_claims=(has,),
        device_classes=(device_class(),),
    )
    (assignment,) = schedule(state, way).assignments
    assert assignment.node == "n1"
    assert [(one.claim, one.allocation) for one in assignment.claims] == [("shared", None)]


@BOTH_WAYS
def test_a_claim_that_a_pod_names_twice_is_allocated_once(way):
    one = sharing(pod("solo", cpu=1), "twice")
    entries = (*(one.spec.resource_claims or ()), PodResourceClaim(name="again", resource_claim_name="twice"))
    both = msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, resource_claims=entries))
    state = cluster(
        nodes(1),
        Snapshot(pods=(both,)),
        resource_claims=(claim("twice", metadata={"namespace": "team"}),),
        resource_slices=offered(1, 2),
        device_classes=(device_class(),),
    )
    session = Session(state, way)
    (assignment,) = session.decide(NOW, 0).assignments
    assert [entry.claim for entry in assignment.claims] == ["twice"]
    ledger = session.tables.node_table.device_ledger
    assert len(ledger.uses) == 1
    ledger.release_reserved_devices("team/solo")
    assert not ledger.uses


def test_a_claim_is_deallocated_only_if_a_node_lacks_nothing_else():
    selector = {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n9"]}]}]
    }
    away = claim(
        "away",
        metadata={"namespace": "team"},
        status={"allocation": {"devices": {"results": []}, "nodeSelector": selector}},
    )
    open_claim = claim("open", metadata={"namespace": "team"})
    one = sharing(pod("solo", cpu=1), "away")
    entries = (*(one.spec.resource_claims or ()), PodResourceClaim(name="d", resource_claim_name="open"))
    both = msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, resource_claims=entries))
    for waiting, deallocates in ((one, True), (both, False)):
        state = cluster(
            nodes(2),
            Snapshot(pods=(waiting,)),
            resource_claims=(away, open_claim),
            device_classes=(device_class(),),
        )
        (refusal,) = schedule(state, ALONE).refusals
        assert ("deallocation of ResourceClaim completed" in refusal.message) is deallocates


def test_a_claim_that_another_pod_of_the_session_reserved_is_not_deallocated():
    selector = {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}]
    }
    there = claim(
        "there",
        metadata={"namespace": "team"},
        status={"allocation": {"devices": {"results": []}, "nodeSelector": selector}},
    )
    state = cluster(
        nodes(2, gpu=1),
        Snapshot(pods=tuple(sharing(pod(name, gpu=1), "there") for name in ("first", "second"))),
        resource_claims=(there,),
    )
    decision = schedule(state, ALONE)
    assert [one.node for one in decision.assignments] == ["n0"]
    (refusal,) = decision.refusals
    assert "resourceclaim not available on the node" in refusal.message
    assert "deallocation" not in refusal.message


@BOTH_WAYS
def test_a_device_class_serves_an_extended_resource_on_nodes_that_do_not_offer_it(way):
    state = cluster(
        nodes(2),
        gang("bert", 4, requests={"gpu": 1}),
        resource_slices=offered(2, 2),
        device_classes=(device_class(extendedResourceName=GPU),),
    )
    decision = schedule(state, way)
    used = [device for devices in devices_of(decision).values() for device in devices]
    assert len(used) == len(set(used)) == 4
    assert {one.claims[0].claim for one in decision.assignments} == {"<extended-resources>"}
    assert not schedule(replace(state, resource_slices=offered(2, 1)), way).assignments


@BOTH_WAYS
def test_a_missing_claim_refuses_its_pod_with_the_name_of_the_claim(way):
    state = cluster(
        nodes(1), Snapshot(pods=(sharing(pod("solo", cpu=1), "ghost"),)), device_classes=(device_class(),)
    )
    (refusal,) = schedule(state, way).refusals
    assert 'could not find ResourceClaim "team/ghost"' in refusal.message


def test_a_component_that_does_not_write_claims_refuses_pods_with_claims():
    state = cluster(
        nodes(1), gang_with_claims("bert", 1), resource_slices=offered(1, 1), device_classes=(device_class(),)
    )
    session = Session(state, TOGETHER)
    session.tables.pipeline.allocates_devices = False
    refusing = Session(state, TOGETHER, session.tables.pipeline)
    (refusal,) = refusing.decide(NOW, 0).refusals
    assert refusal.reason == "UnsupportedField"
    assert "spec.resourceClaims" in refusal.message


@BOTH_WAYS
@pytest.mark.parametrize(
    "expression", ['device.attributes["gpu.example.com"].nothing == "x"', "device.(", "1"]
)
def test_a_claim_with_an_expression_that_fails_refuses_its_own_pod_only(way, expression):
    selectors = [{"cel": {"expression": expression}}]
    bad = [with_own_claim(pod(f"bad-{at}", cpu=1), request(selectors=selectors)) for at in range(2)]
    state = cluster(
        nodes(2),
        *bad,
        gang_with_claims("bert", 2),
        gang_with_claims("gpt", 2),
        resource_slices=offered(2, 2),
        device_classes=(device_class(),),
    )
    decision = schedule(state, way)
    assert len(devices_of(decision)) == 4
    assert [one.pod_group for one in decision.refusals] == ["team/bad-0", "team/bad-1"]
    for refusal in decision.refusals:
        assert (
            "plugin DynamicResources failed in Filter: claim team/bad-0-gpu: selector #0" in refusal.message
        )


@BOTH_WAYS
def test_a_claim_that_takes_too_long_on_all_nodes_together_is_refused_early(monkeypatch, way):
    monkeypatch.setattr(node_search, "MAX_STEPS_OF_ALL_GROUPS", 100)
    monkeypatch.setattr(node_search, "SEARCH_STEPS_PER_DEVICE", 0)
    # The expression may read everything, so that each node has devices of its own.
    selectors = [{"cel": {"expression": 'device.attributes["gpu.example.com"].exists(name, name == "none")'}}]
    state = cluster(
        nodes(20),
        with_own_claim(pod("slow", cpu=1), request(selectors=selectors)),
        with_own_claim(pod("fast", cpu=1)),
        resource_slices=tuple(
            slice_of(f"n{at}", [gpu("gpu-0", attributes={"index": {"int": at}})]) for at in range(20)
        ),
        device_classes=(device_class(),),
    )
    decision = schedule(state, way)
    assert list(devices_of(decision)) == ["fast"]
    (refusal,) = decision.refusals
    assert "timed out trying to allocate devices" in refusal.message


@BOTH_WAYS
@pytest.mark.parametrize("group, placed", [("train", 2), ("other", 0)])
def test_pods_share_the_claim_that_was_created_for_their_pod_group_of_kubernetes(way, group, placed):
    owner = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "name": group,
        "uid": "uid-of-the-group",
        "controller": True,
    }
    own = claim("train-gpu", metadata={"namespace": "team", "ownerReferences": [owner]})
    parts = [with_own_claim(one) for one in gang("train", 2, requests={"cpu": 1}).pods]
    pods = tuple(
        msgspec.structs.replace(
            pod,
            spec=msgspec.structs.replace(
                pod.spec, scheduling_group=PodSchedulingGroup(pod_group_name="train")
            ),
            status=msgspec.structs.replace(
                pod.status,
                resource_claim_statuses=(
                    PodResourceClaimStatus(name="gpu", resource_claim_name="train-gpu"),
                ),
            ),
        )
        for part in parts
        for pod in part.pods
    )
    whole = replace(gang("train", 2, requests={"cpu": 1}), pods=pods, resource_claims=(own,))
    decision = schedule(
        cluster(nodes(2), whole, resource_slices=offered(2, 1), device_classes=(device_class(),)), way
    )
    assert len(decision.assignments) == placed
    assert len({one.node for one in decision.assignments}) <= 1


@pytest.mark.parametrize("devices", [3, 4])
def test_pods_of_a_gang_get_the_same_devices_at_once_as_one_by_one(monkeypatch, devices):
    state = cluster(
        nodes(4),
        gang_with_claims("bert", 3, None, request(count=2)),
        gang_with_claims("gpt", 4, 2),
        gang_with_claims("large", 3, None, request(count=3)),
        resource_slices=offered(4, devices),
        device_classes=(device_class(),),
    )
    at_once = schedule(state, TOGETHER)
    assert len(at_once.assignments) > 3
    monkeypatch.setattr(plugin, "nodes_surely_have_devices", lambda *_: False)
    assert without_measured_durations(schedule(state, TOGETHER)) == without_measured_durations(at_once)


def test_a_pod_without_claims_does_not_state_those_of_a_deleted_pod_of_its_name_that_is_being_bound():
    held = allocated("old-gpu", "gpu-0", pool="n0").status.allocation or AllocationResult()
    devices = PodDevices((ReservedClaimDevices("team/old-gpu", held),), ("team/old-gpu",), uid="old")
    new = pod("x")
    new = msgspec.structs.replace(new, metadata=msgspec.structs.replace(new.metadata, uid="new"))
    state = replace(
        cluster(nodes(1), Snapshot(pods=(new,)), resource_slices=offered(1, 1)),
        pod_devices=(ReservedPodDevices("team/x", devices),),
    )
    (assignment,) = schedule(state).assignments
    assert (assignment.pod, assignment.claims) == ("x", ())
