"""A hundred thousand events on a queue with the default plugins, compared with a naive queue."""

from random import Random
from typing import Any

import pytest

from batchsched.framework.events import Hint, events_of_change
from batchsched.scheduling_queue.entity import Entity, QueueState
from batchsched.scheduling_queue.queue import SchedulingQueue
from bench.event_storm import fill, main, refuse, refusing, storm
from tests.scheduling_queue.entities import standard_pipeline

EVENTS = 100_000


def listening(pipeline: Any) -> dict[str, Any]:
    """The registered events, by the name of the plugin."""
    return {
        one.name: one.events_to_register() for one in pipeline.plugins if hasattr(one, "events_to_register")
    }


def may_help(ears: dict[str, Any], entity: Entity, resource: Any, old: Any, new: Any) -> bool:
    """Evaluate the events of every plugin that refused a pod, one after the other."""
    return any(
        one.event.includes(event) and (one.hint is None or one.hint(pod, old, new) is Hint.QUEUE)
        for event in events_of_change(resource, old, new)
        for pod in entity.pods.values()
        for plugin in refusing(pod)
        for one in ears[plugin]
    )


@pytest.mark.slow
def test_a_storm_of_events_moves_only_pods_that_it_may_help_and_loses_none():
    pipeline = standard_pipeline()
    queue = SchedulingQueue(pipeline)
    ears = listening(pipeline)
    fill(queue, pods=10, gangs=1)
    identities = [f"pod/default/p{at}" for at in range(10)] + ["default/g0"]
    entities = [one for one in map(queue.find_entity, identities) if one is not None]
    moved = stayed = 0
    for at, (resource, old, new) in enumerate(storm(Random(1), EVENTS, nodes=50)):
        waiting = [one for one in entities if one.place is QueueState.UNSCHEDULABLE]
        expected = [one.identity for one in waiting if may_help(ears, one, resource, old, new)]
        queue.process_object_change(resource, old, new, at / 1000)
        assert [one.identity for one in waiting if one.place is not QueueState.UNSCHEDULABLE] == expected
        moved += len(expected)
        stayed += len(waiting) - len(expected)
        if at % 20 == 0:
            refuse(queue, at / 1000, early=True)
    assert sum(queue.pending_pod_counts().values()) == 20
    assert queue.hint_failure_counts() == {}
    assert moved > 1000
    assert stayed > 1000


def test_the_event_storm_bench_prints_its_measurements(capsys):
    assert main(["--events", "500", "--nodes", "20", "--pods", "40", "--gangs", "4"]) == 0
    said = capsys.readouterr().out
    assert "500 events, 80 pods waiting" in said
    assert "80 pods wait still; hints that broke: 0" in said
