"""The status of gangs, queues and pods, made of numbers and of the last word."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.core.pod import PodStatus
from batchsched.api.crd.podgroup import PodGroupStatus
from batchsched.api.crd.queue import QueueStatus
from batchsched.api.decision import REASONS, Refusal, WaitingAtPermit
from batchsched.api.gang import GangPhase
from batchsched.controllers.desired_status import (
    GangStatusInput,
    QueueStatusInput,
    desired_group_status,
    desired_kubernetes_group_condition,
    desired_queue_status,
    desired_unscheduled_pod_status,
    phase_from_pods_and_permit,
)
from batchsched.controllers.refusal_history import GangStatusRecord
from tests.session.scenario import GPU, NOW, group, pod, queue

BERT = group("bert", 3)
NOTHING = GangStatusRecord()
REFUSED = GangStatusRecord(
    refusal=Refusal(
        pod_group="team/bert", reason="QueueLimit", message="2 over the limit.", relaxation="a limit of 8"
    )
)
HELD = GangStatusRecord(
    waiting=WaitingAtPermit(pod_group="team/bert", plugin="Quota", until="2026-01-01T00:10:00Z")
)


@pytest.mark.parametrize(
    "numbers, record, expected",
    [
        pytest.param(GangStatusInput(pending=3), NOTHING, GangPhase.PENDING, id="waiting"),
        pytest.param(GangStatusInput(pending=3), HELD, GangPhase.HELD, id="held"),
        pytest.param(GangStatusInput(placed=3), NOTHING, GangPhase.SCHEDULED, id="placed"),
        pytest.param(GangStatusInput(placed=3, bound=2), REFUSED, GangPhase.SCHEDULED, id="half bound"),
        pytest.param(GangStatusInput(placed=3, bound=3), NOTHING, GangPhase.RUNNING, id="bound"),
        pytest.param(
            GangStatusInput(placed=3, bound=3, pending=2), REFUSED, GangPhase.RUNNING, id="bound with surplus"
        ),
        pytest.param(
            GangStatusInput(placed=1, bound=1, succeeded=2),
            NOTHING,
            GangPhase.RUNNING,
            id="two of three ended",
        ),
        pytest.param(GangStatusInput(succeeded=3), NOTHING, GangPhase.SUCCEEDED, id="ended well"),
        pytest.param(
            GangStatusInput(succeeded=3, failed=1), NOTHING, GangPhase.SUCCEEDED, id="one too many failed"
        ),
        pytest.param(GangStatusInput(succeeded=2, failed=1), NOTHING, GangPhase.FAILED, id="failed"),
        pytest.param(
            GangStatusInput(placed=1, bound=1, pending=2), NOTHING, GangPhase.PENDING, id="fell short"
        ),
        pytest.param(GangStatusInput(), NOTHING, GangPhase.PENDING, id="empty"),
    ],
)
def test_phase_follows_the_pods_of_the_gang(numbers, record, expected):
    assert phase_from_pods_and_permit(3, numbers, record) is expected


def condition(numbers: GangStatusInput, record: GangStatusRecord = NOTHING, before=()):
    return desired_group_status(BERT, numbers, record, {"conditions": before}, NOW)["conditions"][-1]


def test_status_of_a_refused_gang_has_reason_shortage_and_relaxation():
    found = condition(GangStatusInput(pending=3), REFUSED)
    assert (found["status"], found["reason"]) == ("False", "QueueLimit")
    assert found["message"] == "2 over the limit; would help (not verified): a limit of 8"


def test_status_of_an_incomplete_gang_counts_its_existing_pods():
    found = condition(GangStatusInput(pending=1, placed=1), REFUSED)
    assert (found["reason"], found["message"]) == (
        "NotEnoughPods",
        "2 of the 3 pods that minMember asks for exist; create the others",
    )


def test_condition_of_a_held_gang_names_the_permit_plugin():
    found = condition(GangStatusInput(pending=3), HELD)
    assert found["reason"] == "Held"
    assert "Quota" in found["message"]


def test_running_gang_is_scheduled_and_has_no_position():
    found = desired_group_status(
        BERT,
        GangStatusInput(placed=3, bound=3, running=1, position=4),
        GangStatusRecord(start="2026"),
        {},
        NOW,
    )
    assert found["conditions"][0]["status"] == "True"
    assert found["queuePosition"] is None
    assert found["estimatedStartTime"] is None
    assert found["running"] == 1


def test_pending_gang_has_its_position_and_expected_start():
    start = "2026-01-01T00:00:00Z"
    found = desired_group_status(
        BERT, GangStatusInput(pending=3, position=4), GangStatusRecord(start=start), {}, NOW
    )
    assert (found["queuePosition"], found["estimatedStartTime"]) == (4, start)


def test_transition_time_changes_with_the_status_and_conditions_of_other_writers_are_kept():
    theirs = {"type": "Other", "status": "True"}
    since = {"type": "Scheduled", "status": "False", "lastTransitionTime": "2020-01-01T00:00:00Z"}
    found = desired_group_status(
        BERT, GangStatusInput(pending=3), REFUSED, {"conditions": (since, theirs)}, NOW
    )["conditions"]
    assert found[0] == theirs
    assert found[1]["lastTransitionTime"] == "2020-01-01T00:00:00Z"
    assert (
        condition(GangStatusInput(placed=3), before=(since,))["lastTransitionTime"] == "2023-11-14T22:13:20Z"
    )


def test_condition_of_a_capped_priority_comes_and_goes_with_its_cause():
    why = "priorityClassName high has the value 100"
    warnings = {"PriorityCapped": ("ClassAbovePods", why)}
    capped = desired_group_status(BERT, GangStatusInput(pending=3), NOTHING, {}, NOW, warnings)
    shown = {one["type"]: (one["status"], one["message"]) for one in capped["conditions"]}
    assert shown["PriorityCapped"] == ("True", why)
    later = desired_group_status(BERT, GangStatusInput(pending=3), NOTHING, capped, NOW)
    assert [one["type"] for one in later["conditions"]] == ["Scheduled"]


counts = st.integers(0, 5)


@given(
    st.builds(GangStatusInput, counts, counts, counts, counts, counts, counts, st.none() | counts),
    st.sampled_from(
        [
            GangStatusRecord(),
            REFUSED,
            HELD,
            *(
                GangStatusRecord(refusal=Refusal(pod_group="team/bert", reason=one, message=""))
                for one in REASONS
            ),
        ]
    ),
)
def test_every_written_status_follows_the_schema(numbers, record):
    written = desired_group_status(BERT, numbers, record, {}, NOW)
    PodGroupStatus.model_validate({name: value for name, value in written.items() if value is not None})
    for one in written["conditions"]:
        assert one["reason"]
        assert one["lastTransitionTime"]


def test_status_of_a_queue_has_allocated_quantities():
    found = desired_queue_status(
        queue("ml"), QueueStatusInput({"cpu": 1500, GPU: 3, "memory": 0}, 2), (), NOW
    )
    assert (found["allocated"], found["pending"]) == ({"cpu": "1500m", GPU: "3"}, 2)
    assert found["conditions"][0]["type"] == "Active"
    QueueStatus.model_validate(found)


def test_status_of_a_queue_outside_the_tree_has_the_reason():
    found = desired_queue_status(queue("ml"), QueueStatusInput({}, 0, "no queue is named 'x'"), (), NOW)[
        "conditions"
    ][0]
    assert (found["status"], found["reason"], found["message"]) == (
        "False",
        "Misplaced",
        "no queue is named 'x'",
    )


def test_condition_of_a_pod_keeps_its_time_while_it_stays_false():
    one = pod("bert-0")
    assert (
        "lastTransitionTime"
        in desired_unscheduled_pod_status(one, "Unschedulable", "no room", NOW)["conditions"][0]
    )
    refused = msgspec.convert({"conditions": [{"type": "PodScheduled", "status": "False"}]}, PodStatus)
    again = msgspec.structs.replace(one, status=refused)
    assert (
        "lastTransitionTime"
        not in desired_unscheduled_pod_status(again, "Unschedulable", "no room", NOW)["conditions"][0]
    )


def upstream(numbers: GangStatusInput, record: GangStatusRecord = NOTHING, before=()):
    return desired_kubernetes_group_condition(BERT, "PodGroupScheduled", numbers, record, before, NOW)


def test_pod_group_of_kubernetes_has_no_condition_before_a_session_tried_it():
    assert upstream(GangStatusInput(pending=3)) is None
    assert upstream(GangStatusInput(pending=1)) is None
    assert upstream(GangStatusInput(pending=3), HELD) is None


def test_pod_group_of_kubernetes_is_unschedulable_and_then_scheduled_in_the_words_of_kube_scheduler():
    refused = upstream(GangStatusInput(pending=3), REFUSED)
    assert (refused["status"], refused["reason"]) == ("False", "Unschedulable")
    assert refused["message"] == "2 over the limit; would help (not verified): a limit of 8"
    assert upstream(GangStatusInput(pending=3), REFUSED, [refused]) is None
    assert upstream(GangStatusInput(placed=3), NOTHING, [refused]) is None
    placed = upstream(GangStatusInput(placed=3, bound=3, was_whole=True), NOTHING, [refused])
    assert (placed["type"], placed["status"], placed["reason"]) == ("PodGroupScheduled", "True", "Scheduled")
    assert upstream(GangStatusInput(placed=3, bound=3, running=3, was_whole=True), NOTHING, [placed]) is None


def test_pod_group_of_kubernetes_stays_scheduled_whatever_comes_later():
    placed = upstream(GangStatusInput(placed=3, was_whole=True))
    assert upstream(GangStatusInput(placed=1, pending=2), REFUSED, [placed]) is None


def test_plugin_fault_is_a_scheduler_error_condition():
    broke = GangStatusRecord(refusal=Refusal(pod_group="team/bert", reason="PluginFailed", message="x"))
    assert upstream(GangStatusInput(pending=3), broke)["reason"] == "SchedulerError"
