"""GangScheduling: members wait at Permit until their gang is complete, and then all of them go."""

import pytest

from batchsched.framework.cycle_state import CycleState
from batchsched.framework.gang_counts import GangPodCounts
from batchsched.framework.status import Code
from batchsched.framework.waiting_pods import WaitingPod
from batchsched.plugins.gang_scheduling import GangScheduling
from tests.plugins.cluster import class_of, node, pod, table

PLUGIN = GangScheduling()


def table_with(count: GangPodCounts | None):
    made = table([node("n0")])
    made.gang_of = lambda _: count
    return made


def permitted(count: GangPodCounts | None):
    return PLUGIN.permit(pod("p"), 0, table_with(count), CycleState())


def test_a_pod_without_a_gang_waits_for_nothing():
    assert permitted(None).status.ok


def test_a_member_waits_at_permit_for_the_timeout_of_its_gang():
    answer = permitted(GangPodCounts("team/g", minimum=2, existing=2, placed=1, timeout_seconds=30.0))
    assert (answer.status.code, answer.timeout_seconds) == (Code.WAIT, 30.0)


def test_the_last_member_allows_the_waiting_members():
    made = table_with(GangPodCounts("team/g", minimum=2, existing=2, placed=2))
    made.waiting.add_waiting_pod(WaitingPod(pod("first"), 0, "team/g", {GangScheduling.name: 9.0}))
    assert PLUGIN.permit(pod("p"), 0, made, CycleState()).status.ok
    assert made.waiting.is_gang_allowed("team/g")


@pytest.mark.parametrize(
    "count, reason",
    [
        (GangPodCounts("team/g", minimum=3, existing=2), "2"),
        (GangPodCounts("team/g", minimum=1, existing=2, sub_minimum={"x": 1}), "x"),
    ],
)
def test_a_gang_with_too_few_pods_is_refused_on_every_node_with_what_it_lacks(count, reason):
    made = table_with(count)
    answer = PLUGIN.prefilter(class_of(made, pod("p")), made.all_nodes_view(), CycleState())
    assert answer.status.code is Code.UNRESOLVABLE
    assert reason in answer.status.reasons[0]
