"""Priorities: admission judges those of pods, and the PriorityClass of a PodGroup can only lower a gang's."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.priority import SYSTEM_CRITICAL_PRIORITY, PriorityTable
from tests.session.scenario import group, pod, priority_class

CLASSES = (priority_class("low", -5), priority_class("high", 100))
PRIORITIES = PriorityTable(CLASSES)


def of_class(name: str, priority: int | None = None):
    return pod("p", priority=priority, spec={"priority_class_name": name})


@pytest.mark.parametrize(
    "member, expected",
    [
        pytest.param(of_class("high", 3), 3, id="the priority that admission resolved"),
        pytest.param(of_class("high"), 100, id="the value of its class"),
        pytest.param(of_class("absent"), 0, id="a class that does not exist"),
        pytest.param(
            of_class("system-node-critical"), SYSTEM_CRITICAL_PRIORITY + 1000, id="a built-in class"
        ),
    ],
)
def test_priority_of_a_pod_is_what_admission_resolves(member, expected):
    assert PRIORITIES.pod_priority(member) == expected


def test_pod_without_a_class_has_the_global_default():
    default = msgspec.structs.replace(priority_class("usual", 7), global_default=True)
    assert PriorityTable((default,)).pod_priority(pod("p")) == 7


def test_lowest_of_several_global_defaults_applies():
    defaults = [
        msgspec.structs.replace(priority_class(name, value), global_default=True)
        for name, value in (("usual", 7), ("low", 3), ("high", 9))
    ]
    assert PriorityTable(defaults).pod_priority(pod("p")) == 3


@pytest.mark.parametrize(
    "name, expected", [("low", -5), ("high", 10), ("system-node-critical", 10), ("absent", 10), ("", 10)]
)
def test_class_of_a_podgroup_lowers_the_priority_of_a_gang_and_never_raises_it(name, expected):
    pods = [pod("a", priority=0), pod("b", priority=10)]
    assert PRIORITIES.gang_priority(group("g", 2, priorityClassName=name), pods) == expected


def test_class_of_a_podgroup_without_pods_has_no_effect():
    for name in ("low", "high"):
        assert PRIORITIES.gang_priority(group("g", 2, priorityClassName=name), []) == 0
        assert (
            PRIORITIES.advice_on_ineffective_priority_class(group("g", 2, priorityClassName=name), []) == ""
        )


@given(
    st.sampled_from(["", "low", "high", "system-node-critical"]), st.lists(st.integers(-9, 200), min_size=1)
)
def test_no_gang_has_a_higher_priority_than_its_pods_and_a_cap_is_explained(name, priorities):
    pods = [pod(f"p{at}", priority=priority) for at, priority in enumerate(priorities)]
    stated = group("g", 1, priorityClassName=name)
    assert PRIORITIES.gang_priority(stated, pods) <= max(priorities)
    value = {"low": -5, "high": 100, "system-node-critical": 2_000_001_000}.get(name)
    assert bool(PRIORITIES.advice_on_ineffective_priority_class(stated, pods)) == (
        value is not None and value > max(priorities)
    )
