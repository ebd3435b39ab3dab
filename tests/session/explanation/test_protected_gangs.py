"""A refusal names the running gangs that it might evict but for a protection, with the protection."""

import msgspec
import pytest

from batchsched.api.core.cluster_objects import PodDisruptionBudget
from batchsched.api.core.metadata import format_timestamp
from batchsched.api.core.pod import PodStatus
from batchsched.api.decision import PROTECTIONS, PrecedingGang, Refusal
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.session.explanation.explain import explain_refusals
from batchsched.session.explanation.sentences import preceding_gangs_clause
from batchsched.session.explanation.verification import MAX_VERIFICATION_WORK, DecidedInput
from batchsched.solver.relaxation.budget import ExplanationBudget
from tests.session.scenario import (
    GPU,
    NOW,
    cluster,
    gang,
    group,
    nodes,
    pod,
    priority_class,
    profile,
    queue,
    schedule,
)

PRIORITY_CLASSES = tuple(
    priority_class(name, value) for name, value in {"low": 1, "high": 1000, "critical": 2_000_000_000}.items()
)
EIGHT = {"gpu": 8}


def running(name: str, on: str, *, count: int = 1, priority: str = "", **spec) -> Snapshot:
    """A gang that has run for a minute, with its pods on one node."""
    status = PodStatus(phase="Running", start_time=format_timestamp(NOW - 60))
    members = tuple(
        msgspec.structs.replace(
            pod(
                f"{name}-{at}",
                group=name,
                on=on,
                gpu=8 // count,
                labels={"app": name},
                spec={"priority_class_name": priority},
            ),
            status=status,
        )
        for at in range(count)
    )
    return Snapshot(pods=members, pod_groups=(group(name, count, **spec),))


def refused(victim: Snapshot, settings: Profile | None = None, queues=(), budgets=(), **spec) -> Refusal:
    """The refusal of the gang `new` of one node, of which a running gang uses all devices."""
    snapshot = cluster(
        nodes(1, gpu=8),
        victim,
        gang("new", 1, requests=EIGHT, **{"priorityClassName": "high", **spec}),
        priority_classes=PRIORITY_CLASSES,
        queues=queues,
        pod_disruption_budgets=budgets,
    )
    return explained(snapshot, profile())


def explained(snapshot: Snapshot, settings: Profile) -> Refusal:
    """The refusal of the only refused gang."""
    session = DecidedInput(snapshot, settings, NOW, 0, schedule(snapshot, settings))
    (refusal,) = explain_refusals(session, ExplanationBudget(MAX_VERIFICATION_WORK)).refusals
    return refusal


def budget(allowed: int) -> PodDisruptionBudget:
    return msgspec.convert(
        {
            "metadata": {"name": "budget", "namespace": "team"},
            "spec": {"selector": {"matchLabels": {"app": "old"}}},
            "status": {"disruptionsAllowed": allowed},
        },
        PodDisruptionBudget,
    )


@pytest.mark.parametrize(
    "protected, protection, text",
    [
        ({"preemptible": False}, "NotPreemptible", "is not preemptible"),
        ({"minRuntimeSeconds": 900}, "MinRuntime", "is protected by its minRuntimeSeconds"),
    ],
)
def test_protection_by_the_pod_group_is_named(protected, protection, text):
    refusal = refused(running("old", "n0", **protected))
    assert refusal.ahead == (PrecedingGang("team/old", "Running", protection),)
    assert refusal.message.endswith(f"; team/old runs there and {text}")


def test_system_critical_pods_of_a_gang_with_a_lower_priority_are_named():
    refusal = refused(running("old", "n0", priority="critical", priorityClassName="low"))
    assert refusal.ahead[0].protection == "SystemCritical"
    assert refusal.message.endswith("; team/old runs there and has system-critical pods")


@pytest.mark.parametrize(
    "count, allowed, protection",
    [(2, 1, "DisruptionBudget"), (1, 0, "DisruptionBudget")],
    ids=["fewer than the gang has", "none"],
)
def test_disruption_budget_that_forbids_the_eviction_is_named(count, allowed, protection):
    refusal = refused(running("old", "n0", count=count), budgets=(budget(allowed),))
    assert refusal.ahead[0].protection == protection
    assert refusal.message.endswith("; team/old runs there and is protected by a PodDisruptionBudget")


def test_gang_of_another_queue_is_protected_for_the_time_that_its_queue_states():
    queues = (
        queue("ours", weight=1, guarantee={GPU: "8"}),
        queue("theirs", weight=1, reclaimMinRuntimeSeconds=600),
    )
    refusal = refused(running("old", "n0", queue="theirs"), queues=queues, queue="ours")
    assert refusal.ahead[0].protection == "ReclaimMinRuntime"
    assert "is protected by the reclaimMinRuntimeSeconds of its queue" in refusal.message


@pytest.mark.parametrize("enabled, protection", [(True, "DisruptionBudget"), (False, "")])
def test_budget_is_named_only_with_the_solver_since_preemption_by_pods_may_exceed_it(enabled, protection):
    snapshot = cluster(
        nodes(2, gpu=8),
        running("old", "n0"),
        running("firm", "n1", preemptible=False),
        gang("new", 2, requests=EIGHT, priorityClassName="high"),
        priority_classes=PRIORITY_CLASSES,
        pod_disruption_budgets=(budget(0),),
    )
    settings = profile(solver={"enabled": enabled})
    protection_by_gang = {entry.pod_group: entry.protection for entry in explained(snapshot, settings).ahead}
    assert protection_by_gang == {"team/firm": "NotPreemptible", "team/old": protection}


@pytest.mark.parametrize(
    "spec",
    [{"priorityClassName": ""}, {"preemptionPolicy": "Never"}],
    ids=["equal priority", "gang that never preempts"],
)
def test_protection_is_not_named_if_the_gang_could_not_be_evicted_without_it(spec):
    refusal = refused(running("old", "n0", preemptible=False), **spec)
    assert refusal.ahead == (PrecedingGang("team/old", "Running"),)
    assert refusal.message.endswith("; team/old runs there")


def test_gangs_with_one_protection_are_named_together_up_to_three():
    ahead = [
        *(PrecedingGang(f"team/{name}", "Running", "NotPreemptible") for name in "abcde"),
        PrecedingGang("team/f", "Running"),
        PrecedingGang("team/g", "Running", "MinRuntime"),
    ]
    assert preceding_gangs_clause(ahead, "InsufficientResources") == (
        "team/f runs there; team/a, team/b, team/c and 2 more run there and are not preemptible; "
        "team/g runs there and is protected by its minRuntimeSeconds"
    )


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_every_protection_has_a_text_for_one_gang_and_for_several(protection):
    one, two = (PrecedingGang(f"team/{name}", "Running", protection) for name in "ab")
    assert preceding_gangs_clause([one], "QueueLimit").startswith("team/a counts against this limit and ")
    assert preceding_gangs_clause([one, two], "Other").startswith("team/a and team/b run there and ")
