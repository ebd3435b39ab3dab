"""A large idle cluster: how long a single pod waits for its node, and how much CPU and memory it costs to watch.

Targets at 5,000 nodes and 50,000 pods: a single pod is bound 100 ms after its creation (median of 50), 900 MiB, and
20 s from a cold start to the first session.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import psutil

from batchsched.api.crd.base import API_VERSION
from batchsched.api.crd.validation import FieldError
from batchsched.api.decision import SetAside
from batchsched.kube.clock import SystemClock
from batchsched.kube.connection import POD_RESOURCE, Connection
from batchsched.kube.credentials import CredentialsReader
from batchsched.kube.reflector import Reflector, ReflectorSettings
from batchsched.kube.writer import Writer
from batchsched.ports.cluster import SetAsideObject
from bench.cluster.trial import install, spent, start, stop
from bench.cluster.workload import GROUPS, NAMESPACE, NODES, Row, at_once, fill, pod
from tests.controlplane.plane import ControlPlane

LONE = {"bench": "lone"}
LONE_PODS = ReflectorSettings({"labelSelector": ",".join(f"{key}={value}" for key, value in LONE.items())})
PAUSE = 0.3
"""Seconds between two single pods."""
LONGEST = 180.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The figures of one run.

    Args:
      cold: seconds from the start of the process to its first bind.
      cpu: CPU seconds up to the first bind.
      alone, changed: single pods, and single pods that were each created after a change of a node.
      rss: peak resident set, MiB.
    """

    cold: float
    cpu: float
    alone: "Waits"
    changed: "Waits"
    rss: float


@dataclass(frozen=True, slots=True)
class Waits:
    """How long single pods waited.

    Args:
      seconds: for each pod, from its creation to its binding.
      cpu: CPU seconds of the scheduler in this time, with the pauses.
    """

    seconds: Sequence[float]
    cpu: float

    @property
    def said(self) -> str:
        """The figures as text."""
        count, median, worst = len(self.seconds), statistics.median(self.seconds), max(self.seconds)
        each = 1000 * self.cpu / count
        return f"{1000 * median:6.0f} ms (median of {count}; worst {1000 * worst:.0f} ms), {each:.0f} ms of CPU each"


class _Pod(msgspec.Struct, frozen=True):
    metadata: dict[str, Any]
    spec: dict[str, Any]


@dataclass(slots=True)
class BindWatch:
    """Resolves the futures of bound pods with the label of `LONE`; implements `ports.cluster.Sink`."""

    bound: dict[str, asyncio.Future[float]] = field(default_factory=dict)
    set_aside_objects: dict[str, SetAsideObject] = field(default_factory=dict)

    def wanted(self, name: str) -> asyncio.Future[float]:
        if name not in self.bound:
            self.bound[name] = asyncio.get_running_loop().create_future()
        return self.bound[name]

    def on_replace(self, objects: Sequence[bytes]) -> None:
        for raw in objects:
            self.on_add_or_update(raw)

    def on_add_or_update(self, raw: bytes) -> None:
        seen = msgspec.json.decode(raw, type=_Pod)
        one = self.wanted(seen.metadata["name"])
        if seen.spec.get("nodeName") and not one.done():
            one.set_result(time.monotonic())

    def on_delete(self, raw: bytes) -> None:
        """No future waits for a deletion."""

    def set_object_aside(self, item: bytes, problem: FieldError) -> None:
        why = SetAside("", "Pod", problem.field, problem.message)
        self.set_aside_objects[why.field_and_message] = SetAsideObject(why, "", "", "")


async def _populate(writer: Writer, nodes: int, row: Row) -> None:
    """Create nodes, and gangs with pods that run on them."""
    await fill(writer, nodes)
    group = {"apiVersion": API_VERSION, "kind": "PodGroup", "spec": {"minMember": row.size}}
    await at_once(
        writer.create(GROUPS, NAMESPACE, {**group, "metadata": {"name": f"job-{job}"}})
        for job in range(row.jobs)
    )

    def running(number: int) -> dict[str, Any]:
        job = number // row.size
        made = pod(f"job-{job}-{number % row.size}", "batchsched", f"job-{job}")
        made["spec"]["nodeName"] = f"node-{number % nodes:05d}"
        return made

    await at_once(writer.create(POD_RESOURCE, NAMESPACE, running(number)) for number in range(row.pods))


async def _lone(writer: Writer, watch: BindWatch, name: str) -> float:
    """Create a pod; return the seconds until it is bound."""
    body = pod(name, "batchsched")
    body["metadata"]["labels"] = LONE
    begun = time.monotonic()
    await writer.create(POD_RESOURCE, NAMESPACE, body)
    return await asyncio.wait_for(watch.wanted(name), LONGEST) - begun


async def _change(writer: Writer, number: int) -> None:
    """Change a node like a kubelet that has pulled an image."""
    images = [{"names": [f"image-{number}"], "sizeBytes": 1}]
    await writer.patch(NODES, "", f"node-{number:05d}", {"status": {"images": images}}, "status")


@asynccontextmanager
async def followed(connection: Connection, clock: SystemClock) -> AsyncIterator[BindWatch]:
    """Watch the pods with the label of `LONE`."""
    watch = BindWatch()
    reflector = Reflector(connection, POD_RESOURCE, watch, clock, terms=LONE_PODS)
    following = asyncio.create_task(reflector.run())
    await reflector.synced.wait()
    try:
        yield watch
    finally:
        following.cancel()


async def _run(plane: ControlPlane, nodes: int, row: Row, count: int) -> Outcome:
    clock = SystemClock()
    async with Connection(CredentialsReader(plane.kubeconfig()), clock) as connection:
        writer = Writer(connection, clock)
        await _populate(writer, nodes, row)
        async with followed(connection, clock) as watch:
            first = asyncio.create_task(_lone(writer, watch, "first"))
            await asyncio.sleep(1.0)
            begun = time.monotonic()
            process = start(plane, "batchsched", row, nodes)
            try:
                await first
                cold, (cpu, _) = time.monotonic() - begun, spent(process)
                return await _measure(writer, watch, process, count, (cold, cpu))
            finally:
                stop(process)


async def _measure(
    writer: Writer, watch: BindWatch, process: psutil.Process, count: int, cold: tuple[float, float]
) -> Outcome:
    found = []
    for name, number_of in (("lone", count), ("changed", max(1, count // 5))):
        before, seconds = spent(process)[0], []
        for number in range(number_of):
            if name == "changed":
                await _change(writer, number)
            await asyncio.sleep(PAUSE)
            seconds.append(await _lone(writer, watch, f"{name}-{number}"))
        found.append(Waits(seconds, spent(process)[0] - before))
    return Outcome(*cold, found[0], found[1], spent(process)[1])


def main(arguments: Sequence[str]) -> int:
    """Run the bench and print the figures."""
    parser = argparse.ArgumentParser(
        prog="python -m bench cluster idle", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--jobs", type=int, default=500, help="gangs that run")
    parser.add_argument("--size", type=int, default=100, help="pods of each")
    parser.add_argument("--pods", type=int, default=50, help="lone pods")
    options = parser.parse_args(arguments)
    row = Row(options.jobs, options.size)
    with tempfile.TemporaryDirectory() as home, ControlPlane(Path(home) / "plane") as plane:
        install(plane)
        found = asyncio.run(_run(plane, options.nodes, row, options.pods))
    print(f"{options.nodes} nodes, {row.pods} pods")
    print(f"cold start to the first bind  {found.cold:6.1f} s, {found.cpu:.1f} s of CPU")
    print(f"lone pod                      {found.alone.said}")
    print(f"lone pod after a node changed {found.changed.said}")
    print(f"peak resident set             {found.rss:6.0f} MiB")
    return 0
