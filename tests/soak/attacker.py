"""A tenant that attacks the scheduler during the soak, with the objects of `bench isolation`."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Any, Final

from batchsched.api.core.pod import POD_GROUP_LABEL
from batchsched.errors import ApiError, Unreachable
from batchsched.kube.clock import SystemClock
from batchsched.kube.connection import POD_RESOURCE, Connection
from batchsched.kube.credentials import CredentialsReader
from batchsched.kube.writer import Writer
from bench.cluster.workload import GROUPS
from bench.isolation import ATTACKS, Objects
from tests.controlplane.fixtures import Namespace
from tests.controlplane.plane import ControlPlane

NODES: Final = 10
"""Number of nodes on which the pods of the attacker run, so that they take no capacity from the pods of the soak."""
NODE_LABEL: Final = "attacked"
MAX_OBJECTS: Final = 2000
"""Number of objects of one attack, before they are deleted and the next attack begins."""
PAUSE_SECONDS: Final = 20.0
"""Seconds between the last object of an attack and the deletion of its objects."""


@dataclass
class Attacker:
    """Runs each attack of `bench isolation` in turn in the background, again and again.

    Args:
      plane: the control plane.
      namespace: for the objects.
      rate: objects per second.
      accepted: by attack, the number of objects that the API server accepted.
    """

    plane: ControlPlane
    namespace: Namespace
    rate: float
    accepted: Counter[str] = field(default_factory=Counter)
    rounds: int = 0
    """Number of attacks that ended."""

    @contextmanager
    def attacking(self, cpu: int) -> Iterator["Attacker"]:
        """Attack from nodes with this number of CPUs until the context ends."""
        for node in self.namespace.nodes(NODES, "attacked", cpu=cpu, pods=10_000):
            labels = {"metadata": {"labels": {NODE_LABEL: "true"}}}
            self.namespace.api.merge(f"/api/v1/nodes/{node['metadata']['name']}", labels)
        over = threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(self._run(over)))
        thread.start()
        try:
            yield self
        finally:
            over.set()
            thread.join()

    async def _run(self, over: threading.Event) -> None:
        clock = SystemClock()
        async with Connection(CredentialsReader(self.plane.kubeconfig()), clock) as connection:
            writer = Writer(connection, clock)
            for name, (objects, _) in cycle(ATTACKS.items()):
                await self._attack(writer, name, islice(objects("batchsched"), MAX_OBJECTS), over)
                await asyncio.to_thread(over.wait, PAUSE_SECONDS)
                await self._delete_objects(writer)
                if over.is_set():
                    return
                self.rounds += 1

    async def _delete_objects(self, writer: Writer) -> None:
        for resource in (POD_RESOURCE, GROUPS):
            with suppress(ApiError, Unreachable):  # the next attack deletes them
                await writer.send("DELETE", resource.path(self.namespace.name), b'{"gracePeriodSeconds":0}')

    async def _attack(self, writer: Writer, name: str, objects: Objects, over: threading.Event) -> None:
        begun = time.monotonic()
        for number, (resource, body) in enumerate(objects):
            await asyncio.sleep(max(0.0, begun + number / self.rate - time.monotonic()))
            if over.is_set():
                return
            try:
                await writer.create(resource, self.namespace.name, self._own(body))
            except (ApiError, Unreachable):
                continue  # many objects exceed what the API server accepts
            self.accepted[name] += 1

    def _own(self, body: dict[str, Any]) -> dict[str, Any]:
        metadata = body["metadata"]
        metadata["namespace"] = self.namespace.name
        # Names are used once: the witness counts a second binding of a name as an error.
        metadata["name"] += f"-{self.rounds}"
        labels = metadata.get("labels", {})
        if POD_GROUP_LABEL in labels:
            labels[POD_GROUP_LABEL] += f"-{self.rounds}"
        if body["kind"] == "Pod":
            body["spec"]["nodeSelector"] = {NODE_LABEL: "true"}
        return body
