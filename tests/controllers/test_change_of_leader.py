"""A new leader rolls back the same gangs at the same time as the leader before would have."""

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from batchsched.api.core.pod import Pod
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.external.pod_group import SOURCE, SOURCE_UID
from batchsched.controllers.event_recorder import EventRecorder, WriteDelay
from batchsched.controllers.recovery import StaleGangController
from batchsched.controllers.refusal_history import GangStatusRecords
from batchsched.controllers.status_controller import StatusController
from batchsched.state.cluster_state import ClusterState
from tests.controllers.office import known
from tests.service.town import Clock
from tests.session.scenario import group
from tests.state.objects import ended, leaving, node, pod

PODS = 5
KUBERNETES = "scheduling.k8s.io/v1alpha2"
NEW_PROCESS, STANDBY = False, True


class Api:
    """An API server with one PodGroup, its pods and the requests for their eviction."""

    def __init__(self, group_object: PodGroup) -> None:
        self.clock = Clock()
        self.group = known(group_object)
        self.pods: dict[str, Pod] = {}
        self.version = 0
        self.evictions: list[tuple[float, str]] = []
        self.watching: list[ClusterState] = []

    def put_pod(self, number: int, *, on: str = "n0", phase: str = "Running") -> None:
        self.version += 1
        name = f"bert-{number}"
        stored = self.pods.get(name)
        uid = stored.metadata.uid if stored is not None else f"{name}-{self.version}"
        made = pod(name, self.version, uid, group="bert", on=on)
        self._store(ended(made, phase))

    def _store(self, changed: Pod) -> None:
        self.pods[changed.name] = changed
        for cache in self.watching:
            cache.put(changed)

    def delete_pod(self, number: int) -> None:
        deleted = self.pods.pop(f"bert-{number}", None)
        for cache in self.watching if deleted is not None else ():
            cache.remove(deleted)

    def set_spec(self, **fields: Any) -> None:
        self._set_group(spec={**self.group.spec.model_dump(by_alias=True, exclude_unset=True), **fields})

    def set_status(self, **fields: Any) -> None:
        status = self.group.status.model_dump(by_alias=True) if self.group.status is not None else {}
        merged = {**status, **fields}
        self._set_group(status={name: value for name, value in merged.items() if value is not None})

    def _set_group(self, **parts: Any) -> None:
        self.group = PodGroup.model_validate(
            {**self.group.model_dump(by_alias=True, exclude_unset=True), **parts}
        )
        for cache in self.watching:
            cache.put(self.group)

    # As a Connection and a Writer

    async def request(self, method: str, path: str, *, query: Any) -> bytes:
        return msgspec.json.encode({"items": list(self.pods.values())})

    async def evict(self, victim: Pod) -> None:
        self.evictions.append((self.clock.time, victim.name))
        self.version += 1
        evicted = leaving(self.pods[victim.name])
        meta = msgspec.structs.replace(evicted.metadata, resource_version=str(self.version))
        self._store(msgspec.structs.replace(evicted, metadata=meta))

    async def send(
        self, method: str, path: str, body: bytes, content_type: str = "", *, patient: bool = True
    ) -> bytes:
        if "podgroups" in path:
            self.set_status(**msgspec.json.decode(body)["status"])
        return b""


class Replica:
    """A process that lists the cluster, follows it, and may lead."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.cache = ClusterState(["batchsched"])
        self.cache.put(node("n0"))
        for stored in api.pods.values():
            self.cache.put(stored)
        self.cache.put(api.group)
        api.watching.append(self.cache)

    def lead(self) -> None:
        server: Any = self.api
        clock = self.api.clock
        write_delay = WriteDelay(clock, lambda: False)
        recorder = EventRecorder(server, clock, write_delay, "batchsched")
        self.stale = StaleGangController(self.cache, server, server, lambda identity: False, clock)
        self.status = StatusController(self.cache, GangStatusRecords(), server, recorder, write_delay, clock)

    async def run_once(self) -> None:
        self.stale.run_once(self.api.clock.time)
        for _ in range(10):
            await asyncio.sleep(0)
        await self.status.run_once()


class World:
    """One API server, its leader and a standby.

    Args:
      spec: The fields of the PodGroup's spec.
    """

    def __init__(self, **spec: Any) -> None:
        self.api = Api(group("bert", **({"minMember": 4, "scheduleTimeoutSeconds": 30} | spec)))
        self.leader, self.standby = Replica(self.api), Replica(self.api)
        self.leader.lead()

    def replace_leader(self, by_standby: bool) -> None:
        self.api.watching.remove(self.leader.cache)
        self.leader = self.standby if by_standby else Replica(self.api)
        self.leader.lead()

    async def happen(self, event: str, number: int) -> None:
        if event == "bind":
            self.api.put_pod(number)
        elif event == "finish":
            self.api.put_pod(number, phase="Succeeded")
        elif event == "delete":
            self.api.delete_pod(number)
        elif event == "minimum":
            self.api.set_spec(minMember=number + 1)
        elif event == "timeout":
            self.api.set_spec(scheduleTimeoutSeconds=10 * (number + 1))
        else:
            self.api.clock.turn(4.0 * number)
        await self.leader.run_once()

    async def bind(self, *numbers: int) -> None:
        for number in numbers:
            await self.happen("bind", number)

    async def wait(self, seconds: float) -> list[str]:
        """Let time pass, and return the pods that are evicted meanwhile."""
        before = len(self.api.evictions)
        for _ in range(int(seconds)):
            self.api.clock.turn(1.0)
            await self.leader.run_once()
        return sorted(name for _, name in self.api.evictions[before:])


both = pytest.mark.parametrize("by_standby", [NEW_PROCESS, STANDBY], ids=["new process", "standby"])


@both
async def test_new_leader_keeps_a_gang_that_was_whole_and_lost_a_pod(by_standby):
    world = World()
    await world.bind(0, 1, 2, 3)
    await world.happen("delete", 3)
    world.replace_leader(by_standby)
    assert await world.wait(60) == []


@both
async def test_gang_that_loses_a_pod_between_two_leaders_is_kept(by_standby):
    world = World()
    await world.bind(0, 1, 2, 3)
    world.api.delete_pod(3)
    world.replace_leader(by_standby)
    assert await world.wait(60) == []


async def test_gang_that_was_whole_stays_so_after_several_new_leaders():
    world = World()
    await world.bind(0, 1, 2, 3)
    since = world.api.group.status.whole_since
    for number in (3, 2, 1):
        await world.happen("delete", number)
        world.replace_leader(NEW_PROCESS)
        assert await world.wait(60) == []
    assert since
    assert world.api.group.status.whole_since == since


@both
async def test_new_leader_continues_the_timeout_of_a_partially_bound_gang(by_standby):
    world = World()
    await world.bind(0, 1, 2)
    assert await world.wait(20) == []
    world.replace_leader(by_standby)
    assert await world.wait(9) == []
    assert await world.wait(1) == ["bert-0", "bert-1", "bert-2"]


@both
async def test_gang_starts_from_the_beginning_after_all_its_pods_are_gone(by_standby):
    world = World()
    await world.bind(0, 1, 2, 3)
    for number in range(4):
        await world.happen("delete", number)
    assert world.api.group.status.whole_since is None
    await world.bind(0, 1)
    world.replace_leader(by_standby)
    assert await world.wait(31) == ["bert-0", "bert-1"]


@both
async def test_raised_minimum_does_not_end_a_gang_that_was_whole(by_standby):
    world = World()
    for number in range(4):  # no turn of the leader sees the gang before its minimum is raised
        world.api.put_pod(number)
    world.api.set_spec(minMember=6)
    assert await world.wait(60) == []
    world.replace_leader(by_standby)
    assert await world.wait(60) == []


async def test_minimum_raised_before_the_gang_is_whole_counts_for_this_start():
    world = World()
    await world.bind(0, 1, 2)
    await world.happen("minimum", 4)
    await world.bind(3)
    assert await world.wait(31) == ["bert-0", "bert-1", "bert-2", "bert-3"]


async def test_raised_minimum_counts_for_the_next_start():
    world = World()
    await world.bind(0, 1, 2, 3)
    await world.happen("minimum", 4)
    for number in range(4):
        await world.happen("delete", number)
    await world.bind(0, 1, 2, 3)
    assert await world.wait(31) == ["bert-0", "bert-1", "bert-2", "bert-3"]


async def test_forged_status_does_not_affect_the_running_leader():
    world = World()
    await world.bind(0, 1, 2)
    world.api.set_status(wholeSince="2026-01-01T00:00:00Z", partiallyBoundSince="9999-12-31T23:59:59Z")
    assert await world.wait(30) == ["bert-0", "bert-1", "bert-2"]


@pytest.mark.parametrize("since", ["9999-12-31T23:59:59Z", "soon", "0001-01-01T00:00:00+14:00"])
async def test_new_leader_ignores_a_forged_time_that_is_impossible(since):
    world = World()
    await world.bind(0, 1, 2)
    world.api.set_status(partiallyBoundSince=since)
    world.replace_leader(NEW_PROCESS)
    assert await world.wait(30) == []
    assert await world.wait(1) == ["bert-0", "bert-1", "bert-2"]


@pytest.mark.parametrize("condition, evicted", [("True", []), ("False", ["bert-0", "bert-1", "bert-2"])])
async def test_condition_of_a_kubernetes_pod_group_tells_a_new_leader_that_its_gang_was_whole(
    condition, evicted
):
    world = World()
    meta = {"name": "bert", "namespace": "team", "annotations": {SOURCE: KUBERNETES, SOURCE_UID: "u"}}
    written = {"type": "PodGroupScheduled", "status": condition, "reason": "Scheduled"}
    world.api.group = PodGroup.model_validate(
        {
            "metadata": meta,
            "spec": {"minMember": 4, "scheduleTimeoutSeconds": 30},
            "status": {"conditions": [written]},
        }
    )
    for number in range(3):
        world.api.put_pod(number)
    world.replace_leader(NEW_PROCESS)
    assert await world.wait(31) == evicted


events = st.lists(
    st.tuples(
        st.sampled_from(["bind", "bind", "bind", "finish", "delete", "minimum", "timeout", "wait"]),
        st.integers(0, PODS - 1),
    ),
    max_size=25,
)
WHOLE = [("bind", number) for number in range(4)]


@given(events, st.integers(0, 25), st.booleans())
@example([*WHOLE, ("delete", 0), *[("wait", 4)] * 4], 5, NEW_PROCESS)
@example([*WHOLE[:3], ("wait", 4), ("wait", 4)], 4, NEW_PROCESS)
@pytest.mark.properties
def test_a_replaced_leader_evicts_what_the_leader_that_stayed_evicts(happenings, replaced_after, by_standby):
    async def evictions(replaced: bool) -> list[tuple[float, str]]:
        world = World()
        for step, (event, number) in enumerate(happenings):
            if replaced and step == replaced_after:
                world.replace_leader(by_standby)
            await world.happen(event, number)
        await world.wait(60)
        return world.api.evictions

    assert asyncio.run(evictions(replaced=True)) == asyncio.run(evictions(replaced=False))
