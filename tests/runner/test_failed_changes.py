"""A change that the scheduling queue cannot apply loses no other change."""

from typing import Any

import msgspec

from batchsched.api.core.pod import Pod
from batchsched.config.schema import Profile
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.runtime.registry import standard_registry
from batchsched.runner import profile_scheduler as planning
from batchsched.scheduling_queue.queue import SchedulingQueue
from batchsched.state.store import ObjectChange
from tests.service.town import Town
from tests.session.scenario import alone, cluster, nodes, pod

DEADLINE = "acme.dev/deadline"


class DeadlineSort:
    """A QueueSort that cannot read every deadline."""

    name = "DeadlineSort"

    def sort_key(self, pod: Pod, priority: int, queued: float) -> Any:
        return (-priority, float((pod.metadata.annotations or {}).get(DEADLINE, queued)))


def due(deadline: str, one: Pod) -> Pod:
    return msgspec.structs.replace(
        one, metadata=msgspec.structs.replace(one.metadata, annotations={DEADLINE: deadline})
    )


async def test_pod_for_which_queue_sort_fails_is_refused_and_keeps_no_other_pod_from_the_queue(monkeypatch):
    usual = standard_registry()

    class Registry:
        def create_pipeline(self, chosen: Profile, outside: Any) -> Pipeline:
            made = usual.create_pipeline(chosen, outside)
            others = [plugin for plugin in made.plugins if plugin not in made.queue_sorts]
            return Pipeline((DeadlineSort(), *others), made.weights)

    monkeypatch.setattr(planning, "standard_registry", Registry)
    town = Town(cluster(nodes(1, gpu=8)))
    town.make([due("tomorrow", pod("bad", gpu=1)), due("7", pod("good", gpu=1)), *alone(2, gpu=1).pods])
    await town.turns(3)
    assert set(town.bound) == {"good", "solo-0", "solo-1"}
    (refusal,) = town.decisions[-1].refusals
    assert (refusal.pod_group, refusal.reason) == ("team/bad", "PluginFailed")
    town.delete("bad")
    town.make([pod("later", gpu=1)])
    await town.turns(2)
    assert "later" in town.bound


async def test_change_that_the_queue_cannot_apply_is_logged_and_keeps_back_no_other(monkeypatch, caplog):
    usual = SchedulingQueue.apply_change

    def apply_change(self, change: ObjectChange, now: float) -> None:
        if change.key == "team/bad":
            raise ValueError("a bug")
        usual(self, change, now)

    monkeypatch.setattr(SchedulingQueue, "apply_change", apply_change)
    town = Town(cluster(nodes(1, gpu=8)))
    await town.turn()
    town.make([pod("bad", gpu=1), *alone(2, gpu=1).pods])
    await town.turns(2)
    assert set(town.bound) == {"solo-0", "solo-1"}
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "team/bad" in record.getMessage()
    assert "a bug" in str(record.exc_info[1])
