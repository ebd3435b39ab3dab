"""`batchsched run` as operators meet it: it serves, and has a configuration file and a certificate of its own."""

import contextlib
import datetime as dt
import json
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import urllib3
import yaml
from prometheus_client.parser import text_string_to_metric_families

from batchsched.observability.http.self_signed_certificate import self_signed_key_and_certificate
from tests.controlplane.fixtures import Namespace, eventually
from tests.controlplane.plane import ADMIN, ControlPlane
from tests.controlplane.process import PROGRAM, Terms
from tests.e2e.running import TERMS, Scheduler, all_bound, group, make, running

WITHIN = 60.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(slots=True)
class Served:
    """A scheduler that serves, with a configuration file and a certificate of its own."""

    plane: ControlPlane
    name: str
    file: Path
    arguments: tuple[str, ...] = ("--no-leader-elect",)
    terms: Terms = TERMS
    program: Sequence[str] = PROGRAM
    port: int = field(default_factory=free_port)
    settings: dict[str, Any] = field(init=False, default_factory=dict)
    sessions_kept: int = field(init=False, default=10)
    more: dict[str, Any] = field(default_factory=dict)
    """Further fields of the configuration."""
    scheduler: Scheduler = field(init=False)
    _pool: urllib3.PoolManager = field(init=False)

    def __post_init__(self) -> None:
        pair = self.file.with_suffix(".pem")
        pair.write_bytes(self_signed_key_and_certificate("127.0.0.1", dt.datetime.now(dt.UTC), "localhost"))
        self.settings |= {"tlsCertFile": str(pair), "tlsPrivateKeyFile": str(pair)}
        self._pool = urllib3.PoolManager(ca_certs=str(pair), retries=False, timeout=30.0)
        self.configure()
        arguments = (*self.arguments, "--config", str(self.file))
        self.scheduler = Scheduler(self.plane, arguments, program=self.program, name=self.name)

    def configure(self, **settings: Any) -> None:
        """Write the configuration, as an editor would: in one go."""
        profile = {"schedulerName": "batchsched", **settings}
        serving = {"bindAddress": "127.0.0.1", "securePort": self.port, **self.settings}
        fresh = self.file.with_suffix(".new")
        stated = {"serving": serving, "profiles": [profile], "sessionsKept": self.sessions_kept, **self.more}
        fresh.write_text(yaml.safe_dump(self.terms.configuration() | stated))
        fresh.replace(self.file)

    def ask(self, path: str, token: str = ADMIN) -> tuple[int, bytes]:
        return self._call("GET", path, token)

    def put(self, path: str, body: str, token: str = ADMIN) -> tuple[int, bytes]:
        return self._call("PUT", path, token, body)

    def _call(self, method: str, path: str, token: str, body: str | None = None) -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        url = f"https://127.0.0.1:{self.port}{path}"
        answer = self._pool.request(method, url, body=body, headers=headers)
        return answer.status, answer.data

    @property
    def ready(self) -> bool:
        try:
            return self.ask("/readyz", "")[0] == 200
        except urllib3.exceptions.HTTPError:
            return False

    def read(self, path: str) -> Any:
        status, body = self.ask(path)
        assert status == 200, body
        return json.loads(body)

    @property
    def metrics(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        status, body = self.ask("/metrics")
        assert status == 200
        return {
            (one.name, tuple(sorted(one.labels.items()))): one.value
            for family in text_string_to_metric_families(body.decode())
            for one in family.samples
        }

    def metric(self, name: str, /, **labels: str) -> float:
        return self.metrics.get((name, tuple(sorted(labels.items()))), 0.0)


@contextlib.contextmanager
def serving(*some: Served) -> Iterator[None]:
    with running(*(one.scheduler for one in some)):
        eventually(lambda: all(one.ready for one in some), WITHIN)
        yield


def bind_a_gang(namespace: Namespace, name: str = "bert", pods: int = 3) -> None:
    group(namespace, name, pods)
    make(namespace, name, pods)
    all_bound(namespace, name, pods, WITHIN)
