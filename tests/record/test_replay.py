from msgspec.structs import replace

from batchsched.api.decision import Assignment, Decision, Refusal, SetAside, SolverAccount
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.record.file import Record
from batchsched.record.replay import DecisionDifference, differences, replay


def assigned(**nodes):
    return tuple(Assignment(namespace="a", pod=pod, node=node) for pod, node in nodes.items())


def test_equal_decisions_do_not_differ_whatever_the_clock_said():
    slow = Decision(assignments=assigned(p="n"), solver=SolverAccount(seconds=9.0, stages={"cpsat": 8.0}))
    assert differences(slow, replace(slow, solver=SolverAccount())) == ()


def test_moved_pod_is_named_with_both_nodes():
    found = differences(
        Decision(assignments=assigned(p="n1", q="n2")), Decision(assignments=assigned(p="n1", q="n3"))
    )
    assert found == (DecisionDifference("assignments: a/q", "node: n2", "node: n3"),)


def test_item_on_one_side_only_is_named():
    refusal = Refusal(pod_group="a/g", reason="NoNodes", message="m", missing={"cpu": 1})
    assert differences(Decision(refusals=(refusal,)), Decision()) == (
        DecisionDifference("refusals: a/g", "reason: NoNodes, message: m, missing: cpu: 1", ""),
    )


def test_account_is_compared_field_by_field():
    found = differences(Decision(), Decision(solver=SolverAccount(gap=0.5, guard=True)))
    assert [one.place for one in found] == ["solver.gap", "solver.guard"]


def test_several_items_of_one_name_are_compared_together():
    aside = SetAside(file="f", object="Pod a/p", field="spec", message="one")
    found = differences(
        Decision(set_aside=(aside, replace(aside, message="two"))), Decision(set_aside=(aside,))
    )
    assert found == (
        DecisionDifference("setAside: f/Pod a/p/spec", "message: one; message: two", "message: one"),
    )


def test_order_alone_is_a_difference():
    pods = assigned(p="n1", q="n2")
    (only,) = differences(Decision(assignments=pods), Decision(assignments=pods[::-1]))
    assert only.place == "the order of items"


def test_replay_hands_the_recorded_session_to_decide():
    seen = []

    def decide(snapshot, profile, now, seed, outside):
        seen.append((snapshot, profile, now, seed))
        return Decision()

    record = Record(Snapshot(), Profile(), 5.0, 7, Decision())
    assert replay(record, decide) == ()
    assert seen == [(Snapshot(), Profile(), 5.0, 7)]
