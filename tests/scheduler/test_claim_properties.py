"""Claims and pods of a gang: together or neither, whatever fails, and whenever the leader is killed."""

import asyncio
from collections import Counter
from dataclasses import dataclass, replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.core.device import ResourceSlice
from batchsched.api.core.pod import Pod, PodResourceClaimStatus, PodSchedulingGroup
from batchsched.api.crd.podgroup import SCHEDULE_TIMEOUT
from batchsched.api.snapshot import Snapshot
from batchsched.errors import BindFailed
from tests.devices.objects import claim, device_class, gpu, slice_of
from tests.service.town import Town
from tests.session.scenario import gang, nodes
from tests.session.test_claims import cluster, gang_with_claims, sharing, with_own_claim

pytestmark = pytest.mark.properties


@dataclass(frozen=True)
class Case:
    """A cluster, and what goes wrong.

    Args:
      sizes: pods of each gang; negative: its pods share one claim.
      owners: whether such a claim was created for the PodGroup of Kubernetes of the gang.
      conditions: whether devices have binding conditions; then they fail for the claims of `failing`, and not their
        writes.
      nodes, devices: number of nodes, and of devices of each.
      failing: numbers of writes of claims and of bindings that fail at first.
      writes: writes of the leader before it is killed; None: it is not killed.
      again: the same for the next leader.
    """

    sizes: tuple[int, ...]
    owners: bool
    conditions: bool
    nodes: int
    devices: int
    failing: frozenset[int]
    writes: int | None
    again: int | None


KILLS = st.none() | st.integers(0, 14)
CASES = st.builds(
    Case,
    sizes=st.lists(st.sampled_from((-3, -2, 1, 2, 3, 4)), min_size=1, max_size=4).map(tuple),
    owners=st.booleans(),
    conditions=st.booleans(),
    nodes=st.integers(1, 3),
    devices=st.integers(1, 3),
    failing=st.frozensets(st.integers(0, 20), max_size=3),
    writes=KILLS,
    again=KILLS,
)


def sharing_gang(name: str, count: int, *, owner: bool) -> Snapshot:
    whole = gang(name, count, requests={"cpu": 1})
    if not owner:
        shared = claim(f"{name}-gpu", metadata={"namespace": "team"})
        pods = tuple(sharing(one, shared.metadata.name) for one in whole.pods)
        return replace(whole, pods=pods, resource_claims=(shared,))
    parts = [with_own_claim(one) for one in whole.pods]
    return replace(
        whole,
        pods=tuple(claim_of_group(part.pods[0], name) for part in parts),
        resource_claims=(
            claim(
                f"{name}-gpu",
                metadata={
                    "namespace": "team",
                    "ownerReferences": [
                        {
                            "apiVersion": "scheduling.k8s.io/v1beta1",
                            "kind": "PodGroup",
                            "name": name,
                            "uid": f"uid-of-{name}",
                            "controller": True,
                        }
                    ],
                },
            ),
        ),
    )


def claim_of_group(pod: Pod, group: str) -> Pod:
    """The pod with the claim that was created for its PodGroup of Kubernetes instead of one of its own."""
    status = PodResourceClaimStatus(name="gpu", resource_claim_name=f"{group}-gpu")
    return msgspec.structs.replace(
        pod,
        spec=msgspec.structs.replace(pod.spec, scheduling_group=PodSchedulingGroup(pod_group_name=group)),
        status=msgspec.structs.replace(pod.status, resource_claim_statuses=(status,)),
    )


def slices(case: Case) -> tuple[ResourceSlice, ...]:
    """The devices of all nodes."""
    more = {"bindsToNode": True, "bindingConditions": ["ready"], "bindingFailureConditions": ["bad"]}
    return tuple(
        slice_of(
            f"n{at}",
            [gpu(f"gpu-{number}", **(more if case.conditions else {})) for number in range(case.devices)],
        )
        for at in range(case.nodes)
    )


def start(case: Case) -> Town:
    gangs = [
        gang_with_claims(f"g{number}", size)
        if size > 0
        else sharing_gang(f"g{number}", -size, owner=case.owners)
        for number, size in enumerate(case.sizes)
    ]
    return Town(
        cluster(
            nodes(case.nodes, cpu=64), *gangs, resource_slices=slices(case), device_classes=(device_class(),)
        )
    )


def successor(town: Town) -> Town:
    """The next leader: it knows what the API server has, and nothing else."""
    for task in tuple(town.cycles._running):
        task.cancel()
    snapshot = replace(
        town.cache.snapshot(),
        pods=tuple(town.server.pods.values()),
        resource_claims=tuple(town.server.claims.values()),
    )
    return Town(snapshot)


def end_terminating_pods(town: Town) -> None:
    """End pods that are being deleted, and release their claims, as the kubelet and the controllers do."""
    for pod in [pod for pod in town.server.pods.values() if pod.terminating]:
        town.delete(pod.name)
        for one in [town.server.claims[key] for key in pod.resource_claim_keys]:
            left = tuple(each for each in one.status.reserved_for or () if each.uid != pod.metadata.uid)
            town.server.keep_claim(one, one.status.allocation if left else None, left or None)


def check(town: Town) -> None:
    """Check what holds at any time."""
    there = town.server.claims
    used = Counter(
        (one.pool, one.device)
        for each in there.values()
        if each.status.allocation is not None
        for one in each.status.allocation.devices.results
    )
    assert all(times == 1 for times in used.values()), "a device is allocated twice"
    for pod in town.server.pods.values():
        for key in pod.resource_claim_keys if pod.node_name else ():
            assert there[key].status.allocation is not None, f"{pod.name} is bound without devices"
            group = pod.spec.scheduling_group.pod_group_name if pod.spec.scheduling_group else ""
            assert there[key].is_reserved_for(pod.metadata.uid, group), (
                f"{key} is not reserved for {pod.name}"
            )


def check_end(town: Town) -> None:
    """Check what holds once nothing fails any more: gangs are bound with their claims, or have none."""
    check(town)
    bound: Counter[str] = Counter(name.partition("-")[0] for name in town.bound)
    size: Counter[str] = Counter(pod.name.partition("-")[0] for pod in town.server.pods.values())
    assert all(bound[name] in (0, size[name]) for name in size), f"in part: {bound} of {size}"
    held = {
        key for key, one in town.server.claims.items() if one.status.allocation or one.status.reserved_for
    }
    needed = {key for pod in town.server.pods.values() if pod.node_name for key in pod.resource_claim_keys}
    # Kubernetes releases the claim of a PodGroup at the latest when the PodGroup is deleted.
    used = {key for pod in town.server.pods.values() for key in pod.resource_claim_keys}
    of_empty_groups = {
        key
        for key in held - used
        if any(consumer.is_pod_group for consumer in town.server.claims[key].status.reserved_for or ())
    }
    assert held - of_empty_groups == needed, "a gang that is not bound holds devices"


async def live(case: Case) -> None:
    town = start(case)
    names = sorted((*town.server.pods, *town.server.claims))
    for number in case.failing:
        name = names[number % len(names)]
        if case.conditions and name in town.server.claims:
            town.server.unprepared.add(name)
        else:
            town.server.failing[name] = BindFailed("no")
    for writes in (case.writes, case.again):
        town.server.writes_left = -1 if writes is None else writes
        for _ in range(3):
            await town.turn(2.0)
            check(town)
        town.mend()
        if writes is not None:
            town = successor(town)
    for _ in range(8):
        await town.turn(4.0)
        check(town)
    # Another gang may have taken the device of a pod that could not be bound. Then its gang is rolled back.
    for _ in range(3):
        await town.turn(SCHEDULE_TIMEOUT)
        check(town)
        end_terminating_pods(town)
        await town.turn(4.0)
    check_end(town)


@given(CASES)
def test_claims_and_pods_of_a_gang_are_together_or_neither(case: Case) -> None:
    asyncio.run(live(case))
