"""CPU time of one session over many single pods, each with a spec of its own."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from batchsched.api.core.pod import Pod
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.framework.runtime.registry import standard_registry
from batchsched.session.session import Session
from bench.pipeline.clusters import ZONE, ZONES, nodes, template

NOW = 1_767_225_600.0
MIB = 2**20


def distinct_cpu(at: int) -> Pod:
    """Return a pod with a CPU request that no other number has."""
    return _pod(at, {}, {}, {"cpu": f"{100 + at}m"})


def distinct_mix(at: int) -> Pod:
    """Return a pod with CPU and memory requests, labels and a node selector that few other numbers have."""
    requests = {"cpu": f"{100 + at * 7 % 1999}m", "memory": str((64 + at) * MIB)}
    return _pod(at, {"nodeSelector": {ZONE: f"zone{at % ZONES}"}}, {"app": f"app-{at}"}, requests)


def distinct_anti_affinity(at: int) -> Pod:
    """Return a pod with anti-affinity to a label that only this pod has."""
    labels = {"app": f"app-{at}"}
    terms = [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}]
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return _pod(at, {"affinity": anti}, labels, {"cpu": "100m"})


def _pod(at: int, spec: dict[str, Any], labels: dict[str, str], requests: dict[str, str]) -> Pod:
    made = template(spec, labels, requests)
    made["metadata"] |= {"name": f"pod-{at:05d}", "uid": f"pod-{at}"}
    return msgspec.convert(made, Pod)


@dataclass(frozen=True, slots=True)
class SpecSession:
    """The CPU seconds of one session: of its tables from a snapshot, and of its decision."""

    tables: float
    decide: float
    placed: int


def spec_session(pod_of: Callable[[int], Pod], count: int, pods: int, seed: int) -> SpecSession:
    """Decide once over `count` empty nodes and `pods` pods of distinct specs, with the solver enabled."""
    cluster = Snapshot(nodes=nodes(count, seed), pods=tuple(pod_of(at) for at in range(pods)))
    pipeline = standard_registry().create_pipeline(Profile())
    start = time.process_time()
    session = Session(cluster, Profile(), pipeline)
    session.tables.update_pending_gangs_and_indexes()
    built = time.process_time()
    decision = session.decide(NOW, 0)
    return SpecSession(built - start, time.process_time() - built, len(decision.assignments))
