"""Armada's fair shares, with the numbers of Armada's own tests.

Source: Armada, `TestCalculateFairShares` of its scheduling context.
"""

import numpy as np
import pytest
from pydantic import ValidationError

from batchsched.queues.sharing.armada import ArmadaArgs, demand_capped_shares
from tests.queues.sharing.trees import cluster, divided, queue, shares_of


@pytest.mark.parametrize(
    "demands, weights, expected",
    [
        ([1000], [1], [1.0]),
        ([1], [1], [0.01]),
        ([1000, 1000], [1, 1], [0.5, 0.5]),
        ([1, 1], [1, 1], [0.01, 0.01]),
        ([1, 1000], [1, 1], [0.01, 0.99]),
        ([1000, 1000], [1, 3], [0.25, 0.75]),
        ([1, 1000], [1, 3], [0.01, 0.99]),
        ([1000, 1], [1, 3], [0.99, 0.01]),
        ([1, 40, 1000], [1, 1, 1], [0.01, 0.4, 0.59]),
        ([0, 0, 0], [1, 1, 1], [0.0, 0.0, 0.0]),
    ],
    ids=str,
)
def test_demand_capped_fair_share_equals_that_of_armada(demands, weights, expected):
    demand = np.minimum(np.array(demands) / 100, 1.0)
    assert demand_capped_shares(demand, np.array(weights, float)).tolist() == pytest.approx(
        expected, abs=1e-9
    )


def test_armada_caps_fair_shares_by_demand():
    queues = [queue(name) for name in "abc"]
    shares = shares_of(queues, cluster(cpu=100_000), waits={"a": [1000], "b": [40_000], "c": [1_000_000]})
    assert divided(shares, "armada") == {"a": [1000], "b": [40_000], "c": [59_000], "default": [0]}


@pytest.mark.parametrize("least", [-0.5, 1.0])
def test_the_part_that_may_remain_undivided_is_a_part_of_the_cluster(least):
    with pytest.raises(ValidationError, match="least"):
        ArmadaArgs(least=least)
