"""Work for a scheduler under faults: gangs of many sizes and pods alone, drawn by a seed; batches come and go."""

import random
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from batchsched.api.crd.base import API_VERSION
from tests.controlplane.fixtures import Namespace
from tests.controlplane.objects import pod, pod_group
from tests.controlplane.plane import ApiFault
from tests.faults.witness import Witness

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

    jobs: tuple[Job, ...]
    pods: frozenset[str]


@dataclass(slots=True)
class Load:
    """Submits batches of pods of one CPU each.

    Args:
      namespace: of all of them.
      draw: what a batch consists of.
      prefix: of names, so that two loads share a namespace.
      spec: of every pod, more than usual.
    """

    namespace: Namespace
    draw: random.Random
    prefix: str = "job"
    spec: dict[str, Any] | None = None
    _batches: int = field(default=0, init=False)

    def batch(self, pods: int) -> Batch:
        """Draw jobs with a total number of pods."""
        self._batches += 1
        jobs: list[Job] = []
        left = pods
        while left:
            size = 1 if self.draw.random() < 0.4 else min(left, self.draw.randint(2, _LARGEST))
            elastic = size > 3 and self.draw.random() < 0.2
            name = f"{self.prefix}-{self._batches}-{len(jobs)}"
            jobs.append(Job(name, size, size // 2 if elastic else size))
            left -= size
        return Batch(tuple(jobs), frozenset(name for job in jobs for name in job.pods))

    @contextmanager
    def submitting(self, batch: Batch, over: float = 0.0) -> Iterator[None]:
        """Create the pods of a batch in the background, in any order, within some seconds; all exist when this ends."""
        pods = [(job, name) for job in batch.jobs for name in job.pods]
        self.draw.shuffle(pods)
        pause, begun = over / len(pods), time.monotonic()
        with ThreadPoolExecutor(6) as some:
            made = [some.submit(self._group, job) for job in batch.jobs if job.size > 1]
            for number, (job, name) in enumerate(pods):
                made.append(some.submit(self._pod, job, name, begun + number * pause))
            yield
            for one in made:
                one.result()

    def submit(self, batch: Batch) -> None:
        """Make the pods of a batch."""
        with self.submitting(batch):
            pass

    def remove(self, batch: Batch) -> None:
        """Delete a batch at once, as if its jobs had ended.

        One by one: to find a collection the API server reads all pods there are.
        """
        pods = [self.namespace.path("pods", name) for name in sorted(batch.pods)]
        groups = [self._group_path(job.name) for job in batch.jobs if job.size > 1]
        with ThreadPoolExecutor(6) as some:
            for paths in (pods, groups):
                list(some.map(self._delete, paths))

    def _delete(self, path: str) -> None:
        try:
            self.namespace.api.delete(path)
        except ApiFault as fault:
            if fault.status != 404:  # rolled back, and not made again
                raise

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
        """Pods of a batch that were deleted."""
        return [name for name in sorted(batch.pods) if witness.gone[f"{self.namespace.name}/{name}"]]

    def check(self, batches: Iterable[Batch], witness: Witness) -> None:
        """Check that no gang of some batches is bound in part, that no pod is lost, and that all binds were right.

        Raises:
          AssertionError: one of these does not hold.
        """
        batches = tuple(batches)
        assert not witness.complaints, "; ".join(witness.complaints)
        assert self.half(batches, witness) == {}, "gangs are bound in part"
        assert [name for batch in batches for name in self.lost(batch, witness)] == [], "pods are lost"

    def _group(self, job: Job) -> None:
        made = pod_group(job.name, job.minimum)
        self.namespace.api.create(self._group_path(), made)

    def _group_path(self, name: str = "") -> str:
        return self.namespace.path("podgroups", name, group=API_VERSION)

    def _pod(self, job: Job, name: str, due: float) -> None:
        time.sleep(max(0.0, due - time.monotonic()))
        self.create_pod(job, name)

    def create_pod(self, job: Job, name: str) -> None:
        """Create a pod of a job."""
        gang = job.name if job.size > 1 else ""
        self.namespace.api.create(self.namespace.path("pods"), pod(name, gang=gang, spec=self.spec, cpu="1"))
