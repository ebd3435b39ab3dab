"""Phases of gangs over random histories: each follows from the one before by the table, and terminal ones stay."""

from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.decision import WaitingAtPermit
from batchsched.api.gang import TERMINAL_PHASES, GangPhase, phase_after, phase_changes_between
from batchsched.controllers.desired_status import GangStatusInput, Json, desired_group_status
from batchsched.controllers.refusal_history import GangStatusRecord
from batchsched.state.cluster_state import ClusterState
from batchsched.state.podgroup_state import RUNNING, GangPods
from tests.session.scenario import NOW, group
from tests.state.objects import ended, leaving, node, pod

BERT = group("bert", 2)
HELD = GangStatusRecord(
    waiting=WaitingAtPermit(pod_group="team/bert", plugin="Quota", until="2026-01-01T00:10:00Z")
)
KINDS = ("create", "assume", "forget", "bind", "run", "succeed", "fail", "evict", "delete", "list")
events = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 2), st.booleans(), st.booleans()), max_size=30
)


class History:
    """One gang of up to three pods with minMember 2, and its status."""

    def __init__(self) -> None:
        self.state = ClusterState(["batchsched"])
        self.state.put(node("n0"))
        self.state.put(BERT)
        self.version = 0
        self.status: Json = {}

    def happen(self, kind: str, number: int) -> None:
        self.version += 1
        key = f"team/bert-{number}"
        if kind == "assume":
            self.state.assume_pod(key, "n0", 0.0)
        elif kind == "forget":
            self.state.forget_assumption(key, "n0")
        elif kind == "delete":
            self.state.remove(pod(f"bert-{number}", group="bert"))
        elif kind == "list":
            self.state.replace(type(pod("x")), self.state.snapshot_without_assumptions().pods)
        else:
            made = pod(f"bert-{number}", self.version, group="bert", on="" if kind == "create" else "n0")
            phases = {"run": "Running", "succeed": "Succeeded", "fail": "Failed"}
            if kind in phases:
                made = ended(made, phases[kind])
            self.state.put(leaving(made) if kind == "evict" else made)

    def report(self, *, held: bool) -> GangPhase:
        """Compute the status as the controller does, and return its phase."""
        gang = self.state.gangs.get("team/bert") or GangPods("team/bert")
        succeeded, failed = gang.count_succeeded_and_failed_pods()
        placed = gang.placed_pods()
        counts = GangStatusInput(
            pending=len(gang.nonterminating_pending_pods()),
            placed=len(placed),
            bound=sum(found.key not in gang.assumed for found in placed),
            running=sum(found.status.phase == RUNNING for found in placed),
            succeeded=succeeded,
            failed=failed,
        )
        self.status = desired_group_status(
            BERT, counts, HELD if held else GangStatusRecord(), self.status, NOW
        )
        return GangPhase(self.status["phase"])


@given(events)
def test_no_phase_changes_outside_the_table_and_terminal_phases_stay(happenings):
    history = History()
    phase = GangPhase.PENDING
    for kind, number, held, observed in happenings:
        history.happen(kind, number)
        if not observed:
            continue
        later = history.report(held=held)
        if phase in TERMINAL_PHASES:
            assert later is phase
        reached = phase
        for change in phase_changes_between(phase, later):
            reached = phase_after(reached, change)
        assert reached is later
        phase = later


@given(st.lists(st.tuples(st.integers(0, 1), st.booleans()), min_size=1, max_size=6))
def test_deleting_finished_pods_changes_no_phase(deletions):
    history = History()
    for kind in ("create", "bind", "run"):
        for number in range(2):
            history.happen(kind, number)
    assert history.report(held=False) is GangPhase.RUNNING
    history.happen("succeed", 0)
    assert history.report(held=False) is GangPhase.RUNNING
    history.happen("delete", 0)
    assert history.report(held=False) is GangPhase.RUNNING
    history.happen("succeed", 1)
    assert history.report(held=False) is GangPhase.SUCCEEDED
    for number, listed in deletions:
        history.happen("list" if listed else "delete", number)
        assert history.report(held=False) is GangPhase.SUCCEEDED
    assert history.status["succeeded"] == 2
