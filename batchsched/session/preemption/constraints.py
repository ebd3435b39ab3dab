"""Constraints on the choice of victims: limits from PodDisruptionBudgets and from entitlements of queues."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from batchsched.api.core.cluster_objects import PodDisruptionBudget
from batchsched.api.core.pod import Pod
from batchsched.framework.nodes.label_index import LabelSetIndex, PodSelector
from batchsched.session.preemption.eligibility import EvictionRules, EvictionUnit
from batchsched.session.tables.gang import PendingGang
from batchsched.solver.victims.victim_problem import VictimProblem


@dataclass(frozen=True, slots=True, eq=False)
class EvictionOption:
    """Pods of a running gang that may be evicted together for a pending gang, with the reason for the eviction.

    Args:
      unit: the pods.
      reason: the eviction reason that the decision states.
    """

    unit: EvictionUnit
    reason: str


class DisruptionBudgets:
    """The PodDisruptionBudgets of a session, less the evictions that the session has decided.

    Each pod is matched with the budgets once in a session, by an index over labels: there may be hundreds of budgets,
    thousands of candidates for eviction and many pending gangs.

    Args:
      budgets: the budgets at the beginning of the session.
    """

    def __init__(self, budgets: Iterable[PodDisruptionBudget]) -> None:
        self._budgets = tuple(budgets)
        self._allowed = [budget.status.disruptions_allowed for budget in self._budgets]
        self._protecting: dict[str, list[int]] = {}
        """By key of each matched pod, the numbers of the budgets that protect it, in ascending order."""

    def disruptions_allowed(self, number: int) -> int:
        """Return how many evictions a budget still allows; negative if it allowed too many before the session."""
        return self._allowed[number]

    def protecting_budgets(self, pods: Iterable[Pod]) -> Mapping[str, Sequence[int]]:
        """Return the numbers of the budgets against which the eviction of a pod counts, by pod key.

        The result contains at least the given pods.
        """
        unmatched = [pod for pod in pods if pod.key not in self._protecting]
        if unmatched:
            self._match(unmatched)
        return self._protecting

    def count_eviction(self, pod: Pod) -> None:
        """Count the eviction of a pod against its budgets; without this, two gangs could use one allowance."""
        for number in self.protecting_budgets([pod])[pod.key]:
            self._allowed[number] -= 1
        self._protecting[pod.key] = []

    def _match(self, pods: Sequence[Pod]) -> None:
        label_sets = LabelSetIndex()
        for pod in pods:
            self._protecting[pod.key] = []
            label_sets.add_label_set(pod.namespace, pod.labels)
        for number, budget in enumerate(self._budgets):
            namespaces = frozenset({budget.metadata.namespace or "default"})
            selector = PodSelector.from_label_selector(budget.spec.selector, namespaces)
            for row in label_sets.matching_label_set_numbers(selector).tolist():
                if budget.counts_eviction_of(pods[row]):
                    self._protecting[pods[row].key].append(number)


class EvictionConstraints:
    """Limits on what the solver may evict: PodDisruptionBudgets, and the entitlements of the victims' queues.

    Args:
      options: the U units among which the solver chooses.
      budgets: the PodDisruptionBudgets, less the evictions that this session has decided already.
    """

    def __init__(self, options: Sequence[EvictionOption], budgets: DisruptionBudgets) -> None:
        self._options = options
        self._rows: dict[object, tuple[int, dict[int, int]]] = {}
        """By budget number or (queue, protected gangs only, resource): the limit, and by unit index its amount."""
        protecting = budgets.protecting_budgets(pod for option in options for pod, _ in option.unit.pods)
        counts: dict[int, Counter[int]] = {}
        for index, option in enumerate(options):
            for pod, _ in option.unit.pods:
                for number in protecting[pod.key]:
                    counts.setdefault(number, Counter())[index] += 1
        for number in sorted(counts):
            self._rows[number] = (max(0, budgets.disruptions_allowed(number)), counts[number])

    def tighten_limits_to_exclude_victims(
        self, eligibility: EvictionRules, gang: PendingGang, units: Sequence[EvictionUnit]
    ) -> None:
        """Lower the limits on evictions so that the solver does not choose the given forbidden victims again.

        Args:
          eligibility: measures how far queues are above their entitlement.
          gang: the gang that reclaims.
          units: the chosen victims, for which `EvictionRules.may_evict_all` returned False.
        """
        requested = np.flatnonzero(gang.needs)
        # The protected gangs of a queue have a limit of their own, within that of the queue.
        pools: dict[tuple[str, bool], list[EvictionUnit]] = {}
        for unit in units:
            if unit.members.queue != gang.queue and unit.total.any():
                pools.setdefault((unit.members.queue, False), []).append(unit)
                if eligibility.belongs_to_protected_gang(unit):
                    pools.setdefault((unit.members.queue, True), []).append(unit)
        takings = []
        for (queue, protected), pool_units in sorted(pools.items()):
            above = (
                eligibility.protected_usage_above_guarantee(queue, gang)
                if protected
                else eligibility.usage_above_entitlement(queue, gang)
            )
            takings += [
                (queue, protected, r, above.get(r, 0), amounts)
                for r in requested.tolist()
                if any(amounts := [int(unit.total[r]) for unit in pool_units])
            ]
        # A pool loses too much if it is at its entitlement already before the smallest unit leaves it. If no pool is
        # (the rule that failed looks at several queues, or at the order), all of them are tightened.
        excessive = [taking for taking in takings if sum(taking[-1]) - min(taking[-1]) >= taking[-2]]
        for queue, protected, r, above_amount, amounts in excessive or takings:
            # Below the sum of this choice, or the solver would return it again; one unit may reach below the
            # entitlement, since a queue is above it until that unit leaves.
            limit = max(0, min(sum(amounts) - 1, above_amount + max(amounts) - 1))
            amount_by_unit = {
                index: int(option.unit.total[r])
                for index, option in enumerate(self._options)
                if option.unit.members.queue == queue
                and option.unit.total[r] > 0
                and (not protected or eligibility.belongs_to_protected_gang(option.unit))
            }
            self._rows[queue, protected, r] = (limit, amount_by_unit)

    def problem_with_constraints(self, problem: VictimProblem) -> VictimProblem:
        """Return a copy of the victim selection problem with the limits on evictions as constraints."""
        rows = list(self._rows.values())
        entries = [
            (row, unit, amount) for row, (_, units) in enumerate(rows) for unit, amount in units.items()
        ]
        return replace(
            problem,
            limit=np.array([limit for limit, _ in rows], np.int64),
            limit_row=np.array([row for row, _, _ in entries], np.int32),
            limit_unit=np.array([unit for _, unit, _ in entries], np.int32),
            limit_amount=np.array([amount for _, _, amount in entries], np.int64),
        )
