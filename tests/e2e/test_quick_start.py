"""The quick start: installed by kustomize, by Helm or by ourselves, the gang of `deploy/quick-start.yaml` is bound."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typing_extensions import override

from batchsched.cli import run_command
from tests.controlplane.build import program
from tests.controlplane.fixtures import Namespace, eventually, start
from tests.controlplane.installed import BASE, NAMESPACE
from tests.controlplane.plane import ControlPlane
from tests.e2e.running import bound, running
from tests.e2e.serving import WITHIN, Served

ROOT = Path(__file__).parents[2]
Manifest = dict[str, Any]
Install = Callable[[Path], None]


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[ControlPlane]:
    """A cluster with nodes and without batchsched."""
    with start(tmp_path / "plane") as plane:
        plane.start_kwok()
        Namespace(plane.admin, "default").nodes(3)
        yield plane


def kustomize(kubeconfig: Path) -> None:
    kubectl(kubeconfig, "apply", "-k", str(BASE))


def helm(kubeconfig: Path) -> None:
    chart = str(ROOT / "deploy" / "helm" / "batchsched")
    home = {
        name: str(kubeconfig.parent / "helm")
        for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")
    }
    command: list[str | Path] = [
        program("helm"),
        "install",
        "batchsched",
        chart,
        "--namespace",
        NAMESPACE,
        "--create-namespace",
    ]
    subprocess.run([*command, "--kubeconfig", kubeconfig], env={**os.environ, **home}, check=True)


def install(kubeconfig: Path) -> None:
    assert run_command(["install", "--kubeconfig", str(kubeconfig)]) == 0


def held(leases: dict[str, Any]) -> set[str]:
    """Return the names of the Leases with a holder; a Lease that is not written yet has none."""
    return {one["metadata"]["name"] for one in leases["items"] if one["spec"].get("holderIdentity")}


def kubectl(kubeconfig: Path, *arguments: str) -> str:
    command: list[str | Path] = [program("kubectl"), "--kubeconfig", kubeconfig, *arguments]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    return said.stdout


class Installed(Served):
    """What the Deployment would run, with its arguments, its configuration and the rights of its ServiceAccount."""

    @override
    def configure(self, **settings: Any) -> None:
        """Take the ConfigMap as it is, but for what a pod has of its own: a port, and a namespace."""
        said = self.plane.admin.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/batchsched")["data"]
        stated = yaml.safe_load(said["batchsched.yaml"])
        serving = {"bindAddress": "127.0.0.1", "securePort": self.port, **self.settings}
        election = {**stated["leaderElection"], "resourceNamespace": NAMESPACE}
        self.file.write_text(yaml.safe_dump({**stated, "serving": serving, "leaderElection": election}))


@pytest.mark.parametrize("way", [kustomize, helm, install])
def test_gang_of_the_quick_start_is_bound(empty: ControlPlane, way: Install, tmp_path: Path) -> None:
    kubeconfig = empty.kubeconfig()
    way(kubeconfig)
    deployment = empty.admin.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/batchsched")["spec"]
    (container,) = deployment["template"]["spec"]["containers"]
    command, *stated = container["args"]
    assert (command, deployment["replicas"]) == ("run", 2)
    assert deployment["template"]["spec"]["serviceAccountName"] == "batchsched"
    arguments = tuple(stated[: stated.index("--config")])
    served = Installed(empty, "installed", tmp_path / "batchsched.yaml", arguments)
    with running(served.scheduler):
        probes = [container[f"{one}Probe"]["httpGet"] for one in ("startup", "liveness", "readiness")]
        eventually(lambda: served.ready, WITHIN)
        for probe in probes:
            assert probe["scheme"] == "HTTPS"
            assert served.ask(probe["path"], "") == (200, b"ok")
        leases = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
        eventually(lambda: "batchsched" in held(empty.admin.get(leases)), WITHIN)
        kubectl(kubeconfig, "apply", "-f", str(ROOT / "deploy" / "quick-start.yaml"))
        namespace = Namespace(empty.admin, "default")
        eventually(lambda: len(bound(namespace, "hello")) == 3, WITHIN)
        eventually(lambda: "Running" in kubectl(kubeconfig, "get", "pg", "hello"), WITHIN)
        assert served.scheduler.end() == 0
    # As operators apply the definitions of a new version, whichever tool installed the old ones.
    kubectl(kubeconfig, "apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
