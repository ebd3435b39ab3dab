"""The bench of explanations prints one line for each cluster."""

from bench import explanations


def test_estimates_and_cpu_seconds_are_printed_for_each_cluster(capsys):
    assert explanations.main(["--nodes", "20", "--gangs", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.split()[4] for line in lines] == ["contended", "uncontended", "emptied"]
