"""The bench of the cache runs, small."""

import pytest

from bench.cache import main


def test_cache_bench_prints_the_cost_of_an_event(capsys: pytest.CaptureFixture[str]):
    assert main(["--nodes", "10", "--pods", "250"]) == 0
    told = capsys.readouterr().out
    for what in ("MiB", "pod changes: event", "pod comes: event", "node comes: event", "assume"):
        assert what in told
