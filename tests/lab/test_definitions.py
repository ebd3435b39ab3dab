"""What a report states about the cluster of a scenario."""

import pytest

from batchsched.lab.definitions import reported_run_input_of_scenario
from tests.lab.scenarios import scenario

FAILING = {"nodes": 4, "gpusPerNode": 8, "failures": {"hoursBetween": 40, "hoursToRepair": 2}}
FAILURES = "a node fails after 40 h and is repaired after 2 h, on average"
OWN_NODES = [{"name": "log", "swf": {"trace": "log.swf"}}]


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({}, {"Cluster": "4 nodes with 8 GPUs each"}),
        ({"cluster": FAILING}, {"Cluster": f"4 nodes with 8 GPUs each; {FAILURES}"}),
        ({"workloads": OWN_NODES}, {}),
        ({"workloads": OWN_NODES, "cluster": FAILING}, {"Node failures": FAILURES}),
    ],
)
def test_node_failures_are_stated_also_for_workloads_with_nodes_of_their_own(changes, expected):
    facts = dict(reported_run_input_of_scenario(scenario(**changes), "batchsched lab run").facts)
    facts.pop("Load")
    assert facts == expected
