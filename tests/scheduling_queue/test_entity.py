import msgspec
import pytest

from batchsched.errors import IllegalMove
from batchsched.scheduling_queue.entity import MOVES, Entity, QueueState, Rejection, check_move, template_of
from tests.scheduling_queue.entities import pod


def test_pods_that_differ_in_name_uid_and_times_alone_are_of_one_template():
    other = pod("b")
    later = msgspec.structs.replace(other.metadata, creation_timestamp="2026-01-01T00:00:00Z")
    assert template_of(pod("a")) == template_of(msgspec.structs.replace(other, metadata=later))
    assert template_of(pod("a")) != template_of(pod("a", labels={"x": "y"}))
    assert template_of(pod("a")) != template_of(pod("a", priority=1))


def test_a_pod_whose_claim_is_named_after_it_has_a_template_of_its_own():
    volumes = [{"name": "v", "ephemeral": {}}]
    assert template_of(pod("a", volumes=volumes)) != template_of(pod("b", volumes=volumes))


def test_an_entity_has_one_pod_of_each_template_to_show():
    entity = Entity("default/g", 0, 0.0)
    for one in (pod("a"), pod("b"), pod("c", priority=1)):
        entity.put(one)
    assert [one.name for one in entity.templates().values()] == ["a", "c"]
    entity.take("default/a")
    assert [one.name for one in entity.templates().values()] == ["b", "c"]


def test_a_rejection_names_everyone_in_order():
    assert Rejection.by("b", "a", pending=["c"]).everyone == ("a", "b", "c")
    assert Rejection().everyone == ()


def test_every_place_can_be_reached_and_left():
    assert {end for _, end in MOVES} == set(QueueState) - {QueueState.NEW}
    assert {start for start, _ in MOVES} == set(QueueState) - {QueueState.GONE}


def test_a_move_that_the_table_does_not_have_is_illegal():
    check_move(QueueState.ACTIVE, QueueState.IN_FLIGHT)
    with pytest.raises(
        IllegalMove, match="an entity in state Gated of the scheduling queue cannot become In flight"
    ):
        check_move(QueueState.GATED, QueueState.IN_FLIGHT)
