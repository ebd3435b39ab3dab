import re

import pytest

from batchsched.config.schema import Profile
from batchsched.errors import InvalidInput
from batchsched.lab.simulation import simulate_under_profile
from batchsched.simulator.run import RunSettings
from batchsched.simulator.swf import SwfJob, create_workload, read_trace

TRACE = """; Version: 2
; MaxNodes: 8
; MaxProcs: 16
1 100 -1 50 4 -1 -1 4 60 -1 1 -1 -1 -1 0 -1 -1 -1
2 130 -1 7.5 -1 -1 -1 2 -1 -1 1 -1 -1 -1 0 -1 -1 -1
3 140 -1 -1 1 -1 -1 1 60 -1 0 -1 -1 -1 0 -1 -1 -1

4 150 -1 9 1
"""


@pytest.fixture
def trace(tmp_path):
    file = tmp_path / "small.swf"
    file.write_text(TRACE)
    return file


def test_rows_have_requested_values_in_place_of_missing_ones_and_rows_that_never_ran_are_skipped(trace):
    assert read_trace(trace).rows == (
        SwfJob(1, 100, 50, 4, 60),
        SwfJob(2, 130, 8, 2, 8),  # requested processors, seconds rounded up
        SwfJob(4, 150, 9, 1, 9),  # the run time as estimate
    )


def test_the_header_states_processors_which_precede_nodes(trace):
    assert read_trace(trace).processors == 16


@pytest.mark.parametrize(
    "lines, complaint",
    [
        ("1 100 -1 50 4\n2 abc -1 50 4\n", "2.*numbers"),
        ("1 nan -1 50 4\n", "1.*finite"),
        ("1 inf -1 50 4\n", "1.*finite"),
        ("1 1e400 -1 50 4\n", "1.*finite"),
        ("1 100 -1\n", "1.*18 fields"),
    ],
)
def test_a_line_that_cannot_be_read_is_named_with_its_file(tmp_path, lines, complaint):
    file = tmp_path / "bad.swf"
    file.write_text(lines)
    with pytest.raises(InvalidInput, match=f"{re.escape(str(file))}:{complaint}"):
        read_trace(file)


def test_gangs_are_rigid_and_their_pods_ask_for_one_processor(trace):
    made = create_workload(read_trace(trace).rows, 16, "small")
    first = made.arrivals[0]
    assert first.group is not None
    assert (first.time, first.runtime, first.min_member, len(first.pods)) == (100, 50, 4, 4)
    assert first.group.spec.expected_runtime_seconds == 60
    assert first.group.creation_time == 100.0
    assert len(made.cluster.nodes) == 16
    assert len({pod.key for one in made.arrivals for pod in one.pods}) == 7


def test_of_a_job_in_parts_only_the_row_of_the_whole_job_counts(tmp_path):
    file = tmp_path / "parts.swf"
    statuses = (1, 2, 3, 4, 0, 5, -1)
    file.write_text(
        "".join(
            f"{at} {at} -1 9 1 -1 -1 1 9 -1 {status} -1 -1 -1 0 -1 -1 -1\n"
            for at, status in enumerate(statuses)
        )
    )
    assert [row.number for row in read_trace(file).rows] == [0, 4, 5, 6]


def test_rows_that_repeat_a_job_number_are_gangs_of_their_own():
    rows = [SwfJob(2, submit, 50, 2, 50) for submit in (0, 10, 20)] + [SwfJob(13, 30, 5, 1, 5)]
    made = create_workload(rows, 8, "repeated")
    assert [one.key for one in made.arrivals] == [
        "default/j02",
        "default/j02.2",
        "default/j02.3",
        "default/j13",
    ]
    result = simulate_under_profile(made, Profile(), RunSettings("test"))
    assert [(one.started, one.ended) for one in result.gangs] == [(0, 50), (10, 60), (20, 70), (30, 35)]


def test_a_row_wider_than_the_cluster_is_refused(trace):
    with pytest.raises(InvalidInput, match=r"row 1.*4 processors, the cluster has 3"):
        create_workload(read_trace(trace).rows, 3, "small")
