"""Events for objects that are set aside: users see the Events of their objects, but not the log of batchsched.

An invalid object costs at most one Event for each of its problems. A namespace with many invalid objects gets a limited
number of Events in a period, because each of them is a write to the API server.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from batchsched.controllers.event_recorder import PendingEvent, object_reference
from batchsched.kube.connection import ApiResource
from batchsched.kube.reflector import Reflector
from batchsched.ports.cluster import Clock, SetAsideObject

SET_ASIDE: Final = "SetAside"
CHECK_SECONDS: Final = 5.0
"""Seconds between two checks for objects that were set aside."""
MAX_EVENTS_PER_NAMESPACE: Final = 20
"""Maximum number of Events of one namespace in a period. Objects without a namespace count together."""
PERIOD_SECONDS: Final = 600.0


class SetAsideEventReporter:
    """The component that writes one Event for each problem of an invalid object that reflectors ignore.

    Args:
      reflectors: The reflectors.
      clock: The clock.
      report: Receives the Events.
    """

    def __init__(
        self, reflectors: Sequence[Reflector], clock: Clock, report: Callable[[PendingEvent], None]
    ) -> None:
        self._reflectors = reflectors
        self._clock = clock
        self._report = report
        self._reported: dict[tuple[str, str], set[tuple[str, str]]] = {}
        """By resource and key of each object that is set aside: its uid, and each problem.

        Two reflectors read StatefulSets, and each may find a problem.
        """
        self._counts: Counter[str] = Counter()
        """Events of the current period by namespace."""
        self._period_start = float("-inf")

    async def run(self) -> None:
        """Write Events for newly found invalid objects every few seconds, until cancelled."""
        while True:
            self.report_new_set_aside_objects()
            await self._clock.sleep(CHECK_SECONDS)

    def report_new_set_aside_objects(self) -> None:
        """Write Events for the objects that have become invalid, or have another problem, since the last call."""
        now = self._clock.monotonic()
        if now - self._period_start >= PERIOD_SECONDS:
            self._counts.clear()
            self._period_start = now
        before, self._reported = self._reported, {}
        for reflector in self._reflectors:
            for key, item in reflector.set_aside_objects.items():
                address, problem = (reflector.resource.full_name, key), (item.uid, item.why.field_and_message)
                problems = self._reported.setdefault(address, set())
                if item.name and problem not in problems and problem not in before.get(address, ()):
                    self._report_object(reflector.resource, item)
                problems.add(problem)

    def _report_object(self, resource: ApiResource, item: SetAsideObject) -> None:
        count = self._counts[item.namespace] = self._counts[item.namespace] + 1
        if count > MAX_EVENTS_PER_NAMESPACE:
            return
        note = f"batchsched ignores this object until it is corrected: {item.why.field_and_message}"
        if count == MAX_EVENTS_PER_NAMESPACE:
            subject = f"objects of namespace {item.namespace}" if item.namespace else "cluster-scoped objects"
            note = f"further {subject} are not reported for {PERIOD_SECONDS / 60:g} minutes; {note}"
        target = object_reference(resource, item.namespace, item.name, item.uid)
        self._report(PendingEvent(target, SET_ASIDE, "Validating", note, warning=True))
