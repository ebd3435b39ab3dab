"""Stores are read in the order of keys, and the change log merges changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.crd.podgroup import PodGroupStatus
from batchsched.state import store
from batchsched.state.store import Change, ChangeLog, Store, Tombstones, equal_for_scheduling
from tests.session.scenario import group
from tests.state.objects import ended, node, pod


@given(moves=st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans())))
def test_frozen_objects_are_sorted_by_key(moves: list[tuple[str, bool]]):
    shelf: Store[int] = Store()
    there: dict[str, int] = {}
    for at, (key, put) in enumerate(moves):
        if put:
            shelf.put(key, at)
            there[key] = at
        else:
            assert shelf.pop(key) == there.pop(key, None)
        assert shelf.sorted_objects() == tuple(there[one] for one in sorted(there))
    assert len(shelf) == len(there)
    assert set(shelf) == set(there)


def test_freezing_twice_gives_the_same_tuple():
    shelf: Store[str] = Store()
    shelf.put("a", "x")
    frozen = shelf.sorted_objects()
    assert shelf.sorted_objects() is frozen
    assert shelf.pop("b") is None
    assert shelf.sorted_objects() is frozen


def test_tombstones_contain_deleted_uids_until_they_are_removed():
    gone = Tombstones()
    gone.add("u1")
    gone.add("")
    assert "u1" in gone
    assert "" not in gone
    gone.remove("u1")
    gone.remove("u1")
    assert "u1" not in gone


def test_the_oldest_tombstones_are_dropped(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store, "MAX_TOMBSTONES", 2)
    gone = Tombstones()
    for uid in "abc":
        gone.add(uid)
    assert [uid in gone for uid in "abc"] == [False, True, True]


def test_a_new_resource_version_is_equal_for_scheduling():
    assert equal_for_scheduling(pod("a", 1), pod("a", 2))
    assert equal_for_scheduling(node("n0", 1), node("n0", 2))


def test_changed_spec_status_or_labels_are_not_equal_for_scheduling():
    assert not equal_for_scheduling(pod("a"), pod("a", on="n0"))
    assert not equal_for_scheduling(pod("a"), ended(pod("a")))
    assert not equal_for_scheduling(pod("a"), pod("a", labels={"x": "y"}))
    assert not equal_for_scheduling(node("n0"), node("n0", cpu=1))


def test_custom_resources_differ_by_their_spec_and_not_by_their_status():
    assert equal_for_scheduling(
        group("g"), group("g").model_copy(update={"status": PodGroupStatus(placed=1)})
    )
    assert not equal_for_scheduling(group("g", 1), group("g", 2))


def test_changes_of_one_object_are_merged():
    journal = ChangeLog()
    first, second = pod("a"), pod("a", on="n0")
    journal.record(Change("pods", "team/a", None, first))
    journal.record(Change("nodes", "n0", None, node("n0")))
    journal.record(Change("pods", "team/a", first, second))
    told = journal.changes_since(0)
    assert told is not None
    assert [(one.key, one.before) for one in told] == [("team/a", None), ("n0", None)]
    assert told[0].after is second
    later = journal.changes_since(2)
    assert later is not None
    assert [(one.before, one.after) for one in later] == [(first, second)]
    assert journal.changes_since(3) == ()


def test_addition_and_removal_cancel_out():
    journal = ChangeLog()
    one = pod("a")
    journal.record(Change("pods", "team/a", None, one))
    journal.record(Change("pods", "team/a", one, None))
    assert journal.changes_since(0) == ()


def test_reader_too_far_behind_or_ahead_gets_none():
    journal = ChangeLog(2)
    for at in range(3):
        journal.record(Change("pods", f"team/{at}", None, pod(str(at))))
    assert journal.changes_since(0) is None
    assert len(journal.changes_since(1) or ()) == 2
    assert journal.changes_since(4) is None


def test_change_names_the_nodes_that_it_affects():
    assert Change("nodes", "n0", None, node("n0")).affected_nodes == ("n0",)
    assert Change("pods", "team/a", pod("a"), pod("a", on="n1")).affected_nodes == ("n1",)
    assert Change("pods", "team/a", pod("a", on="n0"), pod("a", on="n1")).affected_nodes == ("n0", "n1")
    assert Change("queues", "q", None, object()).affected_nodes == ()
