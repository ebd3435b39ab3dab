"""The sentence that says why no node fits, in kube-scheduler's words."""

from dataclasses import replace

import numpy as np
import pytest

from batchsched.framework.cycle_state import CycleState
from batchsched.framework.filter_result import NOT_NARROWED, FilterResult, fit_error_message, no_refusals
from batchsched.framework.status import SUCCESS, Code, Status, Verdict


def scan(refused_by: list[int], *verdicts: Verdict, outside: list[bool] | None = None) -> FilterResult:
    by = np.array(refused_by, np.int32)
    return FilterResult(
        CycleState(),
        SUCCESS,
        by < 0,
        by,
        tuple(f"p{at}" for at in range(len(verdicts))),
        verdicts,
        ("A", "B") if outside else (),
        np.array(outside) if outside else None,
    )


def verdict(*reasons: tuple[str, list[bool]]) -> Verdict:
    marks = np.array([marked for _, marked in reasons])
    return Verdict(tuple(reason for reason, _ in reasons), marks, np.zeros(marks.shape[1], np.bool_))


@pytest.mark.parametrize(
    "nodes, parts, sentence",
    [
        (0, [], "0/0 nodes are available."),
        (3, ["3 too small"], "0/3 nodes are available: 3 too small."),
        (9, ["2 b", "10 a", "1 c"], "0/9 nodes are available: 1 c, 10 a, 2 b."),
    ],
)
def test_reasons_are_sorted_as_strings(nodes, parts, sentence):
    assert fit_error_message(nodes, parts) == sentence


def test_node_adds_every_reason_of_the_first_plugin_that_refuses_it():
    first = verdict(("no cpu", [True, True, False]), ("no memory", [True, False, False]))
    second = verdict(("no port", [True, True, True]))
    found = scan([0, 0, 1], first, second)
    assert found.reason_counts() == {"no cpu": 2, "no memory": 1, "no port": 1}
    assert found.fit_error_message() == "0/3 nodes are available: 1 no memory, 1 no port, 2 no cpu."


def test_refusal_of_prefilter_is_the_whole_reason():
    status = Status(Code.UNRESOLVABLE, ("1 of the 2 pods exist",), "GangScheduling")
    found = FilterResult(CycleState(), status, np.zeros(4, np.bool_), no_refusals(4))
    assert found.fit_error_message() == "0/4 nodes are available: 1 of the 2 pods exist."


def test_nodes_excluded_by_prefilters_name_these_plugins():
    found = scan([-1, -1, 0], verdict(("no cpu", [False, False, True])), outside=[True, True, False])
    reason = NOT_NARROWED.format(plugins="A, B")
    assert found.reason_counts() == {"no cpu": 1, reason: 2}
    assert found.reasons_at(0) == (reason,)
    assert found.code_at(0) is Code.UNRESOLVABLE
    assert found.reasons_at(2) == ("no cpu",)


def test_no_plugin_refuses_a_node_before_the_filters_run():
    assert no_refusals(3).tolist() == [-1, -1, -1]


@pytest.mark.parametrize("status", [SUCCESS, Status(Code.UNSCHEDULABLE), Status(Code.UNRESOLVABLE)])
@pytest.mark.parametrize("outside", [None, [False, False, True, True]])
def test_preemption_may_help_on_nodes_refused_as_unschedulable(status, outside):
    first = Verdict(("a",), np.array([[True, True, True, False]]), np.array([True, False, False, True]))
    second = Verdict(("b",), np.array([[True, False, False, True]]), np.array([False, False, False, True]))
    found = replace(scan([0, 0, 0, 1], first, second, outside=outside), status=status)
    assert found.nodes_where_preemption_may_help() == [
        at for at in range(4) if found.code_at(at) is Code.UNSCHEDULABLE
    ]


def test_a_node_excluded_by_one_of_two_restrictions_stays_excluded():
    found = scan([-1, -1, -1]).restricted_to(np.array([False, True, True]))
    found = found.restricted_to(np.array([True, False, True]))
    assert found.fits.tolist() == [False, False, True]
    assert [found.code_at(at) for at in range(3)] == [Code.UNRESOLVABLE, Code.UNRESOLVABLE, Code.SUCCESS]


def test_a_node_without_its_exclusion_is_feasible_unless_a_filter_refuses_it():
    first, second = verdict(("no cpu", [True, False, False])), verdict(("no port", [False, True, False]))
    found = scan([-1, -1, -1], first, second, outside=[True, True, True])
    open_again = [found.without_prefilter_exclusion(at) for at in range(3)]
    assert [bool(one.fits[at]) for at, one in enumerate(open_again)] == [False, False, True]
    assert [one.reasons_at(at) for at, one in enumerate(open_again)] == [("no cpu",), ("no port",), ()]
