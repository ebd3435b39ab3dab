"""Gangs and queues in plain columns, as kubectl's."""

import pytest

from batchsched.api.core.metadata import timestamp
from batchsched.cli.listing import POD_GROUPS, QUEUES, aligned, duration, rows

NOW = 1_700_000_000.0
BERT = {
    "metadata": {"name": "bert", "namespace": "team", "creationTimestamp": timestamp(NOW - 300)},
    "spec": {"minMember": 9, "queue": "ml", "subGroups": [{"name": "a"}, {"name": "b", "minMember": 8}]},
    "status": {
        "phase": "Pending",
        "placed": 3,
        "queuePosition": 2,
        "estimatedStartTime": timestamp(NOW + 90),
        "conditions": [
            {"type": "Other", "reason": "x"},
            {"type": "Scheduled", "status": "False", "reason": "QueueLimit", "message": "2 over"},
        ],
    },
}


def cells(kind, one, wide=False, namespaces=False):
    titles, row = rows(kind, [one], NOW, wide=wide, namespaces=namespaces)
    return dict(zip(titles, row, strict=True))


def test_gang_that_waits():
    assert cells(POD_GROUPS, BERT) == {
        "NAME": "bert",
        "PHASE": "Pending",
        "MIN": "9",
        "PLACED": "3",
        "RUNNING": "0",
        "QUEUE": "ml",
        "AGE": "5m",
    }


def test_wide_says_where_it_stands_and_why():
    found = cells(POD_GROUPS, BERT, wide=True, namespaces=True)
    assert found["NAMESPACE"] == "team"
    assert (found["POSITION"], found["START"]) == ("2", "in 90s")
    assert found["SCHEDULED"] == "QueueLimit: 2 over"


def test_gang_that_nobody_looked_at_and_that_says_nothing():
    found = cells(POD_GROUPS, {"metadata": {"name": "x"}}, wide=True)
    assert found["PHASE"] == found["SCHEDULED"] == found["AGE"] == "<unknown>"
    assert (found["MIN"], found["QUEUE"], found["START"]) == ("1", "default", "<none>")


def test_least_number_is_what_the_subgroups_need_where_it_is_not_stated():
    assert (
        cells(POD_GROUPS, {"metadata": {"name": "x"}, "spec": {"subGroups": [{}, {"minMember": 3}]}})["MIN"]
        == "4"
    )


def test_queue_says_what_it_holds():
    one = {
        "metadata": {"name": "ml"},
        "spec": {"parent": "research", "limit": {"cpu": "8"}},
        "status": {"allocated": {"memory": "1Gi", "cpu": "2"}, "pending": 1},
    }
    found = cells(QUEUES, one, wide=True)
    assert (found["PARENT"], found["WEIGHT"], found["PENDING"]) == ("research", "1", "1")
    assert (found["ALLOCATED"], found["LIMIT"], found["GUARANTEE"]) == ("cpu=2,memory=1Gi", "cpu=8", "<none>")


def test_columns_are_aligned_and_lines_end_where_they_end():
    assert list(aligned([["NAME", "AGE"], ["bert", "5m"], ["a", ""]])) == ["NAME   AGE", "bert   5m", "a"]


@pytest.mark.parametrize(
    "passed, written",
    [
        (-5, "<invalid>"),
        (-0.5, "0s"),
        (1, "1s"),
        (70, "70s"),
        (190, "3m10s"),
        (600, "10m"),
        (47 * 60, "47m"),
        (4 * 3600 + 33 * 60, "4h33m"),
        (25 * 3600, "25h"),
        (5 * 86_400 + 4 * 3600, "5d4h"),
        (30 * 86_400, "30d"),
        (3 * 365 * 86_400 + 86_400, "3y1d"),
        (20 * 365 * 86_400, "20y"),
    ],
)
def test_spans_are_as_coarse_as_those_of_kubectl(passed, written):
    assert duration(passed) == written
