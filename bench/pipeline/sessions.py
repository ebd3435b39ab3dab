"""CPU time of whole sessions pod by pod, and of the masks and scores of one pod class."""

import time
from dataclasses import dataclass

from typing_extensions import override

from batchsched.api.decision import Decision
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.framework.pod_class import PodClass
from batchsched.framework.runtime.result_cache import PodClassResults, ResultCache
from batchsched.session.joint.formulation import FeasibleNodesByPodClass
from batchsched.session.session import Session
from bench.pipeline.clusters import Workload, snapshot

NOW = 1_767_225_600.0
PODWISE = Profile.model_validate({"solver": {"enabled": False}})


class Forgetful(ResultCache):
    """A result cache that keeps no results, so that plugins are called for every pod on every node."""

    @override
    def results_of_pod_class(self, pod: PodClass) -> PodClassResults:
        """Return an empty result."""
        return PodClassResults()


@dataclass(frozen=True, slots=True)
class MeasuredSession:
    """One session: CPU seconds and decision."""

    seconds: float
    decision: Decision


def session(cluster: Snapshot, *, forgetful: bool = False) -> MeasuredSession:
    """Decide pod by pod over new tables without cached results; the time to build the tables is not counted."""
    sessions = Session(cluster, PODWISE)
    if forgetful:
        sessions.tables.result_cache = Forgetful(sessions.tables.node_table)
    sessions.tables.update_pending_gangs_and_indexes()
    start = time.process_time()
    decision = sessions.decide(NOW, 0)
    return MeasuredSession(time.process_time() - start, decision)


def second_session(cluster: Snapshot, *, forgetful: bool = False) -> float:
    """Return the CPU seconds of a second session over the same tables; `forgetful`: as for a new pod class."""
    sessions = Session(cluster, PODWISE)
    if forgetful:
        sessions.tables.result_cache = Forgetful(sessions.tables.node_table)
    sessions.decide(NOW, 0)
    start = time.process_time()
    sessions.decide(NOW, 0)
    return time.process_time() - start


def of_a_class(workload: Workload, nodes: int, pods: int, seed: int) -> float:
    """Return the CPU seconds until masks and scores of a class with `pods` pods are known, with cached results."""
    cluster = snapshot(workload, nodes, pods, seed)
    sessions = Session(cluster, PODWISE)
    tables = sessions.tables
    tables.update_pending_gangs_and_indexes()
    FeasibleNodesByPodClass(tables).feasible_nodes_of(
        tables.classes.pod_class_of(next(pod for pod in cluster.pods if not pod.node_name), -1)
    )
    waiting = [members for members in tables.gangs.values() if members.pending]
    start = time.process_time()
    feasible_nodes = FeasibleNodesByPodClass(tables)
    feasible_nodes.precompute_feasible_nodes(
        part.pod_class for members in waiting for part in tables.pending_gang(members).parts
    )
    return time.process_time() - start


def same(one: Decision, other: Decision) -> bool:
    """Return whether two decisions place the same pods on the same nodes."""
    return one.assignments == other.assignments and one.refusals == other.refusals
