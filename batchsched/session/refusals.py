"""Refusals and their messages: sentences with names of objects, made from the solver's numbers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from batchsched.api.core.quantity import format_quantity
from batchsched.api.decision import Refusal
from batchsched.errors import PluginError
from batchsched.framework.filter_result import FilterResult
from batchsched.ports.external import Telemetry
from batchsched.queues.tree import NO_USER
from batchsched.session.joint.formulation import (
    STRICT_ORDER,
    Formulation,
    FormulationInput,
    formulate_problem,
)
from batchsched.session.joint.proposal import JointOutcome
from batchsched.session.reservations import RESERVATION
from batchsched.session.statement import GangPlacement
from batchsched.session.tables.gang import GangState, PendingGang
from batchsched.solver.greedy import solve_greedy
from batchsched.solver.problem import NONE, IntArray, Solution
from batchsched.solver.relaxation.changes import (
    AddedNodes,
    AddedPods,
    CombinedChange,
    LoosenedRow,
    RaisedQuota,
    Relaxation,
    RelaxedLevel,
)
from batchsched.solver.relaxation.explain import RefusalEvidence, RefusalExplainer, SearchEvidence
from batchsched.solver.relaxation.search import RefusalCause

REASON_OF: Mapping[RefusalCause, str] = {
    RefusalCause.NO_NODE: "NoFeasibleNode",
    RefusalCause.POD_TOO_LARGE: "NoFeasibleNode",
    RefusalCause.TOO_FEW_PODS: "NotEnoughPods",
    RefusalCause.QUOTA: "QueueLimit",
    RefusalCause.CAPACITY: "InsufficientResources",
    RefusalCause.FRAGMENTED: "InsufficientResources",
    RefusalCause.TOPOLOGY: "InsufficientTopologyCapacity",
    RefusalCause.STRUCTURE: "InsufficientTopologyCapacity",
    RefusalCause.ROW: "PluginConstraint",
    RefusalCause.NOT_ALLOWED: "PluginConstraint",
}


OUTBID: Final = "; gangs that go first took the room"
"""The end of the message about a gang that only other gangs of its session stop; an explanation names them."""


PROVED: Final = "; proved: no placement on the free nodes meets all its constraints"
"""The end of the message about a gang for which the exact search ended without a placement."""
NOT_PROVED: Final = "; not proved: the search for a placement was ended by its budget"
"""The end of the message about a gang for which the exact search did not end."""


class RefusalMessageWriter:
    """The component that writes a message for each refused gang, from the cause that the solver found.

    Args:
      inputs: for names of levels, domains and nodes.
      formulation: the solver problem in which the gangs were refused.
    """

    def __init__(self, inputs: FormulationInput, formulation: Formulation) -> None:
        self._inputs = inputs
        self._formulation = formulation
        self._table = inputs.tables.node_table

    def refusal_message(self, evidence: RefusalEvidence) -> str:
        """Return one sentence that states which constraint stops a refused gang, and how much is missing."""
        # The gang fits the cluster as it was: only the gangs chosen before it stand in its way.
        return f"{self._constraint(evidence)}{OUTBID if evidence.outbid else ''}"

    def _constraint(self, evidence: RefusalEvidence) -> str:
        missing = self._amounts(self.missing_resources(evidence))
        fit = _fitting_text(evidence)
        match evidence.cause:
            case RefusalCause.QUOTA:
                return self._quota(evidence)
            case RefusalCause.TOPOLOGY:
                return self._topology(evidence, fit, missing)
            case RefusalCause.STRUCTURE:
                return f"{fit}, but not in the domains that {self._structure(evidence.gang)} require"
            case RefusalCause.POD_TOO_LARGE:
                return f"a pod asks for more than any node that it may use has; missing: {missing}"
            case RefusalCause.NO_NODE:
                return f"no node passes the filters of a pod: {self._filters(evidence)}"
            case RefusalCause.FRAGMENTED:
                return f"{fit}; enough is free in sum, and too little of it together on one node"
            case RefusalCause.ROW if evidence.row != NONE:
                row = self._formulation.problem.rows[evidence.row]
                return f"plugin {row.plugin} does not leave a way: {row.reason}"
            case RefusalCause.ROW | RefusalCause.NOT_ALLOWED:
                return f"{fit}; rules between pods do not leave a way for the others"
            case RefusalCause.CAPACITY if evidence.level != NONE:
                return self._topology(evidence, fit, missing)
        return f"{fit}; missing: {missing}" if missing else fit

    def _structure(self, gang: int) -> str:
        """Return what a gang has of levels of subgroups, slices, and rules between its pods that name one domain."""
        formulation, problem = self._formulation, self._formulation.problem
        parts = np.flatnonzero(problem.subgroups.gang == gang)
        by_rules = gang in formulation.gathered or any(
            part in formulation.gathered_subgroups for part in parts
        )
        own = [part for part in parts.tolist() if part not in formulation.gathered_subgroups]
        names = {
            "its subGroups": bool((problem.subgroups.required[own] != NONE).any()),
            "its slices": problem.gangs.slice_size[gang] > 0
            or bool(problem.subgroups.slice_size[parts].any()),
            "rules between its pods": by_rules,
        }
        return " and ".join(name for name, present in names.items() if present) or "its subGroups"

    def proof_status_clause(self, search: SearchEvidence) -> str:
        """Return a clause that states whether an exact search has proved that a gang cannot be placed."""
        slices = ""
        if search.slice_level != NONE:
            owner = (
                "the gang" if search.subgroup == NONE else f"subGroup {self._subgroup_name(search.subgroup)}"
            )
            level = self._inputs.levels.names[search.slice_level][1]
            slices = f"; its pods would fit without the slices of {owner} in one {level} each"
        return f"{slices}{PROVED if search.proved else NOT_PROVED}"

    def single_domain_message(self, evidence: RefusalEvidence) -> str:
        """Return the message for a gang that a plugin restricts to one domain, but that fits in no domain."""
        label = self._formulation.gathered[evidence.gang]
        fit = _fitting_text(evidence)
        return f"rules between pods keep it in one domain of {label}, and {fit} in the best"

    def _quota(self, evidence: RefusalEvidence) -> str:
        limit = self._formulation.quotas.limits[evidence.quota]
        user = "pods without a user" if limit.user == NO_USER else f"user {limit.user}"
        name = f"{limit.name} for {user}" if limit.user else limit.name
        missing = self.missing_resources(evidence)
        # A kept guarantee is no limit of the gang's own queue: it reserves room for another one.
        if limit.kept:
            return f"what {name} does not lend is kept free; missing beside it: {self._amounts(missing)}"
        if evidence.missing_gangs:
            return f"queue {name} runs as many PodGroups as maxRunningPodGroups allows"
        return f"the {limit.limiting_setting(missing)} of queue {name} is short of {self._amounts(missing)}"

    def _topology(self, evidence: RefusalEvidence, fit: str, missing: str) -> str:
        if evidence.level == NONE or evidence.domain == NONE:
            return f"{fit} in any domain; missing in the best: {missing}"
        if evidence.domain >= len(self._inputs.levels.values[evidence.level]):
            return f"no node lies in any {self._inputs.levels.names[evidence.level][1]}: none has the level's label"
        domain = self._named_domain(evidence.level, evidence.domain)
        return f"{fit} in {domain}, the best of its level; missing there: {missing}"

    def _named_domain(self, level: int, domain: int) -> str:
        """Return the name of a domain; an index beyond the existing domains means a new one."""
        _, name = self._inputs.levels.names[level]
        values = self._inputs.levels.values[level]
        return f"{name} {values[domain]}" if domain < len(values) else f"a new {name}"

    def _filters(self, evidence: RefusalEvidence) -> str:
        for part in self._formulation.gangs[evidence.gang].parts:
            surveyed = self._inputs.feasible_nodes.feasible_nodes_of(part.pod_class)
            if surveyed.scan is not None and not surveyed.mask.any():
                return surveyed.scan.fit_error_message()
        return "no node is left for some of them"

    def missing_resources(self, evidence: RefusalEvidence) -> dict[str, int]:
        """Return how much a refused gang lacks of each resource except `pods`, in base units."""
        return self._named(evidence.missing)

    def _named(self, amounts: IntArray) -> dict[str, int]:
        return {
            resource: int(amount)
            for resource, amount in zip(self._table.resources[1:], amounts[1:], strict=False)
            if amount > 0
        }

    def _amounts(self, amounts: Mapping[str, int]) -> str:
        return ", ".join(
            f"{resource} {format_quantity(resource, amount)}" for resource, amount in amounts.items()
        )

    def smallest_change_message(self, change: Relaxation | None) -> str:
        """Describe the smallest change with which a refused gang would be placed; "" if none is known."""
        match change:
            case None:
                return ""
            case RelaxedLevel(_, level, subgroup):
                part = f" for its subGroup {self._subgroup_name(subgroup)}" if subgroup != NONE else ""
                if level == NONE:
                    return f"fits without a required level{part}"
                return f"fits at level {self._inputs.levels.names[level][1]}{part}"
            case AddedNodes():
                return self._nodes(change)
            case RaisedQuota(quota, amounts, gangs):
                return self._limit(quota, amounts, gangs)
            case LoosenedRow(row, by):
                rule = self._formulation.problem.rows[row]
                return f"fits when the rule of {rule.plugin} is looser by {by}: {rule.reason}"
            case AddedPods(_, count):
                return f"{count} more pods"
            case CombinedChange(parts):
                return " and ".join(text for part in parts if (text := self.smallest_change_message(part)))

    def _limit(self, quota: int, amounts: Sequence[int], gangs: int) -> str:
        """Return by how much the limits of a queue would have to rise, including present usage above them."""
        quotas = self._formulation.quotas
        # A limit that was lowered below the usage has to rise by the excess first.
        limit, over = quotas.limits[quota], np.maximum(0, -quotas.remaining[quota]).tolist()
        more = {
            resource: amount + above
            for resource, amount, above in zip(self._table.resources, amounts, over, strict=False)
            if amount > 0 and resource in limit.resources
        }
        parts = []
        if more:
            parts.append(f"waits for queue limit: {limit.name} would need {self._amounts(more)} more")
        if gangs and limit.pod_groups is not None:
            many = gangs + max(0, -int(quotas.remaining_gangs[quota]))
            noun = "PodGroup" if many == 1 else "PodGroups"
            parts.append(f"waits until queue {limit.name} may run {many} more {noun} (maxRunningPodGroups)")
        return " and ".join(parts)

    def _subgroup_name(self, subgroup: int) -> str:
        owners = self._formulation.problem.subgroups.gang
        place = int((owners[:subgroup] == owners[subgroup]).sum())
        group = self._formulation.gangs[int(owners[subgroup])].members.group
        return group.spec.sub_groups[place].name if group is not None else str(place)

    def _nodes(self, change: AddedNodes) -> str:
        table = self._table
        offered = {
            resource: int(amount)
            for resource, amount in zip(table.resources[1:], table.allocatable[change.like][1:], strict=True)
            if amount > 0
        }
        for resource, amount in zip(table.resources, change.extra, strict=False):
            if amount > 0:
                offered[resource] = offered.get(resource, 0) + int(amount)
        where = ""
        if change.level != NONE and change.domain != NONE:
            where = f" in {self._named_domain(change.level, change.domain)}"
        noun = "node" if change.count == 1 else "nodes"
        larger = " but larger" if any(change.extra) else ""
        # The existing node refuses the pods by a filter, so a copy of it would not help.
        if change.passing != NONE:
            larger += " and open to its pods"
        return f"{change.count} more {noun} like {table.names[change.like]}{larger} ({self._amounts(offered)}){where}"


ROOM_CAUSES: Final = frozenset({RefusalCause.CAPACITY, RefusalCause.FRAGMENTED, RefusalCause.TOPOLOGY})
"""Causes that mean too little room in a domain; a rule between pods may restrict the gang to that domain."""


def plugin_failure_refusal(gang: PendingGang, error: PluginError) -> Refusal:
    """Return the refusal `PluginFailed` of a gang with a pod for which a plugin failed."""
    return Refusal(pod_group=gang.key, reason="PluginFailed", message=str(error))


def rolled_back_refusal(placement: GangPlacement, *, timed_out: bool) -> Refusal:
    """Return the refusal of a gang that was rolled back after a plugin failed or refused one of its pods.

    If `timed_out`, the gang waited at Permit for too long.
    """
    status = placement.refusal
    message = f"plugin {status.plugin}: {', '.join(status.reasons) or 'refused'}; the gang was rolled back"
    # Not final: a filter refused the solver's placement, and another placement may pass in a later session.
    reason = "PermitTimeout" if timed_out else "PermitRejected" if placement.final else "PluginConstraint"
    if placement.failure:
        reason = "PluginFailed"
    return Refusal(pod_group=placement.gang.key, reason=reason, message=message)


def no_feasible_node_refusal(gang: PendingGang, scan: FilterResult, postfilter_message: str = "") -> Refusal:
    """Return the refusal of a gang with a pod that fits on no node.

    The message is kube-scheduler's fit error, followed by the message of the PostFilter plugins, if there is one.
    """
    sentence = scan.fit_error_message()
    message = f"{sentence} {postfilter_message}" if postfilter_message else sentence
    return Refusal(pod_group=gang.key, reason="NoFeasibleNode", message=message)


def over_queue_limit_refusal(gang: PendingGang, queue: str) -> Refusal:
    """Return the refusal of a gang that would exceed the limit of a queue."""
    message = f"queue {queue} allows no more: its limit, or maxRunningPodGroups, is reached"
    return Refusal(pod_group=gang.key, reason="QueueLimit", message=message)


def no_domain_refusal(gang: PendingGang) -> Refusal:
    """Return the refusal of a gang that fits into no domain of its required level when tried pod by pod."""
    message = (
        "no domain of the required level takes all the pods it needs, each on the best node that is left"
    )
    return Refusal(pod_group=gang.key, reason="InsufficientTopologyCapacity", message=message)


def out_of_turn_refusal(members: GangState, head: str) -> Refusal:
    """Return the refusal `OutOfTurn` of a gang that would delay other gangs if it started now.

    Args:
      members: the gang.
      head: `namespace/name` of the gang that must not be delayed; "" if the policy holds the gang back.
    """
    message = (
        f"{head} is ahead and cannot start yet; it may not be delayed"
        if head
        else "the policy holds it back until it leaves enough of the cluster free for those that come next"
    )
    return Refusal(pod_group=members.key, reason="OutOfTurn", message=message)


def explain_refused_gang(inputs: FormulationInput, gang: PendingGang) -> Refusal:
    """Return one gang's refusal with the reason why it does not fit while other gangs keep their nodes."""

    def refusal_from_greedy_solution() -> Refusal:
        formulation = formulate_problem(inputs, [gang], gang.created)
        return refusal_of_only_gang(inputs, formulation, solve_greedy(formulation.problem))

    return _explain_safely(gang.key, refusal_from_greedy_solution)


def refusal_of_only_gang(inputs: FormulationInput, formulation: Formulation, solution: Solution) -> Refusal:
    """Return the refusal of the gang in a solver problem that contains only this gang."""
    explainer = RefusalExplainer(
        formulation.problem,
        solution,
        wider=inputs.levels.wider,
        budget=inputs.explanations,
    )
    return _explain_safely(formulation.gangs[0].key, lambda: _refusal(inputs, formulation, explainer, 0))


def _explain_safely(pod_group: str, explain: Callable[[], Refusal]) -> Refusal:
    """Return the explanation of a refusal, or a refusal that says that there is none.

    An explanation changes no decision. A defect in one of them must neither fail the session, which would keep all
    other gangs pending, nor hide that the gang was refused.
    """
    try:
        return explain()
    except PluginError:  # a plugin's failure has its own handling and its own reason
        raise
    except Exception as error:  # noqa: BLE001 - any defect, as the docstring says
        message = f"the gang was not placed; the explanation failed, please report it: {type(error).__name__}: {error}"
        return Refusal(pod_group=pod_group, reason="ExplanationFailed", message=message)


def explain_refused_gangs(
    inputs: FormulationInput,
    formulation: Formulation,
    outcome: JointOutcome,
    telemetry: Telemetry,
) -> list[Refusal]:
    """Return one refusal, including the reason, for each unplaced gang of a solver problem.

    Changes that may help a gang are tested while all other gangs keep their nodes.
    """
    problem, rejected = formulation.problem, outcome.rejected
    placed = {placement.gang.members.identity for placement in outcome.placements}
    numbers = [
        number
        for number, gang in enumerate(formulation.gangs)
        if gang.members.identity not in placed and gang.need > 0
    ]
    explainer = RefusalExplainer(
        problem,
        _without_rejected(formulation, outcome),
        wider=inputs.levels.wider,
        budget=inputs.explanations,
    )
    refusals = []
    for number in numbers:
        key = formulation.gangs[number].key
        with telemetry.gang_span(key):
            refusals.append(
                # The statement's verdict is the true reason: the solver had found a place.
                rolled_back_refusal(rejected[number], timed_out=False)
                if number in rejected
                else _explain_safely(key, partial(_refusal, inputs, formulation, explainer, number))
            )
    return refusals


def _without_rejected(formulation: Formulation, outcome: JointOutcome) -> Solution:
    """Return the solution without the gangs that the statement rejected: they take no room from the others."""
    solution, rejected = outcome.solution, list(outcome.rejected)
    if not rejected:
        return solution
    kept = ~np.isin(formulation.problem.classes.gang[solution.classes], rejected)
    taken = solution.taken.copy()
    taken[rejected] = False
    return replace(
        solution,
        classes=solution.classes[kept],
        nodes=solution.nodes[kept],
        counts=solution.counts[kept],
        taken=taken,
    )


def _refusal(
    inputs: FormulationInput, formulation: Formulation, explainer: RefusalExplainer, number: int
) -> Refusal:
    gang = formulation.gangs[number]
    if number in formulation.failures:
        return Refusal(pod_group=gang.key, reason="PluginFailed", message=formulation.failures[number])
    for part in gang.parts:
        surveyed = inputs.feasible_nodes.feasible_nodes_of(part.pod_class)
        if surveyed.failure:
            return Refusal(pod_group=gang.key, reason="PluginFailed", message=surveyed.failure)
        if surveyed.scan is not None and not surveyed.scan.status.ok:
            return Refusal(
                pod_group=gang.key, reason="NoFeasibleNode", message=surveyed.scan.fit_error_message()
            )
    # Plugin failures and PreFilter verdicts come first: the solver saw empty masks and would report a lack of room.
    evidence = explainer.explain_gang_refusal(number)
    row = formulation.problem.rows[evidence.row] if evidence.row != NONE else None
    # These rows are no rules of plugins: to the user, the gang waits for its turn.
    if row is not None and row.plugin in (RESERVATION, STRICT_ORDER):
        return out_of_turn_refusal(gang.members, row.reason)
    wording = RefusalMessageWriter(inputs, formulation)
    # A lack of room inside the domain is the plugin's doing if the gang fits without that restriction.
    if (
        number in formulation.gathered
        and evidence.cause in ROOM_CAUSES
        and explainer.fits_without_plugins_and_level(number)
    ):
        return Refusal(
            pod_group=gang.key, reason="PluginConstraint", message=wording.single_domain_message(evidence)
        )
    proof = (
        explainer.check_refusal_by_exact_search(number)
        if evidence.cause in (*ROOM_CAUSES, RefusalCause.ROW)
        else None
    )
    if proof is not None and evidence.cause in ROOM_CAUSES and evidence.fits >= evidence.need:
        evidence = replace(evidence, cause=RefusalCause.STRUCTURE)
    return Refusal(
        pod_group=gang.key,
        reason=REASON_OF[evidence.cause],
        message=wording.refusal_message(evidence)
        + (wording.proof_status_clause(proof) if proof is not None else ""),
        missing=wording.missing_resources(evidence),
        relaxation=wording.smallest_change_message(evidence.relaxation),
    )


def no_nodes_refusal(members: GangState) -> Refusal:
    """Return the refusal of a gang in a cluster without nodes."""
    return Refusal(
        pod_group=members.key,
        reason="NoNodes",
        message="no nodes available to schedule pods",
    )


def outside_window_refusal(members: GangState, window: int) -> Refusal:
    """Return the refusal of a gang that was not tried, because `sessionWindow` other gangs come before it."""
    return Refusal(
        pod_group=members.key,
        reason="OutsideWindow",
        message=f"{window} gangs are ahead, as many as a session looks at (sessionWindow); it waits for a later one",
    )


def _fitting_text(evidence: RefusalEvidence) -> str:
    """Return how many of the pods that a gang needs fit."""
    if evidence.need == 1:
        return f"{evidence.fits} of 1 pod fits"
    return f"{evidence.fits} of the {evidence.need} pods it needs fit"
