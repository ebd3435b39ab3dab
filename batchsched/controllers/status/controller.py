"""The status controller: writes the status of PodGroups and Queues, and the PodScheduled condition of pods.

Changed objects are queued. Twice a second, while no pod is being bound, a part of them is written, gangs and queues
before pods. A status equal to the written one is not sent.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from batchsched.api.core.pod import Pod
from batchsched.api.crd.base import API_VERSION
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.external_podgroups import UPSTREAM_CONDITIONS, is_foreign, source_of
from batchsched.api.gang_identity import SINGLE_POD_PREFIX, identity_of, key_of
from batchsched.config.schema import Profile
from batchsched.controllers.status import desired_status as status
from batchsched.controllers.status.event_recorder import EventRecorder, PendingEvent, reference
from batchsched.controllers.status.queue_positions import QUEUES, holdings, positions
from batchsched.controllers.status.refusal_history import RefusalHistory
from batchsched.controllers.status.write_throttle import WriteThrottle
from batchsched.errors import ApiError, BatchschedError, IllegalMove, Unreachable
from batchsched.kube import resources
from batchsched.kube.connection import MERGE_PATCH
from batchsched.kube.resources import Resource
from batchsched.kube.writer import Writer
from batchsched.ports.clock import Clock
from batchsched.state.cluster_state import POD_GROUPS, PODS, ClusterState
from batchsched.state.podgroup_state import RUNNING, GangPods

_LOG: Final = logging.getLogger(__name__)
PERIOD: Final = 0.5
AT_ONCE: Final = 8
MOST: Final = 100
"""Maximum number of objects that are written in one period."""
LOOKED_AT: Final = 5_000
"""Maximum number of objects that are checked in one period."""
OVERVIEW: Final = 5.0
"""Seconds between two computations of all queue positions: a gang that starts moves all behind it."""
OUR_POD_GROUPS: Final = Resource(API_VERSION, "podgroups", "PodGroup", namespaced=True)
OUR_QUEUES: Final = Resource(API_VERSION, "queues", "Queue", namespaced=False)
STRATEGIC: Final = "application/strategic-merge-patch+json"
Wish = tuple[str, str]
"""An object to check: its field of Snapshot and its key there."""
Place = tuple[Wish, str]
"""The same with a uid, which tells it from another object of the same name."""


class StatusController:
    """Writes the status of PodGroups, Queues and pods.

    Args:
      cache: The state of the cluster.
      verdicts: The last refusal of each gang.
      writer: Sends requests to the API server.
      recorder: Records the Event of a scheduled gang.
      courtesy: Delays writes while pods are being bound.
      clock: The clock.
      profile: The first profile.
    """

    def __init__(  # noqa: PLR0913 - the one place where all that a status is made of comes together
        self,
        cache: ClusterState,
        verdicts: RefusalHistory,
        writer: Writer,
        recorder: EventRecorder,
        courtesy: WriteThrottle,
        clock: Clock,
        profile: Profile | None = None,
    ) -> None:
        self.profile = profile or Profile()
        """The first profile, as of the last reload."""
        self._cache = cache
        self._verdicts = verdicts
        self._writer = writer
        self._recorder = recorder
        self._courtesy = courtesy
        self._clock = clock
        self._changed_gangs = cache.gangs.subscribe()
        self._turn = asyncio.Lock()
        self._wishes: dict[Wish, None] = {}
        self._pods: dict[Wish, None] = {}
        self._written: dict[Place, Any] = {}
        self._held: Mapping[str, status.QueueAllocation] = {}
        self._positions: dict[str, int] = {}
        self._overview_at = float("-inf")
        self._overview_of = -1

    def wish(self, keys: Iterable[str]) -> None:
        """Queue gangs to be checked, with their pods if they are refused."""
        for key in keys:
            if self._cache.get(POD_GROUPS, key) is not None:
                self._wishes[POD_GROUPS, key] = None
            if self._verdicts.get(key).message:
                self._pods.update(dict.fromkeys((PODS, pod) for pod in self.waiting(key)))

    def waiting(self, key: str) -> list[str]:
        """Return the keys of the pending pods of a gang or of a single pod."""
        gangs = (self._cache.gangs.get(identity) for identity in (key, SINGLE_POD_PREFIX + key))
        return [pod.key for gang in gangs if gang is not None for pod in gang.schedulable()]

    async def run(self) -> None:
        """Write periodically until cancelled."""
        while True:
            await self._clock.sleep(PERIOD)
            await self._courtesy.turn()
            await self.turn()

    async def drain(self) -> None:
        """Write all queued gangs and queues. The conditions of pods are left to the next leader."""
        while True:
            self._pods.clear()
            await self.turn()
            if not self._wishes:
                return

    def complete(self, identity: str) -> bool:
        """Return whether a gang has placed pods and is not pending."""
        gang = self._cache.gangs.get(identity)
        return gang is not None and bool(gang.placed()) and not gang.is_pending

    async def turn(self) -> None:
        """Queue the objects that changed, and write a part of the queue."""
        async with self._turn:
            self._look()
            slots = asyncio.Semaphore(AT_ONCE)

            async def one(change: "Change") -> None:
                async with slots:
                    await self._send(change)

            await asyncio.gather(*(one(change) for change in self._some()))

    def _look(self) -> None:
        self.wish({key_of(identity) for identity in self._changed_gangs.read()})
        monotonic = self._clock.monotonic()
        if monotonic - self._overview_at >= OVERVIEW and self._overview_of != self._cache.generation:
            self._overview_at, self._overview_of = monotonic, self._cache.generation
            self._stand_in_line()
            self._held = holdings(self._cache, self.profile.queue_policy)
            self._wishes.update(dict.fromkeys((QUEUES, name) for name in self._held))
            self._prune()

    def _stand_in_line(self) -> None:
        before = self._positions
        self._positions = positions(self._cache, self.profile, self._clock.now())
        self.wish(key for key, position in self._positions.items() if before.get(key) != position)

    def _prune(self) -> None:
        """Drop the records of deleted objects."""
        gone = [place for place in self._written if _uid(self._cache.get(*place[0])) != place[1]]
        for place in gone:
            del self._written[place]
        for key in self._verdicts.known():
            gangs = (self._cache.gangs.get(identity) for identity in (key, SINGLE_POD_PREFIX + key))
            if not any(gang is not None and gang.has_pods for gang in gangs):
                self._verdicts.forget(key)

    def _some(self) -> list["Change"]:
        """Return the next part of the changes, gangs and queues before pods."""
        now = self._clock.now()
        found: list[Change] = []
        for wishes in (self._wishes, self._pods):
            for wish in list(wishes)[:LOOKED_AT]:
                if len(found) >= MOST:
                    break
                del wishes[wish]
                change = self._wanted(wish, now)
                if change is not None:
                    found.append(change)
        return found

    def _wanted(self, wish: Wish, now: float) -> "Change | None":
        """Return the change of an object; None if its status is written already."""
        field, key = wish
        found = self._cache.get(field, key)
        if found is None:
            return None
        place = (wish, _uid(found))
        if field == PODS:
            return self._pod(place, found, now)
        there = self._written.get(place)
        if there is None:
            there = self._cache.status(field, key, found.metadata.uid)
        before = there.get("conditions", ())
        if field == QUEUES:
            held = self._held.get(key) or status.QueueAllocation({})
            return _change(place, OUR_QUEUES, there, status.of_queue(found, held, before, now))
        if is_foreign(found):
            return self._upstream(place, found, before, now)
        if not found.metadata.uid:  # it is not in the API yet
            return None
        verdict = self._verdicts.get(key)
        try:
            wanted = status.of_group(found, self._numbers(key), verdict, there, now)
        except IllegalMove as error:
            # A defect of this controller. The status in the API server stays as it is.
            _LOG.error("the status of %s is not written: %s", key, error)
            return None
        return _change(place, OUR_POD_GROUPS, there, wanted)

    def _upstream(
        self, place: Place, found: PodGroup, before: status.Conditions, now: float
    ) -> "Change | None":
        """Return the change of a PodGroup of the Kubernetes API; PodGroups of other APIs have their own controllers."""
        version, _ = source_of(found)
        kind = UPSTREAM_CONDITIONS.get(version)
        if kind is None:
            return None
        key = place[0][1]
        wanted = status.of_upstream(found, kind, self._numbers(key), self._verdicts.get(key), before, now)
        where = Resource(version, "podgroups", "PodGroup", namespaced=True)
        return None if wanted is None else Change(place, where, {"conditions": [wanted]}, None)

    def _numbers(self, key: str) -> status.PodCounts:
        gang = self._cache.gangs.get(key) or GangPods(key)
        succeeded, failed = gang.finished_counts()
        placed = gang.placed()
        return status.PodCounts(
            pending=len(gang.schedulable()),
            placed=len(placed),
            bound=sum(pod.key not in gang.assumed for pod in placed),
            running=sum(pod.status.phase == RUNNING for pod in placed),
            succeeded=succeeded,
            failed=failed,
            position=self._positions.get(key),
        )

    def _pod(self, place: Place, pod: Pod, now: float) -> "Change | None":
        message = self._verdicts.get(identity_of(pod).removeprefix(SINGLE_POD_PREFIX)).message
        if not message or pod.node or pod.terminating or self._written.get(place) == message:
            return None
        if pod.spec.scheduling_gates:  # the API server says so itself, in this condition
            return None
        return Change(place, resources.PODS, status.of_pod(pod, message, now), None, message)

    async def _send(self, change: "Change") -> None:
        wish, uid = change.place
        field, key = wish
        namespace, _, name = key.rpartition("/")
        ours = change.resource.api_version == API_VERSION
        kind = MERGE_PATCH if ours else STRATEGIC  # which leaves the conditions of others
        body = {"status": change.wanted}
        if field == POD_GROUPS and not ours:  # of this one object, and no other of its name
            body["metadata"] = {"uid": uid}
        path = change.resource.path(namespace, name, "status")
        try:
            await self._writer.send("PATCH", path, msgspec.json.encode(body), kind)
        except ApiError as error:
            if error.status not in (404, 409):  # else it is gone, or another one of its name
                _LOG.warning("the status of %s is not written: %s", key, error)
        except Unreachable as error:
            _LOG.warning("the status of %s is not written yet: %s", key, error)
            (self._pods if field == PODS else self._wishes)[wish] = None
            await self._clock.sleep(PERIOD)
        except BatchschedError:  # we do not lead any more
            return
        else:
            self._written[change.place] = change.message or change.wanted
            if field == POD_GROUPS:
                self._tell(change)

    def _tell(self, change: "Change") -> None:
        """Record the Event GangScheduled when the condition becomes True."""
        now, before = _said(change.wanted), _said(change.there)
        if now.get("status") == "True" and before.get("status") != "True":
            (_, key), uid = change.place
            namespace, _, name = key.partition("/")
            about = reference(OUR_POD_GROUPS, namespace, name, uid)
            self._recorder.once(PendingEvent(about, "GangScheduled", "Scheduling", now["message"]))


@dataclass(frozen=True, slots=True)
class Change:
    """A status to be written.

    Args:
      place: The object with its uid.
      resource: Its API resource.
      wanted, there: The status to be written, and the one before.
      message: The message of a pod's condition, which identifies the condition.
    """

    place: Place
    resource: Resource
    wanted: Any
    there: Any
    message: str = ""


def _change(place: Place, resource: Resource, there: Any, wanted: Any) -> Change | None:
    return None if _plain(there) == _plain(wanted) else Change(place, resource, wanted, there)


def _said(there: Any) -> Any:
    conditions = (there or {}).get("conditions", ())
    return next((one for one in conditions if one["type"] == status.SCHEDULED), {})


def _plain(there: Any) -> Any:
    """Return a status without the fields that are null."""
    return {name: value for name, value in there.items() if value is not None}


def _uid(found: Any) -> str:
    if found is None:
        return ""
    uid: str = found.metadata.uid
    return source_of(found)[1] if isinstance(found, PodGroup) and is_foreign(found) else uid
