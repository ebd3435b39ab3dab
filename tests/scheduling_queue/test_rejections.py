import pytest

from batchsched.api.decision import REASONS, Refusal
from batchsched.framework.events import Resource
from batchsched.scheduling_queue import QueueState, Rejection
from batchsched.scheduling_queue.hints import HELPS, SHORT_OF_NODES, rejection_of
from tests.plugins.cluster import node
from tests.scheduling_queue.entities import place, pod, popped, queue, standard_pipeline

PIPELINE = standard_pipeline()


def refusal(reason: str) -> Refusal:
    return Refusal(pod_group="default/p", reason=reason, message="")


def waiting(reason: str):
    made = queue(pipeline=PIPELINE)
    made.add_pod(pod("p"), 0.0)
    made.add_unschedulable(popped(made, 0.0), rejection_of(refusal(reason), PIPELINE), 0.0)
    return made


def test_every_reason_is_known_to_be_ours_the_plugins_or_everybodys():
    assert set(HELPS) | SHORT_OF_NODES <= set(REASONS)
    assert set(REASONS) - set(HELPS) - SHORT_OF_NODES == {"OutOfTurn", "OutsideWindow", "PluginFailed"}


@pytest.mark.parametrize(
    "reason, resource, old, new",
    [
        ("NoNodes", Resource.NODE, None, node("n")),
        ("QueueNotFound", Resource.QUEUE, None, object()),
        ("UnknownTopologyLevel", Resource.TOPOLOGY, None, object()),
        ("QueueLimit", Resource.ASSIGNED_POD, pod("b"), None),
        ("InsufficientTopologyCapacity", Resource.NODE, None, node("n")),
        ("InsufficientResources", Resource.ASSIGNED_POD, pod("b"), None),
        ("NoFeasibleNode", Resource.NODE, None, node("n")),
        ("OutOfTurn", Resource.CSI_DRIVER, None, object()),
    ],
)
def test_what_may_help_brings_back_whom_a_session_refused(reason, resource, old, new):
    made = waiting(reason)
    assert place(made, "p") is QueueState.UNSCHEDULABLE
    made.cluster_changed(resource, old, new, 5.0)
    assert place(made, "p") is QueueState.ACTIVE


@pytest.mark.parametrize(
    "reason", ["QueueLimit", "PodGroupNotFound", "NotEnoughPods", "QueueNotFound", "Gated"]
)
def test_another_node_does_not_help_whom_no_node_was_refused(reason):
    made = waiting(reason)
    made.cluster_changed(Resource.NODE, None, node("n"), 5.0)
    assert place(made, "p") is QueueState.UNSCHEDULABLE


def test_a_plugin_that_broke_refused_nothing():
    assert rejection_of(refusal("PluginFailed"), PIPELINE) == Rejection()
    made = waiting("PluginFailed")
    assert place(made, "p") is QueueState.BACKOFF


def test_where_extenders_are_asked_every_event_may_change_their_minds(monkeypatch):
    pipeline = standard_pipeline()
    assert "Extenders" not in rejection_of(refusal("NoFeasibleNode"), pipeline).plugins
    monkeypatch.setattr(pipeline, "extenders", ["one"])
    assert "Extenders" in rejection_of(refusal("NoFeasibleNode"), pipeline).plugins
