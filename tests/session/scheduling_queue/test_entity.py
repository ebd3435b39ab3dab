import msgspec

from batchsched.session.scheduling_queue.entity import Entity, Rejection, kind_of
from tests.session.scheduling_queue.entities import pod


def test_pods_that_differ_in_name_uid_and_times_alone_are_of_one_kind():
    other = pod("b")
    later = msgspec.structs.replace(other.metadata, creation_timestamp="2026-01-01T00:00:00Z")
    assert kind_of(pod("a")) == kind_of(msgspec.structs.replace(other, metadata=later))
    assert kind_of(pod("a")) != kind_of(pod("a", labels={"x": "y"}))
    assert kind_of(pod("a")) != kind_of(pod("a", priority=1))


def test_a_pod_whose_claim_is_named_after_it_is_of_its_own_kind():
    volumes = [{"name": "v", "ephemeral": {}}]
    assert kind_of(pod("a", volumes=volumes)) != kind_of(pod("b", volumes=volumes))


def test_an_entity_has_one_pod_of_each_kind_to_show():
    entity = Entity("default/g", 0, 0.0)
    for one in (pod("a"), pod("b"), pod("c", priority=1)):
        entity.put(one)
    assert [one.name for one in entity.kinds().values()] == ["a", "c"]
    entity.take("default/a")
    assert [one.name for one in entity.kinds().values()] == ["b", "c"]


def test_a_rejection_names_everyone_in_order():
    assert Rejection.by("b", "a", pending=["c"]).everyone == ("a", "b", "c")
    assert Rejection().everyone == ()
