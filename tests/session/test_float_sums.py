"""Sums of floats: `sum` rounds them differently since Python 3.12, so nothing in a decision may come from it."""

import builtins
import math
import sys
from collections.abc import Iterable
from typing import Any

import pytest

from batchsched.config.extenders import parse_duration
from batchsched.config.schema import Profile
from tests.session.clusters import random_cluster
from tests.session.scenario import cluster, gang, nodes, profile, schedule

UNEVEN = [0.1] * 10
"""`sum` returns 0.9999999999999999 before Python 3.12, and 1.0 from then on."""


@pytest.fixture
def sum_of_integers_only(monkeypatch: pytest.MonkeyPatch):
    """Make `sum` raise an exception if a module of batchsched adds floats with it."""
    add = builtins.sum

    def strict(values: Iterable[Any], start: Any = 0) -> Any:
        items = list(values)
        if "batchsched" in sys._getframe(1).f_globals.get("__name__", ""):
            assert not any(isinstance(item, float) for item in items)
        return add(items, start)

    monkeypatch.setattr(builtins, "sum", strict)


@pytest.mark.parametrize(
    "way",
    [profile(), profile(selection="ordered"), profile(backfill="easy")],
    ids=["joint", "ordered", "easy"],
)
@pytest.mark.usefixtures("sum_of_integers_only")
def test_no_float_of_a_decision_depends_on_how_a_python_version_adds(way: Profile):
    for seed in range(6):
        schedule(random_cluster(seed), way)


@pytest.mark.usefixtures("sum_of_integers_only")
def test_weight_of_a_gang_of_pods_with_uneven_shares_is_added_exactly():
    some = cluster(nodes(3, gpu=10, cpu="10"), gang("a", 10, requests={"gpu": 1, "cpu": "300m"}))
    tier = schedule(some).solver.tiers[0]
    assert tier.objective == tier.bound


@pytest.mark.usefixtures("sum_of_integers_only")
def test_duration_of_several_parts_is_added_exactly():
    assert parse_duration("100ms" * 10) == math.fsum(UNEVEN)
