"""The cache that remembers ends of pods, and status."""

from batchsched.api.crd.podgroup import PodGroup
from tests.controllers.status.office import observed
from tests.session.scenario import group
from tests.state.objects import ended, pod


def test_pods_that_ended_are_counted_by_how():
    good = [ended(pod(f"bert-{at}", group="bert", on="n0", uid=f"u{at}")) for at in range(2)]
    bad = ended(pod("bert-2", group="bert", on="n0", uid="u2"), "Failed")
    cache = observed(good, [bad])
    assert cache.ends("team/bert") == (2, 1)
    assert cache.changed == {"team/bert"}


def test_pod_that_is_gone_or_comes_again_has_not_ended():
    one, two = (ended(pod(f"bert-{at}", group="bert", uid=f"u{at}")) for at in range(2))
    cache = observed()
    cache.put(one)
    cache.put(two)
    cache.changed.clear()
    cache.remove(one)
    assert cache.ends("team/bert") == (1, 0)
    cache.put(pod("bert-1", group="bert", uid="u9"))
    assert cache.ends("team/bert") == (0, 0)
    assert cache.changed == {"team/bert"}


def test_fresh_list_replaces_what_was_known():
    cache = observed([ended(pod("bert-0", group="bert"))])
    cache.replace(type(pod("x")), [ended(pod("bert-1", group="bert"), "Failed")])
    assert cache.ends("team/bert") == (0, 1)


def test_status_of_another_object_of_the_name_counts_for_nothing():
    made = group("bert", 2).model_dump(by_alias=True)
    made["metadata"]["uid"] = "u1"
    one = PodGroup.model_validate(made | {"status": {"phase": "Running", "placed": 2}})
    cache = observed()
    cache.put(one)
    assert cache.status("pod_groups", "team/bert", "u1")["placed"] == 2
    assert cache.status("pod_groups", "team/bert", "u2") == {}
    cache.remove(one)
    assert cache.status("pod_groups", "team/bert", "u1") == {}


def test_change_of_status_alone_is_no_change_to_a_session():
    cache = observed([group("bert", 2)])
    before = cache.generation
    made = cache.get("pod_groups", "team/bert").model_dump(by_alias=True)
    cache.put(PodGroup.model_validate(made | {"status": {"phase": "Running"}}))
    assert cache.generation == before
