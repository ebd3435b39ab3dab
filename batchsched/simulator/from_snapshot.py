"""A cluster that somebody has: what is in a snapshot becomes a workload."""

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
    """Make a workload of a cluster as it stands at `start`.

    Gangs run for their expectedRuntimeSeconds. Those that run already are there from the start, with what is left of
    it; those that wait are there from the start, or come when their PodGroup says that it was created, if later.
    Bound pods that belong to no gang of ours stay for good.

    Args:
      snapshot: the cluster.
      start: when the clock begins, seconds since 1970.
      runtime: seconds that gangs run which do not say.
      name: how reports call it.
      outages: nodes that fail.
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
    arrivals.sort(key=lambda one: one.at)
    cluster = replace(snapshot, pods=tuple(lasting), pod_groups=(), held=(), reservations=())
    return Workload(name, cluster, tuple(arrivals), tuple(outages))


def _gang(group: PodGroup | None, pods: list[Pod], begin: int, runtime: int) -> Arrival:
    stated = group.spec.expected_runtime_seconds if group is not None else None
    whole = runtime if stated is None else stated
    bound = [pod for pod in pods if pod.node]
    if bound:
        since = min(seconds(pod.status.start_time, float(begin)) for pod in bound)
        left = max(0, ceil(since + whole - begin))
        return Arrival(begin, left, group, tuple(pods))
    created = group.created if group is not None else seconds(pods[0].metadata.creation_timestamp)
    return Arrival(max(begin, ceil(created)), whole, group, tuple(pods))
