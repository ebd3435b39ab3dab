"""The last refusal of each gang, published no more often than users can read."""

from itertools import pairwise
from typing import Any

import pytest

from batchsched.api.decision import Decision, Refusal, Reservation, WaitingAtPermit
from batchsched.controllers.refusal_history import (
    ARRIVING_SECONDS,
    KEEP_SECONDS,
    MAX_KEEP_SECONDS,
    GangStatusRecords,
    failed_scheduling_message,
)

GANG = "team/bert"


def refusal(message: str = "2 cpu short", reason: str = "InsufficientResources", **more: Any) -> Refusal:
    return Refusal(pod_group=GANG, reason=reason, message=message, **more)


@pytest.fixture
def verdicts():
    return GangStatusRecords()


def hear(
    verdicts: GangStatusRecords, *refusals: Refusal, now: float = 0.0, surplus: bool = False, **more: Any
) -> set[str]:
    return verdicts.record_decision(
        Decision(refusals=refusals, **more), "batchsched", {GANG}, {GANG: ""} if surplus else {}, 3, now
    )


def test_first_refusal_is_published_at_once(verdicts):
    assert hear(verdicts, refusal()) == {GANG}
    assert (
        verdicts.status_record_of(GANG).message == "0/3 nodes are available: PodGroup team/bert: 2 cpu short."
    )


def test_repeated_refusal_is_not_published(verdicts):
    hear(verdicts, refusal())
    assert hear(verdicts, refusal(), now=1000.0) == set()


@pytest.mark.parametrize("reason", ["NotEnoughPods", "PodGroupNotFound"])
def test_refusal_of_an_incomplete_gang_is_published_later(verdicts, reason):
    assert hear(verdicts, refusal("1 of 3", reason)) == set()
    assert hear(verdicts, refusal("2 of 3", reason), now=1.0) == set()
    assert verdicts.publish_due_refusals(3, ARRIVING_SECONDS) == {GANG}
    assert "2 of 3" in verdicts.status_record_of(GANG).message


def test_first_refusal_of_a_gang_that_is_complete_by_now_is_published_at_once(verdicts):
    hear(verdicts, refusal("1 of 3", "NotEnoughPods"))
    assert hear(verdicts, refusal(), now=1.0) == {GANG}


def test_message_with_another_count_is_published_with_a_delay(verdicts):
    hear(verdicts, refusal())
    assert hear(verdicts, refusal("1 cpu short"), now=1.0) == set()
    assert "2 cpu" in verdicts.status_record_of(GANG).message
    assert verdicts.publish_due_refusals(3, 1.0 + KEEP_SECONDS) == {GANG}
    assert "1 cpu" in verdicts.status_record_of(GANG).message


def test_message_that_always_changes_is_published_less_and_less_often(verdicts):
    told = [second for second in range(3600) if hear(verdicts, refusal(f"{second} short"), now=float(second))]
    assert len(told) < 20
    pauses = [after - before for before, after in pairwise(told)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == MAX_KEEP_SECONDS


def test_another_reason_is_published_soon(verdicts):
    hear(verdicts, refusal())
    assert hear(verdicts, refusal("limit reached", "QueueLimit"), now=KEEP_SECONDS / 10) == {GANG}


def explained(message: str = "2 cpu short; team/gpt runs there") -> Refusal:
    return refusal(message, verified=True)


def test_verified_text_replaces_the_estimate_soon(verdicts):
    hear(verdicts, refusal())
    assert verdicts.record_explanation(refusal(), explained(), 3, KEEP_SECONDS / 20) == set()
    assert verdicts.publish_due_refusals(3, KEEP_SECONDS / 10) == {GANG}
    assert "team/gpt runs there" in verdicts.status_record_of(GANG).message


def test_estimate_of_the_next_session_does_not_replace_a_verified_text_before_it_is_verified_too(verdicts):
    hear(verdicts, refusal())
    verdicts.record_explanation(refusal(), explained(), 3, 1.0)
    assert hear(verdicts, refusal("3 cpu short"), now=2.0) == set()
    verdicts.record_explanation(refusal("3 cpu short"), explained(), 3, 4.0)
    assert verdicts.publish_due_refusals(3, 2 * MAX_KEEP_SECONDS) == set()


def test_explanation_of_an_earlier_refusal_is_not_published(verdicts):
    hear(verdicts, refusal())
    hear(verdicts, refusal("limit reached", "QueueLimit"), now=1.0)
    assert verdicts.record_explanation(refusal(), explained(), 3, 100.0) == set()
    assert hear(verdicts, now=101.0) == {GANG}
    assert verdicts.record_explanation(refusal("limit reached", "QueueLimit"), explained(), 3, 102.0) == set()
    assert verdicts.status_record_of(GANG).refusal is None


def test_two_alternating_reasons_are_not_published_every_time(verdicts):
    told = 0
    for second in range(600):
        reason = ("QueueLimit", "InsufficientResources")[second % 2]
        told += bool(hear(verdicts, refusal("x", reason), now=float(second)))
    assert told < 40


def test_refusal_is_cleared_if_a_later_session_does_not_refuse_the_gang(verdicts):
    hear(verdicts, refusal(), reservations=(Reservation(pod_group=GANG, start="2026-01-01T00:00:00Z"),))
    assert verdicts.status_record_of(GANG).start
    assert hear(verdicts) == {GANG}
    known = verdicts.status_record_of(GANG)
    assert (known.refusal, known.message, known.start) == (None, "", "")


def test_surplus_pods_are_reported_as_without_room(verdicts):
    hear(verdicts, surplus=True)
    assert "no room for more" in verdicts.status_record_of(GANG).message


def test_refusal_of_a_gang_is_cleared_only_by_its_own_profile(verdicts):
    waiting = WaitingAtPermit(pod_group=GANG, plugin="Quota", until="2026-01-01T00:00:00Z")
    assert hear(verdicts, waiting=(waiting,)) == {GANG}
    assert verdicts.record_decision(Decision(), "other", (), {}, 3, 0.0) == set()
    assert verdicts.status_record_of(GANG).waiting == waiting
    assert hear(verdicts) == {GANG}
    assert verdicts.status_record_of(GANG).waiting is None


def test_reserved_start_of_a_gang_is_published(verdicts):
    hear(verdicts, refusal())
    kept = (Reservation(pod_group=GANG, start="2026-01-01T00:00:00Z"),)
    assert hear(verdicts, refusal(), now=1.0, reservations=kept) == {GANG}
    assert verdicts.status_record_of(GANG).start == "2026-01-01T00:00:00Z"


def test_message_of_kube_scheduler_is_unchanged():
    assert failed_scheduling_message(refusal("0/3 nodes are available: 3 Insufficient cpu."), 3).startswith(
        "0/3"
    )
    assert failed_scheduling_message(refusal(), 0) == "no nodes available to schedule pods"


def test_message_contains_the_relaxation():
    said = failed_scheduling_message(refusal("2 cpu short.", relaxation="1 more node"), 3)
    assert said.endswith("2 cpu short; would help (not verified): 1 more node.")
