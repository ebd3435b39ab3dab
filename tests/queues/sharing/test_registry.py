"""Fairness policies by name."""

import pytest

from batchsched.errors import InvalidInput
from batchsched.queues.gang_order.builtin import POLICIES
from batchsched.queues.sharing.dominant_share import DominantShare
from batchsched.queues.sharing.registry import DEFAULT, make_sharing_policy, registered_policies


def test_every_policy_of_the_documentation_is_an_entry_point():
    assert list(registered_policies()) == [
        "armada",
        "decayed-usage",
        "dominant-share",
        "drf",
        "fifo",
        "guaranteed-ratio",
        "max-min",
        "priority",
        "strict-fifo",
        "time-based",
    ]
    assert DEFAULT in registered_policies()


@pytest.mark.parametrize("name", sorted({*registered_policies(), *POLICIES}))
def test_every_name_makes_a_policy_that_bears_it(name):
    assert make_sharing_policy(name, {}).name == name


def test_arguments_reach_the_policy():
    made = make_sharing_policy("dominant-share", {"strategies": ["LessThanInitialShare"]})
    assert isinstance(made, DominantShare)
    assert made.args.strategies == ("LessThanInitialShare",)


def test_unknown_name_is_answered_with_those_there_are():
    with pytest.raises(InvalidInput) as caught:
        make_sharing_policy("lottery", {})
    assert str(caught.value) == (
        "policy.name: no policy is named 'lottery'; registered are armada, decayed-usage, dominant-share, drf, f1, "
        "fcfs, fifo, guaranteed-ratio, headroom, max-min, priority, saf, sjf, strict-fifo, time-based, wfp3"
    )


@pytest.mark.parametrize(
    "name, args, message",
    [
        ("time-based", {"k": -1}, "policy time-based: args.k: expected 0 or more, found -1"),
        ("time-based", {"kk": 1}, "policy time-based: args.kk: unknown field; did you mean k?"),
        ("drf", {"k": 1}, "policy drf: args: the policy takes no such arguments"),
    ],
    ids=["range", "name", "none"],
)
def test_wrong_argument_names_the_policy_and_the_field(name, args, message):
    with pytest.raises(InvalidInput) as caught:
        make_sharing_policy(name, args)
    assert str(caught.value) == message
