"""The objects of the bench: equal nodes, and jobs of equal pods that are created at a chosen rate."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from batchsched.api.crd.base import API_VERSION
from batchsched.kube.connection import POD_RESOURCE, ApiResource
from batchsched.kube.writer import Writer

NODES = ApiResource("v1", "nodes", "Node", namespaced=False)
GROUPS = ApiResource(API_VERSION, "podgroups", "PodGroup", namespaced=True)
NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the matrix.

    Args:
      jobs: number of PodGroups, or of pods if `size` is 1.
      size: number of pods of each.
    """

    jobs: int
    size: int

    @property
    def pods(self) -> int:
        """The number of pods of all jobs."""
        return self.jobs * self.size

    @property
    def name(self) -> str:
        """`jobs x pods`."""
        return f"{self.jobs} x {self.size}"


def node(number: int, pods: int = 110) -> dict[str, Any]:
    """Return a node of 32 CPUs and 256 GiB, for this number of pods."""
    room = {"cpu": "32", "memory": "256Gi", "pods": str(pods)}
    name = f"node-{number:05d}"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": room, "allocatable": room},
    }


def pod(name: str, scheduler: str, group: str = "") -> dict[str, Any]:
    """Return a pod of 1 CPU and 1 GiB."""
    requests = {"cpu": "1", "memory": "1Gi"}
    labels = {"scheduling.batchsched.dev/pod-group": group} if group else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "schedulerName": scheduler,
            "containers": [{"name": "main", "image": "busybox", "resources": {"requests": requests}}],
        },
    }


async def fill(writer: Writer, nodes: int, pods: int = 110) -> None:
    """Create nodes for this number of pods each."""
    await at_once(writer.create(NODES, "", node(number, pods)) for number in range(nodes))


async def submit(
    writer: Writer, row: Row, scheduler: str, on_created: Callable[[str], None], rate: float = 0.0
) -> None:
    """Create the jobs, each PodGroup before its pods.

    Args:
      writer: creates the objects.
      row: number and size of the jobs.
      scheduler: the `schedulerName` of the pods.
      on_created: called with the name of each pod after it was created.
      rate: pods per second; 0 for as many as the API server accepts.
    """
    gangs = row.size > 1 and scheduler == "batchsched"
    if gangs:
        await at_once(
            writer.create(
                GROUPS,
                NAMESPACE,
                {
                    "apiVersion": API_VERSION,
                    "kind": "PodGroup",
                    "metadata": {"name": f"job-{job}"},
                    "spec": {"minMember": row.size},
                },
            )
            for job in range(row.jobs)
        )
    begun = time.monotonic()

    async def create(name: str, group: str, seconds: float) -> None:
        if rate:
            await asyncio.sleep(max(0.0, begun + seconds - time.monotonic()))
        await writer.create(POD_RESOURCE, NAMESPACE, pod(name, scheduler, group))
        on_created(name)

    await at_once(
        create(
            f"job-{job}-{number}",
            f"job-{job}" if gangs else "",
            (job * row.size + number) / rate if rate else 0.0,
        )
        for job in range(row.jobs)
        for number in range(row.size)
    )


async def at_once(calls: Iterable[Awaitable[Any]]) -> None:
    """Make calls at the same time, and wait for all of them."""
    await asyncio.gather(*calls)
