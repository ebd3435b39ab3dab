"""A session with 1,000 queues in four levels, 5,000 nodes and 2,000 pending gangs."""

import argparse
import gc
import json
import random
import tempfile
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from batchsched.api.decision import Decision
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.manifests.reader import read_manifests
from batchsched.session.session import Session
from bench.solver.instances import generate
from bench.solver.manifests import items

LEVELS: Final = (0.008, 0.04, 0.16)
"""The share of all queues on each level except the last, the widest first."""
NOW: Final = 1767225600.0


class Stages:
    """Records the CPU seconds of the stages of `decide`."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def stage_span(self, name: str) -> "Stage":
        """Begin a stage."""
        return Stage(self.seconds, name)

    def gang_span(self, pod_group: str) -> AbstractContextManager[None]:
        return nullcontext()

    def on_progress(self, done: int, total: int, what: str) -> None:
        """Progress is not recorded."""

    def plugin_span(self, plugin: str, point: str) -> AbstractContextManager[None]:
        """Calls of plugins are not timed, because the measurement would count as time of the session."""
        return nullcontext()


class Stage:
    """Adds the CPU seconds between its beginning and its end."""

    def __init__(self, seconds: dict[str, float], name: str) -> None:
        self._seconds, self._name = seconds, name

    def __enter__(self) -> None:
        self._begun = time.process_time()

    def __exit__(self, *_: object) -> None:
        took = time.process_time() - self._begun
        self._seconds[self._name] = self._seconds.get(self._name, 0.0) + took


def tree(count: int, gpus: int, draw: random.Random) -> list[dict[str, Any]]:
    """Return queues in four levels; the guarantees of siblings sum to half of that of their parent."""
    widths = [max(1, round(part * count)) for part in LEVELS]
    widths.append(count - sum(widths))
    found, above = [], [("", gpus)]
    for depth, width in enumerate(widths):
        level = []
        for at in range(width):
            parent, has = above[at % len(above)]
            share = max(1, has * len(above) // width // 2)
            spec: dict[str, Any] = {
                "weight": draw.choice((1.0, 1.0, 2.0, 4.0)),
                "guarantee": {"nvidia.com/gpu": str(share)},
                "limit": {"nvidia.com/gpu": str(share * 8)},
            }
            name = f"q{depth}-{at:04d}"
            found.append(
                {
                    "apiVersion": "scheduling.batchsched.dev/v1alpha1",
                    "kind": "Queue",
                    "metadata": {"name": name},
                    "spec": spec | ({"parent": parent} if parent else {}),
                }
            )
            level.append((name, share))
        above = level
    return found


def snapshot(nodes: int, gangs: int, queues: int, seed: int) -> Snapshot:
    """Return a random cluster of the solver's bench with its gangs in the queues of the last level of a tree."""
    draw = random.Random(seed)
    instance = generate(nodes, gangs, seed, (1.3, 1.0))  # queues limit GPUs alone, so that GPUs decide
    gpus = sum(node.type.gpu for node in instance.nodes)
    made = tree(queues, gpus, draw)
    leaves = [
        one["metadata"]["name"] for one in made if one["metadata"]["name"].startswith(f"q{len(LEVELS)}-")
    ]
    objects = [one for one in items(instance) if one["kind"] != "Queue"]
    for one in objects:
        if one["kind"] == "PodGroup":
            one["spec"]["queue"] = draw.choice(leaves)  # type: ignore[index]
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "cluster.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects + made}))
        return read_manifests([str(path)]).snapshot


def main(arguments: list[str]) -> int:
    """Decide two sessions for each seed, the first over new pods, and print their CPU seconds."""
    parser = argparse.ArgumentParser(prog="python -m bench queues", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--gangs", type=int, default=2000)
    parser.add_argument("--queues", type=int, default=1000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    chosen = parser.parse_args(arguments)
    for seed in chosen.seeds:
        there = snapshot(chosen.nodes, chosen.gangs, chosen.queues, seed)
        sessions = Session(there, Profile())
        gc.collect()
        gc.disable()  # as `batchsched decide` has it; `run` looks through what is young, and seldom
        first = _session(sessions, seed)
        # Nothing was bound: all wait again, as they do where a running scheduler's session comes to nothing.
        second = _session(sessions, seed)
        gc.enable()
        print(_line(seed, there, first))
        print(f"  {first.stages}")
        print(f"  again, all pods known: {second.took:.2f} s ({second.spent:.2f} s CPU): {second.stages}")
        assert second.decision == first.decision
    return 0


@dataclass(frozen=True, slots=True)
class MeasuredSession:
    """One session: seconds, CPU seconds in total and by stage, and the decision."""

    took: float
    spent: float
    stages: str
    decision: Decision


def _session(sessions: Session, seed: int) -> MeasuredSession:
    stages, begun, cpu = Stages(), time.perf_counter(), time.process_time()
    decision = sessions.decide(NOW, seed, telemetry=stages)
    took, spent = time.perf_counter() - begun, time.process_time() - cpu
    said = ", ".join(f"{name} {seconds:.2f}" for name, seconds in stages.seconds.items())
    return MeasuredSession(took, spent, said, decision)


def _line(seed: int, there: Snapshot, one: MeasuredSession) -> str:
    placed = len({given.pod.rpartition("-")[0] for given in one.decision.assignments})
    account = one.decision.solver
    shares = sorted({tier.share for tier in account.tiers})
    return (
        f"seed {seed}: {len(there.queues)} queues, {len(there.pod_groups)} gangs, {len(there.pods)} pods: "
        f"{one.took:.2f} s ({one.spent:.2f} s CPU); {placed} gangs of some pods placed, "
        f"gap {account.gap:.2%}; {', '.join(shares)}"
    )
