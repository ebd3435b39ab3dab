"""`python -m bench` lists and runs the benches."""

import pytest

from bench.__main__ import main, names


def test_benches_are_listed_with_their_titles(capsys):
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:]] == names()
    assert all(len(line.split()) > 3 for line in lines[2:])


def test_unknown_bench_is_refused_with_the_names(capsys):
    assert main(["solvr"]) == 2
    assert "no bench is called 'solvr'; expected one of: backfill, cache" in capsys.readouterr().err


@pytest.mark.parametrize("name", names())
def test_help_of_a_bench_states_its_command(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert f"usage: python -m bench {name}" in capsys.readouterr().out
