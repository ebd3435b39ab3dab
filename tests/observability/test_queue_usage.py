"""What a queue uses is one number: in limits, entitlements, Queue status, metrics, web page and standby history."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from batchsched.api.core.cluster_objects import Namespace
from batchsched.api.core.metadata import ObjectMeta
from batchsched.api.core.pod import POD_GROUP_LABEL, QUEUE_LABEL
from batchsched.api.queue_access import DEFAULT_QUEUE_LABEL
from batchsched.config.schema import PolicySettings, Profile
from batchsched.controllers.queue_status_inputs import queue_status_inputs
from batchsched.framework.runtime.registry import standard_registry
from batchsched.observability.collector import MetricsCollector
from batchsched.observability.http.status_page import bound_and_total_pods_by_gang, build_cluster_view
from batchsched.observability.metrics import Metrics
from batchsched.scheduler.standby_usage import StandbyUsageRecorder
from batchsched.session.gangs.queue_limits import compute_remaining_limits, usage_by_queue
from batchsched.session.tables.session_tables import SessionTables
from batchsched.solver.problem import UNLIMITED
from batchsched.state.cluster_state import ClusterState
from tests.service.town import Clock
from tests.session.scenario import group, queue
from tests.state.objects import ended, leaving, node, pod

QUEUES = ("default", "ml", "web")
GROUPS = ("bert", "gpt", "orphan")
RESOURCES = ("cpu", "pods")
LIMIT = {"cpu": "1000", "pods": "1000"}
LIMITS = {"cpu": 1_000_000, "pods": 1000}
NAMES = frozenset({"batchsched"})
PROFILE = Profile(queue_policy=PolicySettings(name="decayed-usage"))
Usage = Mapping[str, Mapping[str, int]]
"""By queue and resource, what the queue uses, without zeros."""

pod_specs = st.fixed_dictionaries(
    {
        "scheduler": st.sampled_from(("batchsched", "default-scheduler")),
        "group": st.sampled_from(("", *GROUPS)),
        "queue": st.sampled_from(("", *QUEUES)),
        "node": st.sampled_from(("", "n0", "n1", "unknown")),
        "cpu": st.integers(1, 4),
        "state": st.sampled_from(("", "", "terminating", "Running", "Succeeded", "Failed", "assumed")),
    }
)
clusters = st.fixed_dictionaries(
    {
        "pods": st.lists(pod_specs, max_size=14),
        "queue_of_group": st.dictionaries(st.sampled_from(GROUPS[:2]), st.sampled_from(("", *QUEUES))),
        "default_queue": st.sampled_from(("", *QUEUES)),
        "namespace_last": st.booleans(),
        "deleted": st.lists(st.integers(0, 13), max_size=3),
        "groups_last": st.booleans(),
    }
)


def cluster_of(drawn: Any) -> ClusterState:
    """Return a cluster with the drawn pods; events come in one of two orders."""
    state = ClusterState(NAMES)
    for name in ("n0", "n1"):
        state.put(node(name, cpu=64))
    for name in QUEUES:
        state.put(queue(name, limit=LIMIT, policy={"name": "decayed-usage"}))
    pod_groups = [group(name, 1, queue=of or None) for name, of in sorted(drawn["queue_of_group"].items())]
    team = Namespace(metadata=ObjectMeta(name="team", labels={DEFAULT_QUEUE_LABEL: drawn["default_queue"]}))
    if not drawn["namespace_last"]:
        state.put(team)
    pods = [_pod(number, spec) for number, spec in enumerate(drawn["pods"])]
    for found in (*pods, *pod_groups) if drawn["groups_last"] else (*pod_groups, *pods):
        state.put(found)
    for number, spec in enumerate(drawn["pods"]):
        if spec["state"] == "assumed":
            state.assume_pod(f"team/pod-{number}", "n1", 0.0)
    for number in drawn["deleted"]:
        if number < len(pods):
            state.remove(pods[number])
    if drawn["namespace_last"]:
        state.put(team)
    return state


def _pod(number: int, spec: Any) -> Any:
    labels = {POD_GROUP_LABEL: spec["group"], QUEUE_LABEL: spec["queue"]}
    made = pod(
        f"pod-{number}",
        uid=f"uid-{number}",
        on="" if spec["state"] == "assumed" else spec["node"],
        labels={key: value for key, value in labels.items() if value},
        cpu=spec["cpu"],
    )
    made = replace(made, spec=replace(made.spec, scheduler_name=spec["scheduler"]))
    if spec["state"] in ("Running", "Succeeded", "Failed"):
        return ended(made, spec["state"])
    return leaving(made) if spec["state"] == "terminating" else made


def plain(usage: Mapping[str, Mapping[str, Any]]) -> Usage:
    """Return the amounts of the resources that are compared, without zeros and queues without usage."""
    amounts_of = {
        name: {resource: int(amounts[resource]) for resource in RESOURCES if amounts.get(resource)}
        for name, amounts in usage.items()
    }
    return {name: amounts for name, amounts in amounts_of.items() if amounts}


def by_rule(drawn: Any) -> Usage:
    """Return what queues use by the rule of docs/queues.md, counted pod by pod from the drawn values."""
    usage: dict[str, dict[str, int]] = {}
    for number, spec in enumerate(drawn["pods"]):
        if number in drawn["deleted"] or spec["state"] in ("Succeeded", "Failed"):
            continue
        ours = spec["scheduler"] == "batchsched"
        # A pending pod of another scheduler is not in the state, so it is not assumed.
        if not (ours if spec["state"] == "assumed" else spec["node"]):
            continue
        if not (ours or spec["group"] or spec["queue"]):
            continue
        stated = drawn["queue_of_group"].get(spec["group"], spec["queue"])
        name = stated or drawn["default_queue"] or "default"
        amounts = usage.setdefault(name, {"cpu": 0, "pods": 0})
        amounts["cpu"] += 1000 * spec["cpu"]
        amounts["pods"] += 1
    return usage


def in_limits(tables: SessionTables) -> Usage:
    limits = compute_remaining_limits(tables, "batchsched")
    column = tables.node_table.column
    assert (limits.remaining >= 0).all()
    free = {limit.name: limits.remaining_amounts[row] for row, limit in enumerate(limits.limits)}
    assert all((row[[column[resource] for resource in RESOURCES]] < UNLIMITED).all() for row in free.values())
    return {
        name: {resource: LIMITS[resource] - int(row[column[resource]]) for resource in RESOURCES}
        for name, row in free.items()
    }


def in_entitlements(tables: SessionTables) -> Usage:
    names = tables.node_table.resources
    return {
        name: {names[column]: int(amounts[column]) for column in np.flatnonzero(amounts)}
        for name, amounts in usage_by_queue(tables, "batchsched").items()
    }


def in_metrics(state: ClusterState) -> Usage:
    metrics = Metrics()
    MetricsCollector(metrics, state, ()).update_gauges((), 0.0)

    def sample(name: str, resource: str) -> int:
        labels = {"queue": name, "resource": resource}
        value = metrics.registry.get_sample_value("batchsched_queue_allocated", labels) or 0
        return int(value * (1000 if resource == "cpu" else 1))

    return {name: {resource: sample(name, resource) for resource in RESOURCES} for name in QUEUES}


def in_page(state: ClusterState) -> Mapping[str, str]:
    page = build_cluster_view(
        state.snapshot(),
        {},
        state.queue_usage.usage_and_demand_by_queue_and_resource(),
        bound_and_total_pods_by_gang(state.gangs),
    )
    return {row.name: row.allocated for row in page.queues if row.allocated}


def in_standby_history(state: ClusterState) -> Mapping[str, Mapping[str, float]]:
    clock = Clock()
    standby = StandbyUsageRecorder(state, clock, lambda: (PROFILE,), lambda: False)
    for _ in range(2):
        standby.record_usage()
        clock.turn(PROFILE.usage_half_life_seconds)
    standby.record_usage()
    return standby.usage_history(PROFILE).usage


@given(clusters)
def test_usage_of_a_queue_is_the_same_number_everywhere(drawn):
    state = cluster_of(drawn)
    expected = by_rule(drawn)
    tables = SessionTables(state.snapshot(), standard_registry().create_pipeline(PROFILE))
    tables.update_pending_gangs_and_indexes()
    assert plain(state.queue_usage.allocated_by_queue) == expected
    assert plain(in_limits(tables)) == expected
    assert plain(in_entitlements(tables)) == expected
    assert plain(in_metrics(state)) == expected
    allocated = {name: holding.allocated for name, holding in queue_status_inputs(state).items()}
    assert plain(allocated) == {name: {"cpu": amounts["cpu"]} for name, amounts in expected.items()}
    assert in_page(state) == {
        name: f"{amounts['cpu'] // 1000} cpu, {amounts['pods']} pods" for name, amounts in expected.items()
    }
    # After one half-life, and then another, the history of constant usage is half, then three quarters of it.
    history = in_standby_history(state)
    assert {name: round(amounts["cpu"] / 0.75) for name, amounts in history.items()} == {
        name: amounts["cpu"] for name, amounts in expected.items()
    }
