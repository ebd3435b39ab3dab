"""Thousands of pods, one after the other, end where kube-scheduler was recorded to put them."""

import pytest

from tests.conformance import runner, streams


@pytest.mark.parametrize("version", runner.RECORDINGS)
@pytest.mark.parametrize("name", ["plain", "mixed"])
def test_every_arrival_is_answered_as_recorded(name, version):
    stream = streams.read(runner.RECORDINGS[version] / "streams" / f"{name}.json.gz", version)
    assert len(stream.arrivals) == len(stream.expected) >= 2000
    assert next(streams.mismatches(stream), None) is None
