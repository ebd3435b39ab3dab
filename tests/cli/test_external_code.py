"""Failures of policies that another package registers: the name, the file and the line, and their own exit code."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from batchsched.cli import ExitCode

POLICY = """class Mine:
    name = "mine"

    def key(self, gangs, now):
        return 1 // 0
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Install a package with two policies: one raises an exception, and the module of the other is missing."""
    (tmp_path / "acme_policies.py").write_text(POLICY)
    information = tmp_path / "acme-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[batchsched.policies]\nmine = acme_policies:Mine\ngone = acme_gone.policies:Gone\n"
    )
    return tmp_path


@pytest.mark.parametrize("policies", [["mine"], ["fcfs", "mine"]], ids=["in this process", "in a worker"])
def test_failing_policy_is_named_with_file_and_line(package, policies):
    options = [part for policy in policies for part in ("--policy", policy)]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "batchsched",
            "simulate",
            "generate",
            "--gangs",
            "5",
            "--processes",
            "2",
            *options,
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(package)},
    )
    message = f"error: policy mine failed in {package}/acme_policies.py, line 5: ZeroDivisionError"
    assert message in done.stderr
    assert done.returncode == ExitCode.EXTERNAL_CODE
    assert "Traceback" not in done.stderr
