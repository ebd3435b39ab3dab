import pytest

from batchsched.scheduling_queue.backoff import BackoffPolicy, BackoffQueue
from batchsched.scheduling_queue.entity import Entity, Rejection


def failed(name: str, queued: float, refusals: int = 0, errors: int = 0) -> Entity:
    rejection = Rejection() if errors else Rejection.by("P")
    return Entity(name, 0, queued, refusals=refusals, errors=errors, rejection=rejection)


@pytest.mark.parametrize(
    "failures, seconds", [(0, 0), (1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (6, 10), (2000, 10)]
)
def test_it_doubles_up_to_ten_seconds(failures, seconds):
    assert BackoffPolicy().duration(failures) == seconds


def test_after_an_error_only_errors_count():
    assert BackoffPolicy().until(failed("a", 100.0, refusals=5)) == 110.0
    assert BackoffPolicy().until(failed("a", 100.0, refusals=5, errors=1)) == 101.0


def test_a_wait_lasts_through_the_second_in_which_it_ends():
    entity = failed("a", 100.4, refusals=1)
    lasts = [BackoffPolicy().lasts(entity, now) for now in (100.4, 101.4, 101.9, 102.0)]
    assert lasts == [True, True, True, False]


def test_who_never_failed_does_not_wait_and_nobody_does_without_backoff():
    assert not BackoffPolicy().lasts(failed("a", 100.0), 100.0)
    assert not BackoffPolicy(1.0, 0.0).lasts(failed("a", 100.0, refusals=3), 100.0)


def test_within_one_second_the_order_of_the_active_queue_holds():
    queue = BackoffQueue(BackoffPolicy())
    early, late = failed("early", 0.1, refusals=1), failed("late", 0.9, refusals=1)
    queue.put(early, 2)
    queue.put(late, 1)
    assert queue.first() is late


def test_those_whose_wait_is_over_come_out_the_first_to_end_first():
    queue = BackoffQueue(BackoffPolicy())
    for name, queued, refusals, errors in (
        ("b", 1.0, 1, 0),
        ("a", 0.0, 1, 0),
        ("e", 0.0, 0, 1),
        ("z", 0.0, 4, 0),
    ):
        queue.put(failed(name, queued, refusals, errors), 0)
    assert [one.identity for one in queue.completed(5.0)] == ["a", "b", "e"]
    assert [one.identity for one in queue.entities()] == ["z"]
