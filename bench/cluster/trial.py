"""One run: a new control plane, nodes, jobs, and a scheduler that is measured from its start to its last binding."""

import asyncio
import compileall
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

import batchsched
from batchsched.api.crd.validation import FieldError
from batchsched.api.decision import SetAside
from batchsched.kube.clock import SystemClock
from batchsched.kube.connection import EVENTS, POD_RESOURCE, Connection
from batchsched.kube.credentials import CredentialsReader
from batchsched.kube.reflector import Reflector
from batchsched.kube.writer import Writer
from batchsched.ports.cluster import Binding, SetAsideObject
from bench.cluster.workload import NAMESPACE, Row, fill, submit
from tests.controlplane.plane import ControlPlane

CRDS = Path(__file__).parents[2] / "crds"
WARM_UP = 5.0
"""Seconds in which a scheduler lists the existing objects, before pods are created while it runs."""
LOG_CHARACTERS = 2000
"""Length of the part of a log that an error shows."""
SILENCE = 10.0
"""Seconds without a new Event after which no more are awaited."""
CONFIGURATION = """apiVersion: config.batchsched.dev/v1alpha1
kind: BatchSchedulerConfiguration
serving: {{bindAddress: 127.0.0.1, securePort: {port}}}
"""


@dataclass(frozen=True, slots=True)
class Creation:
    """When the pods of a run are created.

    Args:
      live: whether the scheduler runs already.
      rate: pods per second; 0 for as many as the API server accepts.
    """

    live: bool = False
    rate: float = 0.0


@dataclass(frozen=True, slots=True)
class Reports:
    """The Events of one run. They follow the bindings, so that most of their cost is spent after the last one.

    Args:
      before: number of Events that the API server had at the last binding.
      after: number of Events that came later, until there was one for each pod.
      cpu: CPU seconds of the scheduler in that time; other work, such as status, counts as Events.
    """

    before: int = 0
    after: int = 0
    cpu: float = 0.0

    @property
    def apart(self) -> bool:
        """Whether they can be separated from the binds, during which kube-scheduler writes its Events."""
        return self.after > self.before

    @property
    def each(self) -> float:
        """CPU seconds of one Event, 0 if that is unknown."""
        return self.cpu / self.after if self.apart else 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The figures of one run.

    Args:
      scheduler: the name of the scheduler.
      row: the jobs.
      creation: when the pods were created.
      seconds: from the start of the scheduler (live: from the first pod) to the last binding that a watch reported.
      first: seconds to the first binding.
      p50, p99: seconds from a pod's creation (not live: from the start) to its binding.
      cpu: CPU seconds of the scheduler until the last binding, with the Events that it wrote in this time.
      rss: its peak resident set in MiB.
      pods: number of bound pods.
      reports: the Events.
      server_cpu: CPU seconds of the API server until the last binding. Its work is the same in each run of a row, so
        that the ratio of `cpu` to it can be compared if the speed of the machine changes between runs.
    """

    scheduler: str
    row: str
    creation: Creation
    seconds: float
    first: float
    p50: float
    p99: float
    cpu: float
    rss: float
    pods: int
    reports: Reports = Reports()
    server_cpu: float = 0.0

    @property
    def binding_cpu(self) -> float:
        """CPU seconds until the last bind, without the Events that were written by then where they are `apart`."""
        return self.cpu - self.reports.before * self.reports.each

    @property
    def events_cpu(self) -> float:
        """CPU seconds for all Events, and for the status that is written with them."""
        return self.reports.cpu + self.reports.before * self.reports.each

    @property
    def total_cpu(self) -> float:
        """CPU seconds until all Events were written."""
        return self.cpu + self.reports.cpu

    @property
    def rate(self) -> float:
        """Bound pods per second."""
        return self.pods / self.seconds


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Meta(msgspec.Struct, frozen=True):
    name: str = ""


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()


class _Count(msgspec.Struct, frozen=True, rename="camel"):
    remaining_item_count: int = 0


class _Page(msgspec.Struct, frozen=True):
    metadata: _Count = _Count()
    items: list[msgspec.Raw] | None = None


@dataclass(slots=True)
class _Watch:
    """Records when each pod was bound; implements `ports.cluster.Sink`."""

    wanted: int
    bound: dict[str, float] = field(default_factory=dict)
    done: asyncio.Event = field(default_factory=asyncio.Event)
    set_aside_objects: dict[str, SetAsideObject] = field(default_factory=dict)

    def on_replace(self, objects: Sequence[bytes]) -> None:
        for raw in objects:
            self.on_add_or_update(raw)

    def on_add_or_update(self, raw: bytes) -> None:
        pod = msgspec.json.decode(raw, type=_Pod)
        if pod.spec.node_name and pod.metadata.name not in self.bound:
            self.bound[pod.metadata.name] = time.monotonic()
            if len(self.bound) == self.wanted:
                self.done.set()

    def on_delete(self, raw: bytes) -> None:
        """A deleted pod changes nothing."""

    def set_object_aside(self, item: bytes, problem: FieldError) -> None:
        why = SetAside("", "Pod", problem.field, problem.message)
        self.set_aside_objects[why.field_and_message] = SetAsideObject(why, "", "", "")


def run(
    scheduler: str, row: Row, nodes: int, creation: Creation = Creation(), longest: float = 600.0
) -> Outcome:
    """Run one scheduler over one row. `floor` binds round robin without a decision.

    Raises:
      TimeoutError: not all pods were bound in time.
    """
    with tempfile.TemporaryDirectory() as home, ControlPlane(Path(home) / "plane") as plane:
        install(plane)
        return asyncio.run(_run(plane, scheduler, row, nodes, creation, longest))


def install(plane: ControlPlane) -> None:
    """Create the CustomResourceDefinitions, and compile the package as an installation does.

    An environment that keeps no bytecode would compile all of it at each start.
    """
    compileall.compile_dir(Path(batchsched.__file__).parent, quiet=1)
    for file in sorted(CRDS.glob("*.yaml")):
        plane.admin.create(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", yaml.safe_load(file.read_text())
        )


async def _run(
    plane: ControlPlane, scheduler: str, row: Row, nodes: int, creation: Creation, longest: float
) -> Outcome:
    clock = SystemClock()
    async with Connection(CredentialsReader(plane.kubeconfig()), clock) as connection:
        writer = Writer(connection, clock)
        await fill(writer, nodes)
        watch, made = _Watch(row.pods), dict[str, float]()
        reflector = Reflector(connection, POD_RESOURCE, watch, clock)
        following = asyncio.create_task(reflector.run())
        await reflector.synced.wait()
        name = "default-scheduler" if scheduler == "kube-scheduler" else "batchsched"

        def note(pod: str) -> None:
            made[pod] = time.monotonic()

        if not creation.live:
            await submit(writer, row, name, note)
        server = psutil.Process(plane.pid("kube-apiserver"))
        begun, cpu_before, server_before = time.monotonic(), 0.0, spent(server)[0]
        process = start(plane, scheduler, row, nodes)
        try:
            if creation.live:
                await asyncio.sleep(WARM_UP)
                begun, cpu_before = time.monotonic(), spent(process)[0]
                server_before = spent(server)[0]
                await submit(writer, row, name, note, creation.rate)
            await _until(watch.done, plane, process, longest)
            cpu, server_cpu = spent(process)[0], spent(server)[0] - server_before
            wanted = 0 if scheduler == "floor" else row.pods
            reports = await _reports(connection, process, cpu, wanted)
            _, rss = spent(process)
        finally:
            following.cancel()
            stop(process)
    took = sorted(watch.bound[pod] - (made[pod] if creation.live else begun) for pod in watch.bound)
    return Outcome(
        scheduler=scheduler,
        row=row.name,
        creation=creation,
        seconds=max(watch.bound.values()) - begun,
        first=min(watch.bound.values()) - begun,
        p50=took[len(took) // 2],
        p99=took[int(len(took) * 0.99)],
        cpu=cpu - cpu_before,
        rss=rss,
        pods=row.pods,
        reports=reports,
        server_cpu=server_cpu,
    )


async def _until(done: asyncio.Event, plane: ControlPlane, process: psutil.Process, longest: float) -> None:
    """Wait until all pods are bound.

    Raises:
      TimeoutError: they are not bound in time.
      RuntimeError: the scheduler has ended.
    """
    async with asyncio.timeout(longest):
        while not done.is_set():
            check_running(plane, process)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(done.wait(), 1.0)


def check_running(plane: ControlPlane, process: psutil.Process) -> None:
    """Raise an exception with the end of the logs if a scheduler has ended.

    Raises:
      RuntimeError: the scheduler has ended.
    """
    if process.status() == psutil.STATUS_ZOMBIE:
        logs = (plane.home / f"{scheduler}.log" for scheduler in ("batchsched", "floor", "kube-scheduler"))
        ends = [log.read_text(errors="replace")[-LOG_CHARACTERS:] for log in logs if log.exists()]
        raise RuntimeError("the scheduler has ended; the end of its log:\n" + "\n".join(ends))


async def _reports(connection: Connection, process: psutil.Process, cpu: float, wanted: int) -> Reports:
    """Wait for the Events. kube-scheduler may drop some, so that ten seconds without one end the wait too."""
    before = now = await _events(connection)
    heard = time.monotonic()
    while now < wanted and time.monotonic() - heard < SILENCE:
        await asyncio.sleep(0.2)
        seen, now = now, await _events(connection)
        if now > seen:
            heard = time.monotonic()
    return Reports(before, now - before, spent(process)[0] - cpu)


async def _events(connection: Connection) -> int:
    """Return the number of Events. A list with the limit 1 states it, which costs less than a watch."""
    raw = await connection.request("GET", EVENTS.path(), query={"limit": "1"}, deadline=60.0)
    page = msgspec.json.decode(raw, type=_Page)
    return len(page.items or ()) + page.metadata.remaining_item_count


def start(plane: ControlPlane, scheduler: str, row: Row, nodes: int, port: int = 0) -> psutil.Process:
    """Start a scheduler without waiting for it. It serves no HTTP unless a port is given, like kube-scheduler here."""
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
        stated = plane.home / "batchsched.yaml"
        stated.write_text(CONFIGURATION.format(port=port))
        program = [
            str(Path(sys.executable).parent / "batchsched"),
            "run",
            "--config",
            str(stated),
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
    """Kill a process."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()
    process.wait(30)


async def bind_all(connection: Connection, row: Row, nodes: int) -> None:
    """Bind all pods of a row round robin, which is the most that the API server and the client can do."""
    writer = Writer(connection, SystemClock())
    names = [f"job-{job}-{number}" for job in range(row.jobs) for number in range(row.size)]
    await asyncio.gather(
        *(
            writer.bind(Binding(NAMESPACE, name, "", f"node-{at % nodes:05d}"))
            for at, name in enumerate(names)
        )
    )
