"""The inside of a session over a small cluster: its scene, its gangs, and their formulation."""

from dataclasses import dataclass

from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.ports.external import NoTelemetry
from batchsched.session.joint.formulation import Formulation, FormulationInput, formulate_problem
from batchsched.session.preemption.nominated import NominatedPods
from batchsched.session.selection.joint import JointSelection
from batchsched.session.selection.selection_run import SelectionRun
from batchsched.session.session import Session
from batchsched.session.statement import Statement
from batchsched.session.tables.gang import PendingGang
from tests.session.scenario import NOW


@dataclass(frozen=True)
class Inside:
    """A session that has not begun."""

    sessions: Session
    run: SelectionRun
    inputs: FormulationInput

    def gang(self, key: str) -> PendingGang:
        """The admitted gang of this name, or pod alone."""
        gangs = self.sessions.tables.gangs
        admitted = self.run.gang_eligibility.eligible_gang_or_refusal(gangs.get(key) or gangs[f"pod/{key}"])
        assert isinstance(admitted, PendingGang), admitted
        return admitted

    def formulation(self, *names: str) -> Formulation:
        return formulate_problem(self.inputs, [self.gang(name) for name in names], 0.0)

    def joint(self) -> Formulation:
        """What a joint session states of all gangs that are admitted."""
        pending = self.run.tables.pending_gangs
        nominated = NominatedPods(self.run.tables, self.run.resting)
        gangs = JointSelection(self.run, nominated)._admitted(pending.order_by_policy(self.run.policy, NOW))
        return formulate_problem(self.inputs, gangs, pending.latest_submission_time())


def inside(snapshot: Snapshot, settings: Profile | None = None) -> Inside:
    session = Session(snapshot, settings or Profile())
    session.tables.update_pending_gangs_and_indexes()
    run = session._new_run(Statement(session.tables, NOW), frozenset(), NOW, 0, NoTelemetry())
    return Inside(session, run, run.formulation_input())
