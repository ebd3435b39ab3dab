"""`batchsched run` as a process of its own, against the control plane of the tests."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.controlplane import audit
from tests.controlplane.fixtures import Namespace, eventually
from tests.controlplane.installed import service_account
from tests.controlplane.objects import pod, pod_group
from tests.controlplane.process import PROGRAM, SchedulerProcess, Terms

TERMS = Terms(duration=7.0, renew=5.0, retry=0.5)


@dataclass
class Scheduler(SchedulerProcess):
    """One process, which may do what the ServiceAccount of `deploy/` may do.

    Args:
      arguments: more arguments of `batchsched run`.
      program: what is run.
      token: of another ServiceAccount, where that is not to be it.
      server: the URL of a proxy before the API server, if requests pass through one.
    """

    arguments: Sequence[str] = ()
    program: Sequence[str] = PROGRAM
    token: str = field(default="", kw_only=True)
    server: str | None = field(default=None, kw_only=True)
    _begins: int = field(init=False, default=0)

    def start(self) -> None:
        """Start it, and do not wait."""
        self._begins = self.log.stat().st_size if self.log.exists() else 0
        kubeconfig = self.plane.kubeconfig(self.token or service_account(self.plane), self.server)
        self.launch(kubeconfig, TERMS, self.arguments, self.program)

    @property
    def said(self) -> str:
        """What it has logged since it was started last."""
        with self.log.open("rb") as log:
            log.seek(self._begins)
            return log.read().decode(errors="replace")

    @property
    def follows(self) -> bool:
        """Whether it knows the cluster."""
        return self.runs and "following the cluster" in self.said


@contextmanager
def running(*schedulers: Scheduler) -> Iterator[None]:
    """Run some; whatever is left of them at the end is killed, and their logs shown. No call may be forbidden."""
    with ExitStack() as stack:
        for home in {one.plane.home for one in schedulers}:
            stack.enter_context(audit.nothing_forbidden(home))
        for one in schedulers:
            one.start()
            stack.callback(one.stop)
        yield


def group(namespace: Namespace, name: str, min_member: int, **spec: Any) -> None:
    """Make a PodGroup."""
    made = pod_group(name, min_member, **spec)
    namespace.api.create(namespace.path("podgroups", group=made["apiVersion"]), made)


def pods(namespace: Namespace, gang: str = "") -> dict[str, dict[str, Any]]:
    """The pods of the namespace, or of a gang there, by name."""
    query = f"?labelSelector=scheduling.batchsched.dev/pod-group={gang}" if gang else ""
    return {
        one["metadata"]["name"]: one for one in namespace.api.get(namespace.path("pods") + query)["items"]
    }


def condition(namespace: Namespace, pod: str) -> dict[str, Any]:
    """A pod's condition `PodScheduled`."""
    stated = pods(namespace)[pod].get("status", {}).get("conditions", ())
    return next((one for one in stated if one["type"] == "PodScheduled"), {})


def bound(namespace: Namespace, gang: str = "") -> dict[str, str]:
    """The bound pods with their nodes, without terminating ones."""
    return {
        name: one["spec"]["nodeName"]
        for name, one in pods(namespace, gang).items()
        if one["spec"].get("nodeName") and "deletionTimestamp" not in one["metadata"]
    }


def all_bound(namespace: Namespace, gang: str, count: int, within: float = 60.0) -> dict[str, str]:
    """Wait until `count` pods of a gang are bound."""
    eventually(lambda: len(bound(namespace, gang)) >= count, within)
    return bound(namespace, gang)


def make(namespace: Namespace, gang: str, count: int) -> None:
    """Make many pods of a gang at once."""

    def one(number: int) -> None:
        namespace.api.create(namespace.path("pods"), pod(f"{gang}-{number}", gang=gang))

    with ThreadPoolExecutor(8) as some:
        list(some.map(one, range(count)))


def never(true: Any, seconds: float = 2.0) -> None:
    """Look for a while, and see that something does not come true."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        assert not true(), "it came true"
        time.sleep(0.05)
