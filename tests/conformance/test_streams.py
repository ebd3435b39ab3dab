"""Thousands of pods, one after the other, end where kube-scheduler 1.36 was recorded to put them."""

import pytest

from tests.conformance import runner, streams


@pytest.mark.parametrize("name", ["plain", "mixed"])
def test_every_arrival_is_answered_as_recorded(name):
    stream = streams.read(runner.CASES / "streams" / f"{name}.json.gz")
    assert len(stream.arrivals) == len(stream.expected) >= 2000
    assert next(streams.mismatches(stream), None) is None
