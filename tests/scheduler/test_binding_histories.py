"""Histories of pods that are created, deleted and bound: nothing is freed early, and nothing stays reserved.

New pods have the names of deleted pods that are still being bound, as those of a StatefulSet do.
"""

import asyncio
from itertools import count
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.core.pod import Pod, PodResourceClaim, PodResourceClaimStatus
from batchsched.api.core.volume import PersistentVolumeClaimVolumeSource, Volume
from batchsched.errors import BindFailed, NotLeading
from batchsched.framework.runtime.binding_cycle import BindingCycleInput
from batchsched.runner.profile_scheduler import PlacedGang, ProfileScheduler
from tests.devices.objects import claim, device_class
from tests.plugins import storage
from tests.service.town import Town
from tests.session.scenario import nodes, pod, priority_class, profile
from tests.session.test_claims import cluster, offered, sharing

pytestmark = pytest.mark.properties
NAMES = ("a", "b")
KINDS = ("own", "shared", "volume", "plain")
FAULTS = {"refused": BindFailed("no"), "deposed": NotLeading("the Lease may be lost")}
EVENTS = st.one_of(
    st.tuples(st.sampled_from(("create", "create_again")), st.sampled_from(NAMES), st.sampled_from(KINDS)),
    st.tuples(st.just("delete"), st.sampled_from(NAMES)),
    st.tuples(st.sampled_from(("answer_first", "answer_all", "rebuild", "reload", "collect"))),
    st.tuples(st.just("refuse_first"), st.sampled_from(sorted(FAULTS))),
)
TURNS = st.sampled_from((None, False, True))
"""What happens after an event: nothing, a session, or a session after which the watch shows what it wrote."""


class SlowAnswers:
    """The answers of an API server: each write waits until it is answered or refused."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        await answer

    def answer_first(self, fault: BaseException | None = None) -> None:
        if not self._waiting:
            return
        answer = self._waiting.pop(0)
        if fault is None:
            answer.set_result(None)
        else:
            answer.set_exception(fault)

    def set(self) -> None:
        while self._waiting:
            self.answer_first()


class History:
    """A cluster with a device and a volume, and the bindings that are in flight."""

    def __init__(self) -> None:
        self.town = Town(
            cluster(nodes(1, cpu=64), resource_slices=offered(1, 1), device_classes=(device_class(),))
        )
        self._serial = count()
        self._kinds: dict[str, str] = {}
        self._in_flight: list[tuple[PlacedGang, BindingCycleInput]] = []
        server, cache = self.town.server, self.town.cache
        server.keep_claim(claim("shared", metadata={"namespace": "team", "uid": "shared"}))
        cache.put(storage.storage_class(provisioner="kubernetes.io/no-provisioner"))
        cache.put(storage.volume("disk"))
        for name in NAMES:
            metadata = {"namespace": "team", "uid": f"uid-{name}-data"}
            cache.put(storage.claim(f"{name}-data", metadata=metadata))
        self._answers = SlowAnswers()
        slow: Any = self._answers
        server.go = slow
        for name in NAMES:
            for key in (name, f"{name}-gpu", f"{name}-data", "shared"):
                self.town.fail(key, None)
        self._watch_bindings()

    def _watch_bindings(self) -> None:
        cycles: Any = self.town.cycles
        bind_placement = cycles._bind_placement

        async def bind(
            scheduler: ProfileScheduler, placed: PlacedGang, cycle: BindingCycleInput, *, is_prepared: bool
        ) -> None:
            self._in_flight.append((placed, cycle))
            await bind_placement(scheduler, placed, cycle, is_prepared=is_prepared)
            self._in_flight.remove((placed, cycle))

        cycles._bind_placement = bind

    def create(self, name: str, kind: str) -> None:
        if f"team/{name}" in self.town.server.pods:
            return
        uid = f"{name}-{next(self._serial)}"
        made = pod(name, cpu=1)
        if kind == "own":
            made = self._with_own_claim(made, uid)
        elif kind == "shared":
            made = sharing(made, "shared")
        elif kind == "volume":
            source = PersistentVolumeClaimVolumeSource(claim_name=f"{name}-data")
            volumes = (Volume(name="data", persistent_volume_claim=source),)
            made = msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, volumes=volumes))
        metadata = msgspec.structs.replace(made.metadata, uid=uid)
        self.town.make([msgspec.structs.replace(made, metadata=metadata)])

    def _with_own_claim(self, made: Pod, uid: str) -> Pod:
        """The pod with a claim of its own, in place of the claim of an earlier pod with its name."""
        name = f"{made.name}-gpu"
        self._delete_claim(f"team/{name}")
        owner = {"uid": uid, "controller": True}
        own = claim(name, metadata={"namespace": "team", "uid": f"claim-{uid}", "ownerReferences": [owner]})
        self.town.server.keep_claim(own)
        entries = (PodResourceClaim(name="gpu", resource_claim_template_name="t"),)
        statuses = (PodResourceClaimStatus(name="gpu", resource_claim_name=name),)
        return msgspec.structs.replace(
            made,
            spec=msgspec.structs.replace(made.spec, resource_claims=entries),
            status=msgspec.structs.replace(made.status, resource_claim_statuses=statuses),
        )

    def _delete_claim(self, key: str) -> None:
        deleted = self.town.server.claims.pop(key, None)
        if deleted is not None:
            self.town.cache.remove(deleted)

    def delete(self, name: str) -> None:
        if f"team/{name}" in self.town.server.pods:
            self.town.delete(name)

    def create_again(self, name: str, kind: str) -> None:
        self.delete(name)
        self.create(name, kind)

    def answer_first(self) -> None:
        self._answers.answer_first()

    def refuse_first(self, fault: str) -> None:
        self._answers.answer_first(FAULTS[fault])

    def answer_all(self) -> None:
        self._answers.set()

    def rebuild(self) -> None:
        """Change an object for which the tables are built again."""
        self.town.cache.put(priority_class(f"class-{next(self._serial)}", 1))

    def reload(self) -> None:
        """Replace the scheduler of the profile, as after a change of the configuration."""
        self.town.profile_scheduler = ProfileScheduler(profile(), self.town.cache)
        self.town.loop.replace_schedulers([self.town.profile_scheduler])

    def collect(self) -> None:
        """Release claims of pods that are gone, and delete those that were created for them."""
        uids = {one.metadata.uid for one in self.town.server.pods.values()}
        for key, one in list(self.town.server.claims.items()):
            controller = one.metadata.controller_owner
            if controller is not None and controller.uid not in uids:
                self._delete_claim(key)
                continue
            left = tuple(each for each in one.status.reserved_for or () if each.uid in uids)
            if len(left) < len(one.status.reserved_for or ()):
                self.town.server.keep_claim(one, one.status.allocation if left else None, left or None)

    def check(self) -> None:
        """Check that what pods have reserved counts while they are being bound, and that no device counts twice."""
        # A scheduler has no table before its first session, but the reservations of the scheduler that it replaced.
        reservations = self.town.loop.profile_schedulers[0].reserved_volumes_and_devices
        uses, assumed_claims = reservations.devices.uses, reservations.volumes.claim_of
        assert all(use.exclusive == 1 for use in uses.values())
        for placed, cycle in self._in_flight:
            for one, node in placed.places:
                present = self.town.cache.get("pods", one.key)
                if present is not None and present.metadata.uid == one.metadata.uid:
                    assert present.node_name == node, f"{one.key} is not assumed"
                devices = cycle.reserved_volumes_and_devices.devices.devices_reserved_for_pod(
                    one.key, one.metadata.uid
                )
                for allocated in devices.allocations if devices is not None else ():
                    names = {result.device for result in allocated.allocation.devices.results}
                    assert names <= {key.device for key in uses}, f"a device of {one.key} is freed early"
                for name, owner in cycle.reserved_volumes_and_devices.volumes.reserved_volumes_of_pod(
                    one
                ).volumes:
                    is_written = self.town.cache.get("persistent_volumes", name).spec.claim_ref is not None
                    assert is_written or assumed_claims.get(name) == owner, f"{name} is freed early"

    async def end(self) -> None:
        """End all bindings, and let one more session run."""
        self.town.mend()
        for _ in range(4):
            await self.town.turn(20.0)  # longer than any backoff
            self.check()
        self.collect()
        self.delete("last")
        self.create("last", "plain")
        for _ in range(3):
            await self.town.turn(1.0)
            self.check()

    def check_end(self) -> None:
        """Check that nothing stays assumed or reserved after all bindings have ended."""
        town = self.town
        assert town.cycles.is_idle
        assert not town.cycles._gangs
        assert (town.assumed, town.cache._in_flight) == (set(), set())
        table = town.loop.profile_schedulers[0].node_table
        assert (table.reserved_volumes.claim_of, table.reserved_volumes.node_of) == ({}, {})
        assert table.device_ledger.list_reserved_devices() == ()
        allocated = [
            result.device
            for one in town.server.claims.values()
            if one.status.allocation is not None
            for result in one.status.allocation.devices.results
        ]
        assert sorted(allocated) == sorted(key.device for key in table.device_ledger.uses)


async def live(events: list[tuple[tuple[str, ...], bool | None]]) -> None:
    history = History()
    for (name, *arguments), watch in events:
        getattr(history, name)(*arguments)
        if watch is not None:
            await history.town.turn(1.0, watch=watch)
        history.check()
    await history.end()
    history.check_end()


@given(st.lists(st.tuples(EVENTS, TURNS), max_size=20))
def test_reservations_last_until_bindings_end_and_not_longer(
    events: list[tuple[tuple[str, ...], bool | None]],
) -> None:
    asyncio.run(live(events))
