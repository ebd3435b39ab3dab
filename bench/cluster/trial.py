"""One run: a fresh control plane, nodes, jobs, and a scheduler that is watched from its start to its last bind."""

import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import psutil
import yaml

from batchsched.kube.clock import SystemClock
from batchsched.kube.connection import Connection
from batchsched.kube.credentials import Credentials
from batchsched.kube.reflector import Reflector
from batchsched.kube.resources import PODS
from batchsched.kube.writer import Writer
from batchsched.model.binding import Binding
from bench.cluster.workload import NAMESPACE, Row, fill, submit
from tests.controlplane.plane import ControlPlane

CRDS = Path(__file__).parents[2] / "crds"
WARM_UP = 5.0
"""Seconds in which a scheduler lists what is there, before pods are made under its eyes."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run took.

    Args:
      scheduler: who scheduled.
      row: what.
      live: whether pods were made while it ran.
      seconds: from its start (live: from the first pod made) to the last bind that a watch saw.
      first: seconds to the first.
      p50, p99: seconds from a pod's creation (beforehand: from the start) to its bind.
      cpu: CPU seconds of the scheduler until the last bind.
      rss: its peak resident set, MiB.
    """

    scheduler: str
    row: str
    live: bool
    seconds: float
    first: float
    p50: float
    p99: float
    cpu: float
    rss: float
    pods: int

    @property
    def rate(self) -> float:
        """Pods a second."""
        return self.pods / self.seconds


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Meta(msgspec.Struct, frozen=True):
    name: str = ""


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()


@dataclass(slots=True)
class _Watch:
    """Notes when each pod was bound; implements `ports.feed.Sink`."""

    wanted: int
    bound: dict[str, float] = field(default_factory=dict)
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def replaced(self, objects: Sequence[bytes]) -> None:
        for raw in objects:
            self.changed(raw)

    def changed(self, raw: bytes) -> None:
        pod = msgspec.json.decode(raw, type=_Pod)
        if pod.spec.node_name and pod.metadata.name not in self.bound:
            self.bound[pod.metadata.name] = time.monotonic()
            if len(self.bound) == self.wanted:
                self.done.set()

    def gone(self, raw: bytes) -> None:
        """A pod that goes was bound or was not."""


def run(scheduler: str, row: Row, nodes: int, *, live: bool = False, longest: float = 600.0) -> Outcome:
    """Run once. `floor` binds round robin and decides nothing; `kube-scheduler` is the real one.

    Raises:
      TimeoutError: not everything was bound in time.
    """
    with tempfile.TemporaryDirectory() as home, ControlPlane(Path(home) / "plane") as plane:
        install(plane)
        return asyncio.run(_run(plane, scheduler, row, nodes, live, longest))


def install(plane: ControlPlane) -> None:
    """Make our kinds."""
    for file in sorted(CRDS.glob("*.yaml")):
        plane.admin.create(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", yaml.safe_load(file.read_text())
        )


async def _run(
    plane: ControlPlane, scheduler: str, row: Row, nodes: int, live: bool, longest: float
) -> Outcome:
    clock = SystemClock()
    async with Connection(Credentials(plane.kubeconfig()), clock) as connection:
        writer = Writer(connection, clock)
        await fill(writer, nodes)
        watch, made = _Watch(row.pods), dict[str, float]()
        reflector = Reflector(connection, PODS, watch, clock)
        following = asyncio.create_task(reflector.run())
        await reflector.synced.wait()
        name = "default-scheduler" if scheduler == "kube-scheduler" else "batchsched"

        def note(pod: str) -> None:
            made[pod] = time.monotonic()

        if not live:
            await submit(writer, row, name, note)
        begun = time.monotonic()
        process = start(plane, scheduler, row, nodes)
        try:
            if live:
                await asyncio.sleep(WARM_UP)
                begun = time.monotonic()
                await submit(writer, row, name, note)
            await asyncio.wait_for(watch.done.wait(), longest)
            cpu, rss = spent(process)
        finally:
            following.cancel()
            stop(process)
    took = sorted(watch.bound[pod] - (made[pod] if live else begun) for pod in watch.bound)
    return Outcome(
        scheduler=scheduler,
        row=row.name,
        live=live,
        seconds=max(watch.bound.values()) - begun,
        first=min(watch.bound.values()) - begun,
        p50=took[len(took) // 2],
        p99=took[int(len(took) * 0.99)],
        cpu=cpu,
        rss=rss,
        pods=row.pods,
    )


def start(plane: ControlPlane, scheduler: str, row: Row, nodes: int) -> psutil.Process:
    """Start a scheduler, and do not wait."""
    if scheduler == "kube-scheduler":
        plane.start_scheduler()
        return psutil.Process(plane.pid("kube-scheduler"))
    kubeconfig = str(plane.kubeconfig())
    if scheduler == "floor":
        program = [
            sys.executable,
            "-m",
            "bench.cluster.floor",
            kubeconfig,
            str(row.jobs),
            str(row.size),
            str(nodes),
        ]
    else:
        program = [
            str(Path(sys.executable).parent / "batchsched"),
            "run",
            "--kubeconfig",
            kubeconfig,
            "--no-leader-elect",
        ]
    with (plane.home / f"{scheduler}.log").open("wb") as log:
        return psutil.Popen(program, stdout=log, stderr=log)


def spent(process: psutil.Process) -> tuple[float, float]:
    """Return the CPU seconds of a process, and its peak resident set in MiB."""
    times = process.cpu_times()
    status = Path(f"/proc/{process.pid}/status").read_text()
    peak = next((line for line in status.splitlines() if line.startswith("VmHWM")), "VmHWM: 0 kB")
    return times.user + times.system, int(peak.split()[1]) / 1024


def stop(process: psutil.Process) -> None:
    """End it at once."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()
    process.wait(30)


async def bind_all(connection: Connection, row: Row, nodes: int) -> None:
    """Bind every pod of a row, round robin: what the API server and the client can take at most."""
    writer = Writer(connection, SystemClock())
    names = [f"job-{job}-{number}" for job in range(row.jobs) for number in range(row.size)]
    await asyncio.gather(
        *(
            writer.bind(Binding(NAMESPACE, name, "", f"node-{at % nodes:05d}"))
            for at, name in enumerate(names)
        )
    )
