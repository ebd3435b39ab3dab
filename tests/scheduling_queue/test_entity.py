import msgspec
import pytest

from batchsched.errors import IllegalStateChange
from batchsched.scheduling_queue.entity import MOVES, Entity, QueueState, check_state_change, template_digest
from tests.scheduling_queue.entities import pod


def test_pods_that_differ_in_name_uid_and_times_share_a_template():
    other = pod("b")
    later = msgspec.structs.replace(other.metadata, creation_timestamp="2026-01-01T00:00:00Z")
    assert template_digest(pod("a")) == template_digest(msgspec.structs.replace(other, metadata=later))
    assert template_digest(pod("a")) != template_digest(pod("a", labels={"x": "y"}))
    assert template_digest(pod("a")) != template_digest(pod("a", priority=1))


def test_pod_with_an_ephemeral_volume_has_its_own_template():
    volumes = [{"name": "v", "ephemeral": {}}]
    assert template_digest(pod("a", volumes=volumes)) != template_digest(pod("b", volumes=volumes))


def test_entity_returns_one_pod_of_each_template():
    entity = Entity("default/g", 0, 0.0)
    for one in (pod("a"), pod("b"), pod("c", priority=1)):
        entity.put_pod(one)
    assert [one.name for one in entity.pod_by_template().values()] == ["a", "c"]
    entity.remove_pod("default/a")
    assert [one.name for one in entity.pod_by_template().values()] == ["b", "c"]


def test_every_state_can_be_entered_and_left():
    assert {end for _, end in MOVES} == set(QueueState) - {QueueState.NEW}
    assert {start for start, _ in MOVES} == set(QueueState) - {QueueState.GONE}


def test_move_that_is_not_in_the_table_is_illegal():
    check_state_change(QueueState.ACTIVE, QueueState.IN_FLIGHT)
    with pytest.raises(
        IllegalStateChange, match="an entity in state Gated of the scheduling queue cannot become In flight"
    ):
        check_state_change(QueueState.GATED, QueueState.IN_FLIGHT)
