"""The default queue of a namespace: it is that of gangs that name none, pending and running."""

from typing import Any

import pytest

from batchsched.api.core.cluster_objects import Namespace
from batchsched.api.core.metadata import ObjectMeta
from batchsched.api.core.pod import QUEUE_LABEL
from batchsched.api.queue_access import DEFAULT_QUEUE_LABEL
from batchsched.api.snapshot import Snapshot
from batchsched.session.queue_report import report_queues
from tests.session.preemption.running import running, wanting
from tests.session.scenario import NOW, cluster, nodes, placed, pod, profile, queue, reasons, schedule

GPU = "nvidia.com/gpu"
CLOSED = {GPU: "0"}


def team(default: str = "") -> tuple[Namespace, ...]:
    """The namespace of all pods here."""
    return (
        Namespace(metadata=ObjectMeta(name="team", labels={DEFAULT_QUEUE_LABEL: default} if default else {})),
    )


def pending_in(snapshot: Snapshot) -> dict[str, int]:
    """The number of pending gangs of each queue with pending gangs."""
    report = report_queues(snapshot, profile(), NOW)
    return {one.name: one.waiting for one in report.queues if one.waiting}


QUEUES = (queue("a"), queue("b"))
OF_GROUP = {
    "no queue": ({}, "a"),
    "a queue": ({"queue": "b"}, "b"),
    "queue default": ({"queue": "default"}, "default"),
}


@pytest.mark.parametrize("spec, expected", OF_GROUP.values(), ids=OF_GROUP)
def test_gang_without_a_queue_belongs_to_the_default_queue_of_its_namespace(spec, expected):
    snapshot = cluster(nodes(1, gpu=8), wanting("w", 1, **spec), queues=QUEUES, namespaces=team("a"))
    assert pending_in(snapshot) == {expected: 1}


@pytest.mark.parametrize("labels, expected", [({}, "a"), ({QUEUE_LABEL: "b"}, "b"), ({QUEUE_LABEL: ""}, "a")])
def test_single_pod_without_a_queue_belongs_to_the_default_queue_of_its_namespace(labels, expected):
    snapshot = Snapshot(
        pods=(pod("p", gpu=1, labels=labels),), nodes=nodes(1, gpu=8), queues=QUEUES, namespaces=team("a")
    )
    assert pending_in(snapshot) == {expected: 1}


@pytest.mark.parametrize("namespaces", [(), team()], ids=["unknown", "no label"])
def test_namespace_without_a_default_queue_uses_the_queue_default(namespaces):
    snapshot = cluster(nodes(1, gpu=8), wanting("w", 1), queues=QUEUES, namespaces=namespaces)
    assert pending_in(snapshot) == {"default": 1}


def test_limit_of_the_default_queue_counts_running_and_pending_gangs_of_the_namespace():
    for default, expected in (("a", {"team/w": "QueueLimit"}), ("b", {})):
        snapshot = cluster(
            nodes(2, gpu=8),
            running("r", ["n0"], requests={"gpu": 8}),
            wanting("w", 1, requests={"gpu": 4}),
            queues=(queue("a", limit={GPU: "8"}), queue("b")),
            namespaces=team(default),
        )
        assert reasons(schedule(snapshot)) == expected


def test_default_queue_that_does_not_exist_is_refused_with_the_label_to_correct():
    snapshot = cluster(nodes(1, gpu=8), wanting("w", 1), queues=QUEUES, namespaces=team("lost"))
    (refusal,) = schedule(snapshot).refusals
    assert refusal.reason == "QueueNotFound"
    assert refusal.message == (
        "no Queue lost exists, which is the default queue of namespace team; create it, name another in spec.queue, or "
        "correct the label scheduling.batchsched.dev/default-queue of the Namespace"
    )


def test_refusal_of_a_pod_without_a_pod_group_for_an_unknown_queue_names_the_label():
    single = pod("p", gpu=1, labels={QUEUE_LABEL: "lost"})
    (refusal,) = schedule(Snapshot(pods=(single,), nodes=nodes(1, gpu=8), queues=QUEUES)).refusals
    assert refusal.message == f"no Queue lost exists; create it, or change the label {QUEUE_LABEL}"


def test_default_queue_may_be_for_other_namespaces():
    spec: dict[str, Any] = {"namespaceSelector": {"matchLabels": {DEFAULT_QUEUE_LABEL: "a"}}}
    for default, started in (("a", True), ("b", False)):
        snapshot = cluster(
            nodes(1, gpu=8),
            wanting("w", 1, queue="a"),
            queues=(queue("a", **spec), queue("b")),
            namespaces=team(default),
        )
        assert bool(placed(schedule(snapshot))) == started
