"""Queues for some namespaces only: gangs of other namespaces are refused, and are no demand of the queue."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from batchsched.api.core.cluster_objects import Namespace
from batchsched.api.core.metadata import ObjectMeta
from batchsched.api.crd.queue import Queue
from batchsched.api.snapshot import Snapshot
from batchsched.session.queue_report import report_queues
from tests.session.preemption.running import running, wanting
from tests.session.scenario import NOW, alone, cluster, nodes, placed, profile, queue, reasons, schedule

GPU = "nvidia.com/gpu"
OF_ML = {"namespaceSelector": {"matchLabels": {"team": "ml"}}}
NOT_WEB = {
    "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["web"]}]}
}
ALL: dict[str, Any] = {"namespaceSelector": {}}


def namespace(**labels: str) -> Namespace:
    """The namespace of all pods here."""
    return Namespace(metadata=ObjectMeta(name="team", labels=labels))


def used_by(labels: dict[str, str], *queues: Queue, name: str = "a") -> Snapshot:
    """A pending gang in a queue, in a namespace with these labels."""
    return cluster(
        nodes(1, gpu=8), wanting("w", 1, queue=name), queues=queues, namespaces=(namespace(**labels),)
    )


@pytest.mark.parametrize(
    "labels, spec, parent, selected",
    [
        ({"team": "ml"}, OF_ML, {}, True),
        ({"team": "web"}, OF_ML, {}, False),
        ({}, OF_ML, {}, False),
        ({}, NOT_WEB, {}, True),
        ({"team": "web"}, NOT_WEB, {}, False),
        ({}, ALL, OF_ML, True),
        ({"team": "web"}, {}, OF_ML, False),
        ({"team": "web"}, {}, ALL, True),
        (
            {"team": "web"},
            {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "team"}}},
            {},
            True,
        ),
    ],
)
def test_queue_is_for_the_namespaces_that_its_selector_or_that_of_its_nearest_ancestor_selects(
    labels, spec, parent, selected
):
    snapshot = used_by(labels, queue("up", **parent), queue("a", parent="up", **spec))
    decision = schedule(snapshot)
    assert bool(placed(decision)) == selected
    assert reasons(decision) == ({} if selected else {"team/w": "NamespaceNotSelected"})


def test_refusal_names_queue_namespace_and_selector_and_what_to_do():
    (refusal,) = schedule(used_by({}, queue("up", **OF_ML), queue("a", parent="up"))).refusals
    assert refusal.message == (
        "queue a is not for namespace team: the namespaceSelector of the queue up above it selects team=ml; use "
        "another queue, or have an administrator change the selector or the labels of the Namespace"
    )


def test_single_pod_of_another_namespace_is_refused():
    snapshot = replace(alone(1, gpu=1), nodes=nodes(1, gpu=8), queues=(queue("default", **OF_ML),))
    assert reasons(schedule(snapshot)) == {"team/solo-0": "NamespaceNotSelected"}


def test_selector_selects_by_the_name_of_a_namespace_that_is_not_known():
    spec = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "team"}}}
    assert placed(schedule(replace(used_by({}, queue("a", **spec)), namespaces=())))


def test_refused_gang_is_no_demand_in_the_fair_shares():
    """With its demand, a would be entitled to half of the devices that b uses."""
    held = [running(f"b{at}", ["n0"], queue="b") for at in range(8)]
    other = queue("b", weight=1)
    for labels, fair in (({}, 0), ({"team": "ml"}, 4)):
        snapshot = cluster(
            nodes(1, gpu=8),
            *held,
            wanting("w", 8, queue="a"),
            queues=(queue("a", weight=1, **OF_ML), other),
            namespaces=(namespace(**labels),),
        )
        report = report_queues(snapshot, profile(), NOW)
        by_name = {one.name: one for one in report.queues}
        assert by_name["a"].fair_share.get(GPU, 0) == fair
        assert (by_name["a"].waiting, by_name["a"].namespaces) == (int(fair > 0), "team=ml")
        assert len(schedule(snapshot).evictions) == 0


def test_running_gang_that_is_no_longer_selected_stays_and_counts():
    queues = (queue("a", limit={GPU: "8"}, **OF_ML), queue("b", parent="a", **ALL))
    snapshot = cluster(
        nodes(2, gpu=8),
        running("r", ["n0"], queue="a", requests={"gpu": 8}),
        wanting("w", 1, queue="b"),
        queues=queues,
    )
    decision = schedule(snapshot)
    assert decision.evictions == ()
    assert reasons(decision) == {"team/w": "QueueLimit"}


def test_selector_that_cannot_match_is_refused_when_it_is_read():
    for operator, values in (("In", []), ("Exists", ["x"])):
        with pytest.raises(ValueError, match="In and NotIn need values, Exists and DoesNotExist take none"):
            queue(
                "a",
                namespaceSelector={
                    "matchExpressions": [{"key": "k", "operator": operator, "values": values}]
                },
            )


def test_selector_is_printed_as_kubectl_prints_it():
    expressions = [
        {"key": "env", "operator": "In", "values": ["dev", "test"]},
        {"key": "batch", "operator": "Exists"},
        {"key": "legacy", "operator": "DoesNotExist"},
    ]
    selector = queue("a", namespaceSelector={"matchLabels": {"team": "ml"}, "matchExpressions": expressions})
    assert str(selector.spec.namespace_selector) == "team=ml,env in (dev,test),batch,!legacy"
    assert str(queue("a", **ALL).spec.namespace_selector) == "all namespaces"


def test_decision_reads_a_changed_label_of_the_namespace():
    snapshot = used_by({}, queue("a", **OF_ML))
    relabelled = msgspec.structs.replace(
        snapshot.namespaces[0], metadata=ObjectMeta(name="team", labels={"team": "ml"})
    )
    assert not placed(schedule(snapshot))
    assert placed(schedule(replace(snapshot, namespaces=(relabelled,))))
