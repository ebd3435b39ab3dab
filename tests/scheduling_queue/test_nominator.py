import msgspec

from batchsched.scheduling_queue.nominator import Nominator
from tests.plugins.cluster import pod as plain
from tests.scheduling_queue.entities import names, pod


def nominated(name: str, node: str):
    one = pod(name)
    return msgspec.structs.replace(one, status=msgspec.structs.replace(one.status, nominated_node_name=node))


def test_a_node_is_kept_for_whom_the_status_or_the_scheduler_says():
    kept = Nominator()
    kept.put(nominated("a", "n"))
    kept.put(pod("b"), "n")
    kept.put(plain("c"))
    assert names(kept.on("n")) == ["a", "b"]
    assert kept.on("m") == ()


def test_an_update_keeps_what_was_unless_the_status_lost_its_node():
    kept = Nominator()
    kept.put(pod("a"), "n")
    kept.update(pod("a"), pod("a", labels={"x": "y"}))
    assert [one.labels.get("x") for one in kept.on("n")] == ["y"]
    kept.update(nominated("a", "n"), pod("a"))
    assert kept.on("n") == ()


def test_a_pod_has_one_node_at_most():
    kept = Nominator()
    kept.put(pod("a"), "n")
    kept.put(pod("a"), "m")
    assert (kept.on("n"), names(kept.on("m"))) == ((), ["a"])
    assert [kept.drop("default/a"), kept.drop("default/a")] == [True, False]
