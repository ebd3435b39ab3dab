"""Counts of gang members."""

from batchsched.api.core.metadata import ObjectMeta
from batchsched.api.core.pod import SUB_GROUP_LABEL, Pod
from batchsched.framework.gang_counts import GangPodCounts


def member(sub: str = "") -> Pod:
    return Pod(metadata=ObjectMeta(name="m", labels={SUB_GROUP_LABEL: sub} if sub else None))


def complete(count: GangPodCounts) -> bool:
    return count.has_minimum_placed


def test_gang_is_complete_once_its_minimum_is_placed():
    count = GangPodCounts("team/g", minimum=2, existing=3)
    assert count.has_enough_pods
    count.change_placed_counts(member(), 1)
    assert complete(count) is False
    count.change_placed_counts(member(), 1)
    assert complete(count) is True
    count.change_placed_counts(member(), -1)
    assert complete(count) is False


def test_every_subgroup_needs_its_own_minimum_too():
    count = GangPodCounts("team/g", minimum=2, existing=3, sub_minimum={"x": 1}, sub_existing={"x": 1})
    assert count.has_enough_pods
    for sub in ("", "unknown"):
        count.change_placed_counts(member(sub), 1)
    assert complete(count) is False
    count.change_placed_counts(member("x"), 1)
    assert complete(count) is True
    assert count.sub_placed == {"x": 1}


def test_gang_is_impossible_with_too_few_members_or_too_few_of_a_subgroup():
    assert not GangPodCounts("team/g", minimum=4, existing=3).has_enough_pods
    assert not GangPodCounts("team/g", minimum=1, existing=3, sub_minimum={"x": 1}).has_enough_pods
