"""The journal tells what changed since a generation, and says when that is too long ago."""

from batchsched.state.change_log import Change, ChangeLog
from tests.state.objects import node, pod


def test_changes_of_one_object_are_told_as_one():
    journal = ChangeLog()
    first, second = pod("a"), pod("a", on="n0")
    journal.note(Change("pods", "team/a", None, first))
    journal.note(Change("nodes", "n0", None, node("n0")))
    journal.note(Change("pods", "team/a", first, second))
    told = journal.since(0)
    assert told is not None
    assert [(one.key, one.before) for one in told] == [("team/a", None), ("n0", None)]
    assert told[0].after is second
    later = journal.since(2)
    assert later is not None
    assert [(one.before, one.after) for one in later] == [(first, second)]
    assert journal.since(3) == ()


def test_what_came_and_went_is_not_told():
    journal = ChangeLog()
    one = pod("a")
    journal.note(Change("pods", "team/a", None, one))
    journal.note(Change("pods", "team/a", one, None))
    assert journal.since(0) == ()


def test_who_is_too_far_behind_or_ahead_is_told_so():
    journal = ChangeLog(2)
    for at in range(3):
        journal.note(Change("pods", f"team/{at}", None, pod(str(at))))
    assert journal.since(0) is None
    assert len(journal.since(1) or ()) == 2
    assert journal.since(4) is None


def test_change_names_the_nodes_that_it_concerns():
    assert Change("nodes", "n0", None, node("n0")).nodes == ("n0",)
    assert Change("pods", "team/a", pod("a"), pod("a", on="n1")).nodes == ("n1",)
    assert Change("pods", "team/a", pod("a", on="n0"), pod("a", on="n1")).nodes == ("n0", "n1")
    assert Change("queues", "q", None, object()).nodes == ()
