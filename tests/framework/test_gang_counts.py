"""Counts of gang members, and the pods that wait at Permit."""

from batchsched.api.core.metadata import ObjectMeta
from batchsched.api.core.pod import SUB_GROUP_LABEL, Pod
from batchsched.framework.gang_counts import GangPodCounts, WaitingPod, WaitingPods
from batchsched.framework.status import Code, Status
from tests.plugins.cluster import pod


def member(sub: str = "") -> Pod:
    return Pod(metadata=ObjectMeta(name="m", labels={SUB_GROUP_LABEL: sub} if sub else None))


def complete(count: GangPodCounts) -> bool:
    return count.has_minimum_placed


def test_gang_is_complete_once_its_minimum_is_placed():
    count = GangPodCounts("team/g", minimum=2, existing=3)
    assert count.has_enough_pods
    count.change_placed(member(), 1)
    assert complete(count) is False
    count.change_placed(member(), 1)
    assert complete(count) is True
    count.change_placed(member(), -1)
    assert complete(count) is False


def test_every_subgroup_needs_its_own_minimum_too():
    count = GangPodCounts("team/g", minimum=2, existing=3, sub_minimum={"x": 1}, sub_existing={"x": 1})
    assert count.has_enough_pods
    for sub in ("", "unknown"):
        count.change_placed(member(sub), 1)
    assert complete(count) is False
    count.change_placed(member("x"), 1)
    assert complete(count) is True
    assert count.sub_placed == {"x": 1}


def test_gang_is_impossible_with_too_few_members_or_too_few_of_a_subgroup():
    assert not GangPodCounts("team/g", minimum=4, existing=3).has_enough_pods
    assert not GangPodCounts("team/g", minimum=1, existing=3, sub_minimum={"x": 1}).has_enough_pods


def test_pods_wait_until_every_plugin_has_allowed_the_gang():
    waiting = WaitingPods()
    assert waiting.all_allowed("team/g")
    waiting.add_waiting_pod(WaitingPod(pod("a"), 0, "team/g", {"GangScheduling": 1.0, "Quota": 2.0}))
    waiting.add_waiting_pod(WaitingPod(pod("b"), 0, "team/g", {"GangScheduling": 1.0}))
    waiting.add_waiting_pod(WaitingPod(pod("c"), 0, "team/other", {"GangScheduling": 1.0}))
    waiting.allow("team/g", "GangScheduling")
    assert [one.until for one in waiting.pods_of_gang("team/g")] == [{"Quota": 2.0}, {}]
    assert not waiting.all_allowed("team/g")
    waiting.allow("team/g", "Quota")
    assert waiting.all_allowed("team/g")
    assert not waiting.all_allowed("team/other")
    waiting.remove_gang("team/g")
    assert list(waiting.pods_of_gang("team/g")) == []


def test_waiting_pods_can_be_iterated_and_found_by_key():
    waiting = WaitingPods()
    for name, key in (("a", "team/g"), ("b", "team/g"), ("c", "team/other")):
        waiting.add_waiting_pod(WaitingPod(pod(name), 3, key, {"Quota": 2.0}))
    assert [one.pod.name for one in waiting] == ["a", "b", "c"]
    found = waiting.get("default/b")
    assert found is not None
    assert (found.node, found.gang, found.pending_plugins) == (3, "team/g", ("Quota",))
    assert waiting.get("default/gone") is None


def test_a_pod_is_allowed_by_each_plugin_and_the_first_rejection_is_kept():
    one = WaitingPod(pod("a"), 0, "team/g", {"Quota": 2.0, "Licence": 1.0})
    waiting = WaitingPods()
    waiting.add_waiting_pod(one)
    one.allow("Quota")
    one.allow("Stranger")
    assert one.pending_plugins == ("Licence",)
    assert waiting.rejection("team/g").ok
    one.reject("Licence", "none left")
    one.reject("Quota", "nor here")
    assert waiting.rejection("team/g") == Status(Code.UNSCHEDULABLE, ("none left",), "Licence")
