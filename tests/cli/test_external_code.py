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


POLICIES = ()
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
        "renamed = acme_policies:Old\nkeyless = acme_policies:POLICIES\n"
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


def simulate(package: Path, policy: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "batchsched", "simulate", "generate", "--gangs", "5", "--policy", policy],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(package)},
    )


@pytest.mark.parametrize(
    "keys, found",
    [
        ("3", "found the single number 3"),
        ("['a'] * len(gangs.size)", "found ['a'"),
        ("[[1], [1, 2]]", "found [[1], [1, 2]]"),
        ("[1] * 99", "found an array of shape [99]"),
    ],
    ids=["a number", "texts", "rows of several lengths", "too many numbers"],
)
def test_policy_with_unusable_keys_is_named_with_its_file_and_what_was_expected(package, keys, found):
    (package / "acme_policies.py").write_text(POLICY.replace("1 // 0", keys))
    done = simulate(package, "mine")
    assert (
        f"error: policy mine failed in key, {package}/acme_policies.py, line 4: expected an array of "
        in done.stderr
    )
    assert found in done.stderr
    assert done.returncode == ExitCode.EXTERNAL_CODE


@pytest.mark.parametrize(
    "policy, problem",
    [
        ("renamed", "'renamed = acme_policies:Old' of package acme: {file} has no attribute 'Old'"),
        ("gone", "'gone = acme_gone.policies:Gone' of package acme: there is no module 'acme_gone'"),
        (
            "keyless",
            "'keyless = acme_policies:POLICIES' of package acme: expected a class with a method key, found ()",
        ),
    ],
)
def test_wrong_entry_point_of_a_policy_is_named_with_its_package(package, policy, problem):
    done = simulate(package, policy)
    expected = problem.format(file=package / "acme_policies.py")
    assert done.stderr.rstrip().endswith(f"error: policy {policy}: entry point {expected}")
    assert done.returncode == ExitCode.EXTERNAL_CODE
