"""Protection of running gangs from a refused gang: why the refused gang may not evict them.

A protection is stated only if the refused gang may evict gangs at all, and may evict gangs of this priority or queue:
otherwise the running gang would not be evicted without its protection either. The entitlements of other queues are not
compared.
"""

from typing import Final

from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.session.explanation.gang_view import GangView
from batchsched.session.preemption.eligibility import (
    RECLAIMING_CLASSES,
    is_too_critical_to_evict,
    list_non_preempting_priority_classes,
    preemption_policy_lets_gang_preempt,
    reclaim_min_runtime_seconds,
)
from batchsched.session.preemption.protection import is_gang_protected, start_of_first_pod
from batchsched.session.tables.gang import EntitlementClass, GangState

_RECLAIMING_SHARES: Final = frozenset(entitled.name_in_decision for entitled in RECLAIMING_CLASSES)


def find_protecting_rule(view: GangView, identity: str, share: str, profile: Profile, now: float) -> str:
    """Return the name of the rule that keeps a refused gang from evicting a running gang; "" if no rule does.

    It is a key of `PROTECTIONS` in `batchsched.api.decision`, such as `NotPreemptible`.

    Args:
      view: the refused gang.
      identity: the identity of the running gang.
      share: entitlement class of the refused gang, as a queue report names it.
      profile: the profile of the session.
      now: seconds since 1970.
    """
    tables, gang, members = view.tables, view.gang, view.tables.gangs[identity]
    is_in_queue = gang.queue == members.queue
    may_evict_others = (
        tables.running_gang(members).priority < gang.priority
        if is_in_queue
        else share in _RECLAIMING_SHARES and members.queue in tables.queues
    )
    if not may_evict_others or not _may_evict(view):
        return ""
    if is_too_critical_to_evict(
        tables.classes.priorities.highest_pod_priority(members.bound_pods), gang.priority
    ):
        return "SystemCritical"
    if not is_in_queue:
        run_time = now - start_of_first_pod(members.bound_pods)
        if run_time < reclaim_min_runtime_seconds(tables.queues, members.queue):
            return "ReclaimMinRuntime"
    # A gang inside the guarantee of its queue may evict protected gangs of other queues.
    if (is_in_queue or share != EntitlementClass.GUARANTEE.name_in_decision) and is_gang_protected(
        members, tables.queues, now
    ):
        is_preemptible = members.group is None or members.group.spec.preemptible
        return "MinRuntime" if is_preemptible else "NotPreemptible"
    # Without the solver, the PostFilter plugins may exceed a budget, as in kube-scheduler.
    return "DisruptionBudget" if profile.solver.enabled and _budget_forbids(tables.snapshot, members) else ""


def _may_evict(view: GangView) -> bool:
    """Return whether the refused gang may evict any pod."""
    tables = view.tables
    return tables.pipeline.nominates_nodes and preemption_policy_lets_gang_preempt(
        view.gang, list_non_preempting_priority_classes(tables.snapshot)
    )


def _budget_forbids(snapshot: Snapshot, members: GangState) -> bool:
    """Return whether a PodDisruptionBudget allows fewer evictions than the smallest part of a gang needs."""
    is_elastic = members.group is not None and members.group.spec.disruption_mode == "Elastic"
    for budget in snapshot.pod_disruption_budgets:
        if (budget.metadata.namespace or "default") != members.namespace:
            continue
        count = sum(budget.counts_eviction_of(pod) for pod in members.nonterminating_bound_pods)
        if count and budget.status.disruptions_allowed < (1 if is_elastic else count):
            return True
    return False
