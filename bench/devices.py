"""Sessions over gangs with ResourceClaims: CPU time beside the same gangs with an extended resource.

Every node has eight devices. Each pod needs two of them: by a claim with a CEL selector, or as `nvidia.com/gpu`.
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from batchsched.api.core.device import (
    DeviceClass,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
    ResourceSlice,
)
from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.session.session import Session
from batchsched.state.cluster_state import ClusterState
from batchsched.state.up_to_date_scheduler import UpToDateScheduler

DRIVER = "gpu.example.com"
GPU = "nvidia.com/gpu"
NOW = 1_700_000_000.0
DEVICES = 8
PODS = 8
PER_POD = 2
SELECTOR = f'device.attributes["{DRIVER}"].model == "h100"'


def cluster(nodes: int, gangs: int, *, claims: bool) -> Snapshot:
    """A cluster with gangs of eight pods, each with two devices."""
    offered = {"cpu": "64", "memory": "256Gi", "pods": "110"} | ({} if claims else {GPU: str(DEVICES)})
    keys = [(f"g{gang:04}", f"g{gang:04}-{pod}") for gang in range(gangs) for pod in range(PODS)]
    return Snapshot(
        nodes=msgspec.convert(
            [{"metadata": {"name": name_of(at)}, "status": {"allocatable": offered}} for at in range(nodes)],
            tuple[Node, ...],
        ),
        pods=tuple(pod_of(group, name, claims=claims) for group, name in keys),
        pod_groups=tuple(
            PodGroup.model_validate(
                {"metadata": {"name": f"g{gang:04}", "namespace": "team"}, "spec": {"minMember": PODS}}
            )
            for gang in range(gangs)
        ),
        resource_claims=tuple(claim_of(name) for _, name in keys) if claims else (),
        resource_slices=tuple(slice_of(at) for at in range(nodes)) if claims else (),
        device_classes=(class_of_driver(),) if claims else (),
    )


def name_of(node: int) -> str:
    """The name of a node."""
    return f"n{node:05}"


def pod_of(group: str, name: str, *, claims: bool) -> Pod:
    """A pod of a gang."""
    requests = {"cpu": "1"} | ({} if claims else {GPU: str(PER_POD)})
    entries = [{"name": "gpu", "resourceClaimTemplateName": "gpus"}]
    statuses = [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}]
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": "team",
                "uid": name,
                "labels": {"scheduling.batchsched.dev/pod-group": group},
            },
            "spec": {
                "schedulerName": "batchsched",
                "containers": [{"name": "main", "resources": {"requests": requests}}],
                **({"resourceClaims": entries} if claims else {}),
            },
            "status": {"resourceClaimStatuses": statuses} if claims else {},
        },
        Pod,
    )


def claim_of(pod: str) -> ResourceClaim:
    """The claim of a pod."""
    exactly = {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": PER_POD,
        "selectors": [{"cel": {"expression": SELECTOR}}],
    }
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": pod, "controller": True}
    return msgspec.convert(
        {
            "metadata": {"name": f"{pod}-gpu", "namespace": "team", "ownerReferences": [owner]},
            "spec": {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}},
        },
        ResourceClaim,
    )


def slice_of(node: int) -> ResourceSlice:
    """The devices of a node, each with attributes of its own."""
    devices = [
        {
            "name": f"gpu-{number}",
            "attributes": {
                "model": {"string": "h100"},
                "index": {"int": number},
                "uuid": {"string": f"{node}-{number}"},
            },
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for number in range(DEVICES)
    ]
    name = name_of(node)
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    return msgspec.convert(
        {
            "metadata": {"name": name},
            "spec": {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices},
        },
        ResourceSlice,
    )


def class_of_driver() -> DeviceClass:
    """The class of the driver's devices."""
    selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    return msgspec.convert({"metadata": {"name": "gpu"}, "spec": {"selectors": selectors}}, DeviceClass)


def seconds_of_session(state: Snapshot, placed: int) -> tuple[float, float]:
    """Return the CPU seconds of a new session, tables included, and of one more decision of it."""
    start = time.process_time()
    session = Session(state, Profile())
    decision = session.decide(NOW, 0)
    first = time.process_time() - start
    assert len(decision.assignments) == placed, decision.refusals[:1]
    start = time.process_time()
    session.decide(NOW, 1)
    return first, time.process_time() - start


def seconds_to_follow(nodes: int, gangs: int) -> tuple[float, float]:
    """Return the CPU seconds of the next session, with one more gang, after a change of claims and of a ResourceSlice.

    The first number is for the claims of all pods of an earlier session, as the binding cycles write them.
    """
    cache = ClusterState()
    feed = UpToDateScheduler(cache, lambda snapshot: Session(snapshot, Profile()))
    ending = cluster(1, gangs + 2, claims=True)
    states = [cluster(nodes, gangs, claims=True), *(_last_gangs(ending, left, gangs) for left in (1, 2))]
    _put_all(cache, states[0])
    decision = feed.updated_scheduler().decide(NOW, 0)
    for placed in decision.assignments:
        assert cache.assume_pod(placed.pod_key, placed.node, NOW, placed.pod)
    feed.updated_scheduler()
    for placed in decision.assignments:
        for assigned in placed.claims:
            claim = cache.get("resource_claims", f"{placed.namespace}/{assigned.claim}")
            consumer = ResourceClaimConsumerReference(resource="pods", name=placed.pod, uid=placed.pod)
            status = ResourceClaimStatus(allocation=assigned.allocation, reserved_for=(consumer,))
            cache.put(msgspec.structs.replace(claim, status=status))
    times = []
    for more in states[1:]:
        _put_all(cache, more)
        start = time.process_time()
        assert feed.updated_scheduler().decide(NOW, 0).assignments
        times.append(time.process_time() - start)
        published = slice_of(0)
        labelled = msgspec.structs.replace(published.metadata, labels={"changed": "true"})
        cache.put(msgspec.structs.replace(published, metadata=labelled))
    return times[0], times[1]


def _last_gangs(state: Snapshot, number: int, before: int) -> Snapshot:
    """One gang of a cluster with its claims, without nodes and devices."""
    group = state.pod_groups[before + number - 1]
    pods = tuple(pod for pod in state.pods if pod.name.startswith(f"{group.name}-"))
    names = {f"{pod.name}-gpu" for pod in pods}
    claims = tuple(claim for claim in state.resource_claims if claim.metadata.name in names)
    return Snapshot(pods=pods, pod_groups=(group,), resource_claims=claims)


def _put_all(cache: ClusterState, state: Snapshot) -> None:
    fields = ("nodes", "device_classes", "resource_slices", "pod_groups", "resource_claims", "pods")
    for item in (item for field in fields for item in getattr(state, field)):
        cache.put(item)


def main(arguments: Sequence[str]) -> int:
    """Print CPU seconds with and without claims, in interleaved pairs."""
    parser = argparse.ArgumentParser(prog="python -m bench devices", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--gangs", type=int, default=200)
    parser.add_argument("--pairs", type=int, default=3)
    asked = parser.parse_args(arguments)
    seconds_of_session(cluster(10, 1, claims=True), PODS)  # imports and compiled expressions
    pairs = [
        tuple(
            seconds_of_session(cluster(asked.nodes, asked.gangs, claims=claims), asked.gangs * PODS)[0]
            for claims in (False, True)
        )
        for _ in range(asked.pairs)
    ]
    without, with_claims = (statistics.median(times) for times in zip(*pairs, strict=True))
    print(
        f"{asked.nodes} nodes, {asked.gangs} gangs of {PODS}: {without:.2f} s without claims, {with_claims:.2f} s with "
        f"claims, factor {with_claims / without:.2f}"
    )
    single = cluster(asked.nodes, 1, claims=True)
    (pod, *_) = single.pods
    pod = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, labels=None))
    alone = replace(single, pods=(pod,), pod_groups=(), resource_claims=single.resource_claims[:1])
    times = [seconds_of_session(alone, 1) for _ in range(asked.pairs)]
    new, later = (statistics.median(values) for values in zip(*times, strict=True))
    print(
        f"a pod with a claim: {new * 1000:.0f} ms in a new session, {later * 1000:.0f} ms in one that follows the "
        "cluster"
    )
    changes = [seconds_to_follow(asked.nodes, asked.gangs) for _ in range(asked.pairs)]
    claims, published = (statistics.median(values) for values in zip(*changes, strict=True))
    print(
        f"the next session with one more gang: {claims * 1000:.0f} ms after all claims were written, "
        f"{published * 1000:.0f} ms after a ResourceSlice changed"
    )
    return 0
