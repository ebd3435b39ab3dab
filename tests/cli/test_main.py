"""What `main` makes of what goes wrong, and how fast it starts."""

import subprocess
import sys

import pytest

from batchsched import __version__
from batchsched.cli import app
from batchsched.cli.exit import ExitCode

COMMANDS = ("decide", "explain", "record", "replay", "schema", "version")


def test_help_names_every_command_with_examples(command):
    result = command("--help")
    assert result.code == 0
    for name in COMMANDS:
        assert name in result.out
        assert command(name, "--help").code == 0
    assert "batchsched decide examples/" in command("decide", "--help").out


def test_help_does_not_import_what_only_deciding_needs():
    code = (
        "import sys, batchsched.cli\n"
        "batchsched.cli.run(['--help'])\n"
        "heavy = {'ortools', 'numpy', 'networkx', 'plotly', 'jinja2'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_version_is_printed(command):
    assert command("version").out == f"batchsched {__version__}\n"


@pytest.mark.parametrize(
    "error, code", [(KeyboardInterrupt(), ExitCode.INTERRUPTED), (RuntimeError("boom"), ExitCode.DEFECT)]
)
def test_failure_is_a_sentence_and_an_exit_code(command, monkeypatch, error, code):
    def fail(**_):
        raise error

    monkeypatch.setattr(app, "app", fail)
    result = command("version")
    assert result.code == code
    assert "Traceback" not in result.err


def test_traceback_is_there_for_who_asks(command, monkeypatch):
    def fail(**_):
        raise RuntimeError("boom")

    monkeypatch.setattr(app, "app", fail)
    monkeypatch.setenv("BATCHSCHED_TRACEBACK", "1")
    result = command("version")
    assert "Traceback" in result.err
    assert "this is a defect of batchsched: RuntimeError: boom" in result.err
