"""The bench of topology-aware workloads."""

import pytest

from bench.topology_aware import main

SMALL = ["--workload", "750 gangs of 4", "--repeat", "1"]


def test_every_gang_gets_nodes_of_one_rack(capsys):
    assert main([*SMALL, "--nodes", "500"]) == 0
    row = capsys.readouterr().out.splitlines()[1].split()
    assert row[:5] == ["750", "gangs", "of", "4", "3000"]


def test_gang_without_a_place_fails_the_bench():
    assert main([*SMALL, "--nodes", "50"]) == 1


def test_a_run_without_nodes_or_repetitions_is_refused(capsys):
    for option in ("--nodes", "--repeat"):
        with pytest.raises(SystemExit, match="2"):
            main([*SMALL, option, "0"])
        assert "expected 1 or more" in capsys.readouterr().err
