"""Objects that are set aside get Events: one for each problem, and a limited number in each namespace."""

from types import SimpleNamespace
from typing import Any

import pytest

from batchsched.api.decision import SetAside
from batchsched.controllers.event_recorder import PendingEvent
from batchsched.controllers.set_aside_events import (
    MAX_EVENTS_PER_NAMESPACE,
    PERIOD_SECONDS,
    SetAsideEventReporter,
)
from batchsched.kube.connection import POD_GROUP_RESOURCE, POD_RESOURCE
from batchsched.ports.cluster import SetAsideObject
from tests.service.town import Clock


class Office:
    """Two reflectors with objects that are set aside, and the Events about them."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.events: list[PendingEvent] = []
        self.pods = SimpleNamespace(resource=POD_RESOURCE, set_aside_objects={})
        self.groups = SimpleNamespace(resource=POD_GROUP_RESOURCE, set_aside_objects={})
        self.owners = SimpleNamespace(resource=POD_RESOURCE, set_aside_objects={})
        reflectors: Any = [self.pods, self.groups, self.owners]
        self.reports = SetAsideEventReporter(reflectors, self.clock, self.events.append)

    def set_aside(
        self,
        name: str,
        problem: str = "wrong",
        *,
        field: str = "spec",
        namespace: str = "team",
        uid: str = "u",
    ) -> None:
        key = f"{namespace}/{name}"
        why = SetAside("", f"Pod {key}", field, problem)
        self.pods.set_aside_objects[key] = SetAsideObject(why, namespace, name, uid)

    def check(self, seconds: float = 5.0) -> list[PendingEvent]:
        """Report what is new, and return the Events of it."""
        self.clock.turn(seconds)
        self.events.clear()
        self.reports.report_new_set_aside_objects()
        return list(self.events)


@pytest.fixture
def office() -> Office:
    return Office()


def test_each_object_that_is_set_aside_gets_one_event_with_its_problem(office):
    office.set_aside("one", "expected a list", field="spec.containers")
    (event,) = office.check()
    assert (event.reason, event.warning) == ("SetAside", True)
    target = event.target
    assert (target.kind, target.namespace, target.name, target.uid) == ("Pod", "team", "one", "u")
    assert event.note == (
        "batchsched ignores this object until it is corrected: spec.containers: expected a list"
    )
    assert office.check() == []


@pytest.mark.parametrize("change", [{"problem": "also wrong"}, {"field": "status"}, {"uid": "another"}])
def test_another_problem_and_another_object_of_the_same_name_are_reported_again(office, change):
    office.set_aside("one")
    office.check()
    office.set_aside("one", **change)
    assert len(office.check()) == 1


def test_object_that_becomes_invalid_again_is_reported_again(office):
    office.set_aside("one")
    office.check()
    office.pods.set_aside_objects.clear()
    assert office.check() == []
    office.set_aside("one")
    assert len(office.check()) == 1


def test_namespace_with_many_invalid_objects_gets_a_limited_number_of_events(office):
    for number in range(1000):
        office.set_aside(f"bad-{number}")
    office.set_aside("other", namespace="quiet")
    events = office.check()
    assert sum(event.target.namespace == "team" for event in events) == MAX_EVENTS_PER_NAMESPACE
    assert sum(event.target.namespace == "quiet" for event in events) == 1
    assert [event.note for event in events if "further objects of namespace team" in event.note]
    office.set_aside("one more")
    assert office.check() == []
    office.set_aside("the next")
    assert len(office.check(PERIOD_SECONDS)) == 1


def test_object_that_two_reflectors_set_aside_gets_one_event_for_each_problem(office):
    office.set_aside("one")
    office.owners.set_aside_objects |= office.pods.set_aside_objects
    assert len(office.check()) == 1
    office.set_aside("one", "also wrong")
    assert len(office.check()) == 1
    assert office.check() == []


def test_object_without_a_readable_name_gets_no_event(office):
    office.set_aside("")
    assert office.check() == []
