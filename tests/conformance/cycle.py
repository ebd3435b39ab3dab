"""The whole cycle of a recorded case: PreFilter to the weighted sum, and what PostFilter adds when nothing fits.

`decision_mismatches` compares what `decide` makes of a case with the solver off: node, sentence and victims.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from batchsched.api.decision import Decision
from batchsched.config.schema import Profile
from batchsched.errors import PluginError
from batchsched.framework.filter_result import FilterResult
from batchsched.framework.preemption import (
    Nominations,
    PreemptionHandle,
    joined_reasons,
    restrict_by_nominations_and_extenders,
    run_postfilters,
)
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.runtime.registry import standard_registry
from batchsched.framework.status import Code, Status
from batchsched.plugins.default_preemption import DefaultPreemption, ineligibility_reason
from batchsched.session.session import decide
from tests.conformance import runner

EVERY_NODE = {"minCandidateNodesPercentage": 100}
"""With it, preemption was recorded to look at all nodes."""
OF_OTHER_PROJECTS = frozenset({"NodeResourceTopologyMatch"})
"""Default plugins that kube-scheduler does not have. Without their objects they change no score."""


def profile_of(case: runner.Case) -> Profile:
    """Return the case's first profile, with preemption that looks at all nodes."""
    stated = dict(((case.config or {}).get("profiles") or [{}])[0])
    stated["schedulerName"] = "default-scheduler"
    stated["kubernetesVersion"] = case.kubernetes_version
    arguments = {name: dict(args) for name, args in runner.arguments(case).items()}
    arguments["DefaultPreemption"] = EVERY_NODE | arguments.get("DefaultPreemption", {})
    stated["pluginConfig"] = [{"name": name, "args": args} for name, args in arguments.items()]
    return Profile.model_validate(stated)


@dataclass(frozen=True, slots=True)
class Asked:
    """A case, asked."""

    case: runner.Case
    pipeline: Pipeline
    handle: PreemptionHandle

    @property
    def scan(self) -> FilterResult:
        """What the filters said."""
        return self.handle.scan


def asked(case: runner.Case) -> Asked:
    """Run PreFilter and Filter over a case's cluster."""
    pipeline = standard_registry().create_pipeline(profile_of(case))
    cluster = runner.cluster_of(runner.snapshot_of(case), case.pod, release=case.release)
    nominations = Nominations.from_pods(case.nominated_pods, cluster.table)
    handle = PreemptionHandle(
        pipeline,
        cluster.pod,
        cluster.table,
        pipeline.find_nodes_that_pass_filters(cluster.pod, cluster.table),
        nominations,
    )
    extend = partial(pipeline.run_extender_filters, cluster.pod, table=cluster.table)
    return Asked(case, pipeline, replace(handle, scan=restrict_by_nominations_and_extenders(handle, extend)))


def mismatches(case: runner.Case) -> list[str]:
    """Run the cycle; return what differs from the recording. Of an error, only the fact is compared."""
    if case.expected.error:
        try:
            asked(case)
        except PluginError:
            return []
        return [f"{case.name} error: ours answers, recorded {case.expected.error}"]
    one = asked(case)
    ours = {"nodeStatus": node_status(one), **(scored(one) if one.scan.fits.any() else refused(one))}
    theirs = recorded(case)
    return [
        f"{case.name} {what}: ours {ours.get(what)}, recorded {theirs.get(what)}"
        for what in {**theirs, **ours}
        if ours.get(what) != theirs.get(what)
    ]


def recorded(case: runner.Case) -> dict[str, Any]:
    """Return the recorded answer in the format of the answer of batchsched."""
    expected = case.expected
    status = {
        name: (one.plugin, one.code, tuple(sorted(one.reasons))) for name, one in expected.node_status.items()
    }
    feasible = list(expected.feasible or ())
    if feasible:
        return {
            "nodeStatus": status,
            "feasible": feasible,
            "weights": expected.weights,
            "total": list(expected.total),
            "best": sorted(expected.best),
        }
    found: dict[str, Any] = {
        "nodeStatus": status,
        "feasible": [],
        "fitError": expected.fit_error,
        "fitErrorFull": expected.fit_error_full,
    }
    if expected.preemption is not None:
        found["preemption"] = preemption_of(expected.preemption)
    return found


def preemption_of(stated: runner.Preemption) -> dict[str, Any]:
    """Return a recorded PostFilter answer in the format of batchsched; errors of nodes belong to the search."""
    return {
        "code": stated.code,
        "message": stated.message,
        "node": stated.nominated_node,
        "victims": list(stated.victims),
        "candidates": {
            name: (list(one.victims), one.pdb_violations) for name, one in stated.candidates.items()
        },
        "rejected": {
            name: (one.plugin, one.code, tuple(sorted(one.reasons)))
            for name, one in stated.rejected.items()
            if one.code != Code.ERROR
        },
    }


def node_status(one: Asked) -> dict[str, tuple[str, str, tuple[str, ...]]]:
    """Return the first refusal of each node that was looked at: where the pod's own nominated node fits, of none."""
    scan = one.scan
    own = one.handle.node_table.index.get(one.case.pod.status.nominated_node_name)
    if own is not None and scan.fits[own]:
        return {}
    return {
        name: (
            scan.plugins[scan.refused_by[at]],
            scan.code_at(at).value,
            tuple(sorted(scan.reasons_at(at))),
        )
        for at, name in enumerate(one.handle.node_table.names)
        if scan.refused_by[at] >= 0 and not (scan.outside is not None and scan.outside[at])
    }


def scored(one: Asked) -> dict[str, Any]:
    """Return the scores of the nodes that fit."""
    table = one.handle.node_table
    feasible = np.flatnonzero(one.scan.fits).astype(np.int32)
    total = one.pipeline.score(one.handle.pod, feasible, table, one.scan.state)
    by_name = {table.names[at]: int(score) for at, score in zip(feasible, total, strict=True)}
    names = sorted(by_name)
    return {
        "feasible": names,
        "weights": {
            plugin.name: one.pipeline.weights.get(plugin.name, 1)  # type: ignore[attr-defined]
            for plugin in one.pipeline.scores
            if plugin.name not in OF_OTHER_PROJECTS  # type: ignore[attr-defined]
        },
        "total": [by_name[name] for name in names],
        "best": [name for name in names if by_name[name] == max(by_name.values())],
    }


def refused(one: Asked) -> dict[str, Any]:
    """Return the sentences, and what preemption found where that was recorded; an error's words are not compared."""
    fit_error = one.scan.fit_error_message()
    stated = one.case.expected.preemption
    try:
        answer = run_postfilters(one.handle)
        said = joined_reasons(answer.status)
    except PluginError as error:
        if stated is not None and stated.code == Code.ERROR:
            return {**recorded(one.case), "fitError": fit_error}
        answer, said = None, error.problem
    found: dict[str, Any] = {
        "feasible": [],
        "fitError": fit_error,
        "fitErrorFull": f"{fit_error} {said}" if said else fit_error,
    }
    if stated is None or answer is None:
        return found
    rooms, rejected = searched(one)
    node, victims = answer.node or "", list(answer.victims)
    if node in stated.tied and node in rooms and victims == rooms[node][0]:
        # The original draws among these.
        node, victims, said = stated.nominated_node, list(stated.victims), stated.message
        found["fitErrorFull"] = one.case.expected.fit_error_full
    found["preemption"] = {
        "code": answer.status.code.value,
        "message": said,
        "node": node,
        "victims": victims,
        "candidates": rooms,
        "rejected": rejected,
    }
    return found


def searched(
    one: Asked,
) -> tuple[dict[str, tuple[list[str], int]], dict[str, tuple[str, str, tuple[str, ...]]]]:
    """Return the candidates by node, and why other nodes that were tried are none."""
    handle = one.handle
    plugin = next(each for each in one.pipeline.plugins if isinstance(each, DefaultPreemption))
    if ineligibility_reason(handle.pod, handle.scan, handle):
        return {}, {}
    search = plugin.find_candidates(handle.pod, handle.scan, handle)
    rooms = {
        room.node: ([victim.key for victim in room.victims], room.violations) for room in search.candidates
    }
    return rooms, {name: as_recorded(status) for name, status in search.rejected.items()}


def as_recorded(status: Status) -> tuple[str, str, tuple[str, ...]]:
    """Return a refusal in the shape in which recorded ones are put."""
    return status.plugin, status.code.value, tuple(sorted(status.reasons))


def decides_alone(case: runner.Case) -> bool:
    """Tell whether a session over the case decides about its pod alone.

    Nominated pods would be scheduled in the same session.
    """
    return not (case.nominated_pods or case.pod.node_name or case.expected.error)


def decided(case: runner.Case) -> Decision:
    """Decide over a case."""
    return decide(runner.snapshot_of(case), without_solver(case), runner.RECORDED, 0)


def without_solver(case: runner.Case) -> Profile:
    """Return the case's first profile with the solver off."""
    profile = profile_of(case)
    return profile.model_copy(update={"solver": profile.solver.model_copy(update={"enabled": False})})


def decision_mismatches(case: runner.Case) -> list[str]:
    """Compare the node, or the message, the nominated node and the victims; terminating pods are not evicted again."""
    expected, decision, key = case.expected, decided(case), case.pod.key
    placed = {one.pod_key: one.node for one in decision.assignments}
    if expected.best:
        return [] if placed.get(key) in expected.best else [_line(case, placed.get(key), expected.best)]
    said = {one.pod_group: one.message for one in decision.refusals}.get(key)
    if said != expected.fit_error_full:
        return [_line(case, said, expected.fit_error_full)]
    stated = expected.preemption
    if stated is None:
        return []
    victims = {one.pod_key for one in decision.evictions}
    if stated.code != Code.SUCCESS:
        return [_line(case, victims, stated.code)] if victims else []
    node = {one.pod_key: one.node for one in decision.nominations}.get(key, "")
    tied = node in stated.tied
    theirs = stated.candidates[node].victims if tied else stated.victims
    leaving = {pod.key for pod in case.pods if pod.terminating}
    ours, recorded = (node, victims), (node if tied else stated.nominated_node, {*theirs} - leaving)
    return [] if ours == recorded else [_line(case, ours, recorded)]


def _line(case: runner.Case, ours: object, recorded: object) -> str:
    return f"{case.name} decide: ours {ours}, recorded {recorded}"
