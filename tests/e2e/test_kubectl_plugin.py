"""`kubectl batchsched` on a real API server: the plugin that the package installs answers as `batchsched` does."""

import gzip
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.controlplane.build import program
from tests.controlplane.plane import ControlPlane
from tests.e2e.owners import TEMPLATE

SCRIPTS = Path(sys.executable).parent
"""The folder into which the package installs its scripts."""


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    out: str
    err: str


def ask(command: list[str], kubeconfig: Path | None, folder: Path) -> Answer:
    """Run a program with the scripts of the package on its PATH; ages are replaced in its answer."""
    named = {} if kubeconfig is None else {"KUBECONFIG": str(kubeconfig)}
    environment = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"} | named
    environment["PATH"] = f"{SCRIPTS}:{environment['PATH']}"
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=folder)
    # The width of a column depends on its ages.
    ageless = re.sub(r" +\d+[smhd](\d+[smh])?(?=\s) *", " AGE ", done.stdout)
    return Answer(done.returncode, ageless, done.stderr)


def kubectl(*arguments: str, kubeconfig: Path | None = None, folder: Path) -> Answer:
    """Run `kubectl batchsched`."""
    return ask([str(program("kubectl")), "batchsched", *arguments], kubeconfig, folder)


def batchsched(*arguments: str, kubeconfig: Path | None = None, folder: Path) -> Answer:
    """Run `batchsched`."""
    return ask([str(SCRIPTS / "batchsched"), *arguments], kubeconfig, folder)


@pytest.fixture
def busy(namespace):
    """Two nodes, a queue, and a gang that does not fit."""
    namespace.nodes(2, cpu="4")
    namespace.queue("team", limit={"cpu": "64"})
    namespace.gang("large", 3, cpu="4")
    return namespace


@pytest.fixture
def job(tmp_path: Path) -> str:
    file = tmp_path / "job.yaml"
    spec = {"parallelism": 2, "completions": 2, "template": TEMPLATE}
    meta = {"name": "new", "namespace": "default"}
    file.write_text(yaml.safe_dump({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}))
    return str(file)


def test_plugin_answers_as_the_program_does(busy, job, plane, tmp_path):
    access = ("--kubeconfig", str(plane.kubeconfig()), "--context", "tests")
    expected = {
        ("explain", "podgroup/large", "-n", busy.name): "would help: 1 more node like node-",
        ("get", "podgroups", "-n", busy.name): "large",
        ("get", "queues"): "team",
        ("queues",): "team",
        ("queues", "explain", "team"): "team",
        ("what-if", "-f", job): "new",
    }
    for arguments, text in expected.items():
        answer = kubectl(*arguments, *access, folder=tmp_path)
        assert answer == batchsched(*arguments, *access, folder=tmp_path)
        assert answer.code == 0, answer.err
        assert text in answer.out


def test_plugin_reads_the_cluster_of_kubectl(busy, plane, tmp_path):
    listed = ("get", "podgroups", "-n", busy.name, "-o", "name")
    answer = kubectl(*listed, kubeconfig=plane.kubeconfig(), folder=tmp_path)
    assert answer == Answer(0, "podgroup.scheduling.batchsched.dev/large\n", "")


def test_dump_of_the_plugin_is_decided_as_the_dump_of_the_program(busy, plane, tmp_path):
    dumps = []
    for run, name in ((kubectl, "plugin.json.gz"), (batchsched, "program.json.gz")):
        answer = run("dump", "--to", name, kubeconfig=plane.kubeconfig(), folder=tmp_path)
        assert answer.code == 0, answer.err
        content = json.loads(gzip.decompress((tmp_path / name).read_bytes()))
        dumps.append({(item["kind"], item["metadata"]["name"]) for item in content["items"]})
    assert dumps[0] == dumps[1]
    assert ("PodGroup", "large") in dumps[0]
    explained = kubectl("explain", "plugin.json.gz", "podgroup/large", "-n", busy.name, folder=tmp_path)
    live = kubectl(
        "explain", "podgroup/large", "-n", busy.name, kubeconfig=plane.kubeconfig(), folder=tmp_path
    )
    assert explained == live
    assert live.code == 0, live.err


def test_unknown_context_is_named(plane: ControlPlane, tmp_path):
    answer = kubectl("get", "pg", "--context", "absent", kubeconfig=plane.kubeconfig(), folder=tmp_path)
    assert answer.code == 1
    assert "absent" in answer.err


def test_kubectl_takes_flags_only_after_the_name_of_the_plugin(plane: ControlPlane, tmp_path):
    command = [str(program("kubectl")), "--context", "tests", "batchsched", "get", "pg"]
    answer = ask(command, plane.kubeconfig(), tmp_path)
    assert answer.code != 0
    assert "flags cannot be placed before plugin name" in answer.err
