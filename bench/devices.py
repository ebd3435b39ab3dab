"""Sessions over gangs with ResourceClaims: CPU time beside the same gangs with an extended resource.

Every node has eight devices. Each pod needs two of them: by a claim with a CEL selector, or as `nvidia.com/gpu`.
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from batchsched.api.core.device import DeviceClass, ResourceClaim, ResourceSlice
from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.session.session import Session

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
    return 0
