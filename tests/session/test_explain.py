"""What a refusal names as the smallest change admits the gang, and half of it does not."""

from dataclasses import replace

import pytest
from hypothesis import given

from batchsched.api.decision import Decision
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.ports.external import NoTelemetry
from batchsched.session.joint.formulation import Formulation, SessionContext, formulate
from batchsched.session.joint.proposal import JointProposer, solver_budget
from batchsched.session.refusals import _without_rejected
from batchsched.session.statement import Statement
from batchsched.solver.greedy import solve_greedy
from batchsched.solver.relaxation.changes import halve_change
from batchsched.solver.relaxation.explain import RefusalEvidence, RefusalExplainer
from batchsched.solver.stage import solve
from tests.session import audit
from tests.session.clusters import EXPLAINED, clusters
from tests.session.relax import relaxed
from tests.session.scenario import NOW, bound, profile, schedule
from tests.session.scenes import inside

pytestmark = pytest.mark.properties
JOINT = profile(solver={"gap": 0.0})
ORDERED = profile(selection="ordered")


def explained(
    cluster: Snapshot, settings: Profile
) -> tuple[SessionContext, Formulation, list[RefusalEvidence]]:
    """The evidence behind a joint session's refusals."""
    there = inside(cluster, settings)
    context, formulation = there.context, there.joint()
    with Statement(context.tables, NOW) as statement:
        outcome = JointProposer(formulation, settings.solver, 0, NoTelemetry()).place_gangs(statement)
        placed = {one.gang.key for one in outcome.placements}
        explainer = RefusalExplainer(
            formulation.problem,
            _without_rejected(formulation, outcome),
            resolve=lambda problem: solve(problem, solver_budget(settings.solver), 0),
            wider=context.levels.wider,
        )
        found = [
            explainer.explain_gang(number)
            for number, gang in enumerate(formulation.gangs)
            if gang.key not in placed and gang.need > 0
        ]
    return context, formulation, found


def runs(decision: Decision, cluster: Snapshot, key: str) -> bool:
    """Whether the gang is at its minimum after the decision."""
    there = {f"{one.namespace}/{one.pod}": one.node for one in decision.assignments}
    group, pods = audit.gangs(cluster)[key]
    return audit.complete(group, pods, there)


@given(cluster=clusters(EXPLAINED))
def test_relaxation_admits_the_gang_and_half_of_it_does_not(cluster: Snapshot):
    context, formulation, found = explained(cluster, JOINT)
    for evidence in found:
        key = formulation.gangs[evidence.gang].key
        change = evidence.relaxation
        assert change is not None
        after = relaxed(cluster, change, context, formulation)
        assert runs(schedule(after, JOINT), after, key)
        less = halve_change(change)
        if less is not None:
            before = relaxed(cluster, less, context, formulation)
            assert not runs(schedule(before, JOINT), before, key)


@given(cluster=clusters(EXPLAINED))
def test_relaxation_admits_the_gang_in_ordered_selection_too(cluster: Snapshot):
    decision = schedule(cluster, ORDERED)
    standing = bound(cluster, decision)
    for refusal in decision.refusals:
        if not refusal.relaxation:
            continue
        mine = (pod for pod in standing.pods if pod.node or audit.group_of(pod) == refusal.pod_group)
        alone = replace(standing, pods=tuple(mine))
        there = inside(alone, ORDERED)
        gang = there.gang(refusal.pod_group)
        context, formulation = there.context, formulate(there.context, [gang], gang.created)
        problem = formulation.problem
        explainer = RefusalExplainer(
            problem, solve_greedy(problem), resolve=solve_greedy, wider=context.levels.wider
        )
        change = explainer.explain_gang(0).relaxation
        assert change is not None
        after = relaxed(alone, change, context, formulation)
        assert runs(schedule(after, ORDERED), after, gang.key)
        less = halve_change(change)
        if less is not None:
            before = relaxed(alone, less, context, formulation)
            assert not runs(schedule(before, ORDERED), before, gang.key)
