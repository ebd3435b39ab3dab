"""The estimated work of the decisions that explanations repeat, and the CPU time of explaining whole sessions."""

import argparse
import gc
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import override

from batchsched.api.decision import Refusal
from batchsched.api.gang import gang_identity
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.manifests.reader import read_manifests
from batchsched.ports.external import Telemetry
from batchsched.session.explanation.explain import explain_refusals
from batchsched.session.explanation.verification import (
    MAX_WORK_PER_GANG,
    AssignmentDecision,
    DecidedInput,
    decide_assignments,
    estimate_decision_work,
    snapshot_with_only_pods,
)
from batchsched.session.session import decide
from batchsched.solver.relaxation.budget import ExplanationBudget
from bench import queues
from bench.solver.instances import Instance, generate, uncontended
from bench.solver.manifests import items

NOW = 1767225600.0


class LongestStep(Telemetry):
    """Measures the longest CPU time between two points at which an explanation can be stopped.

    Attributes:
      seconds: the longest CPU time.
      name: the point that ended it.
    """

    def __init__(self) -> None:
        self.seconds, self.name = 0.0, ""
        self._last = time.thread_time()

    def _record(self, name: str) -> None:
        now = time.thread_time()
        if now - self._last > self.seconds:
            self.seconds, self.name = now - self._last, name
        self._last = now

    @override
    @contextmanager
    def stage_span(self, name: str) -> Iterator[None]:
        """Record the beginning and the end of a stage."""
        self._record(f"before {name}")
        yield
        self._record(f"in {name}")

    @override
    def gang_span(self, pod_group: str) -> AbstractContextManager[None]:
        """Record a step for a gang."""
        self._record("before a gang")
        return nullcontext()

    @override
    @contextmanager
    def plugin_span(self, plugin: str, point: str) -> Iterator[None]:
        """Record a call of a plugin."""
        self._record("before a plugin")
        yield

    @override
    def on_progress(self, done: int, total: int, unit: str) -> None:
        """Record progress."""
        self._record(f"in {unit}")

    def end(self) -> None:
        """Record the end of the decision."""
        self._record("at the end")


@dataclass(frozen=True, slots=True)
class MeasuredDecision:
    """A repeated decision: its CPU seconds, what it decided, and its longest step."""

    seconds: float
    decision: AssignmentDecision
    longest: LongestStep


def main(arguments: list[str]) -> int:
    """Decide clusters of several sizes as explanations do, and print estimates and CPU seconds."""
    parser = argparse.ArgumentParser(prog="python -m bench explanations", description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[200, 1000, 5000])
    parser.add_argument("--gangs", type=int, default=200)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--sessions", action="store_true", help="decide and explain sessions instead")
    parser.add_argument("--alone", type=int, default=3, help="refused gangs of a session to explain alone")
    chosen = parser.parse_args(arguments)
    if chosen.sessions:
        return _explain_sessions(chosen)
    print("nodes  bound pending gangs  cluster       solver  estimate  CPU seconds  ratio  longest step")
    for nodes in chosen.nodes:
        for seed in chosen.seeds:
            for name, cluster in _clusters(nodes, chosen.gangs, seed):
                print(_line(name, cluster, _measure(cluster, seed)), flush=True)
    return 0


def _explain_sessions(chosen: argparse.Namespace) -> int:
    """Print the CPU seconds of deciding and explaining contended clusters, and the cluster of `bench queues`."""
    print(
        "cluster      nodes   pods refused  decide  explain  verified  one gang alone: CPU seconds (verified)"
    )
    for seed in chosen.seeds:
        for nodes in chosen.nodes:
            _explain_session("contended", _snapshot(generate(nodes, chosen.gangs, seed)), seed, chosen.alone)
        _explain_session("queues", queues.snapshot(5000, 2000, 1000, seed), seed, chosen.alone)
    return 0


def _explain_session(name: str, cluster: Snapshot, seed: int, alone: int) -> None:
    gc.collect()
    begun = time.process_time()
    decided = DecidedInput(cluster, Profile(), NOW, seed, decide(cluster, Profile(), NOW, seed))
    seconds_of_decision = time.process_time() - begun
    begun = time.process_time()
    explained = explain_refusals(decided)
    seconds = time.process_time() - begun
    print(
        f"{name:11} {len(cluster.nodes):6} {len(cluster.pods):6} {len(explained.refusals):7} "
        f"{seconds_of_decision:7.2f} {seconds:8.2f} {sum(map(_is_verified, explained.refusals)):9}  ",
        end="",
        flush=True,
    )
    for refusal in decided.decision.refusals[:alone]:
        begun = time.process_time()
        key = refusal.pod_group
        refusals = explain_refusals(decided, ExplanationBudget(MAX_WORK_PER_GANG), {key}).refusals
        verified = any(_is_verified(other) for other in refusals if other.pod_group == key)
        print(f"{time.process_time() - begun:.1f} ({'yes' if verified else 'no'}) ", end="", flush=True)
    print()


def _is_verified(refusal: Refusal) -> bool:
    return refusal.verified


def _clusters(nodes: int, gangs: int, seed: int) -> Iterator[tuple[str, Snapshot]]:
    """Yield clusters with their names: with too little room, with enough room, and one gang on the empty nodes."""
    contended = _snapshot(generate(nodes, gangs, seed))
    yield "contended", contended
    yield "uncontended", _snapshot(uncontended(nodes, gangs, seed, pods=4 * gangs))
    pod = next(pod for pod in contended.pods if not pod.node_name)
    gang = gang_identity(pod)
    members = frozenset(pod.key for pod in contended.pods if gang_identity(pod) == gang)
    yield "emptied", snapshot_with_only_pods(contended, members)


def _snapshot(instance: Instance) -> Snapshot:
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "cluster.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items(instance))}))
        return read_manifests([str(path)]).snapshot


def _measure(cluster: Snapshot, seed: int) -> MeasuredDecision:
    gc.collect()
    longest, begun = LongestStep(), time.process_time()
    decision = decide_assignments(cluster, Profile(), NOW, seed, longest)
    longest.end()
    return MeasuredDecision(time.process_time() - begun, decision, longest)


def _line(name: str, cluster: Snapshot, measured: MeasuredDecision) -> str:
    pending = [pod for pod in cluster.pods if not pod.node_name]
    gangs, bound = len({gang_identity(pod) for pod in pending}), len(cluster.pods) - len(pending)
    solver = measured.decision.solver_work / 1e6
    estimate = estimate_decision_work(cluster) / 1e6 + solver
    longest = measured.longest
    return (
        f"{len(cluster.nodes):5} {bound:6} {len(pending):7} {gangs:5}  {name:12} {solver:7.3f} {estimate:9.3f} "
        f"{measured.seconds:12.3f} {estimate / measured.seconds:6.2f}  {longest.seconds:.3f} s {longest.name}"
    )
