"""Converts a snapshot of a cluster into a workload."""

from collections.abc import Iterable
from dataclasses import replace
from math import ceil, floor

from batchsched.api.core.metadata import seconds
from batchsched.api.core.pod import POD_GROUP_LABEL, SCHEDULER_NAME, Pod
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.snapshot import Snapshot
from batchsched.simulator.workload import Arrival, Outage, Workload


def workload(
    snapshot: Snapshot,
    start: float,
    runtime: int,
    name: str,
    outages: Iterable[Outage] = (),
) -> Workload:
    """Create a workload from a snapshot, starting at `start`.

    Gangs run for their expectedRuntimeSeconds. Running gangs are present from the start with their remaining run
    time. Pending gangs are present from the start, or arrive at the creation time of their PodGroup, if that is
    later. Bound pods that belong to no gang of the scheduler remain forever.

    Args:
      snapshot: the cluster.
      start: start of the simulation in seconds since 1970.
      runtime: run time in seconds of gangs without an expected run time.
      name: name of the workload in reports.
      outages: node failures.
    """
    begin = floor(start)
    groups = {group.key: group for group in snapshot.pod_groups}
    pods_of: dict[str, list[Pod]] = {key: [] for key in groups}
    lasting = []
    alone = []
    for pod in snapshot.pods:
        key = f"{pod.namespace}/{pod.labels.get(POD_GROUP_LABEL, '')}"
        if key in groups:
            pods_of[key].append(pod)
        elif pod.node and pod.spec.scheduler_name != SCHEDULER_NAME:
            lasting.append(pod)
        else:
            alone.append(pod)
    arrivals = [_gang(group, pods_of[key], begin, runtime) for key, group in groups.items() if pods_of[key]]
    arrivals += [_gang(None, [pod], begin, runtime) for pod in alone]
    arrivals.sort(key=lambda arrival: arrival.at)
    cluster = replace(snapshot, pods=tuple(lasting), pod_groups=(), held=(), reservations=())
    return Workload(name, cluster, tuple(arrivals), tuple(outages))


def _gang(group: PodGroup | None, pods: list[Pod], begin: int, runtime: int) -> Arrival:
    expected_runtime = group.spec.expected_runtime_seconds if group is not None else None
    whole = runtime if expected_runtime is None else expected_runtime
    bound = [pod for pod in pods if pod.node]
    if bound:
        since = min(seconds(pod.status.start_time, float(begin)) for pod in bound)
        remaining = max(0, ceil(since + whole - begin))
        return Arrival(begin, remaining, group, tuple(pods))
    created = group.created if group is not None else seconds(pods[0].metadata.creation_timestamp)
    return Arrival(max(begin, ceil(created)), whole, group, tuple(pods))
