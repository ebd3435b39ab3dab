"""Gangs that wait at Permit since an earlier session."""

from dataclasses import replace

import msgspec

from batchsched.api.snapshot import HeldGang, HeldPod, Snapshot
from batchsched.framework.status import PermitAnswer
from tests.session.scenario import NOW, cluster, gang, nodes, placed, queue, reasons
from tests.session.test_permit import Recorder, decide_with, wait


def held(snapshot: Snapshot, name: str, *pairs: tuple[str, str], until: float = NOW + 10) -> Snapshot:
    pods = tuple(HeldPod(f"team/{pod}", node) for pod, node in pairs)
    return replace(snapshot, held=(*snapshot.held, HeldGang(f"team/{name}", "Recorder", until, pods)))


def test_gang_that_is_gone_holds_nothing_any_more():
    snapshot = held(cluster(nodes(1, gpu=1), gang("late", 1)), "gone", ("gone-0", "n0"))
    decision, _ = decide_with(Recorder(), snapshot)
    assert set(placed(decision)) == {"late-0"}


def test_gang_whose_node_is_gone_queues_again_like_any_other():
    snapshot = held(cluster(nodes(1, gpu=1), gang("bert", 1)), "bert", ("bert-0", "n9"))
    decision, _ = decide_with(Recorder(), snapshot)
    assert placed(decision) == {"bert-0": "n0"}
    nowhere = held(cluster(nodes(1, gpu=1), gang("bert", 2)), "bert", ("bert-0", "n0"), ("bert-1", "n9"))
    decision, sessions = decide_with(Recorder(), nowhere)
    assert reasons(decision) == {"team/bert": "InsufficientResources"}
    assert not sessions.tables.node_table.requested.any()


def test_pod_alone_is_held_under_its_own_name():
    snapshot = cluster(nodes(1, gpu=1), gang("x", 1))
    single = replace(snapshot, pod_groups=(), pods=tuple(_alone(one) for one in snapshot.pods))
    decision, _ = decide_with(Recorder(), held(single, "x-0", ("x-0", "n0")))
    assert placed(decision) == {"x-0": "n0"}


def _alone(one):

    return msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, labels=None))


def test_deadline_of_the_first_wait_stands_however_often_the_plugin_says_wait():
    snapshot = held(cluster(nodes(1, gpu=1), gang("bert", 1)), "bert", ("bert-0", "n0"), until=NOW + 5)
    for _ in range(2):
        decision, _ = decide_with(Recorder(wait), snapshot)
        assert [one.until for one in decision.waiting] == ["2023-11-14T22:13:25Z"]


def test_gang_that_is_allowed_after_its_deadline_is_let_go_all_the_same():
    snapshot = held(cluster(nodes(1, gpu=1), gang("bert", 1)), "bert", ("bert-0", "n0"), until=NOW - 5)
    decision, _ = decide_with(Recorder(lambda _: PermitAnswer()), snapshot)
    assert placed(decision) == {"bert-0": "n0"}


def test_held_gangs_count_against_their_queues():
    snapshot = cluster(
        nodes(4, gpu=1),
        gang("bert", 1, queue="a"),
        gang("late", 2, queue="a"),
        queues=(queue("a", limit={"nvidia.com/gpu": "2"}),),
    )
    decision, _ = decide_with(Recorder(wait), held(snapshot, "bert", ("bert-0", "n0")))
    assert reasons(decision) == {"team/late": "QueueLimit"}
    assert [one.pod_group for one in decision.waiting] == ["team/bert"]
