"""Stores are read in the order of keys, and readers of changes get one change per object."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from batchsched.api.crd.podgroup import PodGroupStatus
from batchsched.state import store
from batchsched.state.store import (
    ChangeReader,
    ObjectChange,
    SortedObjectStore,
    Tombstones,
    are_equal_for_scheduling,
)
from tests.session.scenario import group
from tests.state.objects import ended, node, pod, with_payload


@given(moves=st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans())))
def test_frozen_objects_are_sorted_by_key(moves: list[tuple[str, bool]]):
    shelf: SortedObjectStore[int] = SortedObjectStore()
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


@given(
    moves=st.lists(st.tuples(st.integers(0, 60), st.booleans()), max_size=12),
    present=st.sets(st.integers(0, 60), min_size=40),
)
def test_a_few_changes_of_many_objects_leave_them_sorted_by_key(
    moves: list[tuple[int, bool]], present: set[int]
):
    shelf: SortedObjectStore[int] = SortedObjectStore()
    there = {f"key-{number}": -number for number in present}
    for key, value in there.items():
        shelf.put(key, value)
    shelf.sorted_objects()
    for at, (number, put) in enumerate(moves):
        key = f"key-{number}"
        if put:
            shelf.put(key, at)
            there[key] = at
        else:
            assert shelf.pop(key) == there.pop(key, None)
        if at % 3 == 0:
            assert shelf.sorted_objects() == tuple(there[one] for one in sorted(there))
    assert shelf.sorted_objects() == tuple(there[one] for one in sorted(there))


def test_an_object_that_is_added_among_thousands_is_found_by_binary_search():
    comparisons = 0

    class Key(str):
        __slots__ = ()

        @override
        def __lt__(self, other: str) -> bool:
            nonlocal comparisons
            comparisons += 1
            return str.__lt__(self, other)

    shelf: SortedObjectStore[int] = SortedObjectStore()
    for number in range(4096):
        shelf.put(Key(f"stream-{number}"), number)
    shelf.sorted_objects()
    comparisons = 0
    shelf.put(Key("stream-10000"), 10_000)
    assert 10_000 in shelf.sorted_objects()
    assert comparisons <= 13


def test_freezing_twice_gives_the_same_tuple():
    shelf: SortedObjectStore[str] = SortedObjectStore()
    shelf.put("a", "x")
    frozen = shelf.sorted_objects()
    assert shelf.sorted_objects() is frozen
    assert shelf.pop("b") is None
    assert shelf.sorted_objects() is frozen


def test_tombstones_contain_deleted_uids_until_they_are_removed():
    gone = Tombstones()
    gone.record_deletion("u1")
    gone.record_deletion("")
    assert "u1" in gone
    assert "" not in gone
    gone.forget_deletion("u1")
    gone.forget_deletion("u1")
    assert "u1" not in gone


def test_the_oldest_tombstones_are_dropped(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store, "MAX_TOMBSTONES", 2)
    gone = Tombstones()
    for uid in "abc":
        gone.record_deletion(uid)
    assert [uid in gone for uid in "abc"] == [False, True, True]


def test_a_new_resource_version_is_equal_for_scheduling():
    assert are_equal_for_scheduling(pod("a", 1), pod("a", 2))
    assert are_equal_for_scheduling(node("n0", 1), node("n0", 2))


def test_changed_spec_status_or_labels_are_not_equal_for_scheduling():
    assert not are_equal_for_scheduling(pod("a"), pod("a", on="n0"))
    assert not are_equal_for_scheduling(pod("a"), ended(pod("a")))
    assert not are_equal_for_scheduling(pod("a"), pod("a", labels={"x": "y"}))
    assert not are_equal_for_scheduling(node("n0"), node("n0", cpu=1))


def test_custom_resources_differ_by_their_spec_and_not_by_their_status():
    assert are_equal_for_scheduling(
        group("g"), group("g").model_copy(update={"status": PodGroupStatus(placed=1)})
    )
    assert not are_equal_for_scheduling(group("g", 1), group("g", 2))


class Shelf:
    """A Store of pods and one of nodes, with readers of their changes."""

    def __init__(self, readers: int = 1, most: int = 100) -> None:
        self.stores: dict[str, SortedObjectStore[Any]] = {
            "pods": SortedObjectStore(),
            "nodes": SortedObjectStore(),
        }
        self.readers = [ChangeReader(self.stores, most) for _ in range(readers)]

    def put(self, field: str, key: str, value: Any) -> None:
        before = self.stores[field].get(key)
        if value is None:
            self.stores[field].pop(key)
        else:
            self.stores[field].put(key, value)
        for reader in self.readers:
            reader.record_change(field, key, before, value)


def changes_of(reader: ChangeReader) -> list[tuple[str, Any, Any]] | None:
    changes = reader.read_changes()
    return None if changes is None else [(change.key, change.before, change.after) for change in changes]


def test_changes_of_one_object_are_merged():
    shelf = Shelf(readers=2)
    eager, lazy = shelf.readers
    first, second, n0 = pod("a"), pod("a", on="n0"), node("n0")
    shelf.put("pods", "team/a", first)
    shelf.put("nodes", "n0", n0)
    assert changes_of(eager) == [("team/a", None, first), ("n0", None, n0)]
    shelf.put("pods", "team/a", second)
    assert changes_of(eager) == [("team/a", first, second)]
    assert changes_of(eager) == []
    assert changes_of(lazy) == [("team/a", None, second), ("n0", None, n0)]


def test_unread_changes_can_be_seen_without_reading_them():
    shelf = Shelf()
    first = pod("a")
    shelf.put("pods", "team/a", first)
    (reader,) = shelf.readers
    assert [change.after for change in reader.unread_changes() or ()] == [first]
    assert changes_of(reader) == [("team/a", None, first)]
    assert reader.unread_changes() == ()


def test_addition_and_removal_cancel_out():
    shelf = Shelf()
    (reader,) = shelf.readers
    first, second = pod("a"), pod("a")
    shelf.put("pods", "team/a", first)
    shelf.put("pods", "team/a", None)
    assert changes_of(reader) == []
    shelf.put("pods", "team/a", first)
    reader.read_changes()
    shelf.put("pods", "team/a", second)
    shelf.put("pods", "team/a", first)
    assert changes_of(reader) == []


def test_object_that_is_deleted_and_created_again_is_one_change():
    shelf = Shelf()
    (reader,) = shelf.readers
    first, second = pod("a", 1, "elder"), pod("a", 2, "younger")
    shelf.put("pods", "team/a", first)
    reader.read_changes()
    shelf.put("pods", "team/a", None)
    shelf.put("pods", "team/a", second)
    assert changes_of(reader) == [("team/a", first, second)]
    shelf.put("pods", "team/a", None)
    assert changes_of(reader) == [("team/a", second, None)]


def test_reader_with_too_many_unread_changes_gets_none_once():
    shelf = Shelf(readers=2, most=2)
    eager, lazy = shelf.readers
    for name in "abc":
        shelf.put("pods", f"team/{name}", pod(name))
        assert len(eager.read_changes() or ()) == 1
    assert lazy.unread_changes() is None
    assert lazy.read_changes() is None
    shelf.put("pods", "team/a", None)
    assert len(lazy.read_changes() or ()) == 1


def test_changes_of_one_object_do_not_add_up():
    shelf = Shelf(most=1)
    for version in range(5):
        shelf.put("pods", "team/a", pod("a", version))
    shelf.put("pods", "team/a", None)
    for name in "bcd":
        shelf.put("pods", f"team/{name}", pod(name))
        shelf.put("pods", f"team/{name}", None)
    assert shelf.readers[0].read_changes() == ()


def test_reader_that_never_reads_keeps_no_object():
    shelf = Shelf()
    payloads = []
    for on in ("", "n0"):
        value, payload = with_payload(pod("a", on=on))
        shelf.put("pods", "team/a", value)
        payloads.append(payload)
    del value
    assert [payload() is None for payload in payloads] == [True, False]
    shelf.put("pods", "team/a", None)
    assert [payload() is None for payload in payloads] == [True, True]


def test_reader_that_stops_keeps_only_the_objects_that_it_saw():
    shelf = Shelf(most=1)
    (reader,) = shelf.readers
    payloads = []
    for number in range(3):
        value, payload = with_payload(pod("a"))
        shelf.put("pods", "team/a", value)
        payloads.append(payload)
        if number == 0:
            reader.read_changes()
    del value
    assert [payload() is None for payload in payloads] == [False, True, False]
    shelf.put("pods", "team/a", None)
    assert [payload() is None for payload in payloads] == [False, True, True]
    shelf.put("pods", "team/b", pod("b"))  # too many changes: the reader starts again from a Snapshot
    assert payloads[0]() is None


def test_changes_that_were_read_are_not_kept():
    shelf = Shelf(readers=2)
    value, payload = with_payload(pod("a"))
    shelf.put("pods", "team/a", value)
    del value
    for reader in shelf.readers:
        reader.read_changes()
    shelf.put("pods", "team/a", None)
    for reader in shelf.readers:
        assert payload() is not None
        reader.read_changes()
    assert payload() is None


def test_change_names_the_nodes_that_it_affects():
    assert ObjectChange("nodes", "n0", None, node("n0")).affected_nodes == ("n0",)
    assert ObjectChange("pods", "team/a", pod("a"), pod("a", on="n1")).affected_nodes == ("n1",)
    assert ObjectChange("pods", "team/a", pod("a", on="n0"), pod("a", on="n1")).affected_nodes == ("n0", "n1")
    assert ObjectChange("queues", "q", None, object()).affected_nodes == ()
