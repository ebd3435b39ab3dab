"""The last refusal of each gang, the Permit plugin at which the gang waits, and its reserved start.

Consecutive sessions may differ in details ("12 short", "11 short"), and each change is written to up to ten thousand
pods. So a message is kept for some time, which grows with each change. The latest message is published in the end.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from batchsched.api.decision import Decision, Refusal, WaitingAtPermit, new_nodes_may_help, refusal_text

KEEP_SECONDS: Final = 10.0
"""Seconds for which a message is first kept, even if a later session counts differently."""
MAX_KEEP_SECONDS: Final = 320.0
"""Maximum number of seconds for which a message is kept."""
NEW_REASON_FACTOR: Final = 0.1
"""The part of that time for which a message is kept if the reason changes or the text is now verified."""
ARRIVING_SECONDS: Final = 5.0
"""Seconds after the creation of a gang in which missing pods are not reported, since they are still being created."""
_ARRIVING: Final = frozenset({"NotEnoughPods", "PodGroupNotFound"})
SURPLUS: Final = "Surplus"
"""The reason of pods beyond the minimum of their gang. It is in no decision, since the gang is not refused."""
SURPLUS_OVER_LIMIT: Final = "SurplusOverLimit"
"""The reason of such pods if the limit of a queue leaves no room for another one."""
SURPLUS_REASONS: Final = {
    SURPLUS: "the gang has its minimum, and there is no room for this pod, which is beyond the minimum",
    SURPLUS_OVER_LIMIT: "the gang has its minimum, and the limit of a queue leaves no room for this pod",
}
"""Reasons of pods beyond the minimum of their gang, with their meanings."""
UNSCHEDULABLE: Final = "Unschedulable"
"""The condition reason of pods for which Cluster Autoscaler and Karpenter add nodes."""


@dataclass(slots=True)
class GangStatusRecord:
    """The last refusal of a gang or its wait at Permit, with the message that the status of the gang shows.

    Args:
      refusal: The published refusal; None if the gang was not refused.
      latest: The newest refusal, which may be published later.
      first: Seconds since 1970 of the first refusal of the gang.
      message: The message in the condition `PodScheduled` of the gang's pods.
      waiting: The Permit plugin for which the gang waits, with the deadline.
      profile: The scheduler name of the profile of that plugin.
      start: The reserved start of the gang, RFC 3339; "" without a reservation.
      since: Seconds since 1970 at which the refusal was published.
      keep_seconds: Seconds for which the refusal is kept.
    """

    refusal: Refusal | None = None
    latest: Refusal | None = None
    first: float = 0.0
    message: str = ""
    waiting: WaitingAtPermit | None = None
    profile: str = ""
    start: str = ""
    since: float = 0.0
    keep_seconds: float = KEEP_SECONDS

    @property
    def pod_scheduled_condition_reason(self) -> str:
        """The reason in the condition `PodScheduled` of the gang's pods; "" if the gang was not refused.

        It is `Unschedulable` only if new nodes may help; otherwise autoscalers would add nodes without effect.
        """
        if self.refusal is None:
            return ""
        helped = self.refusal.reason == SURPLUS or new_nodes_may_help(self.refusal)
        return UNSCHEDULABLE if helped else self.refusal.reason

    def may_publish_newest_refusal(self, now: float) -> bool:
        """Return whether the newest refusal of the gang may be published now, in place of the one published before."""
        if self.latest is None or self.latest == self.refusal:
            return False
        if self.refusal is None:
            return self.latest.reason not in _ARRIVING or not 0 <= now - self.first < ARRIVING_SECONDS
        is_proved_now = self.latest.verified and not self.refusal.verified
        matters = is_proved_now or self.latest.reason != self.refusal.reason
        age = now - self.since
        keep_seconds = self.keep_seconds * (NEW_REASON_FACTOR if matters else 1.0)
        # A negative age means that the clock was set back; waiting for it could take hours.
        return not 0 <= age < keep_seconds

    def publish_newest_refusal(self, nodes: int, now: float) -> None:
        """Publish the newest refusal of the gang: set the message that its pods and its PodGroup show."""
        assert self.latest is not None
        if self.refusal is None or now - self.since >= 2 * MAX_KEEP_SECONDS:
            self.keep_seconds = KEEP_SECONDS
        else:
            self.keep_seconds = min(MAX_KEEP_SECONDS, 2 * self.keep_seconds)
        self.refusal, self.since = self.latest, now
        self.message = failed_scheduling_message(self.latest, nodes)

    def remove_refusal(self) -> bool:
        """Remove the refusal of the gang from the record, and return whether the refusal was published."""
        refused = self.refusal is not None
        self.refusal, self.latest, self.message, self.start = None, None, "", ""
        return refused


class GangStatusRecords:
    """The status records of gangs that were refused or wait at Permit, by `namespace/name` of the gang."""

    def __init__(self) -> None:
        self._records: dict[str, GangStatusRecord] = {}

    def status_record_of(self, key: str) -> GangStatusRecord:
        """Return the status record of a gang, or an empty record if there is none."""
        return self._records.get(key) or GangStatusRecord()

    def forget_gang(self, key: str) -> None:
        """Drop the status record of a deleted gang."""
        self._records.pop(key, None)

    def gang_keys(self) -> tuple[str, ...]:
        """Return the `namespace/name` of each gang with a status record."""
        return tuple(self._records)

    def record_decision(
        self,
        decision: Decision,
        profile: str,
        present: Collection[str],
        surplus: Mapping[str, str],
        nodes: int,
        now: float,
    ) -> set[str]:
        """Update the status records of all gangs that took part in a session.

        Args:
          decision: The decision of a session.
          profile: The scheduler name of its profile.
          present: The gangs that took part.
          surplus: The gangs with pods beyond the minimum that were not placed, each with the queue that has no room
            for another pod within its limit, or "".
          nodes: The number of nodes.
          now: Seconds since 1970.

        Returns:
          The gangs with a changed message or state.
        """
        changed = self._held(decision, profile)
        starts = {entry.pod_group: entry.start for entry in decision.reservations}
        refused = {entry.pod_group: entry for entry in decision.refusals}
        refused |= {
            key: elastic_pods_refusal(key, queue) for key, queue in surplus.items() if key not in refused
        }
        for key, refusal in refused.items():
            record = self._records.setdefault(key, GangStatusRecord())
            if record.latest is None:
                record.first = now
            record.latest = refusal
            start = starts.get(key, "")
            if record.start != start:
                record.start = start
                changed.add(key)
        for key in present:
            if key not in refused:
                acquitted = self._records.get(key)
                if acquitted is not None and acquitted.remove_refusal():
                    changed.add(key)
        return changed | self._publish(refused, nodes, now)

    def record_explanation(self, refusal: Refusal, explained: Refusal, nodes: int, now: float) -> set[str]:
        """Replace the last refusal of a gang by the explained refusal, unless a later session has changed the refusal.

        Args:
          refusal: The refusal as its session decided it.
          explained: The explained refusal.
          nodes: The number of nodes.
          now: Seconds since 1970.

        Returns:
          The gang if its message changed.
        """
        record = self._records.get(refusal.pod_group)
        if record is None or record.latest != refusal:
            return set()
        record.latest = explained
        return self._publish((refusal.pod_group,), nodes, now)

    def publish_due_refusals(self, nodes: int, now: float) -> set[str]:
        """Publish the newest refusals that were held back long enough, and return the gangs with a new message."""
        return self._publish(self._records, nodes, now)

    def _publish(self, keys: Collection[str], nodes: int, now: float) -> set[str]:
        due = {key for key in keys if self._records[key].may_publish_newest_refusal(now)}
        for key in due:
            self._records[key].publish_newest_refusal(nodes, now)
        return due

    def _held(self, decision: Decision, profile: str) -> set[str]:
        held = {entry.pod_group: entry for entry in decision.waiting}
        changed = set()
        for key, waiting in held.items():
            record = self._records.setdefault(key, GangStatusRecord())
            if record.waiting != waiting or record.refusal is not None:
                changed.add(key)
            record.remove_refusal()
            record.waiting, record.profile = waiting, profile
        for key, record in self._records.items():
            if record.waiting is not None and record.profile == profile and key not in held:
                record.waiting = None
                changed.add(key)
        return changed


def elastic_pods_refusal(key: str, limiting_queue: str = "") -> Refusal:
    """Return the refusal for the pending elastic pods of a gang that already has minMember placed pods.

    Args:
      key: `namespace/name` of the gang.
      limiting_queue: The queue that has no room for another pod within its limit; "" if there is none.
    """
    reason, obstacle = SURPLUS, "there is no room for more of them now"
    if limiting_queue:
        reason, obstacle = SURPLUS_OVER_LIMIT, f"the limit of queue {limiting_queue} allows no more of them"
    message = f"the gang has the pods that it needs at least; {obstacle}"
    return Refusal(pod_group=key, reason=reason, message=message)


def failed_scheduling_message(refusal: Refusal, nodes: int) -> str:
    """Return the message for a pod of a refused gang, in the format of kube-scheduler."""
    if refusal.message.startswith(("0/", "no nodes available")):
        return refusal.message
    if nodes == 0:
        return "no nodes available to schedule pods"
    return f"0/{nodes} nodes are available: PodGroup {refusal.pod_group}: {refusal_text(refusal)}."
