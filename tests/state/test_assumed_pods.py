"""Placed pods are bound versions of those that wait."""

import pytest

from batchsched.state import assumed_pods as assumption
from batchsched.state.assumed_pods import Placements
from tests.state.objects import pod


def test_equal_pods_on_one_node_share_a_spec():
    one = pod("a")
    other = type(one)(metadata=pod("b").metadata, spec=one.spec)
    placements = Placements()
    placed = [placements.place(each, "n0") for each in (one, other)]
    assert placed[0].spec is placed[1].spec
    assert [each.key for each in placed] == ["team/a", "team/b"]
    assert placements.place(one, "n1").node == "n1"


def test_specs_are_remembered_up_to_a_limit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(assumption, "MAX_CACHED_SPECS", 1)
    one, placements = pod("a"), Placements()
    assert [placements.place(one, f"n{at}").node for at in range(3)] == ["n0", "n1", "n2"]
