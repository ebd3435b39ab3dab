"""Policies by name."""

from typing import ClassVar

import numpy as np
import pytest

from batchsched.errors import InvalidInput
from batchsched.queues.gang_order.builtin import POLICIES
from batchsched.queues.gang_order.headroom import Headroom
from batchsched.queues.gang_order.policy import make_policy, order
from tests.queues.columns import columns


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_is_found_by_its_name(name):
    assert make_policy(name, {}, POLICIES).name == name


def test_name_that_nobody_registered_is_answered_with_those_that_are():
    with pytest.raises(InvalidInput) as caught:
        make_policy("lottery", {}, POLICIES)
    assert str(caught.value) == (
        "policy.name: no policy is named 'lottery'; registered are f1, fcfs, headroom, priority, saf, sjf, wfp3"
    )


def test_arguments_reach_the_policy():
    made = make_policy("headroom", {"share": 0.25}, POLICIES)
    assert isinstance(made, Headroom)
    assert made.args.share == 0.25


@pytest.mark.parametrize(
    "name, arguments, message",
    [
        ("headroom", {"share": 2}, "policy headroom: args.share: expected less than 1, found 2"),
        ("headroom", {"shares": 1}, "policy headroom: args.shares: unknown field; did you mean share?"),
        ("fcfs", {"share": 1}, "policy fcfs: args: the policy takes no such arguments"),
    ],
)
def test_wrong_argument_names_the_policy_and_the_field(name, arguments, message):
    with pytest.raises(InvalidInput) as caught:
        make_policy(name, arguments, POLICIES)
    assert str(caught.value) == message


def test_arrival_decides_between_equal_keys():
    class Indifferent:
        name: ClassVar[str] = "indifferent"

        def key(self, gangs, now):
            return np.zeros(len(gangs.arrival))

    assert order(Indifferent(), columns({"arrival": 2}, {"arrival": 0}, {"arrival": 1}), 0).tolist() == [
        1,
        2,
        0,
    ]
