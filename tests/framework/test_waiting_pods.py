"""The pods that wait at Permit."""

from batchsched.framework.status import Code, Status
from batchsched.framework.waiting_pods import WaitingPod, WaitingPods
from tests.plugins.cluster import pod


def test_pods_wait_until_every_plugin_has_allowed_the_gang():
    waiting = WaitingPods()
    assert waiting.is_gang_allowed("team/g")
    waiting.add_waiting_pod(WaitingPod(pod("a"), 0, "team/g", {"GangScheduling": 1.0, "Quota": 2.0}))
    waiting.add_waiting_pod(WaitingPod(pod("b"), 0, "team/g", {"GangScheduling": 1.0}))
    waiting.add_waiting_pod(WaitingPod(pod("c"), 0, "team/other", {"GangScheduling": 1.0}))
    waiting.allow_gang("team/g", "GangScheduling")
    assert [one.until for one in waiting.pods_of_gang("team/g")] == [{"Quota": 2.0}, {}]
    assert not waiting.is_gang_allowed("team/g")
    waiting.allow_gang("team/g", "Quota")
    assert waiting.is_gang_allowed("team/g")
    assert not waiting.is_gang_allowed("team/other")
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
    assert waiting.first_rejection_of_gang("team/g").ok
    one.reject("Licence", "none left")
    one.reject("Quota", "nor here")
    assert waiting.first_rejection_of_gang("team/g") == Status(Code.UNSCHEDULABLE, ("none left",), "Licence")
