"""Recovery: overdue assumed pods are read first; partially bound gangs are completed or rolled back."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from batchsched.api.core.metadata import ObjectMeta
from batchsched.api.core.pod import POD_GROUP_LABEL, SUB_GROUP_LABEL
from batchsched.api.external.conversion import convert_external_pod_group
from batchsched.api.external.volcano import (
    VOLCANO_ANNOTATIONS,
    VOLCANO_TASK,
    VolcanoPodGroup,
    VolcanoPodGroupSpec,
)
from batchsched.api.snapshot import Snapshot
from batchsched.errors import ApiError
from batchsched.framework.status import SUCCESS, Code, PermitAnswer, Status
from tests.runner.test_profile_scheduler import FAULT
from tests.service.town import TTL, Town, with_plugin
from tests.session.clusters import on
from tests.session.scenario import alone, cluster, gang, group, nodes, pod
from tests.state.objects import ended


async def unconfirmed() -> Town:
    """A town in which a pod was bound, and the watch says nothing."""
    town = Town(cluster(nodes(1, gpu=1), alone(1, gpu=1)))
    await town.turn(watch=False)
    assert town.assumed == {"solo-0"}
    return town


async def test_pod_read_on_its_assumed_node_is_confirmed():
    town = await unconfirmed()
    await town.turn(TTL, watch=False)
    assert town.assumed == set()
    assert town.cache.get("pods", "team/solo-0").node_name == "n0"
    assert len(town.told) == 1


async def test_pod_read_as_pending_is_placed_again():
    town = await unconfirmed()
    town.server.pods["team/solo-0"] = town.server.keep(alone(1, gpu=1).pods[0])
    town.cache.put(town.server.pods["team/solo-0"])
    await town.turn(TTL, watch=False)
    await town.turn(TTL, watch=False)
    assert len(town.told) == 2


async def test_deleted_pod_is_dropped():
    town = await unconfirmed()
    town.server.pods.clear()
    await town.turn(TTL, watch=False)
    assert town.cache.get("pods", "team/solo-0") is None


async def test_new_pod_of_the_name_stays_assumed_if_the_overdue_pod_is_found_deleted():
    town = await unconfirmed()
    read = town.expiry._read

    async def read_while_the_pod_is_recreated(key: str) -> bytes:
        old = town.server.pods.pop(key)
        town.cache.remove(old)
        town.make([alone(1, gpu=1).pods[0]])
        assert town.cache.assume_pod(key, "n0", town.clock.now(), town.server.pods[key].metadata.uid)
        raise ApiError(404, "NotFound", "no such pod")

    town.expiry._read = read_while_the_pod_is_recreated
    await town.turn(TTL, watch=False)
    town.expiry._read = read
    assert town.assumed == {"solo-0"}


async def test_assumed_pod_is_not_read_before_it_is_overdue():
    town = await unconfirmed()
    town.server.pods.clear()
    await town.turn(TTL - 1, watch=False)
    assert town.assumed == {"solo-0"}


def partially_bound(pods: int, minimum: int | None = None, **spec: Any) -> Snapshot:
    """A gang of which one pod is bound, to n0."""
    whole = gang("bert", pods, minimum, **spec)
    return replace(whole, pods=(on(whole.pods[0], "n0"), *whole.pods[1:]))


async def test_partially_bound_gang_is_completed():
    town = Town(cluster(nodes(3, gpu=1), partially_bound(3)))
    await town.turn()
    assert set(town.bound) == {"bert-0", "bert-1", "bert-2"}
    await town.turn(601)
    assert town.server.evicted == []


async def test_gang_that_cannot_be_completed_is_evicted_after_its_timeout_and_not_before():
    town = Town(cluster(nodes(2, gpu=1), partially_bound(3, scheduleTimeoutSeconds=30)))
    await town.turns(29)
    assert town.server.evicted == []
    await town.turns(3)
    assert town.server.evicted == ["team/bert-0"]
    town.delete("bert-0")
    town.make([pod("bert-0", group="bert", gpu=1)])
    await town.turns(3)
    assert town.bound == {}


async def test_gang_that_is_rolled_back_is_not_completed_meanwhile():
    town = Town(cluster(nodes(2, gpu=1), partially_bound(3, scheduleTimeoutSeconds=5)))
    town.server.budgets.add("team/bert-0")
    await town.turns(8)
    assert town.stranded.leaving == {"team/bert"}
    for one in nodes(4, gpu=1):
        town.cache.put(one)
    await town.turns(3)
    assert set(town.bound) == {"bert-0"}
    town.server.budgets.clear()
    await town.turns(10)
    assert town.server.evicted == ["team/bert-0"]
    town.delete("bert-0")
    town.make([pod("bert-0", group="bert", gpu=1)])
    await town.turns(12)
    assert set(town.bound) == {"bert-0", "bert-1", "bert-2"}


async def test_new_leader_rolls_back_partially_bound_gangs_at_once_if_the_policy_requires_it():
    town = Town(cluster(nodes(3, gpu=1), partially_bound(3, strandedPolicy="Rollback")))
    await town.turn()
    assert town.server.evicted == ["team/bert-0"]
    assert town.bound == {}


async def test_gang_with_a_failed_binding_is_completed_whatever_the_policy():
    town = Town(cluster(nodes(3, gpu=1), gang("bert", 3, strandedPolicy="Rollback")))
    town.fail("bert-1", FAULT)
    await town.turn()
    town.mend()
    await town.turns(4)
    assert len(town.bound) == 3
    assert town.server.evicted == []


async def test_gang_is_not_rolled_back_while_its_binds_are_in_flight():
    town = Town(cluster(nodes(3, gpu=1), gang("bert", 3, scheduleTimeoutSeconds=5)))
    town.fail("bert-1", None)
    await town.turns(20)
    assert set(town.bound) == {"bert-0", "bert-2"}
    assert town.server.evicted == []
    town.mend()
    await town.turn(1)
    assert len(town.bound) == 3


async def test_gang_that_was_complete_is_never_rolled_back():
    town = Town(cluster(nodes(3, gpu=1), gang("bert", 3, scheduleTimeoutSeconds=5)))
    await town.turns(3)
    assert len(town.bound) == 3
    town.delete("bert-0")
    town.make([pod("bert-0", group="bert", gpu=8)])
    await town.turns(30)
    assert town.server.evicted == []


async def test_gang_with_finished_pods_is_not_treated_as_partially_bound():
    whole = cluster(nodes(3, gpu=1), gang("bert", 3, scheduleTimeoutSeconds=5))
    done, *others = (on(one, f"n{at}") for at, one in enumerate(whole.pods))
    town = Town(replace(whole, pods=(ended(done), *others)))
    await town.turns(20)
    assert town.server.evicted == []
    assert town.stranded.leaving == set()


async def test_gang_with_all_pods_deleted_starts_from_the_beginning():
    town = Town(cluster(nodes(3, gpu=1), gang("bert", 3, scheduleTimeoutSeconds=5)))
    await town.turns(2)
    for at in range(3):
        town.delete(f"bert-{at}")
    town.make(gang("bert", 3).pods)
    await town.turns(3)
    assert len(town.bound) == 3


async def test_gang_without_its_pod_group_is_not_rolled_back():
    found = partially_bound(3, scheduleTimeoutSeconds=5, strandedPolicy="Rollback")
    town = Town(cluster(nodes(2, gpu=1), replace(found, pod_groups=())))
    await town.turns(20)
    assert town.server.evicted == []


async def test_recovery_continues_after_the_change_log_overflows():
    town = Town(cluster(nodes(3, gpu=1), partially_bound(3, scheduleTimeoutSeconds=5)), journal=2)
    await town.turns(3)
    assert len(town.bound) == 3
    await town.turns(10)
    assert town.server.evicted == []


def volcano_gang(name: str, count: int, task: str) -> Snapshot:
    """A gang of Volcano; its pods name the PodGroup and the task in annotations only."""
    found = VolcanoPodGroup(
        metadata=ObjectMeta(name=name, namespace="team"),
        spec=VolcanoPodGroupSpec(min_member=count, min_task_member={task: count}),
    )
    marks = {VOLCANO_ANNOTATIONS[0]: name, VOLCANO_TASK: task}
    pods = [pod(f"bert-{at}", gpu=1) for at in range(count)]
    annotated = (
        msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, annotations=marks))
        for one in pods
    )
    return Snapshot(pods=tuple(annotated), pod_groups=(convert_external_pod_group(found),))


@pytest.mark.parametrize(
    "name, task, has_labels",
    [
        ("bert", "worker", True),
        ("bert-2f0c8a51-9d3e-4b6f-8a17-3c5d7e9f1b2a-and-one-more-long-suffix", "worker", False),
        ("bert", "first trainer", False),
    ],
    ids=["labels of the binding", "PodGroup name too long for a label", "subgroup name with a blank"],
)
async def test_partially_bound_gang_of_volcano_is_rolled_back_whatever_its_name(name, task, has_labels):
    town = Town(cluster(nodes(3, gpu=1), volcano_gang(name, 3, task), alone(1)))
    town.fail("bert-1", FAULT)
    await town.turns(3)
    assert set(town.bound) == {"bert-0", "bert-2", "solo-0"}
    labels = {POD_GROUP_LABEL: name, SUB_GROUP_LABEL: task} if has_labels else {}
    assert town.server.pods["team/bert-0"].labels == labels
    await town.turns(62, 10)
    assert sorted(town.server.evicted) == ["team/bert-0", "team/bert-2"]


class Patience:
    """A Permit that lets all pods wait, until it admits them."""

    name = "Patience"

    def __init__(self) -> None:
        self.admits = False

    def permit(self, pod: object, node: int, nodes: object, state: object) -> PermitAnswer:
        if self.admits:
            return PermitAnswer(SUCCESS)
        return PermitAnswer(Status(Code.WAIT, ("not yet",)), 1000.0)


async def test_pod_that_waits_at_permit_is_not_bound_while_its_gang_is_rolled_back(monkeypatch):
    permit = Patience()
    with_plugin(monkeypatch, permit)
    members = pod("g-0", group="g", on="n0", gpu=1), pod("g-1", group="g", gpu=1)
    parts = Snapshot(pods=members, pod_groups=(group("g", 2, scheduleTimeoutSeconds=30),))
    town = Town(cluster(nodes(2, gpu=1), parts))
    await town.turns(3)
    assert [held.pod_group for held in town.profile_scheduler.held] == ["team/g"]
    while not town.server.evicted:
        permit.admits = town.clock.steady_now() >= town.stranded._rollback_times["team/g"] - 1
        await town.turn(1)
    assert town.server.evicted == ["team/g-0"]
    assert town.bound == {}
