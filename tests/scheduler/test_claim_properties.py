"""Claims and pods of a gang: together or neither, whatever fails, and whenever the leader is killed."""

import asyncio
from collections import Counter
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.core.pod import Pod
from batchsched.api.snapshot import Snapshot
from batchsched.errors import BindFailed
from tests.devices.objects import claim, device_class
from tests.service.town import Town
from tests.session.scenario import gang, nodes
from tests.session.test_claims import cluster, gang_with_claims, offered, sharing

pytestmark = pytest.mark.properties


@dataclass(frozen=True)
class Case:
    """A cluster, and what goes wrong.

    Args:
      sizes: pods of each gang; negative: its pods share one claim.
      nodes, devices: number of nodes, and of devices of each.
      failing: numbers of writes of claims and of bindings that fail at first.
      writes: writes of the leader before it is killed; None: it is not killed.
      again: the same for the next leader.
    """

    sizes: tuple[int, ...]
    nodes: int
    devices: int
    failing: frozenset[int]
    writes: int | None
    again: int | None


KILLS = st.none() | st.integers(0, 14)
CASES = st.builds(
    Case,
    sizes=st.lists(st.sampled_from((-3, -2, 1, 2, 3, 4)), min_size=1, max_size=4).map(tuple),
    nodes=st.integers(1, 3),
    devices=st.integers(1, 3),
    failing=st.frozensets(st.integers(0, 20), max_size=3),
    writes=KILLS,
    again=KILLS,
)


def sharing_gang(name: str, count: int) -> Snapshot:
    whole = gang(name, count, requests={"cpu": 1})
    shared = claim(f"{name}-gpu", metadata={"namespace": "team"})
    pods = tuple(sharing(one, shared.metadata.name) for one in whole.pods)
    return replace(whole, pods=pods, resource_claims=(shared,))


def start(case: Case) -> Town:
    gangs = [
        gang_with_claims(f"g{number}", size) if size > 0 else sharing_gang(f"g{number}", -size)
        for number, size in enumerate(case.sizes)
    ]
    return Town(
        cluster(
            nodes(case.nodes, cpu=64),
            *gangs,
            resource_slices=offered(case.nodes, case.devices),
            device_classes=(device_class(),),
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


def claim_keys(pod: Pod) -> list[str]:
    entries = pod.spec.resource_claims or ()
    names = [entry.resource_claim_name or f"{pod.name}-gpu" for entry in entries]
    return [f"{pod.namespace}/{name}" for name in names]


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
        for key in claim_keys(pod) if pod.node else ():
            assert there[key].status.allocation is not None, f"{pod.name} is bound without devices"
            assert there[key].is_reserved_for(pod.metadata.uid), f"{key} is not reserved for {pod.name}"


def check_end(town: Town) -> None:
    """Check what holds once nothing fails any more: gangs are bound with their claims, or have none."""
    check(town)
    bound: Counter[str] = Counter(name.partition("-")[0] for name in town.bound)
    size: Counter[str] = Counter(pod.name.partition("-")[0] for pod in town.server.pods.values())
    assert all(bound[name] in (0, size[name]) for name in size), f"in part: {bound} of {size}"
    held = {
        key for key, one in town.server.claims.items() if one.status.allocation or one.status.reserved_for
    }
    needed = {key for pod in town.server.pods.values() if pod.node for key in claim_keys(pod)}
    assert held == needed, "a gang that is not bound holds devices"


async def live(case: Case) -> None:
    town = start(case)
    names = sorted((*town.server.pods, *town.server.claims))
    for number in case.failing:
        town.server.failing[names[number % len(names)]] = BindFailed("no")
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
    check_end(town)


@given(CASES)
def test_claims_and_pods_of_a_gang_are_together_or_neither(case: Case) -> None:
    asyncio.run(live(case))
