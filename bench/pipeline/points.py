"""CPU time by plugin and extension point: each method of the plugins of a pipeline is timed."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from batchsched.api.snapshot import Snapshot
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.runtime.result_cache import PodClassResults
from batchsched.session.tables.session_tables import SessionTables

POINTS = {
    "prefilter": "PreFilter",
    "filter": "Filter",
    "prescore": "PreScore",
    "score": "Score",
    "normalize": "NormalizeScore",
}
WHOLE = ("", "all")
"""The whole of scan and score, what the pipeline itself takes included."""

Seconds = dict[tuple[str, str], float]


class Clocks:
    """CPU seconds by plugin and extension point, measured around the methods of the plugins of a pipeline."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.seconds: Seconds = {}
        for plugin in pipeline.plugins:
            for method, point in POINTS.items():
                asked = getattr(plugin, method, None)
                if asked is not None:
                    setattr(plugin, method, self._timed(asked, (type(plugin).__name__, point)))

    def _timed(self, asked: Callable[..., Any], key: tuple[str, str]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            start = time.process_time()
            try:
                return asked(*arguments)
            finally:
                self.seconds[key] = self.seconds.get(key, 0.0) + time.process_time() - start

        return call

    def take(self, pods: int) -> Seconds:
        """Return the seconds for each pod since the last call."""
        taken = {key: seconds / pods for key, seconds in self.seconds.items()}
        self.seconds = {}
        return taken


def by_point(snapshot: Snapshot, pipeline: Pipeline, pods: int) -> tuple[Seconds, Seconds]:
    """Place equal pods one after the other; return the seconds of the first pod, and the mean seconds of the others.

    The first meets tables on which nothing was asked yet, the others what the first left standing.
    """
    clocks = Clocks(pipeline)
    tables = SessionTables(snapshot, pipeline)
    tables.update_pending_gangs_and_indexes()
    waiting = [pod for pod in snapshot.pods if not pod.node_name][: pods + 1]
    pod_class = tables.classes.pod_class_of(waiting[0], 0)
    standing = PodClassResults()
    cold: Seconds = {}
    start = time.process_time()
    for at, pod in enumerate(waiting):
        scan = pipeline.find_nodes_that_pass_filters(pod_class, tables.node_table, standing)
        feasible = np.flatnonzero(scan.fits).astype(np.int32)
        total = pipeline.score(pod_class, feasible, tables.node_table, scan.state, standing)
        tables.node_table.add_pods([(pod, int(feasible[total.argmax()]))], *tables.requests_and_nonzero(pod))
        if not at:
            clocks.seconds[WHOLE] = time.process_time() - start
            cold = clocks.take(1)
            start = time.process_time()
    clocks.seconds[WHOLE] = time.process_time() - start
    return cold, clocks.take(max(1, len(waiting) - 1))
