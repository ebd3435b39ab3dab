"""Diagnosis: why a gang is not placed, what is missing, and what would unblock it."""

from dataclasses import replace
from typing import Final

import numpy as np

from batchsched.api.decision import Refusal
from batchsched.config.schema import SolverSettings
from batchsched.errors import PluginError
from batchsched.framework.filter_result import FilterResult
from batchsched.session.joint.formulation import Formulation, SessionContext, formulate
from batchsched.session.joint.proposal import JointOutcome, budget_of
from batchsched.session.placement.statement import GangPlacement
from batchsched.session.refusals.messages import REASON_OF, RefusalMessages
from batchsched.session.reservation.head import RESERVATION
from batchsched.session.tables.gang import PendingGang, PodGroupState
from batchsched.solver.greedy import solve_greedy
from batchsched.solver.problem import NONE, Problem, Solution
from batchsched.solver.relaxation.explain import RefusalExplainer
from batchsched.solver.relaxation.search import RefusalCause
from batchsched.solver.stage import solve

MAX_GANGS_TO_RESOLVE: Final = 8
"""Maximum number of refused gangs for which proposed changes are tested by solving the session again."""
MAX_PAIRS_TO_RESOLVE: Final = 400
"""Maximum pairs of a class and a node for the same."""

ROOM_CAUSES: Final = frozenset({RefusalCause.CAPACITY, RefusalCause.FRAGMENTED, RefusalCause.TOPOLOGY})
"""Causes that mean too little room in a domain; a rule between pods may restrict the gang to that domain."""


def refuse_for_failure(gang: PendingGang, error: PluginError) -> Refusal:
    """Refuse a gang since a plugin failed for one of its pods."""
    return Refusal(pod_group=gang.key, reason="PluginFailed", message=str(error))


def refuse_at_permit(walked: GangPlacement, *, timed_out: bool) -> Refusal:
    """Refuse a gang that was rolled back: by Reserve, by Permit, or since a plugin failed."""
    status = walked.refusal
    message = f"plugin {status.plugin}: {', '.join(status.reasons) or 'refused'}; the gang was rolled back"
    reason = "PermitTimeout" if timed_out else "PermitRejected" if walked.final else "PluginConstraint"
    if walked.failure:
        reason = "PluginFailed"
    return Refusal(pod_group=walked.gang.key, reason=reason, message=message)


def refuse_unschedulable(gang: PendingGang, scan: FilterResult, said: str = "") -> Refusal:
    """Refuse a gang with a pod that fits on no node, in kube-scheduler's words; `said` is the PostFilters' message."""
    sentence = scan.fit_error()
    message = f"{sentence} {said}" if said else sentence
    return Refusal(pod_group=gang.key, reason="NoFeasibleNode", message=message)


def refuse_over_limit(gang: PendingGang, queue: str) -> Refusal:
    """Refuse a gang that exceeds the limit of a queue."""
    message = f"queue {queue} allows no more: its limit, or maxRunningPodGroups, is reached"
    return Refusal(pod_group=gang.key, reason="QueueLimit", message=message)


def refuse_without_domain(gang: PendingGang) -> Refusal:
    """Refuse a gang that fits into no domain of its required level when it is placed pod by pod."""
    message = (
        "no domain of the required level takes all the pods it needs, each on the best node that is left"
    )
    return Refusal(pod_group=gang.key, reason="InsufficientTopologyCapacity", message=message)


def refuse_out_of_turn(members: PodGroupState, head: str) -> Refusal:
    """Refuse a gang behind the gang `head` (`namespace/name`); "" if the policy of the queue holds it back."""
    message = (
        f"{head} is ahead and cannot start yet; it may not be delayed"
        if head
        else "the policy holds it back until it leaves enough of the cluster free for those that come next"
    )
    return Refusal(pod_group=members.key, reason="OutOfTurn", message=message)


def explain_gang(context: SessionContext, gang: PendingGang) -> Refusal:
    """Return the refusal of one gang, with all other gangs where they are."""
    formulation = formulate(context, [gang], gang.created)
    return explain_single_gang(context, formulation, solve_greedy(formulation.problem))


def explain_single_gang(context: SessionContext, formulation: Formulation, solution: Solution) -> Refusal:
    """Return the refusal of a gang that is formulated alone; proposed changes are tested with the solver's greedy."""
    explainer = RefusalExplainer(
        formulation.problem, solution, resolve=solve_greedy, wider=context.levels.wider
    )
    return _refusal(context, formulation, explainer, 0)


class Diagnosis:
    """The refusals of a session that selects gangs jointly.

    In a small session, each proposed change is tested by solving the whole session again. In a larger one, it is tested
    with the other gangs where they are.
    """

    def __init__(
        self,
        context: SessionContext,
        formulation: Formulation,
        outcome: JointOutcome,
        settings: SolverSettings,
        seed: int,
    ) -> None:
        self._context = context
        self._formulation = formulation
        self._outcome = outcome
        self._settings = settings
        self._seed = seed

    def refusals(self) -> list[Refusal]:
        """Return a refusal for each gang of the session that was not placed."""
        placed = {walked.gang.members.identity for walked in self._outcome.placements}
        numbers = [
            number
            for number, gang in enumerate(self._formulation.gangs)
            if gang.members.identity not in placed and gang.need > 0
        ]
        explainer = RefusalExplainer(
            self._formulation.problem,
            self._standing(),
            resolve=self._resolve if self._small(len(numbers)) else None,
            wider=self._context.levels.wider,
        )
        return [self._refusal(explainer, number) for number in numbers]

    def _refusal(self, explainer: RefusalExplainer, number: int) -> Refusal:
        rejected = self._outcome.rejected.get(number)
        if rejected is not None:
            return refuse_at_permit(rejected, timed_out=False)
        return _refusal(self._context, self._formulation, explainer, number)

    def _small(self, refused: int) -> bool:
        problem = self._formulation.problem
        return (
            refused <= MAX_GANGS_TO_RESOLVE
            and problem.kinds.mask.shape[1] * len(problem.classes.kind) <= MAX_PAIRS_TO_RESOLVE
        )

    def _resolve(self, problem: Problem) -> Solution:
        return solve(problem, budget_of(self._settings), self._seed)

    def _standing(self) -> Solution:
        """Return the solution without the gangs that the statement rejected."""
        solution = self._outcome.solution
        if not self._outcome.rejected:
            return solution
        gang = self._formulation.problem.classes.gang[solution.classes]
        kept = ~np.isin(gang, list(self._outcome.rejected))
        taken = solution.taken.copy()
        taken[list(self._outcome.rejected)] = False
        return replace(
            solution,
            classes=solution.classes[kept],
            nodes=solution.nodes[kept],
            counts=solution.counts[kept],
            taken=taken,
        )


def _refusal(
    context: SessionContext, formulation: Formulation, explainer: RefusalExplainer, number: int
) -> Refusal:
    gang = formulation.gangs[number]
    if number in formulation.failures:
        return Refusal(pod_group=gang.key, reason="PluginFailed", message=formulation.failures[number])
    for part in gang.parts:
        surveyed = context.feasibility.of(part.pod_class)
        if surveyed.failure:
            return Refusal(pod_group=gang.key, reason="PluginFailed", message=surveyed.failure)
        if surveyed.scan is not None and not surveyed.scan.status.ok:
            return Refusal(pod_group=gang.key, reason="NoFeasibleNode", message=surveyed.scan.fit_error())
    evidence = explainer.explain_gang(number)
    row = formulation.problem.rows[evidence.row] if evidence.row != NONE else None
    if row is not None and row.plugin == RESERVATION:
        return refuse_out_of_turn(gang.members, row.reason)
    wording = RefusalMessages(context, formulation)
    if (
        number in formulation.gathered
        and evidence.cause in ROOM_CAUSES
        and explainer.fits_unconstrained(number)
    ):
        return Refusal(pod_group=gang.key, reason="PluginConstraint", message=wording.gathered(evidence))
    return Refusal(
        pod_group=gang.key,
        reason=REASON_OF[evidence.cause],
        message=wording.message(evidence),
        missing=wording.missing(evidence),
        relaxation=wording.relaxation(evidence.relaxation),
    )


def refuse_without_nodes(members: PodGroupState) -> Refusal:
    """Refuse a gang in a cluster without nodes."""
    return Refusal(
        pod_group=members.key,
        reason="NoNodes",
        message="no nodes available to schedule pods",
    )


def refuse_outside_window(members: PodGroupState, window: int) -> Refusal:
    """Refuse a gang that is behind the last gang of the session's window."""
    return Refusal(
        pod_group=members.key,
        reason="OutsideWindow",
        message=f"{window} gangs are ahead, as many as a session looks at (sessionWindow); it waits for a later one",
    )
