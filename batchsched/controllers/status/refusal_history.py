"""What the last sessions said of each gang: who refused it and why, who holds it, when it may start.

Session after session may count otherwise ("12 short", "11 short"), and ten thousand waiting pods are to be told. So a
sentence stands for a while, and the longer, the more often it changed; the last one comes through in the end.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from batchsched.api.decision import Decision, Refusal, Waiting

AGAIN: Final = 10.0
"""Seconds for which a sentence stands at first, though the next session may count otherwise: nobody reads faster."""
LONGEST: Final = 320.0
"""Seconds for which one stands that has changed often."""
OTHERWISE: Final = 0.1
"""The part of that time for which it stands against another reason: that is news."""
ARRIVING: Final = 5.0
"""Seconds for which nobody is told what is missing of a gang that is being made: it is on its way."""
_ARRIVING: Final = frozenset({"NotEnoughPods", "PodGroupNotFound"})
SURPLUS: Final = "Surplus"
"""Why pods wait whose gang has its minimum; in no decision, since the gang is not refused."""


@dataclass(slots=True)
class LastRefusal:
    """The last word on a gang.

    Args:
      refusal: why it was refused, as it is told; None where it was not.
      latest: the newest refusal, which may be told later.
      first: seconds since 1970 at which it was refused first.
      message: what is told to its pods.
      waiting: who holds it at Permit.
      profile: the scheduler name of those who hold it.
      start: when it may start, RFC 3339; "" where nothing is kept for it.
      since: seconds since 1970 from which on the refusal stands.
      stands: seconds for which it does.
    """

    refusal: Refusal | None = None
    latest: Refusal | None = None
    first: float = 0.0
    message: str = ""
    waiting: Waiting | None = None
    profile: str = ""
    start: str = ""
    since: float = 0.0
    stands: float = AGAIN

    def due(self, now: float) -> bool:
        """Tell whether the newest refusal is to be told now."""
        if self.latest is None or self.latest == self.refusal:
            return False
        if self.refusal is None:
            return self.latest.reason not in _ARRIVING or not 0 <= now - self.first < ARRIVING
        same = self.latest.reason == self.refusal.reason
        age = now - self.since
        return not 0 <= age < self.stands * (1.0 if same else OTHERWISE)  # also when the clock was set back

    def tell(self, nodes: int, now: float) -> None:
        """Let the newest refusal be the one that is told."""
        assert self.latest is not None
        if self.refusal is None or now - self.since >= 2 * LONGEST:
            self.stands = AGAIN
        else:
            self.stands = min(LONGEST, 2 * self.stands)
        self.refusal, self.since = self.latest, now
        self.message = failed_scheduling(self.latest, nodes)

    def acquit(self) -> bool:
        """Take the refusal back; returns whether there was one."""
        refused = self.refusal is not None
        self.refusal, self.latest, self.message, self.start = None, None, "", ""
        return refused


class RefusalHistory:
    """Remembers the last word on each gang, by `namespace/name`; a pod alone counts as one."""

    def __init__(self) -> None:
        self._known: dict[str, LastRefusal] = {}

    def get(self, key: str) -> LastRefusal:
        """Return the last word; an empty one where there is none."""
        return self._known.get(key) or LastRefusal()

    def forget(self, key: str) -> None:
        """Forget a gang: it is gone."""
        self._known.pop(key, None)

    def known(self) -> tuple[str, ...]:
        """Return of whom something is known."""
        return tuple(self._known)

    def heard(
        self,
        decision: Decision,
        profile: str,
        present: Collection[str],
        surplus: Collection[str],
        nodes: int,
        now: float,
    ) -> set[str]:
        """Take in a decision.

        Args:
          decision: of a session.
          profile: its scheduler name.
          present: gangs that took part.
          surplus: those of them with pods beyond the minimum that found no place.
          nodes: how many there are.
          now: seconds since 1970.

        Returns:
          The gangs of which something else is to be said now.
        """
        changed = self._held(decision, profile)
        starts = {one.pod_group: one.start for one in decision.reservations}
        refused = {one.pod_group: one for one in decision.refusals}
        refused |= {key: beyond_minimum(key) for key in surplus if key not in refused}
        for key, refusal in refused.items():
            known = self._known.setdefault(key, LastRefusal())
            if known.latest is None:
                known.first = now
            known.latest = refusal
            start = starts.get(key, "")
            if known.start != start:
                known.start = start
                changed.add(key)
        for key in present:
            if key not in refused:
                acquitted = self._known.get(key)
                if acquitted is not None and acquitted.acquit():
                    changed.add(key)
        return changed | self._tell(refused, nodes, now)

    def ripe(self, nodes: int, now: float) -> set[str]:
        """Let those sentences through that waited; returns the gangs of which something else is to be said now."""
        return self._tell(self._known, nodes, now)

    def _tell(self, keys: Collection[str], nodes: int, now: float) -> set[str]:
        due = {key for key in keys if self._known[key].due(now)}
        for key in due:
            self._known[key].tell(nodes, now)
        return due

    def _held(self, decision: Decision, profile: str) -> set[str]:
        held = {one.pod_group: one for one in decision.waiting}
        changed = set()
        for key, waiting in held.items():
            known = self._known.setdefault(key, LastRefusal())
            if known.waiting != waiting or known.refusal is not None:
                changed.add(key)
            known.acquit()
            known.waiting, known.profile = waiting, profile
        for key, known in self._known.items():
            if known.waiting is not None and known.profile == profile and key not in held:
                known.waiting = None
                changed.add(key)
        return changed


def beyond_minimum(key: str) -> Refusal:
    """Return what is said of pods whose gang has its minimum."""
    message = "the gang has the pods that it needs at least; there is no room for more of them now"
    return Refusal(pod_group=key, reason=SURPLUS, message=message)


def sentence(refusal: Refusal) -> str:
    """Say why a gang was refused, what is missing (the message has it), and what would help."""
    helps = f"; would help: {refusal.relaxation}" if refusal.relaxation else ""
    return f"{refusal.message.rstrip('.')}{helps}"


def failed_scheduling(refusal: Refusal, nodes: int) -> str:
    """Say of a pod why it is not scheduled, in kube-scheduler's words."""
    if refusal.message.startswith(("0/", "no nodes available")):
        return refusal.message
    if nodes == 0:
        return "no nodes available to schedule pods"
    return f"0/{nodes} nodes are available: PodGroup {refusal.pod_group}: {sentence(refusal)}."
