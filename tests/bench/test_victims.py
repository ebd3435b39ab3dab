"""The bench of victims: instances repeat, are as full as they say, and its answers are sound."""

import json

import numpy as np

from bench.victims import main, measure
from bench.victims.instances import FULL, Shape, draw


def test_an_instance_repeats_for_its_seed_and_is_as_full_as_it_says():
    one, same, other = draw(Shape(64, 1, 4)), draw(Shape(64, 1, 4)), draw(Shape(64, 2, 4))
    assert np.array_equal(one.cost, same.cost)
    assert not np.array_equal(one.free, other.free)
    assert (one.free >= 0).all()
    assert one.free[:, 2].sum() <= (1 - FULL) * 8 * 64


def test_a_measurement_is_valid_and_costs_no_more_than_a_greedy():
    found = measure("small", Shape(64, 3, 6))
    assert found.faults == ()
    assert found.bound <= found.cost <= found.greedy <= found.picked


def test_the_bench_writes_json_and_ends_well(capsys, monkeypatch):
    monkeypatch.setattr("bench.victims.CASES", {"tiny": Shape(32, 0, 3)})
    assert main(["--seeds", "2", "--no-small", "-o", "json"]) == 0
    assert [one["seed"] for one in json.loads(capsys.readouterr().out)] == [0, 1]
