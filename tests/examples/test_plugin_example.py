"""The package of plugins under examples/plugins: its own tests, run as its reader runs them, and its entry points."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "plugins"


def test_tests_of_the_example_pass_against_this_batchsched():
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLE)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " passed" in ran.stdout


def test_entry_points_of_the_example_name_its_plugins():
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text("utf-8"))["project"]
    named = project["entry-points"]["batchsched.plugins"]
    assert set(named) == {"DriverVersion", "NodeOwner"}
    for name, target in named.items():
        module, _, attribute = target.partition(":")
        source = (EXAMPLE / "src" / Path(*module.split("."))).with_suffix(".py").read_text("utf-8")
        assert f"class {attribute}" in source
        assert f'name: ClassVar[str] = "{name}"' in source
