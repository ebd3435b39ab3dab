import pytest

from batchsched.api.core.metadata import ObjectMeta, format_timestamp, parse_timestamp
from batchsched.api.core.node import Taint
from batchsched.api.core.pod import PodAffinity, Toleration

TAINT = Taint(key="gpu", value="a100", effect="NoSchedule")


@pytest.mark.parametrize(
    "toleration, tolerates",
    [
        (Toleration(key="gpu", value="a100", effect="NoSchedule"), True),
        (Toleration(key="gpu", operator="Equal", value="a100"), True),
        (Toleration(key="gpu", operator="Equal", value="h100"), False),
        (Toleration(key="gpu", operator="Exists"), True),
        (Toleration(operator="Exists"), True),
        (Toleration(key="cpu", operator="Exists"), False),
        (Toleration(key="gpu", operator="Exists", effect="NoExecute"), False),
        (Toleration(key="gpu", operator="Like", value="a100"), False),
    ],
)
def test_toleration_matches_as_upstream_does(toleration, tolerates):
    assert toleration.tolerates(TAINT) is tolerates


def test_unstated_terms_are_empty():
    assert PodAffinity().required_terms == ()
    assert PodAffinity().preferred_terms == ()


def test_times_are_read_and_written_in_utc():
    assert (
        parse_timestamp("2026-01-01T00:00:00Z")
        == parse_timestamp("2026-01-01T01:00:00+01:00")
        == 1767225600.0
    )
    assert format_timestamp(1767225600.9) == "2026-01-01T00:00:00Z"


def test_missing_or_unreadable_time_is_the_default():
    assert parse_timestamp(None, 7.0) == 7.0
    assert parse_timestamp("yesterday", 7.0) == 7.0


def test_missing_labels_and_annotations_read_as_none():
    assert ObjectMeta().label("a") is None
    assert ObjectMeta().annotation("a") is None
    assert ObjectMeta(labels={"a": "b"}).label("a") == "b"
