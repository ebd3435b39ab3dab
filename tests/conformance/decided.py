"""What `decide` with the solver off makes of a case, against what was recorded: node, sentence and victims.

Cases with nominated pods are left out, which would be scheduled in the same session, and pods that name their node.
"""

from batchsched.api.decision import Decision
from batchsched.framework.status import Code
from batchsched.session.session import decide
from tests.conformance import cycle, runner


def comparable(case: runner.Case) -> bool:
    """Tell whether a session over the case decides about its pod alone."""
    return not (case.nominated_pods or case.pod.node or case.expected.error)


def ended(case: runner.Case) -> Decision:
    """Decide over a case."""
    profile = cycle.profile_of(case)
    off = profile.model_copy(update={"solver": profile.solver.model_copy(update={"enabled": False})})
    return decide(runner.snapshot_of(case), off, 0.0, 0)


def mismatches(case: runner.Case) -> list[str]:
    """Compare the node, or the sentence with who is nominated and who has to leave; who is leaving is not told to."""
    expected, decision, key = case.expected, ended(case), case.pod.key
    placed = {f"{one.namespace}/{one.pod}": one.node for one in decision.assignments}
    if expected.best:
        return [] if placed.get(key) in expected.best else [_line(case, placed.get(key), expected.best)]
    said = {one.pod_group: one.message for one in decision.refusals}.get(key)
    if said != expected.fit_error_full:
        return [_line(case, said, expected.fit_error_full)]
    stated = expected.preemption
    if stated is None:
        return []
    victims = {f"{one.namespace}/{one.pod}" for one in decision.evictions}
    if stated.code != Code.SUCCESS:
        return [_line(case, victims, stated.code)] if victims else []
    node = {f"{one.namespace}/{one.pod}": one.node for one in decision.nominations}.get(key, "")
    tied = node in stated.tied
    theirs = stated.candidates[node].victims if tied else stated.victims
    leaving = {pod.key for pod in case.pods if pod.terminating}
    ours, recorded = (node, victims), (node if tied else stated.nominated_node, {*theirs} - leaving)
    return [] if ours == recorded else [_line(case, ours, recorded)]


def _line(case: runner.Case, ours: object, recorded: object) -> str:
    return f"{case.name} decide: ours {ours}, recorded {recorded}"
