import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from batchsched.api.core.requests import pod_requests
from batchsched.errors import InvalidInput
from batchsched.simulator.philly import (
    GPU,
    PhillyJob,
    create_workload,
    read_trace,
    read_virtual_cluster_names,
)

TRACE = """timestamp,duration,num_gpus,gpu_time,cluster
1970-01-01 00:01:40,30.9,12,370.8,aa
1970-01-01 00:00:50,20.0,1,20.0,bb
1970-01-01 00:00:50,10.0,1,10.0,aa
,10.0,1,10.0,aa
1970-01-01 00:05:00,10.0,0,0,aa
"""


@pytest.fixture
def trace(tmp_path):
    file = tmp_path / "philly.csv.gz"
    file.write_bytes(gzip.compress(TRACE.encode()))
    return file


def test_rows_are_sorted_by_submission_and_then_by_duration(trace):
    assert read_trace(trace) == (
        PhillyJob(50, 10, 1, "aa"),
        PhillyJob(50, 20, 1, "bb"),
        PhillyJob(100, 30, 12, "aa"),
    )


def test_program_of_the_documentation_writes_the_table_from_the_published_log(tmp_path):
    attempt = {
        "start_time": "1970-01-01 00:02:00",
        "end_time": "1970-01-01 00:02:30",
        "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu0"]}],
    }
    never_ended = {**attempt, "end_time": None}
    jobs = [
        {"vc": "aa", "submitted_time": "1970-01-01 00:01:40", "attempts": [attempt, attempt, never_ended]},
        {"vc": "bb", "submitted_time": "1970-01-01 00:01:50", "attempts": []},
    ]
    (tmp_path / "cluster_job_log").write_text(json.dumps(jobs))
    program = Path(__file__).parents[2] / "examples/lab/philly_table.py"
    table = tmp_path / "philly.csv"
    subprocess.run([sys.executable, program, tmp_path / "cluster_job_log", table], check=True)
    assert read_trace(table) == (PhillyJob(100, 60, 3, "aa"),)


def test_only_rows_of_the_period_are_read(trace):
    assert read_trace(trace, 60, 100) == (PhillyJob(100, 30, 12, "aa"),)


def test_queues_are_the_first_column_and_a_file_without_any_is_refused(tmp_path):
    file = tmp_path / "queues.csv"
    file.write_text("vc,node num\naa,4\nbb,2\n")
    assert read_virtual_cluster_names(file) == ("aa", "bb")
    file.write_text("vc,node num\n")
    with pytest.raises(InvalidInput, match=r"queues.csv"):
        read_virtual_cluster_names(file)


@pytest.mark.parametrize(
    "lines, complaint",
    [
        ("timestamp,duration,cluster\n", ".*no column num_gpus"),
        (TRACE.replace("30.9", "long"), ":2.*long"),
        ("timestamp,num_gpus,duration,cluster\n2017-10-01,1\n", ":2.*cannot be read"),
        ("timestamp,num_gpus,duration,cluster\n2017-10-01,1,inf,aa\n", ":2.*cannot be read"),
    ],
    ids=["column", "text", "short", "endless"],
)
def test_a_trace_that_cannot_be_read_is_named_with_the_line(tmp_path, lines, complaint):
    file = tmp_path / "philly.csv"
    file.write_text(lines)
    with pytest.raises(InvalidInput, match=re.escape(str(file)) + complaint):
        read_trace(file)


def test_a_job_is_a_gang_of_pods_of_up_to_a_node_in_the_queue_of_its_cluster(trace):
    made = create_workload(read_trace(trace), 4, 8, "philly", {"aa": "research", "bb": "vc-bb"})
    requested = [[pod_requests(pod)[GPU] for pod in arrival.pods] for arrival in made.arrivals]
    assert requested == [[1], [1], [8, 4]]
    assert [arrival.min_member for arrival in made.arrivals] == [1, 1, 2]
    assert [arrival.queue for arrival in made.arrivals] == ["research", "vc-bb", "research"]
    assert [queue.name for queue in made.cluster.queues] == ["research", "vc-bb"]
