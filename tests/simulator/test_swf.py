import re

import pytest

from batchsched.errors import InvalidInput
from batchsched.simulator.swf import SwfRow, read, workload

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


def test_a_row_is_a_gang_of_its_processors_with_the_requested_time_as_estimate(trace):
    assert read(trace).rows[0] == SwfRow(1, 100, 50, 4, 60)


def test_without_a_requested_time_the_run_time_is_the_estimate(trace):
    assert read(trace).rows[2] == SwfRow(4, 150, 9, 1, 9)


def test_requested_processors_stand_in_for_allocated_ones_and_seconds_are_rounded_up(trace):
    assert read(trace).rows[1] == SwfRow(2, 130, 8, 2, 8)


def test_rows_that_never_ran_are_passed_over(trace):
    assert [row.number for row in read(trace).rows] == [1, 2, 4]


def test_the_header_states_processors_and_they_go_before_nodes(trace):
    assert read(trace).processors == 16


def test_a_line_that_is_no_numbers_is_named(tmp_path):
    file = tmp_path / "bad.swf"
    file.write_text("1 100 -1 50 4\n2 abc -1 50 4\n")
    with pytest.raises(InvalidInput, match=r"bad.swf:2.*numbers"):
        read(file)


@pytest.mark.parametrize("number", ["nan", "inf", "1e400"])
def test_a_line_with_a_number_that_is_none_is_named(tmp_path, number):
    file = tmp_path / "bad.swf"
    file.write_text(f"1 {number} -1 50 4\n")
    with pytest.raises(InvalidInput, match=f"{re.escape(str(file))}:1.*finite"):
        read(file)


def test_a_line_with_too_few_fields_is_named(tmp_path):
    file = tmp_path / "short.swf"
    file.write_text("1 100 -1\n")
    with pytest.raises(InvalidInput, match=r"short.swf:1.*18 fields"):
        read(file)


def test_gangs_are_rigid_and_their_pods_ask_for_one_processor(trace):
    made = workload(read(trace).rows, 16, "small")
    first = made.arrivals[0]
    assert first.group is not None
    assert (first.time, first.runtime, first.minimum, len(first.pods)) == (100, 50, 4, 4)
    assert first.group.spec.expected_runtime_seconds == 60
    assert first.group.created == 100.0
    assert len(made.cluster.nodes) == 16
    assert len({pod.key for one in made.arrivals for pod in one.pods}) == 7


def test_a_row_wider_than_the_cluster_is_refused(trace):
    with pytest.raises(InvalidInput, match=r"row 1.*4 processors, the cluster has 3"):
        workload(read(trace).rows, 3, "small")
