"""`batchsched run` as a process against the control plane of the tests, and the Lease that its replicas share."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import urllib3
import yaml

from tests.controlplane.installed import NAMESPACE
from tests.controlplane.plane import Api, ApiFault, ControlPlane

ROOT: Final = Path(__file__).parents[2]
PROGRAM: Final = (str(Path(sys.executable).with_name("batchsched")),)
LEASE: Final = f"{NAMESPACE}/batchsched"
"""The only one that the rights of `deploy/` allow."""
LEASE_PATH: Final = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/batchsched"


@dataclass(frozen=True, slots=True)
class Terms:
    """The times of the Lease, in seconds: short enough for tests, long enough for a busy machine."""

    duration: float = 5.0
    renew: float = 3.5
    retry: float = 0.5

    def configuration(self) -> dict[str, Any]:
        """Return a configuration with these times that serves nothing, since several run on one machine."""
        return {
            "apiVersion": "config.batchsched.dev/v1alpha1",
            "kind": "BatchSchedulerConfiguration",
            "leaderElection": {
                "leaseDuration": f"{round(1000 * self.duration)}ms",
                "renewDeadline": f"{round(1000 * self.renew)}ms",
                "retryPeriod": f"{round(1000 * self.retry)}ms",
            },
            "serving": {"securePort": 0},
        }


@dataclass
class SchedulerProcess:
    """One process of `batchsched run`.

    Args:
      plane: the control plane.
      name: of its log.
    """

    plane: ControlPlane
    name: str = field(default="scheduler", kw_only=True)
    process: subprocess.Popen[bytes] | None = field(init=False, default=None)

    @property
    def log(self) -> Path:
        """Where it writes."""
        return self.plane.home / f"{self.name}.log"

    @property
    def pid(self) -> int:
        """The id of the process."""
        assert self.process is not None
        return self.process.pid

    @property
    def runs(self) -> bool:
        """Whether it runs."""
        return self.process is not None and self.process.poll() is None

    def launch(
        self, kubeconfig: Path, terms: Terms, arguments: Sequence[str], program: Sequence[str] = PROGRAM
    ) -> None:
        """Start it, and do not wait."""
        config = self.plane.home / f"{self.name}.yaml"
        config.write_text(yaml.safe_dump(terms.configuration()))
        stated = ("--kubeconfig", str(kubeconfig), "--config", str(config), "-v")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*program, "run", *stated, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env={key: value for key, value in os.environ.items() if "proxy" not in key.lower()},
            )

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """End it, and return its exit code."""
        assert self.process is not None
        self.process.send_signal(how)
        return self.process.wait(timeout=60)

    def stop(self) -> None:
        """Kill it if it runs, and show the end of its log."""
        if self.runs:
            self.end(signal.SIGKILL)
        print(f"--- {self.name}\n{self.log.read_text(errors='replace')[-6000:]}")


P = TypeVar("P", bound=SchedulerProcess)


def leader(api: Api, processes: Iterable[P]) -> P | None:
    """The process that holds the Lease, if it runs."""
    try:
        found = api.get(LEASE_PATH)
    except (ApiFault, urllib3.exceptions.HTTPError):
        return None
    holder = found["spec"].get("holderIdentity") or ""
    return next((one for one in processes if f"_{one.pid}_" in holder and one.runs), None)
