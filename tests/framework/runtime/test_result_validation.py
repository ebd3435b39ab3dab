"""Answers are taken as they are where they mean something, and are breakage with a name where they do not."""

from typing import Any, ClassVar

import numpy as np
import pytest

from batchsched.errors import PluginError
from batchsched.framework import interface as points
from batchsched.framework.constrain import EVERY_NODE, CandidateSet, ConstraintRow
from batchsched.framework.runtime import result_validation as answers
from batchsched.framework.status import SUCCESS, Code, PermitAnswer, PreFilterAnswer, Status, Verdict


class Odd:
    name: ClassVar[str] = "Odd"


ODD = Odd()


def test_every_point_is_a_method_of_its_protocol():
    for name, point in answers.POINTS.items():
        protocol = points.ReservePlugin if name == "Unreserve" else getattr(points, f"{name}Plugin")
        assert callable(getattr(protocol, point.method))


@pytest.mark.parametrize("point", [name for name, point in answers.POINTS.items() if point.codes])
def test_codes_of_a_point_are_accepted_and_others_refused(point):
    known = answers.POINTS[point].codes
    for code in Code:
        if code in known:
            assert answers.checked_status(ODD, point, Status(code)).code is code
        else:
            with pytest.raises(PluginError, match=f"plugin Odd failed in {point}: expected one of Success"):
                answers.checked_status(ODD, point, Status(code))


def test_long_invalid_answer_is_shortened_in_the_message():
    with pytest.raises(PluginError) as caught:
        answers.checked_status(ODD, "Reserve", "x" * 1000)
    assert len(str(caught.value)) < 130


def test_valid_answers_are_returned_unchanged():
    narrow = PreFilterAnswer(nodes=frozenset({"n0", "n9"}))
    assert answers.checked_prefilter_answer(ODD, narrow) is narrow
    verdict = Verdict.accept(3)
    assert answers.checked_verdict(ODD, verdict, 3) is verdict
    assert answers.checked_scores(ODD, "Score", [1, 2], 2).tolist() == [1, 2]
    assert answers.checked_scores(ODD, "Score", [], 0).tolist() == []
    assert answers.checked_raw_scores(ODD, [-5, 700], 2).tolist() == [-5, 700]
    assert answers.checked_selector_label_keys(ODD, {"a"}) == frozenset({"a"})
    assert answers.checked_bool(ODD, "Filter", np.True_) is True


@pytest.mark.parametrize(
    "wrong",
    [
        np.array([-1]),
        np.array([101]),
        np.array([-1], np.int8),
        np.array([200], np.uint8),
        np.array([2**64 - 1], np.uint64),
        np.array([1.0]),
        np.array([True]),
    ],
    ids=["below", "above", "below in a byte", "above in a byte", "huge", "a fraction", "a truth"],
)
def test_scores_are_whole_numbers_from_0_to_100_in_every_width(wrong):
    with pytest.raises(PluginError, match="expected 1 whole numbers from 0 to 100"):
        answers.checked_scores(ODD, "Score", wrong, 1)


def test_scores_of_every_width_are_converted_to_int64():
    for width in (np.int8, np.uint8, np.int64, np.uint64, ">i4"):
        found = answers.checked_scores(ODD, "Score", np.array([0, 100], width), 2)
        assert found.tolist() == [0, 100]
        assert found.dtype == np.int64


def test_answer_of_permit_has_the_name_of_its_plugin():
    answer = answers.checked_permit_answer(ODD, PermitAnswer(SUCCESS, 3))
    assert (answer.status.plugin, answer.timeout_seconds) == ("Odd", 3)


@pytest.mark.parametrize("shapes", [((1, 2), 3), ((1, 3), 2), ((1, 3), 4), ((2, 3), 3), ((3,), 3)])
def test_a_verdict_needs_a_row_for_each_reason_and_a_column_for_each_node(shapes):
    refused, unresolvable = (np.zeros(shape, np.bool_) for shape in shapes)
    with pytest.raises(PluginError, match="expected a Verdict over 3 nodes"):
        answers.checked_verdict(ODD, Verdict(("too small",), refused, unresolvable), 3)


@pytest.mark.parametrize("answer", [None, 1, np.array([True, False])])
def test_value_that_is_not_a_boolean_is_refused(answer):
    with pytest.raises(PluginError, match="expected True or False"):
        answers.checked_bool(ODD, "Filter", answer)


def test_sort_by_keys_is_stable_and_refuses_keys_without_an_order():
    assert answers.indexes_sorted_by_queue_sort_key(ODD, [3, 1, 2, 1]) == [1, 3, 2, 0]
    for keys in ([None], [1, "a"], [object()]):
        with pytest.raises(PluginError, match="plugin Odd failed in QueueSort: TypeError"):
            answers.indexes_sorted_by_queue_sort_key(ODD, keys)


def test_rows_may_be_a_tuple_or_a_list_and_must_fit_the_nodes():
    def one(**said: Any) -> ConstraintRow:
        usual: dict[str, Any] = {"partition": EVERY_NODE, "right": np.ones(3, np.int64)}
        empty = np.zeros(0, np.int32)
        return ConstraintRow(**(usual | {"classes": empty, "coefficients": empty.astype(np.int64)} | said))

    fitting = one()
    assert answers.checked_constraint_rows(ODD, [fitting], CandidateSet(()), 3) == (fitting,)
    for wrong in (one(right=np.ones(2, np.int64)), one(classes=np.array([4])), one(right=None)):
        with pytest.raises(PluginError, match="plugin Odd failed in Constrain"):
            answers.checked_constraint_rows(ODD, (wrong,), CandidateSet(()), 3)
