"""The session window, which limits the gangs and pod specs of one session and divides them among namespaces.

A session that takes too long delays all pods that arrive meanwhile. Its duration grows with the number of gangs and of
different pod specs, so both are limited. The session after one that took too long is smaller, above all if gangs of
other namespaces arrived meanwhile. The gangs that take part are recorded with each session, so a replay does not depend
on these measurements.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Set
from typing import Final

from batchsched.api.core.pod import Pod
from batchsched.scheduling_queue.entity import Entity
from batchsched.scheduling_queue.queue import SchedulingQueue

SPECS_PER_GANG: Final = 2
"""Limit on the different pod specs of a session, as a multiple of the limit on gangs."""
SECONDS_WITH_WAITING_NAMESPACES: Final = 0.5
"""Duration in seconds up to which a session keeps its size while gangs wait of a namespace that had less than its share
of the session."""
SMALLEST_PART: Final = 10
"""A session that took too long is followed by one of at least this part of the limit on gangs: the time that a session
takes without any gang, in a large cluster, must not reduce the number of gangs to one.
"""
SpecsOfPods = Callable[[Iterable[Pod]], set[Hashable]]
"""Returns the different specs of some pods; pods that no plugin can tell apart have the same spec."""


class SessionGangSelector:
    """The component that selects each session's gangs, in equal shares for all namespaces with active gangs.

    If a namespace has used its share, its gangs are selected after gangs of the same priority in other namespaces. What
    other namespaces leave of their shares is available to it. A gang with more specs than a whole session may have
    still takes part, but no gang is selected after it.

    Args:
      max_gangs: the maximum number of gangs in a session, `sessionWindow`.
      max_seconds: the duration up to which a session keeps its size, `sessionSeconds`.
    """

    def __init__(self, max_gangs: int, max_seconds: float) -> None:
        self._max_gangs = max_gangs
        self._max_seconds = max_seconds
        self.gangs = max_gangs
        """The maximum number of gangs in the next session."""
        self._session = _SelectedGangs(lambda _: set())
        self._seconds: float | None = None
        """The duration of the last session, if `adjust_max_gangs` has not considered it yet."""
        self.is_full = False
        """Whether the last session took as many gangs or specs as it may."""

    def select_gangs(
        self,
        queue: SchedulingQueue,
        selected: dict[str, Entity],
        now: float,
        distinct_spec_numbers: SpecsOfPods,
        *,
        kept_places: int = 0,
    ) -> None:
        """Take gangs from the scheduling queue and add them to `selected` until the session is full.

        Args:
          queue: the scheduling queue.
          selected: the gangs that already take part; changed in place.
          now: seconds since 1970.
          distinct_spec_numbers: returns the different specs of pods.
          kept_places: the number of gangs that are to be added later, and count as selected. A session of one gang
            keeps no place: after repeated failures, the gang that causes them must be alone.
        """
        session = self._session = _SelectedGangs(distinct_spec_numbers)
        for selected_gang in selected.values():
            session.count_gang(selected_gang)
        namespaces = len(queue.active_namespaces() | session.gangs.keys()) or 1
        max_specs = SPECS_PER_GANG * self.gangs
        share_used = {
            namespace
            for namespace in session.gangs
            if session.has_namespace_used_share(namespace, self.gangs / namespaces, max_specs / namespaces)
        }
        self.is_full = False
        max_gangs = max(1, self.gangs - kept_places)
        while len(selected) < max_gangs and session.spec_count < max_specs:
            entity = queue.pop(now, early=not selected, after_others=share_used)
            if entity is None:
                break
            selected[entity.identity] = entity
            session.count_gang(entity)
            if session.has_namespace_used_share(
                entity.namespace, self.gangs / namespaces, max_specs / namespaces
            ):
                share_used.add(entity.namespace)
        else:
            self.is_full = True

    def adjust_max_gangs(self, waiting_namespaces: Set[str]) -> None:
        """Set the maximum number of gangs of the next session: lower after a long session, otherwise higher.

        Args:
          waiting_namespaces: the namespaces with gangs in the active queue.
        """
        if self._seconds is None:
            return
        gangs_of = self._session.gangs
        share = gangs_of.total() / (len(waiting_namespaces | gangs_of.keys()) or 1)
        # A namespace with its share caused as much of the duration as others did.
        others_wait = any(gangs_of[namespace] < share for namespace in waiting_namespaces)
        target = min(self._max_seconds, SECONDS_WITH_WAITING_NAMESPACES) if others_wait else self._max_seconds
        if self._seconds > target:
            gangs = int(min(self.gangs, self._session.gangs.total()) * target / self._seconds)
            self.gangs = max(1, self._max_gangs // SMALLEST_PART, gangs)
        else:
            self.gangs = min(self._max_gangs, 2 * self.gangs)
        self._seconds = None

    def record_duration(self, seconds: float) -> None:
        """Record the duration of the session with the selected gangs, for the next call of `adjust_max_gangs`."""
        self._seconds = seconds

    def halve_gangs_after_failure(self) -> None:
        """Allow the next session half as many gangs as the session that failed.

        After repeated failures, the gang that causes them is alone in its session.
        """
        self.gangs = max(1, self._session.gangs.total() // 2)


class _SelectedGangs:
    """Counts the gangs and the different pod specs of a session by namespace."""

    def __init__(self, distinct_spec_numbers: SpecsOfPods) -> None:
        self._specs_of = distinct_spec_numbers
        self.gangs = Counter[str]()
        self._specs: dict[str, set[Hashable]] = {}
        self.spec_count = 0

    def count_gang(self, entity: Entity) -> None:
        """Count a selected gang, and those of its pod specs that were not yet counted for its namespace."""
        specs = self._specs.setdefault(entity.namespace, set())
        before = len(specs)
        specs |= self._specs_of(entity.pod_by_template().values())
        self.spec_count += len(specs) - before
        self.gangs[entity.namespace] += 1

    def has_namespace_used_share(self, namespace: str, gangs: float, specs: float) -> bool:
        """Return whether a namespace has at least `gangs` gangs or `specs` pod specs in the session."""
        return self.gangs[namespace] >= gangs or len(self._specs[namespace]) >= specs
