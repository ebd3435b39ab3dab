"""The inside of a session over a small cluster: its scene, its gangs, and their formulation."""

from dataclasses import dataclass

from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.session.decide import Sessions
from batchsched.session.decision_builder import DecisionBuilder
from batchsched.session.gangs.admission import Admission
from batchsched.session.joint.formulation import Formulation, SessionContext, formulate
from batchsched.session.tables.gang import PendingGang
from tests.session.scenario import NOW


@dataclass(frozen=True)
class Inside:
    """A session that has not begun."""

    sessions: Sessions
    context: SessionContext
    admission: Admission

    def gang(self, key: str) -> PendingGang:
        """The admitted gang of this name, or pod alone."""
        gangs = self.sessions.tables.gangs
        admitted = self.admission.gang(gangs.get(key) or gangs[f"pod/{key}"])
        assert isinstance(admitted, PendingGang), admitted
        return admitted

    def formulation(self, *names: str) -> Formulation:
        return formulate(self.context, [self.gang(name) for name in names], 0.0)

    def joint(self) -> Formulation:
        """What a joint session states of all gangs that are admitted."""
        line = self.sessions.tables.pending_gangs.order(self.sessions._policy, NOW)
        gangs = self.sessions._admitted(DecisionBuilder(), line.members)
        return formulate(self.context, gangs, self.sessions.tables.pending_gangs.youngest())


def inside(snapshot: Snapshot, settings: Profile | None = None) -> Inside:
    sessions = Sessions(snapshot, settings or Profile())
    sessions.tables.refresh()
    return Inside(sessions, sessions._context(DecisionBuilder()), sessions._admission)
