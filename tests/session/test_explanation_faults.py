"""A defect in the explanation of a refusal, or amounts beyond 64 bits, fail no decision."""

import numpy as np
import pytest

from batchsched.solver.problem import UNLIMITED
from batchsched.solver.relaxation import explain
from batchsched.solver.relaxation.changes import cap_at_unlimited
from tests.session.scenario import cluster, gang, nodes, profile, queue, schedule


@pytest.mark.parametrize("selection", ["weight", "ordered"])
def test_gang_of_which_the_explanation_fails_is_refused_and_others_are_placed(monkeypatch, selection):
    def fail(self, number):
        raise OverflowError("Python int too large to convert to C long")

    monkeypatch.setattr(explain.RefusalExplainer, "explain_gang_refusal", fail)
    decision = schedule(
        cluster(nodes(2, gpu=2), gang("small", 2), gang("large", 9)), profile(selection=selection)
    )
    assert {placed.pod.rpartition("-")[0] for placed in decision.assignments} == {"small"}
    (refusal,) = decision.refusals
    assert (refusal.pod_group, refusal.reason) == ("team/large", "ExplanationFailed")
    assert "OverflowError" in refusal.message


@pytest.mark.parametrize("selection", ["weight", "ordered"])
@pytest.mark.parametrize(
    "resource, amount",
    [("cpu", "9000000000000000"), ("memory", "9000000000000000000"), ("memory", "5000000000000000000")],
)
@pytest.mark.parametrize("pods", [1, 8])
def test_requests_beyond_64_bits_refuse_their_gang_and_nothing_else(selection, resource, amount, pods):
    huge = [gang(f"huge-{index}", 1, requests={resource: amount}, queue="q") for index in range(pods)]
    queues = (queue("q", limit={"cpu": "4", "memory": "1Gi"}),)
    snapshot = cluster(nodes(2, gpu=2), gang("small", 2), *huge, queues=queues)
    decision = schedule(snapshot, profile(selection=selection))
    assert {placed.pod.rpartition("-")[0] for placed in decision.assignments} == {"small"}
    assert {refusal.pod_group for refusal in decision.refusals} == {
        f"team/huge-{index}" for index in range(pods)
    }


def test_amounts_beyond_64_bits_become_the_largest_amount():
    assert np.array_equal(cap_at_unlimited([1, 2**70, -5]), [1, UNLIMITED, -5])
