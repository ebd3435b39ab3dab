"""Preemption of gangs that hold devices: the claims that evicted pods would release count as free."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.core.device import ResourceClaim, ResourceClaimConsumerReference
from batchsched.api.core.pod import Pod
from batchsched.api.decision import Decision
from batchsched.api.pod_devices import PodDevices, ReservedPodDevices
from batchsched.api.snapshot import Snapshot
from batchsched.ports.cluster import ClusterChanges
from batchsched.session.explanation.explain import explain_refusals
from batchsched.session.explanation.verification import DecidedInput
from batchsched.session.session import Session
from tests.devices.objects import DRIVER, allocated, claim, device_class, gpu, request, slice_of
from tests.scheduler.test_claim_properties import claim_of_group
from tests.session.preemption.running import asked_to_leave, at_work, evicted, gone, kept, wanting
from tests.session.scenario import GPU, NOW, nodes, placed, profile, schedule
from tests.session.test_claims import ALONE, cluster, devices_of, offered, sharing, with_own_claim


def asking(part: Snapshot, *requests: Any) -> Snapshot:
    """The same gang with a claim of its own for each pod."""
    parts = [with_own_claim(one, *requests) for one in part.pods]
    return replace(
        part,
        pods=tuple(one for each in parts for one in each.pods),
        resource_claims=tuple(one for each in parts for one in each.resource_claims),
    )


def waiting(name: str, count: int, *requests: Any, **more: Any) -> Snapshot:
    return asking(wanting(name, count, **{"requests": {"cpu": 1}, **more}), *requests)


def with_allocation(one: ResourceClaim, node: str, devices: Sequence[str], *pods: Pod) -> ResourceClaim:
    """The claim with devices, reserved for pods."""
    status = allocated("any", *devices, pool=node).status
    consumers = [
        {"resource": "pods", "name": pod.name, "uid": pod.metadata.uid or f"uid-{pod.name}"} for pod in pods
    ]
    return msgspec.structs.replace(
        one,
        status=msgspec.convert(
            {"allocation": msgspec.to_builtins(status.allocation), "reservedFor": consumers}, type(status)
        ),
    )


def holding(name: str, places: Sequence[tuple[str, Sequence[str]]], **more: Any) -> Snapshot:
    """A gang of priority 0 that runs: a pod for each (node, devices of its claim)."""
    part = waiting(name, len(places), priority=0, **more)
    return replace(
        part,
        pods=tuple(at_work(one, node) for one, (node, _) in zip(part.pods, places, strict=True)),
        resource_claims=tuple(
            with_allocation(own, node, devices, one)
            for own, one, (node, devices) in zip(part.resource_claims, part.pods, places, strict=True)
        ),
    )


def with_devices(count: int, devices: int, *parts: Snapshot, **more: Any) -> Snapshot:
    return cluster(
        nodes(count),
        *parts,
        resource_slices=offered(count, devices),
        device_classes=(device_class(),),
        **more,
    )


def released(state: Snapshot) -> Snapshot:
    """The cluster after the controller of Kubernetes has released the claims of pods that no longer exist."""
    uids = {one.metadata.uid for one in state.pods}
    return replace(
        state,
        resource_claims=tuple(
            msgspec.structs.replace(one, status=type(one.status)())
            if not all(consumer.uid in uids for consumer in one.status.reserved_for or ())
            else one
            for one in state.resource_claims
        ),
    )


def test_a_gang_evicts_the_gang_whose_claims_hold_the_devices_that_it_lacks():
    low = holding("low", [("n0", ["gpu-0", "gpu-1"]), ("n1", ["gpu-0", "gpu-1"])])
    state = with_devices(2, 2, low, waiting("high", 2, request(count=2)))
    decision = schedule(state)
    assert evicted(decision) == {"low-0": ("team/high", "Preempted"), "low-1": ("team/high", "Preempted")}
    assert kept(decision) == {"high-0": "n0", "high-1": "n1"}
    assert placed(decision) == {}


def test_the_gang_starts_once_its_victims_have_left_and_their_claims_are_released():
    low = holding("low", [("n0", ["gpu-0", "gpu-1"]), ("n1", ["gpu-0", "gpu-1"])])
    before = with_devices(2, 2, low, waiting("high", 2, request(count=2)))
    leaving = asked_to_leave(before, schedule(before))
    # Neither while the victims terminate, nor between their end and the release of their claims.
    for state in (leaving, gone(leaving)):
        decision = schedule(state)
        assert decision.evictions == ()
        assert kept(decision) == {"high-0": "n0", "high-1": "n1"}
        assert placed(decision) == {}
    decision = schedule(released(gone(leaving)))
    assert placed(decision) == {"high-0": "n0", "high-1": "n1"}
    assert len({device for devices in devices_of(decision).values() for device in devices}) == 4


def test_only_the_gang_that_holds_devices_is_evicted_although_others_cost_less():
    idle = replace(wanting("idle", 2, priority=0, requests={"cpu": 1}))
    idle = replace(
        idle,
        pods=tuple(at_work(one, node, 1) for one, node in zip(idle.pods, ("n0", "n1"), strict=True)),
    )
    low = holding("low", [("n1", ["gpu-0", "gpu-1"])])
    state = with_devices(
        2, 2, idle, low, holding("busy", [("n0", ["gpu-0"])]), waiting("high", 1, request(count=2))
    )
    decision = schedule(state)
    assert set(evicted(decision)) <= {"low-0", "busy-0"}
    assert len(evicted(decision)) == 1


def test_as_few_gangs_as_necessary_are_evicted_for_the_devices_of_a_gang():
    parts = [holding(f"low{number}", [(f"n{number % 4}", [f"gpu-{number // 4}"])]) for number in range(8)]
    state = with_devices(4, 2, *parts, waiting("high", 3))
    decision = schedule(state)
    assert len(evicted(decision)) == 3
    assert len(kept(decision)) == 3


def test_devices_of_higher_priority_are_not_taken():
    low = holding("low", [("n0", ["gpu-0"])])
    state = with_devices(1, 1, low, waiting("high", 1, priority=0))
    assert evicted(schedule(state)) == {}


def test_a_claim_that_pods_of_two_gangs_reserved_is_free_only_without_both():
    shared = claim("both", metadata={"namespace": "team"})
    first, second = (
        replace(part, pods=tuple(at_work(sharing(one, "both"), "n0") for one in part.pods))
        for part in (
            asking(wanting("low", 1, priority=0, requests={"cpu": 1})),
            asking(wanting("mid", 1, priority=0, requests={"cpu": 1})),
        )
    )
    pods = (*first.pods, *second.pods)
    first = replace(first, resource_claims=(with_allocation(shared, "n0", ["gpu-0"], *pods),))
    second = replace(second, resource_claims=())
    state = with_devices(1, 1, first, second, waiting("high", 1))
    assert set(evicted(schedule(state))) == {"low-0", "mid-0"}


def test_a_claim_that_a_pod_group_reserved_stays_allocated_and_no_pod_is_evicted_for_it():
    low = holding("low", [("n0", ["gpu-0"])])
    (own,) = low.resource_claims
    group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "low", "uid": "uid-group"}
    status = msgspec.convert(msgspec.to_builtins(own.status) | {"reservedFor": [group]}, type(own.status))
    low = replace(low, resource_claims=(msgspec.structs.replace(own, status=status),))
    assert evicted(schedule(with_devices(1, 1, low, waiting("high", 1)))) == {}


def group_claim(name: str, count: int) -> ResourceClaim:
    """A claim that was created for a PodGroup of Kubernetes: its pods share it."""
    owner = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "name": name,
        "uid": f"uid-of-{name}",
        "controller": True,
    }
    return claim(
        f"{name}-gpu", request(count=count), metadata={"namespace": "team", "ownerReferences": [owner]}
    )


def sharing_group_claim(part: Snapshot, name: str, count: int) -> Snapshot:
    """A gang with one claim for its PodGroup instead of one for each pod."""
    return replace(
        part,
        pods=tuple(claim_of_group(one, name) for one in part.pods),
        resource_claims=(group_claim(name, count),),
    )


def holding_together(name: str, places: Sequence[str], devices: Sequence[str], **more: Any) -> Snapshot:
    """A gang of priority 0 that runs, and of which all pods use the devices of one claim on the first node."""
    part = sharing_group_claim(waiting(name, len(places), priority=0, **more), name, len(devices))
    (own,) = part.resource_claims
    return replace(
        part,
        pods=tuple(at_work(one, node) for one, node in zip(part.pods, places, strict=True)),
        resource_claims=(with_allocation(own, places[0], devices, *part.pods),),
    )


@pytest.mark.parametrize("minimum", [None, 1], ids=["whole gang", "elastic"])
def test_a_gang_whose_group_claim_holds_the_devices_is_evicted_as_a_whole(minimum):
    low = holding_together("low", ["n0", "n0"], ["gpu-0", "gpu-1"], minimum=minimum)
    decision = schedule(with_devices(1, 2, low, waiting("high", 1)))
    assert set(evicted(decision)) == {"low-0", "low-1"}
    assert kept(decision) == {"high-0": "n0"}
    after = schedule(released(gone(asked_to_leave(with_devices(1, 2, low, waiting("high", 1)), decision))))
    assert placed(after) == {"high-0": "n0"}


def test_devices_that_a_pod_group_reserved_are_free_when_its_last_bound_pod_has_ended():
    low = holding_together("low", ["n0", "n0"], ["gpu-0", "gpu-1"])
    (own,) = low.resource_claims
    group = ResourceClaimConsumerReference("scheduling.k8s.io", "podgroups", "low", "uid-of-low")
    status = msgspec.structs.replace(own.status, reserved_for=(group,))
    low = replace(low, resource_claims=(msgspec.structs.replace(own, status=status),))
    session = Session(with_devices(1, 2, low), profile())
    in_use = []
    for pod in low.pods:
        session.apply_changes(ClusterChanges(removed_pods=[pod], ended_pods=[pod]))
        in_use.append(len(session.node_table.device_ledger.uses))
    assert in_use == [2, 0]


def test_a_gang_with_a_group_claim_evicts_a_gang_whose_group_claim_holds_the_devices_and_no_other():
    low = holding_together("low", ["n0", "n0"], ["gpu-0", "gpu-1"])
    mid = holding_together("mid", ["n1", "n1"], ["gpu-0"])
    high = sharing_group_claim(waiting("high", 2), "high", 2)
    decision = schedule(with_devices(2, 2, low, mid, high))
    assert {name[:3] for name in evicted(decision)} in ({"low"}, {"mid"})
    assert len(set(kept(decision).values())) == 1
    assert len(kept(decision)) == 2


def test_a_gang_whose_group_claim_is_not_reserved_for_all_pods_yet_is_evicted_as_a_whole():
    low = holding_together("low", ["n0", "n0"], ["gpu-0", "gpu-1"])
    (own,) = low.resource_claims
    # The second pod is still being bound: the API server does not show its reservation.
    low = replace(low, resource_claims=(with_allocation(own, "n0", ["gpu-0", "gpu-1"], low.pods[0]),))
    reserved = ReservedPodDevices("team/low-1", PodDevices((), (own.key,), uid=low.pods[1].metadata.uid))
    state = replace(with_devices(1, 2, low, waiting("high", 1)), pod_devices=(reserved,))
    assert set(evicted(schedule(state))) == {"low-0", "low-1"}


def test_a_gang_that_shares_one_claim_evicts_all_that_hold_the_devices_of_one_node():
    parts = [
        holding(f"low{node}{device}", [(f"n{node}", [f"gpu-{device}"])])
        for node in range(3)
        for device in range(4)
    ]
    high = wanting("high", 2, requests={"cpu": 1})
    high = replace(high, pods=tuple(sharing(one, "shared") for one in high.pods))
    high = replace(high, resource_claims=(claim("shared", request(count=4), metadata={"namespace": "team"}),))
    decision = schedule(with_devices(3, 4, *parts, high))
    assert len({name[:4] for name in evicted(decision)}) == 1
    assert len(evicted(decision)) == 4
    assert len(set(kept(decision).values())) == 1


@pytest.mark.parametrize("alternatives", [("gpu", "small"), ("small", "gpu")])
def test_a_gang_with_alternatives_evicts_for_one_of_them(alternatives):
    requests = {
        "name": "r",
        "firstAvailable": [
            {"name": name, "deviceClassName": name, "allocationMode": "ExactCount", "count": 1}
            for name in alternatives
        ],
    }
    low = holding("low", [("n0", ["gpu-0"])])
    state = cluster(
        nodes(2),
        low,
        waiting("high", 1, requests),
        resource_slices=offered(1, 1),
        device_classes=(device_class(), device_class("small", "false")),
    )
    assert set(evicted(schedule(state))) == {"low-0"}


def test_extended_resources_that_devices_serve_are_freed_by_evictions():
    served = device_class(extendedResourceName=GPU)
    low = holding("low", [("n0", ["gpu-0", "gpu-1"])])
    high = wanting("high", 1, requests={"gpu": 2})
    state = cluster(nodes(1), low, high, resource_slices=offered(1, 2), device_classes=(served,))
    assert set(evicted(schedule(state))) == {"low-0"}


def test_devices_of_the_network_are_freed_by_evictions():
    fabric = slice_of("fabric", [gpu("nic-0"), gpu("nic-1")], allNodes=True)
    low = holding("low", [("n0", ["nic-0"]), ("n1", ["nic-1"])])
    low = replace(
        low,
        resource_claims=tuple(
            with_allocation(own, "fabric", [device], one)
            for own, device, one in zip(low.resource_claims, ("nic-0", "nic-1"), low.pods, strict=True)
        ),
    )
    state = cluster(
        nodes(3), low, waiting("high", 2), resource_slices=(fabric,), device_classes=(device_class(),)
    )
    assert set(evicted(schedule(state))) == {"low-0", "low-1"}


def test_free_devices_on_nominated_nodes_are_kept_from_gangs_of_lower_priority():
    low = holding("low", [("n0", ["gpu-0"])])
    before = with_devices(1, 2, low, waiting("high", 1, request(count=2)))
    leaving = asked_to_leave(before, schedule(before))
    small = waiting("small", 1, priority=5)
    state = replace(
        leaving,
        pods=(*leaving.pods, *small.pods),
        pod_groups=(*leaving.pod_groups, *small.pod_groups),
        resource_claims=(*leaving.resource_claims, *small.resource_claims),
    )
    decision = schedule(state)
    assert placed(decision) == {}
    assert evicted(decision) == {}


def test_the_ledger_is_unchanged_after_a_session_with_evictions():
    low = holding("low", [("n0", ["gpu-0", "gpu-1"])])
    before = with_devices(1, 2, low, waiting("high", 1, request(count=2)))
    for state in (before, asked_to_leave(before, schedule(before))):
        session = Session(state, profile())
        ledger = session.node_table.device_ledger
        uses, claims = {key: use.exclusive for key, use in ledger.uses.items()}, dict(ledger.claims)
        first = session.decide(NOW, 0)
        assert {key: use.exclusive for key, use in ledger.uses.items()} == uses
        assert ledger.claims == claims
        assert session.decide(NOW, 0).nominations == first.nominations
    assert {key.driver for key in uses} == {DRIVER}


def test_pod_by_pod_no_pod_is_evicted_for_devices_as_in_kube_scheduler():
    """Source: `PreFilterExtensions` of kube-scheduler's plugins/dynamicresources returns nil."""
    low = holding("low", [("n0", ["gpu-0"])])
    assert evicted(schedule(with_devices(1, 1, low, waiting("high", 1)), ALONE)) == {}


def test_an_explanation_names_the_gang_whose_devices_the_refused_gang_gets():
    state = with_devices(1, 1, holding("low", [("n0", ["gpu-0"])]), waiting("high", 1))
    (refusal,) = explain_refusals(DecidedInput(state, profile(), NOW, 0, schedule(state))).refusals
    assert refusal.message == "waits for its nominated node n0: it starts when team/low has left"


@dataclass(frozen=True)
class Case:
    """A cluster with running gangs that hold devices, and pending gangs.

    Args:
      devices: devices of each node.
      running: for each gang the priority, and for each of its pods the number of devices.
      pending: for each gang the priority, the devices of each pod, and the number of pods; negative: they share a
        claim.
    """

    devices: tuple[int, ...]
    running: tuple[tuple[int, tuple[int, ...]], ...]
    pending: tuple[tuple[int, int, int], ...]


CASES = st.builds(
    Case,
    devices=st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple),
    running=st.lists(
        st.tuples(st.integers(0, 2), st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple)),
        max_size=6,
    ).map(tuple),
    pending=st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 3), st.sampled_from((-2, 1, 2, 3))),
        min_size=1,
        max_size=3,
    ).map(tuple),
)


def cluster_of(case: Case) -> Snapshot:
    free = {f"n{number}": [f"gpu-{at}" for at in range(count)] for number, count in enumerate(case.devices)}
    parts = []
    for number, (priority, pods) in enumerate(case.running):
        places = []
        for count in pods:
            node = next((name for name, devices in free.items() if len(devices) >= count), None)
            if node is not None:
                places.append((node, [free[node].pop() for _ in range(count)]))
        if places:
            part = holding(f"run{number}", places)
            parts.append(
                replace(part, pods=tuple(at_work(one, one.node_name, 60, priority) for one in part.pods))
            )
    for number, (priority, devices, count) in enumerate(case.pending):
        name = f"new{number}"
        if count > 0:
            parts.append(waiting(name, count, request(count=devices), priority=priority))
            continue
        high = wanting(name, -count, priority=priority, requests={"cpu": 1})
        shared = claim(f"{name}-gpu", request(count=devices), metadata={"namespace": "team"})
        pods_of_gang = tuple(sharing(one, f"{name}-gpu") for one in high.pods)
        parts.append(replace(high, pods=pods_of_gang, resource_claims=(shared,)))
    slices = tuple(
        slice_of(f"n{number}", [gpu(f"gpu-{at}") for at in range(count)])
        for number, count in enumerate(case.devices)
    )
    return cluster(nodes(len(case.devices)), *parts, resource_slices=slices, device_classes=(device_class(),))


def carried_out(state: Snapshot, decision: Decision) -> Snapshot:
    """The cluster with the decision's bindings, and without its victims."""
    assigned = {(one.namespace, one.pod): one for one in decision.assignments}
    allocations = {
        f"{one.namespace}/{entry.claim}": (entry.allocation, one)
        for one in decision.assignments
        for entry in one.claims
        if entry.allocation is not None
    }

    def with_status(one: ResourceClaim) -> ResourceClaim:
        users = [
            pod
            for pod in state.pods
            if one.key in pod.resource_claim_keys and (pod.namespace, pod.name) in assigned
        ]
        if not users:
            return one
        allocation = allocations[one.key][0] if one.key in allocations else one.status.allocation
        consumers = tuple(
            ResourceClaimConsumerReference(resource="pods", name=pod.name, uid=pod.metadata.uid)
            for pod in users
        )
        return msgspec.structs.replace(
            one, status=msgspec.structs.replace(one.status, allocation=allocation, reserved_for=consumers)
        )

    bound_claims = replace(state, resource_claims=tuple(with_status(one) for one in state.resource_claims))
    return released(gone(asked_to_leave(bound_claims, decision)))


@pytest.mark.properties
@given(CASES)
def test_gangs_for_which_pods_are_evicted_start_without_further_evictions(case: Case):
    state = cluster_of(case)
    decision = schedule(state)
    priorities = {one.name: one.spec.priority or 0 for one in state.pods}
    for entry in decision.evictions:
        assert priorities[entry.pod] < priorities[f"{entry.for_.partition('/')[2]}-0"]
    after = schedule(carried_out(state, decision))
    # A gang of a higher tier is placed first, also on nodes for which gangs of lower tiers are nominated.
    highest = max((priorities[one.pod] for one in decision.nominations), default=0)
    first = {one.pod for one in decision.nominations if priorities[one.pod] == highest}
    assert first <= {one.pod for one in after.assignments}
    assert first.isdisjoint(f"{entry.for_.partition('/')[2]}-0" for entry in after.evictions)
