import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.core.pod import Pod
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


PODS = st.tuples(st.sampled_from("abcdef"), st.sampled_from("uvw"), st.integers(0, 2))


@given(st.lists(st.tuples(st.booleans(), PODS, st.integers(0, 1)), max_size=30))
def test_least_sort_key_and_priority_are_those_of_all_pods(changes):
    entity = Entity("default/g", 0, 0.0)
    pods: dict[str, Pod] = {}
    for is_removed, (name, label, priority), queued in changes:
        if is_removed:
            entity.remove_pod(f"default/{name}")
            pods.pop(name, None)
        else:
            pods[name] = pod(name, labels={"l": label}, priority=priority)
            entity.put_pod(pods[name])
        entity.queued = float(queued)
        assert entity.highest_pod_priority == max(
            (one.spec.priority or 0 for one in pods.values()), default=0
        )
        if pods:
            assert entity.least_sort_key(key_by_label) == min(
                key_by_label(one, entity.highest_pod_priority, entity.queued) for one in pods.values()
            )


def key_by_label(one, priority, queued):
    return (-priority, one.labels["l"], queued)


def test_sort_key_is_computed_once_for_each_template():
    entity, seen = Entity("default/g", 0, 0.0), []

    def sort_key(one, priority, queued):
        seen.append(one.name)
        return (-priority, queued)

    for name in "ab":
        entity.put_pod(pod(name, labels={"index": name}))
    entity.least_sort_key(sort_key)
    entity.put_pod(pod("c", labels={"index": "c"}))
    entity.least_sort_key(sort_key)
    entity.remove_pod("default/a")
    entity.least_sort_key(sort_key)
    assert sorted(seen) == ["a", "b", "c"]
