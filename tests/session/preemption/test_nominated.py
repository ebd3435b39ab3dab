"""Nominated capacity: counted in the node table, and removed from it again."""

from dataclasses import replace
from typing import Any

import msgspec

from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.framework.runtime.registry import standard_registry
from batchsched.session.preemption.nominated import NominatedPods
from batchsched.session.tables.session_tables import SessionTables
from tests.devices import objects as devices
from tests.session.preemption.running import wanting
from tests.session.scenario import cluster, node, nodes, pod, profile

GPU = "nvidia.com/gpu"
ONE: dict[str, Any] = {"requests": {"gpu": 8}}


def nominated(name: str, place: str, **more: Any) -> Snapshot:
    made = wanting(name, 1, **more, **ONE)
    status = msgspec.structs.replace(made.pods[0].status, nominated_node_name=place)
    return replace(made, pods=(msgspec.structs.replace(made.pods[0], status=status),))


def frame_of(*parts: Snapshot) -> SessionTables:
    return tables_of(cluster(nodes(2, gpu=8), *parts))


def tables_of(snapshot: Snapshot, settings: Profile | None = None) -> SessionTables:
    tables = SessionTables(snapshot, standard_registry().create_pipeline(settings or profile()))
    tables.update_pending_gangs_and_indexes()
    return tables


def gangs(tables: SessionTables):
    found = [tables.pending_gang(one) for one in tables.gangs.values()]
    return sorted(found, key=lambda gang: (gang.tier_sort_key, gang.key))


def used(tables: SessionTables) -> list[int]:
    return [int(amount) for amount in tables.node_table.requested[:, tables.node_table.column["pods"]]]


def test_resting_gang_keeps_its_nominated_node_and_the_table_is_restored_afterwards():
    tables = frame_of(nominated("g", "n1"))
    with NominatedPods(tables, frozenset({"team/g"})) as kept:
        assert used(tables) == [0, 1]
        assert [(pod.name, node) for pod, node in kept.nominated_pods_of_gangs_outside_session] == [
            ("g-0", 1)
        ]
    assert used(tables) == [0, 0]


def test_pending_gang_keeps_its_nominated_node_from_its_own_tier_until_released():
    tables = frame_of(
        nominated("g", "n1"), wanting("low", 1, priority=1, **ONE), wanting("top", 1, priority=99, **ONE)
    )
    kept = NominatedPods(tables, frozenset())
    parts = [[gang.key for gang in part] for part in kept.split_after_nominated_gangs(gangs(tables))]
    assert parts == [["team/top", "team/g"], ["team/low"]]
    nominees = [gang for gang in gangs(tables) if kept.has_nominated_pods(gang)]
    with kept:
        assert used(tables) == [0, 0]
        counted = kept.add_unplaced_pods_to_node_table(nominees, [])
        assert [len(one.placed) for one in counted] == [1]
        assert used(tables) == [0, 1]
        kept.remove_participating_pods_from_node_table()
        assert used(tables) == [0, 0]


def test_nominated_gangs_of_one_tier_form_one_part():
    kept_room = [nominated(name, f"n{at}") for at, name in enumerate("gh")]
    tables = frame_of(*kept_room, wanting("low", 1, priority=1, **ONE))
    kept = NominatedPods(tables, frozenset())
    parts = [[gang.key for gang in part] for part in kept.split_after_nominated_gangs(gangs(tables))]
    assert parts == [["team/g", "team/h"], ["team/low"]]


def test_nomination_for_a_deleted_node_keeps_no_capacity():
    tables = frame_of(nominated("g", "n9"))
    with NominatedPods(tables, frozenset({"team/g"})) as kept:
        assert kept.nominated_pods_of_gangs_outside_session == []


def test_nomination_for_a_node_that_is_too_small_even_if_empty_keeps_no_capacity():
    offered = (*nodes(1, gpu=8), node("n1", gpu=4))
    tables = tables_of(cluster(offered, nominated("g", "n1")))
    with NominatedPods(tables, frozenset({"team/g"})) as kept:
        assert kept.gang_identities == set()
        assert used(tables) == [0, 0]


def test_nomination_for_a_node_that_the_pod_does_not_select_keeps_no_capacity():
    made = nominated("g", "n1")
    selects = msgspec.structs.replace(made.pods[0].spec, node_selector={"disk": "ssd"})
    selecting = replace(made, pods=(msgspec.structs.replace(made.pods[0], spec=selects),))
    assert not NominatedPods(frame_of(selecting), frozenset()).gang_identities


def test_nomination_for_devices_that_no_node_offers_as_a_resource_keeps_its_capacity():
    served = cluster(
        nodes(2),
        nominated("g", "n1"),
        device_classes=(devices.device_class(extendedResourceName=GPU),),
        resource_slices=(devices.slice_of("n1", [devices.gpu(f"d{number}") for number in range(8)]),),
    )
    tables = tables_of(served)
    assert NominatedPods(tables, frozenset()).gang_identities == {"team/g"}


def test_nomination_for_a_resource_that_the_profile_ignores_keeps_its_capacity():
    ignoring = [{"name": "NodeResourcesFit", "args": {"ignoredResources": [GPU]}}]
    tables = tables_of(cluster(nodes(2), nominated("g", "n1")), profile(pluginConfig=ignoring))
    assert NominatedPods(tables, frozenset()).gang_identities == {"team/g"}


def test_nomination_for_a_full_node_keeps_its_capacity():
    tables = frame_of(nominated("g", "n1"), Snapshot(pods=(pod("leaving", on="n1", gpu=8),)))
    assert NominatedPods(tables, frozenset()).gang_identities == {"team/g"}
