"""The profile scheduler, which selects the gangs of each session and applies the decisions.

The scheduling queue selects the gangs: a refused gang takes part again when an event may help it. The pods of a
placed gang are assumed, all of them or none. A refused gang returns to the queue.
"""

import logging
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from batchsched.api.core.pod import Pod
from batchsched.api.decision import Decision, Refusal, Reservation
from batchsched.api.gang import gang_identity, gang_key_from_identity, identities_of_gang_key
from batchsched.api.snapshot import DEVICE_FIELDS, TEMPLATE_FIELDS, HeldGang, HeldGangPod, Snapshot
from batchsched.config.schema import Profile
from batchsched.framework.nodes.node_table import NodeTable, ReservedVolumesAndDevices
from batchsched.framework.runtime.binding_cycle import unreserve_after_session
from batchsched.framework.runtime.pipeline import Pipeline, plugin_names
from batchsched.framework.runtime.registry import standard_registry
from batchsched.queues.usage_history import UsageHistory, past_usage_entries
from batchsched.runner.bind_capacity_check import BindCapacityCheck, Places
from batchsched.runner.session_runner import SessionInput, SessionRunner
from batchsched.runner.session_window import SessionGangSelector
from batchsched.scheduling_queue.entity import Entity, QueueState
from batchsched.scheduling_queue.queue import SchedulingQueue, frees_nominated_node
from batchsched.scheduling_queue.queueing_hints import possibly_refusing_plugins
from batchsched.session.session import Session
from batchsched.state.cluster_state import PODS, ClusterState
from batchsched.state.store import ObjectChange
from batchsched.state.up_to_date_scheduler import UpToDateScheduler

_LOG: Final = logging.getLogger(__name__)
_SURPLUS: Final = ("InsufficientResources", "QueueLimit", "Gated")
"""Reasons for which elastic pods of a placed gang may stay pending; a decision does not say which."""
_REJECTIONS: Final = frozenset({"PermitRejected", "PermitTimeout", "PluginFailed"})
"""Reasons of gangs that a plugin refused although they had room: in a session, they hold up no other gang."""


def always_true() -> bool:
    """Return True; this function is the default for `ProfileScheduler.can_allocate_devices`."""
    return True


@dataclass(frozen=True, slots=True)
class PlacedGang:
    """A gang that a session placed and that is to be bound, with its pods and their nodes.

    Args:
      entity: The gang in the scheduling queue.
      places: The pods and their nodes; all of them are assumed.
    """

    entity: Entity
    places: Places


class ProfileScheduler:
    """The scheduler of one profile: it takes gangs from a queue, runs sessions and assumes placed pods.

    The argument `now` of its methods is a time of `Clock.steady_now`, since a backoff must not change when the clock
    is set. `wall_offset` is the wall time minus `now`: sessions compare the wall time with the times of objects.

    Args:
      profile: The profile.
      cache: The cluster state.
      seed: The seed of every session.
      leaving: Identities of the gangs that are being rolled back; their pods are not placed before that has finished.
      runner: Runs the sessions with extenders and plugin deadlines.
    """

    def __init__(
        self,
        profile: Profile,
        cache: ClusterState,
        seed: int = 0,
        leaving: Container[str] = frozenset(),
        runner: SessionRunner | None = None,
    ) -> None:
        self.profile = profile
        self.runner = runner or SessionRunner(profile)
        self.pipeline: Pipeline = standard_registry().create_pipeline(profile, self.runner.outside)
        self._surplus = _plugins_refusing_surplus(self.pipeline)
        self.taking_part: tuple[Entity, ...] = ()
        """The gangs of the last session."""
        self.queue = self._empty_queue()
        self.held: tuple[HeldGang, ...] = ()
        self.reservations: tuple[Reservation, ...] = ()
        """The reservations of the last session."""
        self._has_lost_head = False
        """Whether the session before the last reserved a start for a gang, and the last one for none."""
        self._refused_evictions: dict[str, tuple[str, float]] = {}
        """By key of each pod that the API server refused to evict: its uid, and until when it is no victim."""
        self.dropped_placements = 0
        """Number of gangs that were not bound because other pods had filled one of their nodes meanwhile."""
        self.recording = False
        """Whether `session_input` keeps the input of each session."""
        self.session_input: SessionInput | None = None
        self._cache = cache
        self._seed = seed
        self._leaving = leaving
        self._past = UsageHistory({}, profile.usage_half_life_seconds)
        self._changes = cache.create_change_reader()
        self._gang_selector = SessionGangSelector(profile.session_window, profile.session_seconds)
        self._reserved_volumes_and_devices = ReservedVolumesAndDevices()
        self.can_allocate_devices: Callable[[], bool] = always_true
        """Returns whether the ResourceClaims of the cluster are known; if not, pods with claims are refused."""
        self.chooser = self.runner.chooser
        """Chooses the candidate of the policy `auto`; None under other policies."""
        self._ignored_policy = ""
        """Why the last session does not read the policy of the profile; "" if it does."""
        self._current = self._follow()
        self._scheduler = self._follower(Snapshot())
        self._successor: ProfileScheduler | None = None
        """The scheduler that replaced this one while pods were being bound."""
        self._in_flight, self._waiting = dict[str, Entity](), dict[str, Entity]()
        # Identities of the resting gangs that were refused for a reason of `_REJECTIONS` last, or made a session fail.
        self._rejected: set[str] = set()
        self.session_generation = 0
        """The generation of the cluster state that the current session reads."""

    def _empty_queue(self) -> SchedulingQueue:
        return SchedulingQueue(self.pipeline)

    def _follow(self) -> UpToDateScheduler:
        """Return a new scheduler that follows the changes of the cluster from now on.

        External plugins and extenders may read any field of a node, so they need whole nodes.
        """
        reads_everything = self.runner.has_external_plugins or bool(self.profile.extenders)
        # Sessions that allocate no devices refuse pods with claims, whatever the claims are.
        ignored = TEMPLATE_FIELDS if self.pipeline.allocates_devices else DEVICE_FIELDS
        if not reads_everything and not _reads_numa_zones(self.pipeline):
            ignored |= {"node_resource_topologies"}
        return UpToDateScheduler(
            self._cache, self._follower, whole_nodes=reads_everything, ignored_fields=ignored
        )

    def _follower(self, snapshot: Snapshot) -> Session:
        snapshot = replace(snapshot, reservations=self.reservations, chosen_policy=self._chosen_policy)
        self._scheduler = Session(snapshot, self.profile, self.pipeline, past=self._past)
        if snapshot.nodes:  # the first scheduler is made before the cluster is listed
            self._warn_of_ignored_policy(self._scheduler.ignored_policy_reason)
        self.node_table.reserved_volumes_and_devices.copy_reservations_of_pods_being_bound(
            self._reserved_volumes_and_devices, self._cache.is_assumed_or_being_bound, self._cache.is_bound
        )
        self._reserved_volumes_and_devices = self.node_table.reserved_volumes_and_devices
        return self._scheduler

    def _warn_of_ignored_policy(self, text: str) -> None:
        """Log why the profile's policy has no effect, once until queues change so that it has an effect."""
        if text and text != self._ignored_policy:
            _LOG.warning("profile %s: %s", self.profile.scheduler_name, text)
        self._ignored_policy = text

    @property
    def node_table(self) -> NodeTable:
        """The nodes with their bound and assumed pods, as arrays that this profile's sessions read."""
        return self._scheduler.node_table

    @property
    def reserved_volumes_and_devices(self) -> ReservedVolumesAndDevices:
        """The volumes and devices that are reserved for pods which this profile's sessions have placed."""
        return self._reserved_volumes_and_devices

    @property
    def is_last_session_full(self) -> bool:
        """Whether the last session had its maximum number of gangs or pod specs; more gangs may be active."""
        return self._gang_selector.is_full

    def sync_queue(self, now: float, wall_offset: float = 0.0) -> None:
        """Update the scheduling queue after changes of the cluster; call this only between sessions."""
        changes = self._changes.read_changes()
        if self.pipeline.allocates_devices != (allocates := self.can_allocate_devices()):
            self.pipeline.allocates_devices = allocates
            # Other pods are refused than before, so that all of them are tried again.
            self._current, changes = self._follow(), None
        if changes is None:
            self._list(now)
        else:
            for change in changes:
                try:
                    self._apply_change(change, now)
                except Exception:  # noqa: BLE001 - one change must not keep back the others
                    _LOG.exception(
                        "%s %s: the scheduling queue could not apply the change; it is left out until the next one",
                        change.field,
                        change.key,
                    )
        self.queue.flush_expired_entities(now, wall_offset)

    def _apply_change(self, change: ObjectChange, now: float) -> None:
        """Update the scheduling queue after a change of an object in the cluster state."""
        before, after = change.before, change.after
        if self._concerns(after if after is not None else before):
            self.queue.apply_change(change, now)
        elif before is None:
            return
        elif self._concerns(before) and not before.node_name:
            # Another profile has a new pod of this name.
            self.queue.apply_change(ObjectChange(change.field, change.key, before, None), now)
        # The pod of another profile leaves its place: its binding failed, or its nomination ended.
        elif before.node_name or frees_nominated_node(before, after):
            self.queue.retry_gangs_after_failed_binding(before, now)

    def _list(self, now: float) -> None:
        """Fill the scheduling queue again from all objects, because too many of them changed.

        Gangs that wait at Permit lose their reserved nodes and become pending like all others.
        """
        for gang in self.held:
            for held_pod in gang.pods:
                pod = self._cache.get(PODS, held_pod.pod)
                if pod is not None:
                    unreserve_after_session(self.pipeline, pod, held_pod.node, self.node_table)
        self.queue, self.held, self._waiting, self._in_flight = self._empty_queue(), (), {}, {}
        snapshot = self._cache.snapshot()
        waiting = (pod for pod in snapshot.pods if not pod.node_name and self._concerns(pod))
        self.queue.add_all_pods_and_groups(snapshot.pod_groups, waiting, now)

    def _concerns(self, changed_object: object) -> bool:
        """Return whether an object matters to this profile: all but pending pods of other schedulers do."""
        return (
            not isinstance(changed_object, Pod)
            or bool(changed_object.node_name)
            or changed_object.spec.scheduler_name == self.profile.scheduler_name
        )

    def begin_session(
        self,
        now: float,
        reserved_elsewhere: Iterable[ReservedVolumesAndDevices] = (),
        wall_offset: float = 0.0,
    ) -> Callable[[], Decision] | None:
        """Take gangs from the scheduling queue, and return a function that decides about them in a session.

        Args:
          now: the present time.
          reserved_elsewhere: the volumes and devices that other profiles reserved and that the cluster state lacks.
          wall_offset: the wall time minus `now`.

        Returns:
          A function that decides the session, which may run in another thread; None if no gang takes part.
        """
        # Other gangs take part in the next session, while the gangs of this one are being bound.
        self._gang_selector.adjust_max_gangs(self.queue.active_namespaces())
        heads = self._heads()
        if self._has_lost_head or (self.reservations and not heads):
            # The next gang in order gets the reservation. It may be one that rests.
            self._has_lost_head = False
            self.queue.activate([key for entity in self.queue.entities() for key in entity.pods], now)
        self._select_gangs(now, kept_places=len(heads))
        if self._in_flight:
            self._call_heads(heads, now)
            self._select_gangs(now)
        if not self._in_flight and not self.held:
            return None
        wall_time = now + wall_offset
        self._current.updated_scheduler(self.held)
        bindings = self._cache.is_assumed_or_being_bound, self._cache.is_bound
        self.node_table.reserved_volumes_and_devices.release_reservations_of_pods_not_being_bound(*bindings)
        self.node_table.device_ledger.copy_devices_reserved_by_other_profiles(
            [neighbour.devices for neighbour in reserved_elsewhere], *bindings
        )
        if self.chooser is not None:
            self.chooser.set_gang_order_and_prepare_forecast(
                self._scheduler, self._in_flight, self._cache.snapshot, wall_time
            )
        self.session_generation = self._cache.generation
        protected = self._protected_pods(now)
        self._scheduler.set_refused_evictions(protected)
        self._forget_rejections()
        self._scheduler.set_rejected_gangs(self._rejected)
        scheduler, runner = self._scheduler, self.runner
        self.taking_part = tuple(self._in_flight.values())
        taking_part = frozenset(identity for identity in self._in_flight if identity not in self._leaving)
        session_input = None
        if self.recording or runner.has_external_plugins:
            session_input = SessionInput(self._seen(wall_time, protected), taking_part, wall_time, self._seed)
        self.session_input = session_input if self.recording else None
        return lambda: runner.run_within_plugin_deadline(
            lambda: scheduler.decide(wall_time, self._seed, taking_part, runner.telemetry), session_input
        )

    def _forget_rejections(self) -> None:
        """Forget which gangs a plugin rejected if they take part again, or are no longer pending."""
        self._rejected = {
            identity
            for identity in self._rejected - self._in_flight.keys()
            if self.queue.find_entity(identity) is not None
        }

    def remember_refused_eviction(self, pod: Pod, until: float) -> None:
        """Exclude a pod from preemption until a given time, because the API server refused to evict the pod.

        Args:
          pod: The pod.
          until: The time, as `now` of other methods.
        """
        self._refused_evictions[pod.key] = (pod.metadata.uid, until)

    def _protected_pods(self, now: float) -> tuple[str, ...]:
        """Return the keys of the pods that may not be victims now, because their eviction was refused."""
        for key, (uid, until) in list(self._refused_evictions.items()):
            pod = self._cache.get(PODS, key)
            if until <= now or pod is None or pod.metadata.uid != uid:
                del self._refused_evictions[key]
        return tuple(sorted(self._refused_evictions))

    def _select_gangs(self, now: float, kept_places: int = 0) -> None:
        specs_of = self._scheduler.distinct_spec_numbers
        self._gang_selector.select_gangs(self.queue, self._in_flight, now, specs_of, kept_places=kept_places)

    def _heads(self) -> list[Entity]:
        """Return the gangs with a reservation that are in the scheduling queue."""
        keys = (reservation.pod_group for reservation in self.reservations)
        identities = (identity for key in keys for identity in identities_of_gang_key(key))
        return [entity for identity in identities if (entity := self.queue.find_entity(identity)) is not None]

    def _call_heads(self, heads: Iterable[Entity], now: float) -> None:
        """Add gangs with a reservation to the session, which would otherwise give their capacity away."""
        for head in heads:
            if head.identity in self._in_flight or len(self._in_flight) >= self._gang_selector.gangs:
                continue
            self.queue.activate(tuple(head.pods), now)
            if self.queue.pop_gang(head.identity, now) is not None:
                self._in_flight[head.identity] = head

    def without_hung_plugins(self) -> "ProfileScheduler":
        """Return a new scheduler of the same profile in which the plugins that hung are disabled."""
        renewed = ProfileScheduler(
            self.profile, self._cache, self._seed, self._leaving, self.runner.without_hung_plugins()
        )
        renewed.recording = self.recording
        renewed.inherit_state(self)
        return renewed

    def inherit_state(self, before: "ProfileScheduler") -> None:
        """Take over reservations, refused evictions and usage history from the scheduler that is replaced.

        This scheduler also takes over the volumes and devices that are reserved for placed pods and, if the arguments
        of `auto` are equal, the policy chooser.
        """
        if before is self:  # another profile's scheduler is replaced; a scheduler must not succeed itself
            return
        before._successor = self
        self.reservations = before.reservations
        self._reserved_volumes_and_devices = before._reserved_volumes_and_devices
        self.can_allocate_devices = before.can_allocate_devices
        self._refused_evictions = before._refused_evictions
        if (
            before.chooser is not None
            and self.chooser is not None
            and before.chooser.args == self.chooser.args
        ):
            self.chooser = before.chooser
        self._past = before._past.with_half_life(self.profile.usage_half_life_seconds)

    def set_usage_history(self, past: UsageHistory) -> None:
        """Set the usage history of the queues that this replica recorded while another replica was the leader.

        Call this method before the first session only.
        """
        self._past = past

    def _seen(self, wall_time: float, protected: tuple[str, ...]) -> Snapshot:
        usage = past_usage_entries(self._scheduler.decayed_usage(wall_time))
        snapshot = self._cache.snapshot()
        return replace(
            snapshot,
            held=self.held,
            usage=usage,
            reservations=self.reservations,
            refused_evictions=protected,
            chosen_policy=self._chosen_policy,
            rejected=tuple(sorted(self._rejected)),
            pod_devices=self.node_table.device_ledger.list_reserved_devices(),
        )

    @property
    def _chosen_policy(self) -> str:
        """The candidate of `auto` for the next session; "" under other policies."""
        return self.chooser.policy if self.chooser is not None else ""

    def apply_decision(self, decision: Decision, now: float, seconds: float = 0.0) -> list[PlacedGang]:
        """Apply the decision of a session: assume placed pods, and return refused gangs to the scheduling queue.

        Args:
          decision: the decision of the session that `begin_session` began.
          now: the present time.
          seconds: the duration of the session; after a long session, the next one takes fewer gangs.

        Returns:
          The gangs that are to be bound.
        """
        held, taking_part = self._waiting, {**self._waiting, **self._in_flight}
        reserved = _held_places(self.held, taking_part)
        self._hold(decision, taking_part)
        self._has_lost_head = bool(self.reservations) and not decision.reservations
        self.reservations = decision.reservations
        # After a plugin hung, the decision is that of other tables: what it reserved there is not in those of this
        # scheduler, and the pods would be bound without their devices. The scheduler that replaces it decides again.
        placed = {} if self.runner.hung else _placed(decision, taking_part)
        capacity_check = BindCapacityCheck(
            self._cache, self._current.unread_changes(), placed.values(), self.pipeline.ignores_resource
        )
        refused = {refused_gang.pod_group: refused_gang for refused_gang in decision.refusals}
        placements: list[PlacedGang] = []
        for identity, entity in taking_part.items():
            if identity in self._waiting:
                continue
            places = placed.get(identity, ())
            overtaken = bool(places) and not self._assume(places, capacity_check, now)
            if overtaken:
                reserved += places
            elif places:
                placements.append(PlacedGang(entity, places))
            refusal = refused.get(gang_key_from_identity(identity))
            if refusal is not None and refusal.reason in _REJECTIONS:
                self._rejected.add(identity)
            if overtaken or (identity in held and refusal is None) or identity in self._leaving:
                refused_by: tuple[str, ...] = ()  # it tries again soon
            else:
                refused_by = possibly_refusing_plugins(refusal, self.pipeline) if refusal else self._surplus
            self._settle(entity, () if overtaken else places, refused_by, now)
            # The cluster changed, so the next session decides differently. A repetition waits for its backoff.
            if overtaken and entity.errors <= 1:
                self.queue.activate([pod.key for pod, _ in places], now)
        self._retry_gangs_after_released_places(reserved, placements, now)
        self._gang_selector.record_duration(seconds)
        self._in_flight = {}
        return placements

    def _retry_gangs_after_released_places(
        self, reserved: Iterable[tuple[Pod, str]], placements: Iterable[PlacedGang], now: float
    ) -> None:
        """Retry the refused gangs that may use the places which the pods of other gangs lost.

        Args:
          reserved: The places that pods had at Permit before the session, or had in the session.
          placements: The gangs that are to be bound; these keep their places, as do those that wait at Permit now.
          now: The present time.
        """
        kept = {(held_pod.pod, held_pod.node) for gang in self.held for held_pod in gang.pods}
        kept |= {(pod.key, node) for placed in placements for pod, node in placed.places}
        for pod, node in reserved:
            if (pod.key, node) not in kept:
                self.queue.retry_gangs_after_failed_binding(
                    pod.with_node(node), now, except_gang=gang_identity(pod)
                )

    def abandon_session(self, now: float) -> None:
        """End a failed session, return its gangs to the queue, and let the next session take half as many.

        After repeated failures, the gang that causes them is alone in its session. While it rests, it holds up no other
        gang.
        """
        self._gang_selector.halve_gangs_after_failure()
        if len(self._in_flight) == 1:  # the gang that causes the failures is found
            self._rejected |= self._in_flight.keys()
        for entity in self._in_flight.values():
            if entity.place is QueueState.IN_FLIGHT:
                self.queue.add_unschedulable(entity, (), now)
        self._in_flight = {}
        self._current = self._follow()  # its tables may be half changed

    def requeue_after_failed_binding(
        self, entity: Entity, places: Iterable[tuple[Pod, str]], now: float
    ) -> None:
        """Return a gang to the scheduling queue after the binding of some of its pods failed.

        These pods become pending again.

        Call this method between sessions only.
        """
        if self._successor is not None:
            # The successor has copied the reservations. Its queue gets the pods when they become pending.
            self._successor._release_unbound(places, now)
            return
        unbound = self._release_unbound(places, now)
        # Do this before the next `sync_queue`: the change of the pod would move the gang to the active queue at once,
        # without backoff.
        if unbound and entity.identity not in self._waiting:
            self.queue.add_unschedulable(entity, (), now, unbound)

    def _release_unbound(self, places: Iterable[tuple[Pod, str]], now: float) -> list[Pod]:
        """Unreserve pods after their binding failed, make them pending again, and return those that exist."""
        if self._successor is not None:
            return self._successor._release_unbound(places, now)
        unbound: list[Pod] = []
        for pod, node in places:
            unreserve_after_session(self.pipeline, pod, node, self.node_table)
            assumed = self._cache.get(PODS, pod.key)
            if self._cache.forget_assumption(pod.key, node, pod.metadata.uid):
                # `sync_queue` sees no change of a pod that was assumed and became pending again since it ran last.
                self.queue.retry_gangs_after_failed_binding(assumed, now)
            elif assumed is None or assumed.metadata.uid != pod.metadata.uid:
                # The pod was deleted meanwhile, and what it kept until now is free.
                self.queue.retry_gangs_after_failed_binding(pod.with_node(node), now)
            present = self._cache.get(PODS, pod.key)
            if present is not None and not present.node_name and not present.terminating:
                unbound.append(present)
        return unbound

    def _settle(self, entity: Entity, places: Places, refused_by: tuple[str, ...], now: float) -> None:
        """End the scheduling cycle of a gang: return pods that were not placed to the scheduling queue."""
        for pod, _ in places:
            self.queue.delete_pod(pod.key, now, placed=True)
        if len(places) == len(entity.popped):
            self.queue.done(entity.identity, now)
        else:
            self.queue.add_unschedulable(entity, refused_by, now)

    def _assume(self, places: Places, capacity_check: BindCapacityCheck, now: float) -> bool:
        """Assume all pods of a gang and return True; if that fails, unreserve all and return False."""
        full = capacity_check.find_node_with_too_little_capacity(places)
        if full is not None:
            self.dropped_placements += 1
            _LOG.info("%s is not bound: other pods have filled node %s meanwhile", places[0][0].key, full)
        # The rollback of a gang may begin while it waits at Permit.
        is_leaving = gang_identity(places[0][0]) in self._leaving
        is_assumed = full is None and not is_leaving and self._assume_all(places, now)
        if full is None and not is_assumed:
            _LOG.info("%s is not bound: its gang, pods or nodes have changed meanwhile", places[0][0].key)
        if not is_assumed:
            for pod, node in places:
                unreserve_after_session(self.pipeline, pod, node, self.node_table)
            return False
        capacity_check.deduct_requests(places)
        return True

    def _assume_all(self, places: Places, now: float) -> bool:
        """Assume all given pods and return True, or assume none of them and return False."""
        assumed: list[tuple[str, str, str]] = []
        for pod, node in places:
            if not self._cache.assume_pod(pod.key, node, now, pod.metadata.uid):
                for place in assumed:
                    self._cache.forget_assumption(*place)
                return False
            assumed.append((pod.key, node, pod.metadata.uid))
        return True

    def _hold(self, decision: Decision, taking_part: dict[str, Entity]) -> None:
        """Record the gangs that wait at Permit according to the decision, with their reserved nodes."""
        groups = {gang_key_from_identity(identity): entity for identity, entity in taking_part.items()}
        nodes = {entry.pod_key: entry.node for entry in decision.nominations}
        waiting, held = {}, []
        for entry in decision.waiting:
            entity = groups.get(entry.pod_group)
            if entity is not None:
                waiting[entity.identity] = entity
                pods = tuple(HeldGangPod(key, nodes[key]) for key in entity.pods if key in nodes)
                held.append(HeldGang(entry.pod_group, entry.plugin, entry.deadline, pods))
        self._waiting, self.held = waiting, tuple(held)


def _reads_numa_zones(pipeline: Pipeline) -> bool:
    """Return whether an enabled plugin reads the NUMA zones in NodeResourceTopologies."""
    return "NodeResourceTopologyMatch" in plugin_names(pipeline.plugins)


def _plugins_refusing_surplus(pipeline: Pipeline) -> tuple[str, ...]:
    refusals = (Refusal(pod_group="", reason=reason, message="") for reason in _SURPLUS)
    return tuple(
        sorted({plugin for refusal in refusals for plugin in possibly_refusing_plugins(refusal, pipeline)})
    )


def _placed(decision: Decision, taking_part: dict[str, Entity]) -> dict[str, Places]:
    """Return the placed pods with their nodes, by the identity of their gang."""
    pods = {pod.key: pod for entity in taking_part.values() for pod in _popped(entity)}
    places_by_identity: dict[str, list[tuple[Pod, str]]] = {}
    for assignment in decision.assignments:
        pod = pods.get(assignment.pod_key)
        if pod is not None:
            places_by_identity.setdefault(gang_identity(pod), []).append((pod, assignment.node))
    return {identity: tuple(places) for identity, places in places_by_identity.items()}


def _held_places(held: Collection[HeldGang], taking_part: dict[str, Entity]) -> list[tuple[Pod, str]]:
    """Return the pods that wait at Permit with their nodes, also the pods that were deleted meanwhile."""
    if not held:
        return []
    pods = {
        pod.key: pod for entity in taking_part.values() for pod in (*entity.popped, *entity.pods.values())
    }
    return [
        (pods[held_pod.pod], held_pod.node) for gang in held for held_pod in gang.pods if held_pod.pod in pods
    ]


def _popped(entity: Entity) -> Sequence[Pod]:
    """Return the pods of a gang in its present scheduling cycle, each in its newest version."""
    newest = ((pod, entity.pods.get(pod.key, pod)) for pod in entity.popped)
    # The session decided about a pod that was deleted since, not about a new pod of its name.
    return [new if new.metadata.uid == pod.metadata.uid else pod for pod, new in newest]
