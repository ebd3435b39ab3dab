"""Work for a scheduler under faults: gangs of many sizes and pods alone, drawn by a seed; batches come and go."""

import random
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from tests.controlplane.fixtures import Namespace
from tests.controlplane.objects import pod, pod_group
from tests.controlplane.plane import ApiFault
from tests.faults.witness import Witness

_BATCH: Final = "tests/batch"
_LARGEST: Final = 60


@dataclass(frozen=True, slots=True)
class Job:
    """A gang, or a pod alone where its size is 1."""

    name: str
    size: int
    minimum: int

    @property
    def pods(self) -> tuple[str, ...]:
        """The names of its pods."""
        return tuple(f"{self.name}-{number}" for number in range(self.size))


@dataclass(frozen=True, slots=True)
class Batch:
    """Jobs that were submitted together."""

    number: int
    jobs: tuple[Job, ...]
    pods: frozenset[str]


@dataclass(slots=True)
class Load:
    """Submits batches of pods of one CPU each.

    Args:
      namespace: of all of them.
      draw: what a batch consists of.
      prefix: of names, so that two loads share a namespace.
    """

    namespace: Namespace
    draw: random.Random
    prefix: str = "job"
    _batches: int = field(default=0, init=False)

    def batch(self, pods: int) -> Batch:
        """Draw jobs of so many pods together."""
        self._batches += 1
        jobs: list[Job] = []
        left = pods
        while left:
            size = 1 if self.draw.random() < 0.4 else min(left, self.draw.randint(2, _LARGEST))
            elastic = size > 3 and self.draw.random() < 0.2
            name = f"{self.prefix}-{self._batches}-{len(jobs)}"
            jobs.append(Job(name, size, size // 2 if elastic else size))
            left -= size
        return Batch(self._batches, tuple(jobs), frozenset(name for job in jobs for name in job.pods))

    @contextmanager
    def submitting(self, batch: Batch, over: float = 0.0) -> Iterator[None]:
        """Make the pods of a batch meanwhile, in any order, over so many seconds; all are made when this ends."""
        pods = [(job, name) for job in batch.jobs for name in job.pods]
        self.draw.shuffle(pods)
        pause, begun = over / len(pods), time.monotonic()
        with ThreadPoolExecutor(6) as some:
            made = [some.submit(self._group, batch, job) for job in batch.jobs if job.size > 1]
            for number, (job, name) in enumerate(pods):
                made.append(some.submit(self._pod, batch, job, name, begun + number * pause))
            yield
            for one in made:
                one.result()

    def submit(self, batch: Batch) -> None:
        """Make the pods of a batch."""
        with self.submitting(batch):
            pass

    def remove(self, batch: Batch) -> None:
        """Delete a batch at once, as if its jobs had ended."""
        at_once = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        for plural, group in (("pods", ""), ("podgroups", "scheduling.batchsched.dev/v1alpha1")):
            path = f"{self.namespace.path(plural, group=group)}?labelSelector={_BATCH}%3D{batch.number}"
            while not self._removed(path, at_once):
                pass

    def _removed(self, path: str, options: dict[str, object]) -> bool:
        """Delete a collection; False: the server ended the request half way, as it does after a minute."""
        try:
            self.namespace.api.call("DELETE", path, options)
        except ApiFault as fault:
            if fault.status != 504:
                raise
            return False
        return True

    def whole(self, batch: Batch, witness: Witness) -> bool:
        """Whether every pod of a batch has a node."""
        return witness.bound(self.namespace.name, batch.pods) == len(batch.pods)

    def half(self, batches: Iterable[Batch], witness: Witness) -> dict[str, str]:
        """The gangs that are bound in part, and how many of them."""
        found = witness.gangs(self.namespace.name)
        return {
            job.name: f"{found[job.name]} of {job.minimum}"
            for batch in batches
            for job in batch.jobs
            if job.size > 1 and 0 < found[job.name] < job.minimum
        }

    def lost(self, batch: Batch, witness: Witness) -> list[str]:
        """Pods of a batch that somebody deleted."""
        return [name for name in sorted(batch.pods) if witness.gone[f"{self.namespace.name}/{name}"]]

    def _group(self, batch: Batch, job: Job) -> None:
        made = pod_group(job.name, job.minimum)
        made["metadata"]["labels"] = {_BATCH: str(batch.number)}
        self.namespace.api.create(self.namespace.path("podgroups", group=made["apiVersion"]), made)

    def _pod(self, batch: Batch, job: Job, name: str, due: float) -> None:
        time.sleep(max(0.0, due - time.monotonic()))
        gang = job.name if job.size > 1 else ""
        made = pod(name, gang=gang, labels={_BATCH: str(batch.number)}, cpu="1")
        self.namespace.api.create(self.namespace.path("pods"), made)
