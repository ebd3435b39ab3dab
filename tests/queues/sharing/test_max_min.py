"""Weighted max-min fairness, against its definition."""

import numpy as np
from hypothesis import given

from batchsched.queues.sharing.max_min import MaxMin
from tests.queues.sharing.trees import case, cluster, divided, queue, shares_of, trees


def test_resources_are_divided_each_by_itself():
    queues = (queue("a", weight=3), queue("b"))
    shares = shares_of(queues, cluster(cpu=8000, gpu=8), waits={"a": [8000, 2], "b": [8000, 8]})
    assert divided(shares, "max-min") == {"a": [6000, 2], "b": [2000, 6], "default": [0, 0]}


@given(shares=trees())
def test_who_is_not_sated_has_by_weight_no_less_than_anybody_else(shares):
    found = case(shares, MaxMin())
    for parent in found.parents():
        siblings = found.siblings(parent)
        given = siblings.fair - siblings.floor
        weighty = siblings.weight > 0
        for resource in range(given.shape[1]):
            unsated = weighty & (siblings.fair[:, resource] < siblings.ceiling[:, resource])
            level = np.divide(given[:, resource], siblings.weight, out=np.zeros(len(siblings)), where=weighty)
            slack = np.divide(1.0, siblings.weight, out=np.zeros(len(siblings)), where=weighty)
            if unsated.any():
                assert (
                    level[weighty] <= level[unsated].min() + 2 * slack[weighty].max() + 1e-6 * level.max()
                ).all()
