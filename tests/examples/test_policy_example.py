"""The policy of docs/first-policy.md: it has ten lines at most, its entry point registers it, and it orders gangs."""

import ast
import dataclasses
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from batchsched.queues.gang_order import GangColumns

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "policy"
PROJECT = tomllib.loads((EXAMPLE / "pyproject.toml").read_text("utf-8"))["project"]
PAGE = (ROOT / "docs" / "first-policy.md").read_text("utf-8")
NOW = "2026-01-05T12:00:00Z"
COMMAND = "import sys; from batchsched.cli import run_command; sys.exit(run_command(sys.argv[1:]))"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Install the package of the example in a folder: its module, and the metadata that `pip install` would write."""
    metadata = tmp_path / f"my_policies-{PROJECT['version']}.dist-info"
    metadata.mkdir()
    named = f"Metadata-Version: 2.1\nName: {PROJECT['name']}\nVersion: {PROJECT['version']}\n"
    (metadata / "METADATA").write_text(named, "utf-8")
    lines = [
        line
        for group, points in PROJECT["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {target}" for name, target in points.items()))
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines), "utf-8")
    (tmp_path / "small_first.py").write_text((EXAMPLE / "small_first.py").read_text("utf-8"), "utf-8")
    return tmp_path


def batchsched(installed: Path, *arguments: object) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", COMMAND, *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{installed}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def cluster(created_large: str) -> list[dict[str, Any]]:
    """Return a cluster with room for two pods, an old gang of two pods and a newer gang of one."""
    offered = {"cpu": "2", "memory": "8Gi", "pods": "10"}
    objects: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n0"}, "status": {"allocatable": offered}}
    ]
    for name, pods, created in (("large", 2, created_large), ("small", 1, "2026-01-05T11:00:00Z")):
        objects.append(
            {
                "apiVersion": "scheduling.batchsched.dev/v1alpha1",
                "kind": "PodGroup",
                "metadata": {"name": name, "creationTimestamp": created},
                "spec": {"minMember": pods},
            }
        )
        for number in range(pods):
            main = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
            label = {"scheduling.batchsched.dev/pod-group": name}
            objects.append(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": f"{name}-{number}", "labels": label, "creationTimestamp": created},
                    "spec": {"schedulerName": "batchsched", "containers": [main]},
                }
            )
    return objects


def test_policy_has_at_most_ten_lines():
    source = (EXAMPLE / "small_first.py").read_text("utf-8")
    assert len(source.splitlines()) <= 10
    names = {node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)}
    assert PROJECT["entry-points"]["batchsched.policies"] == {"small-first": f"small_first:{names.pop()}"}


def test_page_states_every_attribute_of_gangs():
    assert re.findall(r"^\| `gangs\.(\w+)` \|", PAGE, re.MULTILINE) == [
        column.name for column in dataclasses.fields(GangColumns)
    ]


def test_page_includes_the_files_of_the_example():
    for file in ("small_first.py", "pyproject.toml", "batchsched.yaml"):
        assert f'--8<-- "examples/policy/{file}"' in PAGE


@pytest.mark.parametrize(
    "created_large, placed",
    [("2026-01-05T10:00:00Z", {"small-0"}), ("2026-01-04T10:00:00Z", {"large-0", "large-1"})],
    ids=["two hours ago", "a day ago"],
)
def test_smallest_gang_is_placed_first_unless_another_has_waited_for_a_day(
    installed, tmp_path, created_large, placed
):
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump_all(cluster(created_large)), "utf-8")
    configured = ("--config", EXAMPLE / "batchsched.yaml", "--now", NOW, "-o", "json")
    decision = json.loads(batchsched(installed, "decide", file, *configured))
    assert {one["pod"] for one in decision["assignments"]} == placed


def test_simulator_compares_the_policy_with_another_one(installed):
    command = ("simulate", "generate", "--nodes", 2, "--gangs", 12, "--processes", 1, "-o", "json")
    printed = batchsched(installed, *command, "--policy", "fcfs", "--policy", "small-first")
    assert "small-first" in printed
