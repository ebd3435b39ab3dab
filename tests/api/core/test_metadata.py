from batchsched.api.core.metadata import ObjectMeta, seconds, timestamp


def test_times_read_and_write_in_utc():
    assert seconds("2026-01-01T00:00:00Z") == seconds("2026-01-01T01:00:00+01:00") == 1767225600.0
    assert timestamp(1767225600.9) == "2026-01-01T00:00:00Z"


def test_missing_or_unreadable_time_is_the_default():
    assert seconds(None, 7.0) == 7.0
    assert seconds("yesterday", 7.0) == 7.0


def test_missing_labels_and_annotations_read_as_none():
    assert ObjectMeta().label("a") is None
    assert ObjectMeta().annotation("a") is None
    assert ObjectMeta(labels={"a": "b"}).label("a") == "b"
