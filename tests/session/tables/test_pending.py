"""The backlog's columns: gangs come and go, and the order stays that of the policy."""

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from batchsched.queues.gang_order import FcfsOrder, HeadroomOrder
from batchsched.session.tables.gang import GangState, PendingGang
from batchsched.session.tables.pending import PendingGangs
from tests.session.scenario import group, pod


def gang(name: str, needs: int, created: float, members: GangState | None = None) -> PendingGang:
    return PendingGang(
        members=members or GangState(name, None),
        queue="default",
        priority=0,
        created=created,
        estimate=float("nan"),
        need=1,
        parts=(),
        share=0.1,
        needs=np.array([1, needs], np.int64),
    )


def names(backlog: PendingGangs) -> list[str]:
    return [one.identity for one in backlog.order_by_policy(FcfsOrder(), 0.0).members]


@given(seed=st.integers(0, 2**32 - 1))
def test_random_additions_and_removals_lose_and_swap_no_gang(seed: int):
    rng = random.Random(seed)
    backlog = PendingGangs(2)
    there: dict[str, PendingGang] = {}
    seen: set[int] = set()
    for arrival in rng.sample(range(400), 400):
        if there and rng.random() < (0.2 if len(seen) < 200 else 0.9):
            gone = there.pop(rng.choice(sorted(there)))
            backlog.remove_gang(gone.members)
            assert gone.members.slot == -1
        seen.add(arrival)
        one = gang(f"g{arrival:03}", arrival, rng.randrange(50))
        if rng.random() < 0.5:
            backlog.put_gang(one)
            there[one.members.identity] = one
    ordered = sorted(there.values(), key=lambda one: (one.created, one.key))
    line = backlog.order_by_policy(FcfsOrder(), 0.0)
    assert line.members == [one.members for one in ordered]
    assert line.needs.tolist() == [one.needs.tolist() for one in ordered]
    assert len(backlog) == len(there)
    assert backlog.latest_submission_time() == max((one.created for one in there.values()), default=0.0)


def test_changed_gang_replaces_its_earlier_values():
    backlog = PendingGangs(2)
    first, second = gang("a", 0, 10.0), gang("b", 1, 20.0)
    backlog.put_gang(first)
    backlog.put_gang(second)
    backlog.put_gang(gang("a", 0, 30.0, first.members))
    assert names(backlog) == ["b", "a"]
    assert len(backlog) == 2


def test_gangs_of_equal_creation_time_are_sorted_by_name():
    backlog = PendingGangs(2)
    for at, name in enumerate(["team/b", "pod/team/c", "team/a"]):
        backlog.put_gang(gang(name, at, 10.0))
    backlog.put_gang(gang("team/z", 3, 9.0))
    assert names(backlog) == ["team/z", "team/a", "team/b", "pod/team/c"]


def test_dropping_a_gang_twice_changes_nothing():
    backlog = PendingGangs(2)
    one = gang("a", 0, 10.0)
    backlog.put_gang(one)
    backlog.remove_gang(one.members)
    backlog.remove_gang(one.members)
    assert len(backlog) == 0
    assert names(backlog) == []


def test_order_of_some_gangs_is_the_order_of_all_gangs():
    backlog = PendingGangs(2)
    made = [gang(name, at, float(at)) for at, name in enumerate("abc")]
    for one in reversed(made):
        backlog.put_gang(one)
    line = backlog.order_by_policy(FcfsOrder(), 0.0, [made[2].members, made[0].members])
    assert [one.identity for one in line.members] == ["a", "c"]
    assert line.needs[:, 1].tolist() == [0, 2]
    assert backlog.order_by_policy(FcfsOrder(), 0.0, []).members == []


def test_order_has_the_headroom_that_the_policy_requires():
    backlog = PendingGangs(2)
    for at, name in enumerate("ab"):
        backlog.put_gang(gang(name, at, float(at)))
    policy = HeadroomOrder(HeadroomOrder.Args(long_seconds=0, share=0.5))
    assert backlog.order_by_policy(policy, 0.0).room.tolist() == [0.5, 0.5]
    assert backlog.order_by_policy(FcfsOrder(), 0.0).room.tolist() == [0.0, 0.0]


def test_partially_bound_gang_is_ordered_before_pending_ones():
    backlog = PendingGangs(2)
    backlog.put_gang(gang("first", 1, 10.0))
    half = GangState("half", group("half", 2))
    half.bound["team/half-0"] = (pod("half-0", group="half", on="n0"), 0)
    backlog.put_gang(gang("half", 1, 20.0, half))
    assert names(backlog) == ["half", "first"]
