"""Verification of changes: run the session again on the changed input, within a budget of computing work."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import msgspec

from batchsched.api.core.pod import Pod
from batchsched.api.decision import Assignment, Decision, InputChange
from batchsched.api.gang import gang_identity, gang_key_of_pod
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.ports.external import Telemetry
from batchsched.session.explanation.changed_input import snapshot_after_changes
from batchsched.session.session import Session
from batchsched.solver.relaxation.budget import ExplanationBudget

MAX_VERIFICATION_WORK: Final = 20e6
"""Work of verifying all refusals of one session, in units of about a microsecond, if a decision takes no time."""
LONG_DECISION_WORK: Final = 0.25e6
"""Work of a decision from which on the explanations of its session cost no more than the decision itself."""
LONG_DECISION_SHARE: Final = 0.5
"""The part of the work of a long decision that explanations may cost; estimates are wrong by up to two times."""
MAX_WORK_PER_GANG: Final = 100e6
"""Work of verifying the refusal of a single gang, if no other refusals are verified with it."""
# The parts of the work of one decision. `python -m bench explanations` compares their sum with CPU time.
WORK_PER_DECISION: Final = 7_000
"""Work of one decision, in addition to that of its objects and of CP-SAT."""
WORK_PER_NODE: Final = 8
WORK_PER_QUEUE: Final = 30
WORK_PER_SPEC: Final = 80
"""Work of one distinct pod spec; pods of one template usually share it."""
WORK_PER_BOUND_POD: Final = 20
WORK_PER_PENDING_POD: Final = 20
WORK_PER_PENDING_GANG: Final = 1500
"""Work of one pending gang, in addition to what nodes cost for it."""
WORK_PER_GANG_AND_NODE: Final = 0.16
"""Work of one node for each pending gang: filters and packing examine it."""
MAX_SHARE_PER_GANG: Final = 0.25
"""The part of the remaining work that one gang may use before all other refused gangs of the session were explained."""
MIN_DECISIONS_PER_GANG: Final = 20
"""Decisions that one gang may always use before; most refusals take fewer."""
LAST_NAME_PREFIX: Final = "~"
"""Prefix with which the names of added nodes come after those of all other nodes."""
FIRST_NAME_PREFIX: Final = "-"
"""Prefix with which they come before those of all other nodes."""
MAX_DECISIONS_PER_GANG: Final = 200
"""Maximum number of sessions that are decided again for one gang."""


@dataclass(frozen=True)
class DecidedInput:
    """The input of a session, together with the decision of this session.

    Args:
      snapshot: the cluster.
      profile: the scheduling profile.
      now: seconds since 1970.
      seed: seed of all random draws.
      decision: the decision.
    """

    snapshot: Snapshot
    profile: Profile
    now: float
    seed: int
    decision: Decision

    @cached_property
    def pods_by_gang(self) -> dict[str, list[Pod]]:
        """The pods of the Snapshot by the `namespace/name` of their gang."""
        pods: dict[str, list[Pod]] = defaultdict(list)
        for pod in self.snapshot.pods:
            pods[gang_key_of_pod(pod)].append(pod)
        return dict(pods)

    @cached_property
    def estimated_work(self) -> float:
        """The estimated work of deciding the session, in microseconds, without the work of CP-SAT."""
        return estimate_decision_work(self.snapshot)


@dataclass(frozen=True, slots=True)
class AssignmentDecision:
    """A reduced decision for tests of input changes, with only the assignments and the estimated solver work.

    Args:
      assignments: the pods that get a node.
      solver_work: the estimated work of CP-SAT, in units of about a microsecond.
    """

    assignments: tuple[Assignment, ...]
    solver_work: float = 0.0


DecideAgain = Callable[[Snapshot, Profile, float, int], AssignmentDecision]
"""Returns the decision of a session over a snapshot with a profile, a time (seconds since 1970) and a seed."""


def decide_assignments(
    snapshot: Snapshot, profile: Profile, now: float, seed: int, telemetry: Telemetry | None = None
) -> AssignmentDecision:
    """Run a session and return only its assignments, without computing refusals and evictions."""

    def report_progress() -> None:
        if telemetry is not None:
            telemetry.on_progress(0, 1, "decisions")

    session = Session(snapshot, profile, brief=True, pause=report_progress)
    report_progress()
    decision = session.decide(now, seed, telemetry=telemetry, with_evictions=False)
    return AssignmentDecision(decision.assignments, session.solver_work)


def estimate_node_and_queue_work(snapshot: Snapshot) -> float:
    """Estimate, in microseconds, the part of a decision's work that depends only on node and queue counts.

    This part includes the constant work of every decision.
    """
    return WORK_PER_DECISION + WORK_PER_NODE * len(snapshot.nodes) + WORK_PER_QUEUE * len(snapshot.queues)


def estimate_decision_work(snapshot: Snapshot) -> float:
    """Estimate the microseconds of work to decide a session from a Snapshot, without the work of CP-SAT."""
    pending = [pod for pod in snapshot.pods if not pod.node_name]
    work_per_gang = WORK_PER_PENDING_GANG + WORK_PER_GANG_AND_NODE * len(snapshot.nodes)
    return (
        estimate_node_and_queue_work(snapshot)
        + WORK_PER_SPEC * len({id(pod.spec) for pod in snapshot.pods})
        + WORK_PER_BOUND_POD * (len(snapshot.pods) - len(pending))
        + WORK_PER_PENDING_POD * len(pending)
        + work_per_gang * len({gang_identity(pod) for pod in pending})
    )


def explanation_budget_of_session(snapshot: Snapshot) -> ExplanationBudget:
    """Return the budget for explaining all refusals of a session that has this Snapshot as its input.

    A short session is decided again hundreds of times in a few seconds. To verify a single refusal of a long one takes
    many times as long as the session, so the explanations of a long session cost only a part of its decision.
    """
    work = estimate_decision_work(snapshot)
    return ExplanationBudget(
        max(LONG_DECISION_SHARE * work, MAX_VERIFICATION_WORK * (1 - work / LONG_DECISION_WORK))
    )


def first_attempt_work_limit(decided: DecidedInput, budget: ExplanationBudget) -> float:
    """Return the computing work that each refusal may use in the first pass over all refusals of a session."""
    return max(MAX_SHARE_PER_GANG * budget.remaining, MIN_DECISIONS_PER_GANG * decided.estimated_work)


def _end_of_level_waits(decided: DecidedInput, key: str) -> float:
    """Return the time from which a gang waits for no preferred topology level, in seconds since 1970."""
    group = next((group for group in decided.snapshot.pod_groups if group.key == key), None)
    return max(group.preferred_level_deadlines, default=0.0) if group is not None else 0.0


class OutOfBudget(Exception):
    """The error that the remaining budget is too small to verify whether a change admits a gang."""


def require_budget(budget: ExplanationBudget, units: float) -> None:
    """Raise `OutOfBudget` if less than the given computing work remains in the budget for explanations.

    Raises:
      OutOfBudget: less than `units` remains.
    """
    if budget.remaining < units:
        raise OutOfBudget


class PlacementVerifier:
    """A verifier that checks whether a session would place one gang if the input of the session were changed.

    Args:
      decided: the input and the decision of the session.
      key: `namespace/name` of the gang.
      budget: the work that all checks may cost.
      decide_again: decides the session on changed inputs.

    Raises:
      OutOfBudget: too little of the budget remains.
    """

    def __init__(
        self,
        decided: DecidedInput,
        key: str,
        budget: ExplanationBudget,
        decide_again: DecideAgain = decide_assignments,
    ) -> None:
        self._decided = decided
        self._decide_again = decide_again
        self.budget = budget
        self._decisions = 0
        self._answers: dict[tuple[str, bytes], bool] = {}
        require_budget(budget, estimate_node_and_queue_work(decided.snapshot))
        pods = decided.pods_by_gang.get(key, ())
        self.members = frozenset(pod.key for pod in pods)
        self._needs_others = any(map(_depends_on_pods, pods))
        self.startable = self._places(
            snapshot_with_only_pods(decided.snapshot, self.members), _end_of_level_waits(decided, key)
        )
        """Whether the gang can start on the emptied cluster with unused queues, now or after a wait for a level."""

    def is_gang_placed_after_changes(self, changes: Sequence[InputChange]) -> bool:
        """Return whether the session places the gang after changes of its input, in competition with all other gangs.

        The names of added nodes come after those of the other nodes.

        Raises:
          OutOfBudget: too little of the budget remains.
        """
        return self._is_placed(changes, LAST_NAME_PREFIX)

    def is_placed_regardless_of_new_node_names(self, changes: Sequence[InputChange]) -> bool:
        """Return True if the gang is placed after the changes, whatever names the added nodes have.

        The changes are tested with names that come before, and with names that come after those of all other nodes.
        Names decide between places of equal value, and the names of nodes that a user adds are unknown.

        Raises:
          OutOfBudget: too little of the budget remains.
        """
        return self.is_gang_placed_after_changes(changes) and (
            not any(change.copy for change in changes) or self._is_placed(changes, FIRST_NAME_PREFIX)
        )

    def _is_placed(self, changes: Sequence[InputChange], new_node_prefix: str) -> bool:
        key = new_node_prefix, msgspec.json.encode(changes)
        if key not in self._answers:
            self._answers[key] = self._decide(changes, new_node_prefix)
        return self._answers[key]

    def _decide(self, changes: Sequence[InputChange], new_node_prefix: str) -> bool:
        try:
            changed = snapshot_after_changes(self._decided.snapshot, changes, new_node_prefix)
        except ValueError:  # the changed object would be invalid, such as a limit below the guarantee
            return False
        # What does not fit an empty cluster fits no fuller one, unless other pods may open nodes to the gang.
        if (
            not self.startable
            and not self._needs_others
            and not self._places(snapshot_with_only_pods(changed, self.members))
        ):
            return False
        self._decisions += 1
        if self._decisions > MAX_DECISIONS_PER_GANG:
            raise OutOfBudget
        return self._places(changed)

    def _places(self, snapshot: Snapshot, now: float = 0.0) -> bool:
        """Return whether the session on another input, at the time `now` if that is later, places the gang.

        Raises:
          OutOfBudget: too little of the budget remains.
        """
        decided, work = self._decided, estimate_decision_work(snapshot)
        require_budget(self.budget, work)
        decision = self._decide_again(snapshot, decided.profile, max(now, decided.now), decided.seed)
        self.budget.spend(work + decision.solver_work)
        return any(entry.pod_key in self.members for entry in decision.assignments)


def snapshot_with_only_pods(snapshot: Snapshot, members: frozenset[str]) -> Snapshot:
    """Return the Snapshot with only the given pods; waiting gangs, reservations and past usage are removed."""
    pods = tuple(pod for pod in snapshot.pods if pod.key in members)
    gangs = {gang_identity(pod) for pod in pods}
    return replace(
        snapshot,
        pods=pods,
        pod_groups=tuple(group for group in snapshot.pod_groups if group.key in gangs),
        held=(),
        resting=(),
        usage=(),
        reservations=(),
        refused_evictions=(),
    )


def _depends_on_pods(pod: Pod) -> bool:
    """Return whether other pods may open nodes to a pod: by an affinity, or by an even spread over domains."""
    affinity, constraints = pod.spec.affinity, pod.spec.topology_spread_constraints
    return bool(constraints) or (affinity is not None and affinity.pod_affinity is not None)
