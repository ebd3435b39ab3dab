import pytest

from batchsched.lab.conclusion import trade_off_sentence
from batchsched.lab.measures import BY_KEY, SummaryRow

POLICIES = ("FIFO", "SJF")


def row(key, *means):
    return SummaryRow(BY_KEY[key], means)


def test_sentence_states_gains_and_costs_with_the_figures_of_the_table():
    rows = (
        row("meanWait", 7200.0, 600.0),
        row("worstSlowdown", 10.0, 5.0),
        row("worstWait", 3600.0, 7200.0),
        row("utilisation", 0.8, 0.7),
    )
    assert trade_off_sentence(rows, POLICIES, "FIFO", "SJF") == (
        "SJF instead of FIFO improves mean wait (2.0 h → 10.0 min) and worst bounded slowdown (10.00 → 5.00), "
        "at the cost of worst wait (1.0 h → 2.0 h) and used (80.0% → 70.0%)."
    )


@pytest.mark.parametrize(
    "after, ending",
    [
        (600.0, "improves mean wait (2.0 h → 10.0 min), at no cost in the other measures."),
        (72000.0, "improves nothing, at the cost of mean wait (2.0 h → 20.0 h)."),
        (7201.0, "changes no measure by more than 1%."),
        (7200.0, "changes no measure by more than 1%."),
    ],
    ids=["gain", "cost", "noise", "equal"],
)
def test_sentence_says_if_there_is_no_gain_or_no_cost(after, ending):
    rows = (row("meanWait", 7200.0, after), row("makespan", 9000.0, 9000.0))
    assert trade_off_sentence(rows, POLICIES, "FIFO", "SJF") == f"SJF instead of FIFO {ending}"


def test_wait_that_becomes_zero_is_a_gain():
    rows = (row("meanWait", 60.0, 0.0),)
    assert "improves mean wait (1.0 min → 0 s)" in trade_off_sentence(rows, POLICIES, "FIFO", "SJF")
