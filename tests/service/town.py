"""A small cluster around a loop, in virtual time: real cache, queue, pipeline and loop; only the network is a fake."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, Self

import msgspec
import pytest

from batchsched.api.core.device import (
    MAX_CONSUMERS_PER_CLAIM,
    AllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from batchsched.api.core.pod import SCHEDULER_NAME, Pod
from batchsched.api.core.volume import ObjectReference, PersistentVolumeClaim
from batchsched.api.decision import Decision
from batchsched.api.external.conversion import with_gang_labels, with_labels
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.controllers.evictor import Evictor
from batchsched.controllers.recovery import (
    AssumedPodVerifier,
    RefusedGangClaimController,
    StaleGangController,
)
from batchsched.errors import ApiError, BindFailed
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.runtime.registry import standard_registry
from batchsched.ports.claims import (
    ExtendedResourceClaimRelease,
    ExtendedResourceClaimReservation,
    ResourceClaimRelease,
    ResourceClaimReservation,
)
from batchsched.ports.cluster import Binding, PersistentVolumeBinding, VolumeClaimSelectedNode
from batchsched.runner import profile_scheduler as planning
from batchsched.runner.profile_scheduler import ProfileScheduler
from batchsched.scheduler.binding import BindingCycles
from batchsched.scheduler.loop import SchedulerLoop, Wakeup
from batchsched.session.session import Session
from batchsched.state.cluster_state import ClusterState
from tests.session.scenario import NOW, profile
from tests.state.objects import leaving

TTL = 60.0


class Clock:
    """A clock that only advances by `turn`."""

    def __init__(self) -> None:
        self.time = NOW
        self.set_by = 0.0
        """Seconds by which the wall clock was set forward; negative: back."""
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self.time + self.set_by

    def monotonic(self) -> float:
        return self.time

    def steady_now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.time + seconds, woken))
        await woken

    def random_fraction(self) -> float:
        return 0.0

    def turn(self, seconds: float) -> None:
        self.time += seconds
        for until, woken in self._sleepers:
            if until <= self.time and not woken.done():
                woken.set_result(None)


class Server:
    """The API server, as far as the loop uses it: it accepts every write, unless it is configured to fail.

    It stores the created pods, and delivers changes only when the town watches.
    """

    def __init__(self, cache: ClusterState) -> None:
        self.cache = cache
        self.pods: dict[str, Pod] = {}
        self.claims: dict[str, ResourceClaim] = {}
        self.version = 1000
        self.failing: dict[str, BaseException | None] = {}
        """By pod or claim: the outcome of its writes; None: bindings hang until `go`."""
        self.unprepared: set[str] = set()
        """Claims with devices that cannot be prepared."""
        self.writes_left = -1
        """Number of writes until the leader is killed: later ones are never carried out. Less than 0: it is not."""
        self.go = asyncio.Event()
        self.evicted: list[str] = []
        self.budgets: set[str] = set()
        """Pods with an exhausted disruption budget."""
        self.denied: set[str] = set()
        """Pods with an eviction that admission refuses."""
        self.denied_late: set[str] = set()
        """Pods with an eviction that admission refuses, but not in a dry run."""
        self.dry_runs = 0
        self.answer = asyncio.Event()
        """Cleared: dry runs get no answer."""
        self.answer.set()

    def keep(self, pod: Pod) -> Pod:
        self.version += 1
        meta = msgspec.structs.replace(
            pod.metadata,
            resource_version=str(self.version),
            uid=pod.metadata.uid or f"uid-{pod.key}-{self.version}",
        )
        self.pods[pod.key] = msgspec.structs.replace(pod, metadata=meta)
        return self.pods[pod.key]

    # As a Binder

    async def _write(self) -> None:
        """Let the leader be killed before a write."""
        if self.writes_left == 0:
            await asyncio.Event().wait()
        self.writes_left -= 1

    async def bind(self, binding: Binding) -> None:
        await self._write()
        key = binding.pod_key
        fault = self.failing.get(key, self)
        if fault is None:
            await self.go.wait()
        elif isinstance(fault, BaseException):
            raise fault
        pod = self.pods.get(key)
        if pod is None:
            raise BindFailed(f"binding {key}: the pod is gone")
        if binding.uid not in ("", pod.metadata.uid):
            raise BindFailed(f"binding {key}: another pod has its name")
        if pod.node_name and pod.node_name != binding.node:
            raise BindFailed(f"binding {key}: it is bound to {pod.node_name} already")
        bound = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=binding.node))
        self.keep(with_labels(bound, dict(binding.labels)) if binding.labels else bound)

    async def bind_volume(self, binding: PersistentVolumeBinding) -> None:
        """Bind the volume and its claim as the API server shows them at once."""
        await self._write()
        key = f"{binding.namespace}/{binding.claim}"
        await self._hang_or_fail(key)
        volume, claim = self.cache.get("persistent_volumes", binding.volume), self._volume_claim(key)
        owner = volume.spec.claim_ref
        if owner is not None and owner.uid != binding.uid:
            raise BindFailed(f"volume {binding.volume} is bound to another claim")
        owner = ObjectReference(namespace=binding.namespace, name=binding.claim, uid=binding.uid)
        bound = {"pv.kubernetes.io/bind-completed": "yes"}
        self.cache.put(
            msgspec.structs.replace(volume, spec=msgspec.structs.replace(volume.spec, claim_ref=owner))
        )
        self.cache.put(
            msgspec.structs.replace(
                claim,
                metadata=msgspec.structs.replace(claim.metadata, annotations=bound),
                spec=msgspec.structs.replace(claim.spec, volume_name=binding.volume),
            )
        )

    def _volume_claim(self, key: str) -> PersistentVolumeClaim:
        claim: PersistentVolumeClaim = self.cache.get("persistent_volume_claims", key)
        return claim

    async def _hang_or_fail(self, key: str) -> None:
        """Wait for `go`, or raise the error that `failing` states."""
        if self.failing.get(key, self) is None:
            await self.go.wait()
        fault = self.failing.get(key)
        if isinstance(fault, BaseException):
            raise fault

    async def write_selected_node(self, selection: VolumeClaimSelectedNode) -> None:
        raise AssertionError

    @property
    def resource_claim_binder(self) -> Self:
        return self

    async def reserve_resource_claim(self, reservation: ResourceClaimReservation) -> None:
        """Reserve and allocate as the API server shows it at once."""
        await self._write()
        key = reservation.claim_key
        await self._hang_or_fail(key)
        one = self.claims.get(key)
        if one is None or one.metadata.uid != reservation.uid:
            raise BindFailed(f"claim {key} is gone")
        if one.status.allocation is None and reservation.allocation is None:
            raise BindFailed("the claim lost its devices meanwhile")
        if one.status.allocation is not None and one.is_reserved_for(
            reservation.pod_uid, reservation.pod_group
        ):
            return
        allocation = one.status.allocation or reservation.allocation
        reserved_for = (*(one.status.reserved_for or ()), reservation.consumer)
        assert len(reserved_for) <= MAX_CONSUMERS_PER_CLAIM
        self.keep_claim(one, allocation, reserved_for)

    async def reserve_extended_resource_claim(self, reservation: ExtendedResourceClaimReservation) -> None:
        raise AssertionError

    async def delete_extended_resource_claim(self, deletion: ExtendedResourceClaimRelease) -> None:
        raise AssertionError

    async def wait_for_prepared_devices(self, claims: Sequence[str], timeout_seconds: float) -> bool:
        """Return at once whether the devices are prepared."""
        return self.unprepared.isdisjoint(claims)

    async def release_resource_claim(
        self, release: ResourceClaimRelease, is_wanted: Callable[[], bool] = lambda: True
    ) -> None:
        await self._write()
        if not is_wanted():
            return
        one = self.claims.get(release.claim_key)
        if one is None or one.metadata.uid != release.uid:
            return
        left = tuple(each for each in one.status.reserved_for or () if each.uid not in release.consumer_uids)
        self.keep_claim(one, None if release.allocation and not left else one.status.allocation, left or None)

    def keep_claim(
        self,
        one: ResourceClaim,
        allocation: AllocationResult | None = None,
        reserved_for: tuple[ResourceClaimConsumerReference, ...] | None = None,
    ) -> None:
        self.version += 1
        kept = msgspec.structs.replace(
            one,
            metadata=msgspec.structs.replace(one.metadata, resource_version=str(self.version)),
            status=ResourceClaimStatus(allocation=allocation, reserved_for=reserved_for),
        )
        self.claims[one.key] = kept
        self.cache.put(kept)

    async def wait_for_bound_volume_claims(
        self,
        claims: Sequence[str],
        timeout_seconds: float,
        selections: Sequence[VolumeClaimSelectedNode] = (),
    ) -> bool:
        """Return at once whether the claims have their volumes."""
        return all(self._volume_claim(key).spec.volume_name for key in claims)

    # As a Connection and a Writer

    async def request(self, method: str, path: str, *, query: Any = None) -> bytes:
        assert method == "GET"
        if query is None:
            return msgspec.json.encode(self.read(path.removeprefix("/api/v1/namespaces/")))
        key, _, name = query.get("labelSelector", "").partition("=")
        found = [pod for pod in self.pods.values() if not key or pod.labels.get(key) == name]
        return msgspec.json.encode({"items": found})

    def read(self, path: str) -> Pod:
        pod = self.pods.get(path.replace("/pods/", "/"))
        if pod is None:
            raise ApiError(404, "NotFound", "no such pod")
        return pod

    async def evict(self, pod: Pod, *, dry_run: bool = False) -> None:
        if pod.key in self.denied or (pod.key in self.denied_late and not dry_run):
            raise ApiError(403, "Forbidden", "a policy does not allow it")
        if pod.key in self.budgets:
            raise ApiError(429, "TooManyRequests", "a budget does not allow it")
        if dry_run:
            self.dry_runs += 1
            await self.answer.wait()
            return
        self.evicted.append(pod.key)
        self.keep(leaving(self.pods[pod.key]))

    async def patch(self, resource: Any, namespace: str, name: str, change: Any, subresource: str) -> bytes:
        assert subresource == "status"
        pod = self.pods[f"{namespace}/{name}"]
        node = change["status"]["nominatedNodeName"] or ""
        kept = self.keep(
            msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, nominated_node_name=node))
        )
        return msgspec.json.encode(kept)


class Town:
    """One leader's loop.

    Args:
      snapshot: what is there when it begins.
      settings: the profile.
      journal: changed objects that a reader of the cache may leave unread.
      scheduler_names: those of all profiles.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        settings: Profile | None = None,
        journal: int = 65_536,
        scheduler_names: Iterable[str] = (SCHEDULER_NAME,),
    ) -> None:
        self.clock = Clock()
        self.cache = ClusterState(scheduler_names, ttl_seconds=TTL, max_unread=journal)
        self.server = Server(self.cache)
        for field in (
            *("nodes", "queues", "pod_groups", "topologies", "priority_classes"),
            *("resource_slices", "device_classes", "node_resource_topologies"),
        ):
            for one in getattr(snapshot, field):
                self.cache.put(one)
        for claim in snapshot.resource_claims:
            self.server.keep_claim(claim, claim.status.allocation, claim.status.reserved_for)
        self.make(snapshot.pods)
        self.decisions: list[Decision] = []
        self.told: list[tuple[str, str, str]] = []
        self.lead(settings or profile())

    def lead(self, settings: Profile) -> None:
        """Begin to lead: all that a leader before knew is lost."""
        self.wakeup = Wakeup(self.clock)
        server: Any = self.server
        self.cycles = BindingCycles(
            server, self.cache, self.clock, self._hear, self.wakeup.signal_cluster_change
        )
        self.stranded = StaleGangController(
            self.cache, server, server, self.cycles.has_unfinished_bindings, self.clock
        )
        self.expiry = AssumedPodVerifier(self.cache, self._read, self.seen)
        self.disruptions = Evictor(
            self.cache, server, self.clock, self.seen, self.wakeup.signal_cluster_change
        )
        unused = RefusedGangClaimController(self.cache, server, self.cycles.has_unfinished_bindings)
        self.profile_scheduler = ProfileScheduler(settings, self.cache, leaving=self.stranded.leaving)
        self.loop = SchedulerLoop(
            [self.profile_scheduler],
            self.cycles,
            self.wakeup,
            self.clock,
            [
                self.disruptions.start_nominations_and_evictions,
                unused.release_claims_of_refused_gangs,
                lambda _, decision, __: self.decisions.append(decision),
            ],
            [self.stranded, self.expiry],
        )

    def _hear(self, pod: Pod, node: str, problem: str, seconds: float) -> None:
        self.told.append((pod.name, node, problem))

    async def _read(self, pod: str) -> bytes:
        return msgspec.json.encode(self.server.read(pod))

    def seen(self, raw: bytes) -> None:
        self.cache.put(with_gang_labels(msgspec.json.decode(raw, type=Pod)))

    # What happens

    def make(self, pods: Iterable[Pod]) -> None:
        for pod in pods:
            self.cache.put(with_gang_labels(self.server.keep(pod)))

    def add(self, created: Snapshot) -> None:
        """Let the PodGroups and pods of a snapshot be created."""
        for group in created.pod_groups:
            self.cache.put(group)
        self.make(created.pods)

    def delete(self, name: str) -> None:
        self.cache.remove(self.server.pods.pop(f"team/{name}"))

    def delete_seen(self, name: str) -> None:
        """Let the cache see that a pod is gone that the API server holds no more."""
        pod = self.cache.get("pods", f"team/{name}")
        if pod is not None:
            self.cache.remove(pod)

    def fail(self, name: str, fault: BaseException | None) -> None:
        self.server.failing[f"team/{name}"] = fault

    def mend(self) -> None:
        self.server.failing.clear()
        self.server.unprepared.clear()
        self.server.go.set()

    def watch(self) -> None:
        """Let the cache see what the API server holds."""
        for pod in tuple(self.server.pods.values()):
            self.cache.put(with_gang_labels(pod))

    async def turn(self, seconds: float = 0.0, *, watch: bool = True) -> None:
        """Advance the clock and run the loop once; tasks that it started run as far as possible."""
        self.clock.turn(seconds)
        await self.loop.run_once()
        for _ in range(20):
            await asyncio.sleep(0)
        if watch:
            self.watch()

    async def turns(self, count: int, seconds: float = 1.0) -> None:
        for _ in range(count):
            await self.turn(seconds)

    # What is so

    @property
    def bound(self) -> dict[str, str]:
        """The pods that the API server shows on a node, and that stay there."""
        return {
            pod.name: pod.node_name
            for pod in self.server.pods.values()
            if pod.node_name and not pod.terminating
        }

    @property
    def assumed(self) -> set[str]:
        return {one.pod.partition("/")[2] for one in self.cache.assumed_pods()}


def with_plugin(monkeypatch: pytest.MonkeyPatch, plugin: object) -> None:
    """Let the scheduler of every profile have one more plugin."""
    usual = standard_registry()

    class Registry:
        def create_pipeline(self, chosen: Profile, outside: Any) -> Pipeline:
            made = usual.create_pipeline(chosen, outside)
            return Pipeline((*made.plugins, plugin), made.weights)

    monkeypatch.setattr(planning, "standard_registry", Registry)


def fail_sessions_with(monkeypatch: pytest.MonkeyPatch, identity: str) -> None:
    """Let each session fail in which this gang takes part."""
    usual = Session.decide

    def decide(self: Session, now: float, seed: int, among: Any = None, *rest: Any) -> Decision:
        if identity in among:
            raise ValueError("a bug")
        return usual(self, now, seed, among, *rest)

    monkeypatch.setattr(Session, "decide", decide)


def service_of(town: Town) -> Any:
    """Return what the status page reads of a running service."""
    return SimpleNamespace(
        cache=town.cache,
        clock=town.clock,
        profiles=[town.profile_scheduler.profile],
        profile_schedulers=[town.profile_scheduler],
        is_leading=True,
    )
