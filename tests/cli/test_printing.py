import pytest

from batchsched.api.decision import (
    Assignment,
    Decision,
    Eviction,
    Nomination,
    Refusal,
    Reservation,
    SetAside,
    SolverAccount,
    TierObjective,
    WaitingAtPermit,
)
from batchsched.api.snapshot import Snapshot
from batchsched.cli.options import OutputFormat
from batchsched.cli.printing import (
    add_row,
    console,
    format_duration,
    format_pod_counts_by_node,
    new_table,
    print_aligned,
    print_decision,
)
from batchsched.cli.session import DecidedSession
from batchsched.config.schema import Profile
from batchsched.record.external_answers import NO_ANSWERS

REFUSAL = Refusal(
    pod_group="a/refused",
    reason="InsufficientResources",
    message="the message",
    missing={"nvidia.com/gpu": 16, "memory": 2**36},
    relaxation="two more nodes",
)
EVERYTHING = Decision(
    assignments=tuple(Assignment(namespace="a", pod=f"alone-{at}", node=f"n{at}") for at in range(3)),
    evictions=(Eviction(namespace="b", pod="victim", pod_group="b/v", for_="a/g", reason="Reclaimed"),),
    refusals=(REFUSAL,),
    reservations=(Reservation(pod_group="a/head", start="2026-01-01T03:00:00Z"),),
    nominations=(Nomination(namespace="a", pod="soon", node="n7"),),
    waiting=(WaitingAtPermit(pod_group="a/held", plugin="Quota", until="2026-01-01T00:10:00Z"),),
    set_aside=(SetAside(file="f.yaml", object="Pod a/x", field="spec.priority", message="too large"),),
    solver=SolverAccount(tiers=(TierObjective(share="all", priority=0, objective=1, bound=1),), guard=True),
)


def printed(decision, capsys, output=OutputFormat.TABLE, *, headers=True):
    print_decision(
        DecidedSession(Snapshot(), Profile(), 0.0, 0, decision, NO_ANSWERS), output, headers=headers
    )
    return capsys.readouterr()


def test_every_part_of_a_decision_has_its_line(capsys):
    shown = printed(EVERYTHING, capsys)
    rows = [line.split(None, 3) for line in shown.out.splitlines()]
    assert rows[0] == ["NAME", "RESULT", "REASON", "MESSAGE"]
    assert rows[1] == ["a/alone-0", "Placed", "<none>", "1 pod: n0"]
    assert rows[4:] == [
        ["a/held", "Waiting", "Quota", "held at Permit until 2026-01-01T00:10:00Z"],
        [
            "a/refused",
            "Refused",
            "InsufficientResources",
            "the message; would help (not verified): two more nodes",
        ],
        ["b/victim", "Evicted", "Reclaimed", "for a/g"],
        ["a/soon", "Nominated", "<none>", "waits for node n7"],
        ["a/head", "Reserved", "<none>", "starts at 2026-01-01T03:00:00Z at the earliest"],
        ["pod/a/x", "SetAside", "spec.priority", "too large"],
    ]
    assert "3 placed (3 pods), 1 waiting, 1 refused, 1 set aside; 0 nodes" in shown.err
    assert "proved optimal; the wall-clock guard fired" in shown.err


def test_wide_table_has_columns_for_what_is_missing_and_what_would_help(capsys):
    head, *rows = printed(EVERYTHING, capsys, OutputFormat.WIDE).out.splitlines()
    assert [title for title in head.split("   ") if title][-1].strip() == "MESSAGE"
    assert "MISSING" in head
    assert "WOULD HELP" in head
    refused = next(row for row in rows if row.startswith("a/refused"))
    assert "16 nvidia.com/gpu, 64Gi memory   two more nodes   the message" in refused


def test_headings_can_be_left_out(capsys):
    assert printed(EVERYTHING, capsys, headers=False).out.startswith("a/alone-0 ")


def test_names_of_gangs_and_pods_are_printed_as_kubectl_does(capsys):
    assert printed(EVERYTHING, capsys, OutputFormat.NAME).out.split() == [
        "pod/a/alone-0",
        "pod/a/alone-1",
        "pod/a/alone-2",
        "pod/a/held",
        "pod/a/refused",
    ]


def test_decision_about_nothing_prints_the_summary_alone(capsys):
    shown = printed(Decision(), capsys)
    assert shown.out == ""
    assert shown.err.splitlines()[0] == "PodGroups: 0 placed (0 pods), 0 refused; 0 nodes"


def test_message_of_several_lines_stays_one_line(capsys):
    refusal = Refusal(pod_group="a/b", reason="PluginError", message="first\nsecond")
    assert len(printed(Decision(refusals=(refusal,)), capsys).out.splitlines()) == 2


def test_nodes_are_counted_and_cut():
    assert format_pod_counts_by_node([("p", "n1"), ("q", "n1"), ("r", "n2")]) == "n1 ×2, n2"
    assert format_pod_counts_by_node([(f"p{at}", f"n{at}") for at in range(9)], most=2) == "n0, n1 and 7 more"


def test_columns_are_aligned_and_lines_end_without_spaces(capsys):
    print_aligned([["NAME", "AGE"], ["bert", "5m"], ["a", ""]], indent=" ")
    assert capsys.readouterr().out == " NAME   AGE\n bert   5m\n a\n"


def test_table_outside_a_terminal_is_neither_wrapped_nor_padded_at_line_ends(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS")
    made = new_table("Plugins", "Plugin", "Calls")
    add_row(made, "x" * 200, "1")
    add_row(made, "y", "")
    console().print(made)
    lines = capsys.readouterr().out.splitlines()
    assert any("x" * 200 in line for line in lines)
    assert [line for line in lines if line != line.rstrip()] == []


@pytest.mark.parametrize(
    "passed, written",
    [
        (-5, "<invalid>"),
        (-0.5, "0s"),
        (1, "1s"),
        (70, "70s"),
        (190, "3m10s"),
        (600, "10m"),
        (47 * 60, "47m"),
        (4 * 3600 + 33 * 60, "4h33m"),
        (25 * 3600, "25h"),
        (5 * 86_400 + 4 * 3600, "5d4h"),
        (30 * 86_400, "30d"),
        (3 * 365 * 86_400 + 86_400, "3y1d"),
        (20 * 365 * 86_400, "20y"),
    ],
)
def test_spans_are_as_coarse_as_those_of_kubectl(passed, written):
    assert format_duration(passed) == written
