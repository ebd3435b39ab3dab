"""Running commands in process, and a small cluster to run them on."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from batchsched.cli import run_command

NOW = "2026-01-05T09:00:00Z"


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)

    @property
    def complaint(self) -> str:
        """The error message without the box around it."""
        return " ".join(self.err.replace("│", " ").split())


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the width of tables, as for a terminal."""
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Run `batchsched` with arguments, and return its exit code and what it printed."""

    def call(*arguments: object) -> Result:
        code = run_command([str(argument) for argument in arguments])
        printed = capfd.readouterr()
        return Result(code, printed.out, printed.err)

    return call


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """Two nodes of 8 CPUs and a gang of two that fits."""
    file = tmp_path / "cluster.yaml"
    gang = [group("good", "{minMember: 2}"), pod("good-0", "good"), pod("good-1", "good")]
    file.write_text(manifests(node("n1"), node("n2"), *gang))
    return file


def manifests(*documents: str) -> str:
    """Join YAML documents to one file."""
    return "\n---\n".join(documents)


def node(name: str) -> str:
    return f"""apiVersion: v1
kind: Node
metadata: {{name: {name}, labels: {{example.com/rack: r1}}}}
status: {{allocatable: {{cpu: "8", memory: 32Gi, pods: "110"}}}}"""


def group(name: str, spec: str = "{}") -> str:
    return f"""apiVersion: scheduling.batchsched.dev/v1alpha1
kind: PodGroup
metadata: {{name: {name}, namespace: team-a}}
spec: {spec}"""


def queue(name: str, spec: str = "{}") -> str:
    return f"""apiVersion: scheduling.batchsched.dev/v1alpha1
kind: Queue
metadata: {{name: {name}}}
spec: {spec}"""


def pod(name: str, group: str = "", cpu: str = "4", labels: str = "") -> str:
    label = f"scheduling.batchsched.dev/pod-group: {group}" if group else labels
    return f"""apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: team-a, labels: {{{label}}}}}
spec:
  schedulerName: batchsched
  containers: [{{name: c, resources: {{requests: {{cpu: "{cpu}"}}}}}}]"""
