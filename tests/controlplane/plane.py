"""A real control plane on this machine: etcd and kube-apiserver on loopback ports, kwok and others on demand."""

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import urllib3
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from batchsched.config.kubernetes_release import KubernetesVersion
from tests.controlplane import audit
from tests.controlplane.build import CURRENT, program

ADMIN: Final = "admin-of-the-tests"
"""The bearer token of `system:masters`."""
DEFINITIONS: Final = Path(__file__).parents[2] / "crds"
STAGES: Final = Path(__file__).parent / "stages.yaml"
_READY_WITHIN: Final = 60.0


class NotReady(Exception):
    """A part of the control plane did not come up; the end of its log is in the message."""


class ApiFault(Exception):
    """The API server answered something else than 2xx."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"{status}: {body[:2000].decode(errors='replace')}")
        self.status = status
        self.body = body


@dataclass(slots=True)
class Api:
    """Requests of tests to the API server: JSON in, JSON out, as the user of the token."""

    server: str
    certificate: Path
    token: str
    _pool: urllib3.PoolManager = field(init=False)

    def __post_init__(self) -> None:
        # The server ends what takes it longer than 60 s.
        self._pool = urllib3.PoolManager(
            ca_certs=str(self.certificate), maxsize=8, retries=False, timeout=65.0
        )

    def call(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> dict[str, Any]:
        """Ask, and return the object of the answer.

        Raises:
          ApiFault: the answer is an error.
        """
        answer = self._pool.request(
            method,
            self.server + path,
            body=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": content_type},
        )
        if answer.status >= 300:
            raise ApiFault(answer.status, answer.data)
        found: dict[str, Any] = json.loads(answer.data) if answer.data else {}
        return found

    def get(self, path: str) -> dict[str, Any]:
        """Read an object or a list."""
        return self.call("GET", path)

    def create(self, path: str, body: Any) -> dict[str, Any]:
        """Make an object in the collection `path`."""
        return self.call("POST", path, body)

    def merge(self, path: str, body: Any) -> dict[str, Any]:
        """Patch an object, by merging."""
        return self.call("PATCH", path, body, "application/merge-patch+json")

    def delete(self, path: str, grace: int = 0) -> None:
        """Delete an object at once."""
        self.call("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": grace})


class ControlPlane:
    """etcd and kube-apiserver with state in a folder; use it as a context manager.

    Args:
      home: an empty folder for state, keys and logs.
      arguments: more arguments of kube-apiserver.
      version: the release of kube-apiserver; everything else is of the current one.
    """

    def __init__(
        self, home: Path, arguments: Sequence[str] = (), version: KubernetesVersion = CURRENT
    ) -> None:
        self.home = home
        self.version = version
        self._arguments = tuple(arguments)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._etcd, self._peer, self._port = (free_port() for _ in range(3))
        self.server = f"https://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self.home.mkdir(parents=True, exist_ok=True)
        self._write_keys()
        try:
            self.start_etcd()
            self.start_apiserver()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def certificate(self) -> Path:
        """The certificate that the API server signed for itself."""
        return self.home / "certificates" / "apiserver.crt"

    @property
    def admin(self) -> Api:
        """The API as an administrator."""
        return Api(self.server, self.certificate, ADMIN)

    def kubeconfig(self, token: str = ADMIN, server: str | None = None) -> Path:
        """Write a kubeconfig for the user of the token, and return its path."""
        path = self.home / f"kubeconfig-{abs(hash((token, server))):x}"
        path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "tests",
                    "clusters": [
                        {
                            "name": "tests",
                            "cluster": {
                                "server": server or self.server,
                                "certificate-authority": str(self.certificate),
                            },
                        }
                    ],
                    "users": [{"name": "tests", "user": {"token": token}}],
                    "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}],
                }
            )
        )
        return path

    def token_of(self, namespace: str, service_account: str, seconds: int = 3600) -> str:
        """Return a token of a service account, as its pods would have."""
        answer = self.admin.create(
            f"/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token",
            {"spec": {"audiences": ["https://kubernetes.default.svc"], "expirationSeconds": seconds}},
        )
        token: str = answer["status"]["token"]
        return token

    # The parts

    def start_etcd(self) -> None:
        """Start etcd, on the state that is there."""
        client, peer = f"http://127.0.0.1:{self._etcd}", f"http://127.0.0.1:{self._peer}"
        self._spawn(
            "etcd",
            f"--data-dir={self.home / 'etcd'}",
            "--unsafe-no-fsync",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--quota-backend-bytes=8589934592",
            "--log-level=warn",
        )

    def back_up_etcd(self) -> None:
        """Copy the state of etcd, as a crash at this moment would leave it."""
        with self.paused("etcd"):
            shutil.copytree(self.home / "etcd", self.home / "backup")

    def restore_etcd(self) -> None:
        """Go back to the copy: later objects are lost, and resourceVersions are given out for a second time."""
        for name in ("kube-apiserver", "etcd"):
            self.kill(name)
        shutil.rmtree(self.home / "etcd")
        (self.home / "backup").rename(self.home / "etcd")
        self.start_etcd()
        self.start_apiserver()

    def start_apiserver(self) -> None:
        """Start kube-apiserver, and wait until it is ready.

        Raises:
          NotReady: it is not, after a minute.
        """
        key = self.home / "service-account.key"
        self._spawn(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd}",
            f"--secure-port={self._port}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={self.home / 'certificates'}",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--token-auth-file={self.home / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/16",
            "--endpoint-reconciler-type=none",
            "--disable-admission-plugins=ServiceAccount,DefaultTolerationSeconds,TaintNodesByCondition",
            "--max-requests-inflight=20000",
            "--max-mutating-requests-inflight=20000",
            *audit.flags(self.home),
            *self._arguments,
        )
        self._await("kube-apiserver", self._ready)

    def start_kwok(self) -> None:
        """Start kwok: it keeps every node ready, and runs and ends the pods that are bound to them."""
        self._spawn(
            "kwok",
            f"--kubeconfig={self.kubeconfig()}",
            "--manage-all-nodes=true",
            "--server-address=127.0.0.1:0",
            f"--config={STAGES}",
        )

    def install_definitions(self) -> None:
        """Make the kinds of `crds/`, and wait until they are served."""
        paths = sorted(DEFINITIONS.glob("*.yaml"))
        install_definitions(self.admin, [yaml.safe_load(path.read_text()) for path in paths])

    def start_scheduler(self, configuration: Mapping[str, Any] | None = None, gates: str = "") -> None:
        """Start kube-scheduler, for comparison, with feature gates such as `A=true,B=true`."""
        path = self.home / "kube-scheduler.yaml"
        settings = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": str(self.kubeconfig()), "qps": 5000, "burst": 10000},
            **(configuration or {}),
        }
        path.write_text(yaml.safe_dump(settings))
        flags = [f"--feature-gates={gates}"] if gates else []
        self._spawn("kube-scheduler", f"--config={path}", "--secure-port=0", *flags)

    def start_controller_manager(self, *controllers: str, gates: str = "") -> None:
        """Start kube-controller-manager with some controllers, and with feature gates such as `A=true,B=true`."""
        self._spawn(
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig()}",
            f"--controllers={','.join(controllers)}",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            "--leader-elect=false",
            "--secure-port=0",
            *([f"--feature-gates={gates}"] if gates else []),
        )

    def pid(self, name: str) -> int:
        """Return the process of a part that runs."""
        return self._processes[name].pid

    def kill(self, name: str, how: signal.Signals = signal.SIGKILL) -> None:
        """End a part, and wait until it is gone."""
        process = self._processes.pop(name, None)
        if process is not None:
            process.send_signal(how)
            process.wait(timeout=30)

    @contextlib.contextmanager
    def paused(self, name: str) -> Iterator[None]:
        """Stop the process of a component, and continue it at the end."""
        self._processes[name].send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._processes[name].send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End all parts, the youngest first."""
        for name in reversed(list(self._processes)):
            process = self._processes[name]
            process.send_signal(signal.SIGCONT)
            self.kill(name)

    # Inside

    def _write_keys(self) -> None:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        (self.home / "service-account.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
        )
        (self.home / "tokens.csv").write_text(f'{ADMIN},admin,admin,"system:masters"\n')

    def _spawn(self, name: str, *arguments: str) -> None:
        version = self.version if name == "kube-apiserver" else CURRENT
        with (self.home / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [str(program(name, version)), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={key: value for key, value in os.environ.items() if "proxy" not in key.lower()},
            )

    def _ready(self) -> bool:
        if not self.certificate.exists():
            return False
        try:
            self.admin.call("GET", "/api/v1/namespaces/default")
        except (ApiFault, urllib3.exceptions.HTTPError):
            return False
        return True

    def _await(self, name: str, ready: Any) -> None:
        ends = time.monotonic() + _READY_WITHIN
        while not ready():
            if self._processes[name].poll() is not None or time.monotonic() > ends:
                log = (self.home / f"{name}.log").read_text(errors="replace")
                raise NotReady(f"{name} did not come up; the end of its log:\n{log[-3000:]}")
            time.sleep(0.1)


def free_port() -> int:
    """Return an unused port, below the range that the kernel assigns to connections."""
    ports = range(15_000, 32_000)
    while True:
        port = random.choice(ports)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port


def install_definitions(api: Api, definitions: Iterable[Mapping[str, Any]]) -> None:
    """Make CRDs that are not there yet, and wait until they are served.

    Raises:
      NotReady: a kind is not served in time.
    """
    for definition in definitions:
        try:
            api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", dict(definition))
        except ApiFault as fault:
            if fault.status != 409:
                raise
        spec, ends = definition["spec"], time.monotonic() + _READY_WITHIN
        path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
        while not _is_served(api, path):
            if time.monotonic() > ends:
                raise NotReady(f"{path} is not served")
            time.sleep(0.05)


def _is_served(api: Api, path: str) -> bool:
    try:
        api.get(path)
    except ApiFault:
        return False
    return True
