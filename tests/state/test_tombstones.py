"""Uids that are gone stay so, as long as they are remembered."""

import pytest

from batchsched.state import tombstones as graves
from batchsched.state.tombstones import Tombstones


def test_buried_uids_are_known_until_a_list_shows_them_alive():
    gone = Tombstones()
    gone.bury("u1")
    gone.bury("")
    assert "u1" in gone
    assert "" not in gone
    gone.open("u1")
    gone.open("u1")
    assert "u1" not in gone


def test_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(graves, "MOST", 2)
    gone = Tombstones()
    for uid in "abc":
        gone.bury(uid)
    assert [uid in gone for uid in "abc"] == [False, True, True]
