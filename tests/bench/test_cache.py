"""The bench of the cache runs, small."""

import pytest

from bench.cache import main


def test_bench_of_the_cache_says_what_an_event_costs(capsys: pytest.CaptureFixture[str]):
    assert main(["--nodes", "10", "--pods", "250"]) == 0
    told = capsys.readouterr().out
    for what in ("MiB", "pod changes: event", "pod comes: event", "node comes: event", "assume"):
        assert what in told
