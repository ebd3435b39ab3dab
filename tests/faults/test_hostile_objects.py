"""Mutated objects of all watched kinds reach a running scheduler, and cost only themselves."""

import os
import random
import re
import string
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.controlplane.background import repeating
from tests.controlplane.fixtures import Namespace, eventually
from tests.controlplane.plane import ApiFault
from tests.controlplane.proxy import Proxy
from tests.e2e.owners import install
from tests.faults.conftest import ProxiedScheduler
from tests.faults.replicas import Replica, running
from tests.podgrouper.owners import job, reference
from tests.scheduler.test_hostile_objects import (
    NASTY_VALUES,
    Service,
    changed,
    named,
    owning_itself,
    places,
)
from tests.scheduler.watched_manifests import MANIFESTS

OBJECTS = int(os.environ.get("BATCHSCHED_HOSTILE_OBJECTS", "1000"))
"""`make soak` sends 20,000."""
BATCH = 50
PERIOD = 0.25
"""Seconds between two pods of another namespace."""
STALL = 1.0
"""Seconds within which each of these pods must be bound, without the delays of the machine and the API server."""
POLL = 0.02
"""Seconds between two reads of a pod that is not bound yet."""
READ = 0.05
"""Seconds of a read with its pause; what takes longer is a delay of the machine or the API server."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@dataclass
class Fuzzer:
    """Draws mutated objects.

    Args:
      namespace: of the objects.
      draw: what is drawn.
    """

    namespace: str
    draw: random.Random
    count: int = field(default=0, init=False)

    def manifest(self, kind: str, api_version: str) -> dict[str, Any]:
        """Return an object with one or two foreign values."""
        self.count += 1
        name = f"evil-{self.count}"
        base = {**MANIFESTS[kind], "kind": kind, "apiVersion": api_version}
        manifest: dict[str, Any] = named(base, name, namespace=self.namespace)
        manifest["metadata"]["annotations"] = {**manifest["metadata"].get("annotations", {}), "note": "y"}
        owners = [[], [reference(job(4))], [reference(owning_itself(named(job(4), name)))]]
        manifest["metadata"]["ownerReferences"] = self.draw.choice(owners)
        for _ in range(self.draw.randint(1, 2)):
            path = self.draw.choice(list(places(manifest)))
            if path != ("kind",):
                manifest = changed(manifest, path, self._value())
        return manifest

    def encode(self, manifest: dict[str, Any]) -> bytes:
        """Return an object as JSON, sometimes with a byte that is not UTF-8."""
        raw = msgspec.json.encode(manifest)
        return raw.replace(b'"note":"y"', b'"note":"\xff"') if self.draw.random() < 0.3 else raw

    def _value(self, depth: int = 0) -> Any:
        shape = self.draw.random()
        if shape < 0.6 or depth == 2:
            text = "".join(self.draw.choices(string.printable, k=self.draw.randint(0, 8)))
            return self.draw.choice([*NASTY_VALUES, text, self.draw.randint(-(2**40), 2**70)])
        parts = [self._value(depth + 1) for _ in range(self.draw.randint(0, 3))]
        if shape < 0.8:
            return parts
        return {"".join(self.draw.choices(string.ascii_letters, k=3)): part for part in parts}


@dataclass
class Others:
    """Pods of another namespace, the seconds until each was bound, and the delays of the machine meanwhile.

    Args:
      namespace: of the pods.
      process: the scheduler.
    """

    namespace: Namespace
    process: Replica
    seconds: list[float] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)

    def create_and_wait(self) -> None:
        """Create a pod and wait until it is bound."""
        name, began = f"other-{len(self.seconds)}", time.monotonic()
        queued = seconds_without_processor(self.process.pid)
        self.namespace.pod(name, cpu="1m")
        answered = time.monotonic()
        delay = max(0.0, answered - began - READ)
        while not self._is_bound(name):
            assert answered - began < 60, f"{name} is not bound"
            time.sleep(POLL)
            # The reads go to the API server directly: they are late if the machine is busy, not if the scheduler is.
            before, answered = answered, time.monotonic()
            delay += max(0.0, answered - before - READ)
        self.seconds.append(time.monotonic() - began)
        self.delays.append(max(delay, seconds_without_processor(self.process.pid) - queued))

    def stalls(self) -> list[str]:
        """Return the pods that waited longer than `STALL` for the scheduler."""
        return [
            f"other-{number}: {seconds:.2f} s, of which {delay:.2f} s for the machine"
            for number, (seconds, delay) in enumerate(zip(self.seconds, self.delays, strict=True))
            if seconds - delay > STALL
        ]

    def _is_bound(self, name: str) -> bool:
        return "nodeName" in self.namespace.get(name)["spec"]


def seconds_without_processor(pid: int) -> float:
    """Return how long the threads of a process were ready to run while other processes had the processors."""
    # Source: proc(5), schedstat: nanoseconds on a processor, nanoseconds in the run queue, time slices.
    seconds = 0.0
    for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            seconds += int(thread.read_text().split()[1]) / 1e9
    return seconds


def create(namespace: Namespace, path: str, manifest: dict[str, Any]) -> bool:
    """Create an object in the API server; return False if it refuses."""
    try:
        namespace.api.create(path, manifest)
    except (ApiFault, UnicodeEncodeError):
        return False
    return True


@dataclass
class Attack:
    """Sends mutated objects: through the API server if it accepts them, otherwise as watch events.

    Args:
      namespace: of the objects.
      scheduler: receives the watch events.
      fuzzer: draws the objects.
    """

    namespace: Namespace
    scheduler: ProxiedScheduler
    fuzzer: Fuzzer
    created: int = field(default=0, init=False)
    injected: int = field(default=0, init=False)
    rejected: set[str] = field(default_factory=set, init=False)
    """Names of the injected objects that must be set aside."""

    def __post_init__(self) -> None:
        resources = {reflector.resource for reflector in Service().app.reflectors}
        watched = (resource for resource in resources if self.scheduler.proxy.inject(resource.path()))
        self._kinds = sorted(watched, key=str)

    def send(self, count: int) -> None:
        """Send objects, and delete them afterwards."""
        service, cleanup = Service(), []
        for _ in range(count):
            kind = self.fuzzer.draw.choice(self._kinds)
            manifest = self.fuzzer.manifest(kind.kind, kind.api_version)
            collection = kind.path(self.namespace.name if kind.namespaced else "")
            name = manifest["metadata"]["name"]
            if create(self.namespace, collection, manifest):
                self.created += 1
                cleanup.append((f"{collection}/{name}", b""))
                continue
            raw = self.fuzzer.encode(manifest)
            for change in (b"ADDED", b"MODIFIED"):
                line = b'{"type":"%s","object":%s}' % (change, raw)
                for reflector in service.app.reflectors:
                    if reflector.resource.path() == kind.path():
                        reflector._take_line(line)
                assert self.scheduler.proxy.inject(kind.path(), line)
            self.injected += 1
            cleanup.append((kind.path(), b'{"type":"DELETED","object":%s}' % raw))
        self.rejected |= {entry.rpartition("/")[2].rpartition(" ")[2] for entry in service.set_aside}
        for path, line in cleanup:
            if line:
                self.scheduler.proxy.inject(path, line)
            else:
                delete(self.namespace, path)


def delete(namespace: Namespace, path: str) -> None:
    with suppress(ApiFault):  # another object's deletion may have deleted it
        namespace.api.merge(path, {"metadata": {"finalizers": None}})
        namespace.api.delete(path)


OWN_GROUP = "scheduling.batchsched.dev"
BUILT_IN_GROUPS = {"", "apps", "batch", "policy", "resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io"}


@pytest.fixture
def attack(own_plane) -> Iterator[Attack]:
    """A scheduler behind a proxy that watches every kind, and objects to send."""
    own_plane.install_definitions()
    resources = {reflector.resource for reflector in Service().app.reflectors}
    # One version of each kind: the newest name comes last.
    versions = {
        (one.api_version.rpartition("/")[0], one.kind): one.api_version.rpartition("/")[2]
        for one in sorted(resources, key=lambda one: one.api_version)
    }
    for (group, kind), version in versions.items():
        if group not in BUILT_IN_GROUPS | {OWN_GROUP}:
            install(own_plane.admin, group, version, kind)
    own_plane.admin.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
    with Proxy(own_plane.server, own_plane.certificate) as proxy:
        process = Replica(own_plane, name="hostile", server=proxy.url)
        with running(process):
            scheduler = ProxiedScheduler(process, proxy)
            # CompositePodGroup exists only with a feature gate.
            kinds = {resource.kind for resource in resources} - {"CompositePodGroup"}
            eventually(lambda: {one.kind for one in resources if proxy.inject(one.path())} >= kinds, 60)
            yield Attack(Namespace(own_plane.admin, "team"), scheduler, Fuzzer("team", random.Random(31)))


def test_hostile_objects_cost_only_themselves_and_are_named(attack):
    others = Others(Namespace(attack.namespace.api, "default"), attack.scheduler.process)
    others.namespace.nodes(1, pods=10_000)
    process = others.process
    with repeating(others.create_and_wait, seconds=PERIOD):
        while attack.fuzzer.count < OBJECTS:
            attack.send(BATCH)
            assert process.runs
        eventually(lambda: attack.rejected <= set_aside(process.log.read_text(errors="replace")), 30)
    seconds = sorted(others.seconds)
    median, worst = seconds[len(seconds) // 2], seconds[-1]
    print(
        f"{attack.created} objects created, {attack.injected} injected, {len(attack.rejected)} of these set aside; "
        f"{len(seconds)} other pods bound after {median:.2f} s (median) and {worst:.2f} s (worst); "
        f"the machine delayed one of them by up to {max(others.delays):.2f} s"
    )
    assert process.starts == 1
    assert median < STALL
    assert not others.stalls()


def set_aside(log: str) -> set[str]:
    """The names of the objects that a log says are set aside."""
    return set(re.findall(r"(evil-\d+) is set aside", log))
