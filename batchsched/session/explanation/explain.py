"""Explanation of the refusals of a session: `explain_refusals` adds the explanations to the decision."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import msgspec

from batchsched.api.decision import Decision, InputChange, PrecedingGang, Refusal
from batchsched.api.named_objects import NamedObjects
from batchsched.api.snapshot import Snapshot
from batchsched.ports.external import Telemetry
from batchsched.session.explanation.changed_input import snapshot_after_changes
from batchsched.session.explanation.gang_view import GangView, build_session_tables
from batchsched.session.explanation.gangs_ahead import (
    OrderPosition,
    find_preceding_gangs,
    order_positions_by_gang,
)
from batchsched.session.explanation.job_options import gang_change_options
from batchsched.session.explanation.node_options import node_addition_options
from batchsched.session.explanation.options import ChangeOption
from batchsched.session.explanation.queue_options import TotalPodRequests, queue_limit_options
from batchsched.session.explanation.search import ChangeSearch
from batchsched.session.explanation.sentences import (
    NeverStartableExplanation,
    describe_changes,
    explain_why_gang_can_never_start,
    format_names,
    preceding_gangs_clause,
    raised_resource_and_amount,
)
from batchsched.session.explanation.verification import (
    DecideAgain,
    DecidedInput,
    OutOfBudget,
    PlacementVerifier,
    decide_assignments,
    estimate_decision_work,
    explanation_budget_of_session,
    first_attempt_work_limit,
    require_budget,
    snapshot_with_only_pods,
)
from batchsched.session.feasibility_report import snapshot_after_decision
from batchsched.session.refusals import OUTBID
from batchsched.session.tables.session_tables import Pause, SessionTables, do_not_pause
from batchsched.solver.relaxation.budget import ExplanationBudget

EXCEEDING_REASONS: Final = frozenset(
    {
        "QueueLimit",
        "NoFeasibleNode",
        "InsufficientResources",
        "InsufficientTopologyCapacity",
        "PluginConstraint",
    }
)
"""Reasons of gangs that ask for too much or too special nodes; other reasons state all that there is to say."""
NEVER: Final = "can never start on this cluster: "
NOT_THE_QUEUE: Final = "its pods do not fit together on the empty nodes"
NOT_VERIFIED: Final = "; what would help is not verified, since the budget for explanations is spent"


def explain_refusals(
    decided: DecidedInput,
    budget: ExplanationBudget | None = None,
    only: Collection[str] | None = None,
    telemetry: Telemetry | None = None,
) -> Decision:
    """Return the decision with refusals that state whether their gangs can ever start, and what would help.

    An explained refusal also names the gangs that precede the refused gang.

    Args:
      decided: the input and the decision of the session.
      budget: the work that may be spent; None for `explanation_budget_of_session`.
      only: `namespace/name` of the gangs to examine; None for all refused gangs.
      telemetry: receives the progress.
    """
    decision = decided.decision
    if not decision.refusals:
        return decision
    verifier = RefusalVerifier(decided)
    budget = budget or explanation_budget_of_session(decided.snapshot)
    examined = [refusal for refusal in decision.refusals if only is None or refusal.pod_group in only]
    explained: dict[str, Refusal] = {}

    def explain_within_first_budget(refusal: Refusal, budget: ExplanationBudget) -> Refusal:
        with budget.limited_to(first_attempt_work_limit(decided, budget)):
            return verifier.explain_refusal(refusal, budget)

    def explain_further(refusal: Refusal, budget: ExplanationBudget) -> Refusal:
        if not verifier.can_explain_further(refusal, budget):
            return explained[refusal.pod_group]
        return verifier.explain_refusal(refusal, budget)

    # Whether a gang can ever start costs little, so that it is determined for many gangs of a long session.
    # A gang with a long explanation continues after all others, since it would leave nothing for them.
    steps = (verifier.examine_in_empty_cluster, explain_within_first_budget, explain_further)
    for step_index, step in enumerate(steps):
        for done, refusal in enumerate(examined, step_index * len(examined)):
            if telemetry is not None:
                telemetry.on_progress(done, len(steps) * len(examined), "explaining refusals")
            explained[refusal.pod_group] = _explain_safely(step, refusal, budget)
    refusals = tuple(explained.get(refusal.pod_group, refusal) for refusal in decision.refusals)
    return msgspec.structs.replace(decision, refusals=refusals)


def _explain_safely(
    step: Callable[[Refusal, ExplanationBudget], Refusal], refusal: Refusal, budget: ExplanationBudget
) -> Refusal:
    """Explain a refusal; a defect costs this explanation only, since the decision itself is right."""
    try:
        return step(refusal, budget)
    except Exception as error:  # noqa: BLE001 - any defect, as the docstring says
        note = f"; the explanation failed, please report it: {type(error).__name__}: {error}"
        return msgspec.structs.replace(refusal, message=refusal.message.rstrip(".") + note)


@dataclass(frozen=True, slots=True)
class _Examination:
    """What is known of a refused gang alone in the cluster.

    Args:
      refusal: the refusal with it.
      verifier: None if the explanation is complete, or the budget allows nothing more.
      emptied: the gang on the emptied cluster.
      never_startable: the reason why the gang can never start; None if it can.
    """

    refusal: Refusal
    verifier: PlacementVerifier | None = None
    emptied: GangView | None = None
    never_startable: NeverStartableExplanation | None = None


class RefusalVerifier:
    """An explainer of refusals: it searches for changes of the input that would let a refused gang start.

    To verify a set of changes, it decides the session again on the changed input; the new decision must place the gang.
    An explained refusal also states whether the gang can ever start, and which gangs precede it.

    Args:
      decided: the input and the decision of the session.
      decide_again: decides the session on changed inputs.
      pause: called between the steps other than decisions; it may block.
    """

    def __init__(
        self,
        decided: DecidedInput,
        decide_again: DecideAgain = decide_assignments,
        pause: Pause = do_not_pause,
    ) -> None:
        self._decided = decided
        self._decide_again = decide_again
        self._pause = pause
        self._examined: dict[str, _Examination] = {}
        """By `namespace/name`, the gangs that were examined alone and are not explained, or not completely."""
        self._after: SessionTables | None = None
        """The tables after the decision; refused gangs have no assignments, so all of them share these tables."""

    @cached_property
    def _turns(self) -> dict[str, OrderPosition]:
        decided = self._decided
        return order_positions_by_gang(decided.snapshot, decided.profile, decided.now, self._pause)

    @cached_property
    def _requested(self) -> TotalPodRequests:
        return TotalPodRequests(self._decided.snapshot)

    @cached_property
    def _named_objects(self) -> NamedObjects:
        return NamedObjects(self._decided.snapshot)

    def _tables_after(self, budget: ExplanationBudget) -> SessionTables:
        """Return the tables after the decision.

        Raises:
          OutOfBudget: too little of the budget remains.
        """
        if self._after is None:
            require_budget(budget, self._decided.estimated_work)
            after = snapshot_after_decision(self._decided.snapshot, self._decided.decision, "")
            self._pause()
            require_budget(budget, estimate_decision_work(after))
            self._after = build_session_tables(after, self._decided.profile, self._decided.now, self._pause)
            budget.spend(estimate_decision_work(after))  # the tables cost about as much as a decision
        return self._after

    def examine_in_empty_cluster(self, refusal: Refusal, budget: ExplanationBudget) -> Refusal:
        """Test whether a refused gang could start alone in the cluster; return the refusal with the result.

        `explain_refusal` uses the result of this examination.

        Args:
          refusal: a refusal of the session.
          budget: the work that may be spent on it.
        """
        try:
            examined = self._examine(refusal, budget)
        except OutOfBudget:
            examined = _Examination(_not_verified(refusal))
        self._examined[refusal.pod_group] = examined
        return examined.refusal

    def _examine(self, refusal: Refusal, budget: ExplanationBudget) -> _Examination:
        """Examine a gang alone in the cluster.

        Raises:
          OutOfBudget: too little of the budget remains.
        """
        decided, key = self._decided, refusal.pod_group
        verifier = PlacementVerifier(decided, key, budget, self._decide_again)
        startable = verifier.startable
        departure = _departure(decided.decision, key, verifier.members)
        if departure:  # the gang needs no change: it starts when its victims have left
            return _Examination(
                msgspec.structs.replace(
                    refusal, startable=startable, message=departure, relaxation="", verified=True
                )
            )
        self._pause()
        empty_cluster = snapshot_with_only_pods(decided.snapshot, verifier.members)
        budget.spend(estimate_decision_work(empty_cluster))
        emptied = GangView.from_snapshot(empty_cluster, decided.profile, decided.now, key, self._pause)
        if emptied is None:  # the gang has no pending pod that anything could place
            message = self._message(refusal, startable, None, ())
            return _Examination(
                msgspec.structs.replace(refusal, startable=startable, message=message, verified=True)
            )
        never_startable = None
        if not startable and self._exceeds_cluster(refusal):
            never_startable = explain_why_gang_can_never_start(emptied)
            if never_startable is None and refusal.reason == "QueueLimit":
                # Other gangs use the queue, and would not be in the way if this one fitted on the nodes.
                never_startable = NeverStartableExplanation(
                    "QueueLimit", f"{NOT_THE_QUEUE}; in this session, {refusal.message}"
                )
        alone = msgspec.structs.replace(
            refusal,
            reason=refusal.reason if never_startable is None else never_startable.reason,
            startable=startable,
            message=self._message(refusal, startable, never_startable, ()),
        )
        return _Examination(_not_verified(alone), verifier, emptied, never_startable)

    def _exceeds_cluster(self, refusal: Refusal) -> bool:
        """Return whether a gang that cannot start is too large for the cluster, and not waiting for an object."""
        pods = self._decided.pods_by_gang.get(refusal.pod_group, ())
        return refusal.reason in EXCEEDING_REASONS and not self._named_objects.is_any_absent_for(pods)

    def _message(
        self,
        refusal: Refusal,
        startable: bool,
        never_startable: NeverStartableExplanation | None,
        ahead: Sequence[PrecedingGang],
    ) -> str:
        if not startable:
            sentence = refusal.message if never_startable is None else never_startable.sentence
            # Missing pods, claims or a missing queue may still appear.
            return NEVER + sentence if self._exceeds_cluster(refusal) else sentence
        sentence = preceding_gangs_clause(ahead, refusal.reason)
        if not sentence:
            return refusal.message
        message = refusal.message.rstrip(".")
        if any(entry.because != "Running" for entry in ahead):
            message = message.removesuffix(OUTBID)
        return f"{message}; {sentence}"

    def can_explain_further(self, refusal: Refusal, budget: ExplanationBudget) -> bool:
        """Return whether an explanation is incomplete and enough budget remains to extend it."""
        examined = self._examined.get(refusal.pod_group)
        if examined is None or examined.verifier is None:
            return False
        return budget.remaining >= self._decided.estimated_work

    def explain_refusal(self, refusal: Refusal, budget: ExplanationBudget) -> Refusal:
        """Return the refusal with the gangs that precede the refused gang, and with verified changes that would help.

        Args:
          refusal: a refusal of the session.
          budget: the work that may be spent on it.
        """
        if refusal.pod_group not in self._examined:
            self.examine_in_empty_cluster(refusal, budget)
        examined = self._examined[refusal.pod_group]
        verifier, emptied = examined.verifier, examined.emptied
        if verifier is None or emptied is None:
            return examined.refusal
        try:
            view = GangView.from_tables(
                self._tables_after(budget), self._decided.profile.scheduler_name, refusal.pod_group
            )
        except OutOfBudget:
            return examined.refusal
        explained = self._explain_changes(refusal, examined, verifier, emptied, view or emptied)
        if explained.verified:
            del self._examined[refusal.pod_group]
        return explained

    def _explain_changes(
        self,
        refusal: Refusal,
        examined: _Examination,
        verifier: PlacementVerifier,
        emptied: GangView,
        view: GangView,
    ) -> Refusal:
        """Return the refusal with the gangs ahead, and a smallest set of changes."""
        snapshot, key = self._decided.snapshot, refusal.pod_group

        def node_options_after(changes: Sequence[InputChange]) -> Sequence[ChangeOption]:
            return (
                self._nodes_after(changes, key, verifier) if changes else node_addition_options(view, emptied)
            )

        self._pause()
        jobs, queues = gang_change_options(emptied, snapshot), queue_limit_options(view, self._requested)
        search = ChangeSearch(verifier)
        search.search_for_smallest_set(jobs, queues, node_options_after)
        self._pause()
        ahead = (
            find_preceding_gangs(
                refusal, self._decided.decision, view, self._turns, self._decided.profile, self._decided.now
            )
            if verifier.startable
            else ()
        )
        has_estimate = not search.smallest and not search.best_changes
        return msgspec.structs.replace(
            examined.refusal,
            ahead=ahead,
            changes=search.best_changes,
            verified=search.smallest,
            message=self._message(refusal, verifier.startable, examined.never_startable, ahead)
            + ("" if search.smallest else NOT_VERIFIED),
            missing=_missing(refusal, search.best_changes, snapshot),
            relaxation=refusal.relaxation
            if has_estimate
            else describe_changes(search.best_changes, snapshot, key),
        )

    def _nodes_after(
        self, changes: Sequence[InputChange], key: str, verifier: PlacementVerifier
    ) -> Sequence[ChangeOption]:
        """Return the options to add nodes after other changes, which decide the nodes that accept the gang."""
        decided = self._decided
        try:
            changed = snapshot_after_changes(decided.snapshot, changes)
        except ValueError:  # the changed object would be invalid
            return ()
        after = snapshot_after_decision(changed, decided.decision, "")
        self._pause()
        full = GangView.from_snapshot(after, decided.profile, decided.now, key, self._pause)
        self._pause()
        emptied = snapshot_with_only_pods(changed, verifier.members)
        verifier.budget.spend(estimate_decision_work(after) + estimate_decision_work(emptied))
        empty = GangView.from_snapshot(emptied, decided.profile, decided.now, key, self._pause)
        return node_addition_options(full, empty) if full is not None and empty is not None else ()


def _not_verified(refusal: Refusal) -> Refusal:
    return msgspec.structs.replace(refusal, message=refusal.message.rstrip(".") + NOT_VERIFIED)


def _departure(decision: Decision, key: str, members: frozenset[str]) -> str:
    """Return which departure a gang with nominated nodes waits for; "" if it has none.

    Args:
      decision: that of the session.
      key: `namespace/name` of the gang.
      members: `namespace/name` of its pods.
    """
    nodes = {entry.node for entry in decision.nominations if entry.pod_key in members}
    victims = sorted(
        {f"{entry.namespace}/{entry.pod_group}" for entry in decision.evictions if entry.for_ == key}
    )
    if not nodes:
        return ""
    noun = "node" if len(nodes) == 1 else "nodes"
    leaving = "the pods that are being deleted there have left"
    if victims:
        leaving = f"{format_names(victims)} {'has' if len(victims) == 1 else 'have'} left"
    return f"waits for its nominated {noun} {format_names(sorted(nodes))}: it starts when {leaving}"


def _missing(refusal: Refusal, changes: Sequence[InputChange], snapshot: Snapshot) -> dict[str, int]:
    """Return what is missing: by how much limits of queues must rise, or else what the session found."""
    missing: dict[str, int] = {}
    for change in changes:
        raised = raised_resource_and_amount(change, snapshot)
        if raised is None or "lendingLimit" in change.path:
            return refusal.missing
        resource, more = raised
        missing[resource] = max(more, missing.get(resource, 0))
    return missing or refusal.missing
