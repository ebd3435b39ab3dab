"""Tenant isolation: how long a pod of one namespace waits for its node while another namespace attacks the scheduler.

Each attack runs against a fresh control plane with 200 nodes, under batchsched and under kube-scheduler. Every half
second, a small pod is created in the namespace `tenant`, and the seconds from its creation to its binding are measured.
Targets: median at most 1 s, worst at most 3 s, no session longer than 5 s.
"""

import argparse
import asyncio
import contextlib
import json
import re
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import urllib3
from rich.console import Console
from rich.table import Table

from batchsched.errors import ApiError
from batchsched.kube.clock import SystemClock
from batchsched.kube.connection import POD_RESOURCE, ApiResource, Connection
from batchsched.kube.credentials import CredentialsReader
from batchsched.kube.writer import Writer
from bench.cluster.idle import LONE, BindWatch, followed
from bench.cluster.trial import check_running, install, start, stop
from bench.cluster.workload import GROUPS, Row, fill, pod
from tests.controlplane.plane import ADMIN, ControlPlane, free_port

ATTACKER: Final = "attacker"
TENANT: Final = "tenant"
NAMESPACES: Final = ApiResource("v1", "namespaces", "Namespace", namespaced=False)
PODS_PER_NODE: Final = 400
"""The pods of each attack fit on 200 nodes, so that the pods of the tenant always have room."""
PROBE_SECONDS: Final = 0.5
"""Seconds between two pods of the tenant."""
MAX_WAIT_SECONDS: Final = 60.0
"""Seconds after which a pod of the tenant counts as not bound."""
CONCURRENCY: Final = 64
"""Requests of the attacker that are under way at the same time."""

Body = dict[str, Any]
Objects = Iterable[tuple[ApiResource, Body]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the pods of the tenant fared during one attack.

    Args:
      attack: the name of the attack.
      scheduler: the name of the scheduler.
      accepted, rejected: objects of the attacker that the API server accepted and rejected.
      waits: seconds from creation to binding, for each pod of the tenant.
      longest_session: upper bound of the seconds of the longest session; None for kube-scheduler.
    """

    attack: str
    scheduler: str
    accepted: int
    rejected: int
    waits: Sequence[float]
    longest_session: float | None


def _pod(scheduler: str, name: str, **spec: Any) -> Body:
    body = pod(name, scheduler)
    body["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "10m", "memory": "10Mi"}}
    body["spec"].update(spec)
    return body


def _requests(amounts: dict[str, str]) -> list[Body]:
    extended = {name: amount for name, amount in amounts.items() if "/" in name}
    return [{"name": "main", "image": "busybox", "resources": {"requests": amounts, "limits": extended}}]


def resources(scheduler: str) -> Objects:
    """Return 10 pods that each request 500 extended resources of their own, which no node offers."""
    for number in range(10):
        amounts = {"cpu": "10m"} | {f"example.com/r{number}-{index}": "1" for index in range(500)}
        yield POD_RESOURCE, _pod(scheduler, f"resources-{number}", containers=_requests(amounts))


def affinity(scheduler: str) -> Objects:
    """Return 50 pods with 500 required anti-affinity terms each."""
    for number in range(50):
        terms = [
            {
                "labelSelector": {"matchLabels": {f"key{number}": f"value{index}"}},
                "topologyKey": "kubernetes.io/hostname",
            }
            for index in range(500)
        ]
        anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        yield POD_RESOURCE, _pod(scheduler, f"affinity-{number}", affinity=anti)


def specs(scheduler: str) -> Objects:
    """Return 2,000 pods of which no two have the same request."""
    for number in range(2000):
        yield (
            POD_RESOURCE,
            _pod(scheduler, f"specs-{number}", containers=_requests({"cpu": f"{number + 1}m"})),
        )


def groups(scheduler: str) -> Objects:
    """Return 10,000 PodGroups, each with one pod of the two that it needs; for kube-scheduler, only the pods."""
    for number in range(10_000):
        body = _pod(scheduler, f"groups-{number}", containers=_requests({"cpu": "1m"}))
        if scheduler == "batchsched":
            body["metadata"]["labels"] = {"scheduling.batchsched.dev/pod-group": f"group-{number}"}
            yield (
                GROUPS,
                {
                    "apiVersion": "scheduling.batchsched.dev/v1alpha1",
                    "kind": "PodGroup",
                    "metadata": {"name": f"group-{number}"},
                    "spec": {"minMember": 2},
                },
            )
        yield POD_RESOURCE, body


def stream(scheduler: str) -> Objects:
    """Return 60,000 equal pods: 500 per second for two minutes, or as many as the API server accepts."""
    requests = _requests({"cpu": "1m", "memory": "10Mi"})
    for number in range(60_000):
        yield POD_RESOURCE, _pod(scheduler, f"stream-{number}", containers=requests)


def largest(scheduler: str) -> Objects:
    """Return 20 pods of almost the largest size that etcd stores, with thousands of node affinity terms."""
    for number in range(20):
        terms = [
            {"matchExpressions": [{"key": "a", "operator": "In", "values": [f"{number}-{term}-{'x' * 50}"]}]}
            for term in range(10_000)
        ]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        yield POD_RESOURCE, _pod(scheduler, f"largest-{number}", affinity={"nodeAffinity": required})


ATTACKS: Final[dict[str, tuple[Callable[[str], Objects], float]]] = {
    "none": (lambda _: (), 10.0),
    "resources": (resources, 20.0),
    "affinity": (affinity, 20.0),
    "specs": (specs, 20.0),
    "groups": (groups, 20.0),
    "stream": (stream, 120.0),
    "largest": (largest, 20.0),
}
"""By name: the objects of the attacker, and for how many seconds at least the tenant creates pods."""


class _Attack:
    """Creates the objects of the attacker, at most 500 per second, and counts what the API server says."""

    def __init__(self, writer: Writer, objects: Objects, seconds: float) -> None:
        self._writer, self._objects, self._end = writer, iter(objects), time.monotonic() + seconds
        self.accepted = self.rejected = 0

    async def run(self) -> None:
        begun = time.monotonic()
        running: set[asyncio.Task[None]] = set()
        for number, (resource, body) in enumerate(self._objects):
            await asyncio.sleep(max(0.0, begun + number / 500 - time.monotonic()))
            if time.monotonic() > self._end + MAX_WAIT_SECONDS:
                break
            running.add(asyncio.create_task(self._create(resource, body)))
            if len(running) >= CONCURRENCY:
                _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.gather(*running)

    async def _create(self, resource: ApiResource, body: Body) -> None:
        body["metadata"]["namespace"] = ATTACKER
        try:
            await self._writer.create(resource, ATTACKER, body)
            self.accepted += 1
        except ApiError:
            self.rejected += 1


async def _probe(writer: Writer, watch: BindWatch, scheduler: str, name: str) -> float:
    """Create a pod of the tenant; return the seconds until it is bound, `MAX_WAIT_SECONDS` if it is not by then."""
    body = _pod(scheduler, name)
    body["metadata"] |= {"namespace": TENANT, "labels": LONE}
    begun = time.monotonic()
    await writer.create(POD_RESOURCE, TENANT, body)
    with contextlib.suppress(TimeoutError):
        return await asyncio.wait_for(watch.wanted(name), MAX_WAIT_SECONDS) - begun
    return MAX_WAIT_SECONDS


async def _measure(plane: ControlPlane, attack: str, scheduler: str, nodes: int) -> Outcome:
    clock = SystemClock()
    objects, seconds = ATTACKS[attack]
    name = "default-scheduler" if scheduler == "kube-scheduler" else scheduler
    async with Connection(CredentialsReader(plane.kubeconfig()), clock) as connection:
        writer = Writer(connection, clock)
        await fill(writer, nodes, PODS_PER_NODE)
        for namespace in (ATTACKER, TENANT):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            await writer.create(NAMESPACES, "", body)
        port = free_port()
        process = start(plane, scheduler, Row(1, 1), nodes, port)
        try:
            async with followed(connection, clock) as watch:
                await _probe(writer, watch, name, "first")
                check_running(plane, process)
                attacker = _Attack(writer, objects(name), seconds)
                attacking = asyncio.create_task(attacker.run())
                probe = partial(_probe, writer, watch, name)
                waits = await _probe_until(probe, attacking, time.monotonic() + seconds)
                longest = await asyncio.to_thread(_longest_session, port) if name == "batchsched" else None
        finally:
            stop(process)
    return Outcome(attack, scheduler, attacker.accepted, attacker.rejected, waits, longest)


async def _probe_until(
    probe: Callable[[str], Awaitable[float]], attacking: asyncio.Task[None], end: float
) -> list[float]:
    """Create a pod of the tenant every half second until the attack and the time are over."""
    probes: list[asyncio.Future[float]] = []
    while not attacking.done() or time.monotonic() < end:
        probes.append(asyncio.ensure_future(probe(f"probe-{len(probes)}")))
        await asyncio.sleep(PROBE_SECONDS)
    await attacking
    return await asyncio.gather(*probes)


def _longest_session(port: int) -> float:
    """Return the upper bound of the histogram bucket of the longest session, in seconds."""
    urllib3.disable_warnings()
    pool = urllib3.PoolManager(cert_reqs="CERT_NONE")
    url = f"https://127.0.0.1:{port}/metrics"
    text = pool.request("GET", url, headers={"Authorization": f"Bearer {ADMIN}"}).data.decode()
    pattern = r'batchsched_session_duration_seconds_bucket\{le="([^"]+)"[^}]*\} ([0-9.e+]+)'
    buckets = sorted((float(bound), float(count)) for bound, count in re.findall(pattern, text))
    most = max((count for _, count in buckets), default=0.0)
    return next((bound for bound, count in buckets if count == most), 0.0)


def main(arguments: Sequence[str]) -> int:
    """Run the attacks under each scheduler and print the table; the exit code is 1 if batchsched misses a target."""
    parser = argparse.ArgumentParser(prog="python -m bench isolation", description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--attacks", nargs="+", default=list(ATTACKS), choices=ATTACKS)
    parser.add_argument("--schedulers", nargs="+", default=["batchsched", "kube-scheduler"])
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    options = parser.parse_args(arguments)
    outcomes: list[Outcome] = []
    for attack in options.attacks:
        for scheduler in options.schedulers:
            Console(stderr=True).print(f"{attack} under {scheduler} …")
            with tempfile.TemporaryDirectory() as home, ControlPlane(Path(home) / "plane") as plane:
                install(plane)
                outcomes.append(asyncio.run(_measure(plane, attack, scheduler, options.nodes)))
    if options.output == "json":
        print(json.dumps([asdict(outcome) for outcome in outcomes], indent=2))
    else:
        _print(outcomes)
    return int(any(_misses(outcome) for outcome in outcomes))


def _misses(outcome: Outcome) -> bool:
    return outcome.scheduler == "batchsched" and (
        statistics.median(outcome.waits) > 1.0
        or max(outcome.waits) > 3.0
        or (outcome.longest_session or 0.0) > 5.0
    )


def _print(outcomes: Sequence[Outcome]) -> None:
    table = Table("attack", "scheduler", box=None)
    for title in ("accepted", "rejected", "pods", "median s", "worst s", "longest session s", ""):
        table.add_column(title, justify="right")
    for outcome in outcomes:
        session = "" if outcome.longest_session is None else f"<= {outcome.longest_session:g}"
        table.add_row(
            outcome.attack,
            outcome.scheduler,
            str(outcome.accepted),
            str(outcome.rejected),
            str(len(outcome.waits)),
            f"{statistics.median(outcome.waits):.2f}",
            f"{max(outcome.waits):.2f}",
            session,
            "MISSED" if _misses(outcome) else "",
        )
    Console(width=110).print(table)
