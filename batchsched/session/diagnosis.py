"""Diagnosis: why a gang is not placed, what is missing, and what would unblock it."""

from collections.abc import Iterable

from batchsched.errors import PluginError
from batchsched.framework.scan import Scan, fit_error
from batchsched.model.decision import Refusal
from batchsched.session.formulation import Formulation, Scene, formulate
from batchsched.session.gang import Gang, Members
from batchsched.session.joint import Outcome
from batchsched.session.walk import Walked
from batchsched.settings.schema import SolverSettings
from batchsched.solver.greedy import greedy
from batchsched.solver.problem import Solution


def failed(gang: Gang, error: PluginError) -> Refusal:
    """A plugin broke over one of the gang's pods."""
    return Refusal(pod_group=gang.key, reason="PluginFailed", message=str(error))


def permit_refusal(walked: Walked, *, timed_out: bool) -> Refusal:
    """Reserve, Permit or a plugin's breakage rolled the gang back."""
    status = walked.refusal
    message = f"plugin {status.plugin}: {', '.join(status.reasons) or 'refused'}; the gang was rolled back"
    reason = "PermitTimeout" if timed_out else "PermitRejected" if walked.final else "PluginConstraint"
    if walked.failure:
        reason = "PluginFailed"
    return Refusal(pod_group=walked.gang.key, reason=reason, message=message)


def unschedulable(gang: Gang, scan: Scan) -> Refusal:
    """The pipeline alone finds no node for a member, in kube-scheduler's words."""
    return Refusal(pod_group=gang.key, reason="NoFeasibleNode", message=scan.fit_error())


def out_of_turn(members: Members, head: Gang | None) -> Refusal:
    """A gang ahead blocks, or the policy holds this one back."""
    message = (
        f"{head.key} is ahead and cannot start yet; it may not be delayed"
        if head is not None
        else "the policy holds it back until it leaves enough of the cluster free for those that come next"
    )
    return Refusal(pod_group=members.key, reason="OutOfTurn", message=message)


def lone(scene: Scene, gang: Gang) -> Refusal:
    """Say why one gang is refused, the others where they are."""
    formulation = formulate(scene, [gang], gang.created)
    return by_itself(scene, formulation, greedy(formulation.problem))


def by_itself(scene: Scene, formulation: Formulation, solution: Solution) -> Refusal:
    """Say why the only gang of a formulation is refused."""
    return _refusal(scene, formulation, solution, 0)


class Diagnosis:
    """The refusals of a joint session."""

    def __init__(
        self, scene: Scene, formulation: Formulation, outcome: Outcome, settings: SolverSettings, seed: int
    ) -> None:
        self._scene = scene
        self._formulation = formulation
        self._outcome = outcome
        self._settings = settings
        self._seed = seed

    def refusals(self) -> Iterable[Refusal]:
        """Say of every gang of the session that was not placed why."""
        placed = {walked.gang.members.identity for walked in self._outcome.walked}
        for number, gang in enumerate(self._formulation.gangs):
            if gang.members.identity in placed or gang.need == 0:
                continue
            rejected = self._outcome.rejected.get(number)
            if rejected is not None:
                yield permit_refusal(rejected, timed_out=False)
            else:
                yield _refusal(self._scene, self._formulation, self._outcome.solution, number)


def _refusal(scene: Scene, formulation: Formulation, solution: Solution, number: int) -> Refusal:
    gang = formulation.gangs[number]
    for part in gang.parts:
        surveyed = scene.survey.of(part.pod_class)
        if surveyed.failure:
            return Refusal(pod_group=gang.key, reason="PluginFailed", message=surveyed.failure)
        if surveyed.scan is not None and not surveyed.mask.any():
            return Refusal(pod_group=gang.key, reason="NoFeasibleNode", message=surveyed.scan.fit_error())
    return Refusal(
        pod_group=gang.key,
        reason="InsufficientResources",
        message=fit_error(len(scene.frame.table.nodes), ()),
    )
