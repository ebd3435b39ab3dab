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
    TierAccount,
    Waiting,
)
from batchsched.api.snapshot import Snapshot
from batchsched.cli.printing import MAX_ROWS, format_duration, nodes_text, print_aligned, print_decision
from batchsched.cli.session import DecidedSession
from batchsched.config.schema import Profile
from batchsched.record.answers import NO_ANSWERS

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
    waiting=(Waiting(pod_group="a/held", plugin="Quota", until="2026-01-01T00:10:00Z"),),
    set_aside=(SetAside(file="f.yaml", object="Pod a/x", field="spec.priority", message="too large"),),
    solver=SolverAccount(tiers=(TierAccount(share="all", priority=0, objective=1, bound=1),), guard=True),
)


def printed(decision, capsys):
    print_decision(DecidedSession(Snapshot(), Profile(), 0.0, 0, decision, NO_ANSWERS))
    return capsys.readouterr().out


def test_every_part_of_a_decision_has_its_table(capsys):
    out = printed(EVERYTHING, capsys)
    for title in ("Placed", "Waiting at Permit", "Refused", "Evicted", "Nominated", "Reserved", "Set aside"):
        assert title in out
    for word in (
        "a/alone-0",
        "b/victim",
        "Reclaimed",
        "a/soon",
        "n7",
        "a/head",
        "Quota",
        "spec.priority",
        "two more nodes",
    ):
        assert word in out
    assert "missing: 16 nvidia.com/gpu, 64Gi memory" in out
    assert "3 placed (3 pods), 1 waiting, 1 refused, 1 set aside; 0 nodes" in out
    assert "1 tier, 0.00% from the bound; the wall-clock guard fired" in out


def test_empty_parts_of_a_decision_have_no_table(capsys):
    out = printed(Decision(), capsys)
    assert out.splitlines()[0] == "PodGroups: 0 placed (0 pods), 0 refused; 0 nodes"


def test_long_tables_are_cut_and_say_so(capsys):
    many = tuple(Assignment(namespace="a", pod=f"p{at}", node="n") for at in range(MAX_ROWS + 5))
    assert "and 5 more" in printed(Decision(assignments=many), capsys)


def test_nodes_are_counted_and_cut():
    assert nodes_text([("p", "n1"), ("q", "n1"), ("r", "n2")]) == "n1 ×2, n2"
    assert nodes_text([(f"p{at}", f"n{at}") for at in range(9)], most=2) == "n0, n1 and 7 more"


def test_columns_are_aligned_and_lines_end_without_spaces(capsys):
    print_aligned([["NAME", "AGE"], ["bert", "5m"], ["a", ""]], indent=" ")
    assert capsys.readouterr().out == " NAME   AGE\n bert   5m\n a\n"


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
