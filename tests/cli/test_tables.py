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
from batchsched.cli.explanation import Explanation, State, print_explanation
from batchsched.cli.session import DecidedSession
from batchsched.cli.tables import MOST_ROWS, nodes_of, print_decision
from batchsched.config.schema import Profile
from batchsched.record.answers import NO_ANSWERS
from batchsched.session.refusals.feasibility import (
    DomainFeasibility,
    GangFeasibility,
    LevelFeasibility,
    PartFeasibility,
)

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


def test_parts_that_are_empty_have_none(capsys):
    out = printed(Decision(), capsys)
    assert out.splitlines()[0] == "PodGroups: 0 placed (0 pods), 0 refused; 0 nodes"


def test_long_tables_are_cut_and_say_so(capsys):
    many = tuple(Assignment(namespace="a", pod=f"p{at}", node="n") for at in range(MOST_ROWS + 5))
    assert "and 5 more" in printed(Decision(assignments=many), capsys)


def test_nodes_are_counted_and_cut():
    assert nodes_of([("p", "n1"), ("q", "n1"), ("r", "n2")]) == "n1 ×2, n2"
    assert nodes_of([(f"p{at}", f"n{at}") for at in range(9)], most=2) == "n0, n1 and 7 more"


@pytest.mark.parametrize(
    "found, headline",
    [
        (Explanation(pod_group="a/g", state=State.EMPTY), "PodGroup a/g: it has no pods"),
        (Explanation(pod_group="a/g", state=State.BOUND), "PodGroup a/g: no pod is pending"),
        (Explanation(pod_group="a/g", state=State.PLACED), "PodGroup a/g: placed, 0 pods"),
        (
            Explanation(pod_group="a/g", state=State.WAITING, waiting=EVERYTHING.waiting[0]),
            "PodGroup a/g: held at Permit by Quota until 2026-01-01T00:10:00Z",
        ),
        (
            Explanation(pod_group="a/g", state=State.REFUSED, refusal=REFUSAL),
            "PodGroup a/g: refused, InsufficientResources",
        ),
    ],
)
def test_explanation_begins_with_what_became_of_the_gang(found, headline, capsys):
    print_explanation(found)
    assert capsys.readouterr().out.splitlines()[0] == headline


def test_explanation_of_a_refusal_says_what_is_missing_and_what_would_help(capsys):
    print_explanation(Explanation(pod_group="a/g", state=State.REFUSED, refusal=REFUSAL))
    out = capsys.readouterr().out
    assert "missing:      16 nvidia.com/gpu, 64Gi memory" in out
    assert "would help:   two more nodes" in out


def test_many_domains_are_cut_and_say_so(capsys):
    domains = tuple(DomainFeasibility(value=f"r{at}", nodes=1, open_nodes=1, room=9 - at) for at in range(10))
    part = PartFeasibility(
        sub_group="workers",
        members=3,
        requests={},
        nodes=10,
        open_nodes=10,
        room=45,
        reasons={"too small": 2},
        levels=(LevelFeasibility(level="rack", domains=domains),),
    )
    view = GangFeasibility(pod_group="a/g", min_member=3, bound=0, pending=3, parts=(part,))
    print_explanation(Explanation(pod_group="a/g", state=State.EMPTY, outlook=view))
    out = capsys.readouterr().out
    assert "subGroup workers: 3 members of no request" in out
    assert "  2 nodes: too small" in out
    assert "and 2 more" in out
