"""Answers of plugins."""

import numpy as np
import pytest

from batchsched.framework.status import Code, Status, Verdict


@pytest.mark.parametrize("code", Code)
def test_only_success_and_skip_are_ok(code):
    assert Status(code).ok is (code in (Code.SUCCESS, Code.SKIP))


def test_verdict_has_feasible_nodes_and_the_reasons_of_the_others():
    refused = np.array([[True, False, False], [True, True, False]])
    verdict = Verdict(("one", "two"), refused, np.zeros(3, np.bool_))
    assert verdict.feasible_mask.tolist() == [False, False, True]
    assert verdict.reasons_at(0) == ("one", "two")
    assert verdict.reasons_at(2) == ()


def test_verdict_for_one_reason_is_unresolvable_where_it_refuses():
    marked = np.array([True, False])
    assert Verdict.refuse(marked, "x", unresolvable=True).unresolvable.tolist() == [True, False]
    assert Verdict.refuse(marked, "x", unresolvable=False).unresolvable.tolist() == [False, False]
    assert Verdict.accept(2).feasible_mask.all()
