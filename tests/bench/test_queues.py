"""The bench of queue trees runs, small."""

from bench import queues


def test_a_small_tree_is_scheduled_and_printed(capsys):
    assert queues.main(["--nodes", "32", "--gangs", "10", "--queues", "40"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("seed 0: 40 queues, 10 gangs")
    assert "guarantee" in told
