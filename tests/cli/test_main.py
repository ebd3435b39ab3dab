"""What `main` makes of what goes wrong, and how fast it starts."""

import subprocess
import sys

import pytest

from batchsched import __version__
from batchsched.cli import ExitCode, app
from batchsched.errors import ApiError, PluginError, Unreachable

COMMANDS = ("completion", "decide", "explain", "record", "replay", "schema", "version")


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
        "batchsched.cli.run_command(['--help'])\n"
        "heavy = {'ortools', 'numpy', 'networkx', 'plotly', 'jinja2'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_version_is_printed(command):
    assert command("version").out == f"batchsched {__version__}\n"


@pytest.fixture
def failing(command, monkeypatch):
    """Run a command that fails with an error."""

    def call(error):
        def fail(**_: object):
            raise error

        monkeypatch.setattr(app, "app", fail)
        return command("version")

    return call


@pytest.mark.parametrize(
    "error, code, message",
    [
        (KeyboardInterrupt(), ExitCode.INTERRUPTED, "interrupted\n"),
        (
            RuntimeError("boom"),
            ExitCode.DEFECT,
            "error: this is a defect of batchsched: RuntimeError: boom\n",
        ),
        (
            PermissionError(13, "Permission denied", "cluster.yaml"),
            ExitCode.UNUSABLE,
            "error: cluster.yaml: Permission denied\n",
        ),
        (
            Unreachable("https://api:6443: no answer"),
            ExitCode.CLUSTER,
            "error: https://api:6443: no answer\n",
        ),
        (
            ApiError(403, "Forbidden", "pods is forbidden"),
            ExitCode.CLUSTER,
            "error: 403 Forbidden: pods is forbidden\n",
        ),
        (
            PluginError("Boom", "Filter", "KeyError: 'gpu'"),
            ExitCode.EXTERNAL_CODE,
            "error: plugin Boom failed in Filter: KeyError: 'gpu'\n",
        ),
        (OSError(28, "No space left on device"), ExitCode.UNUSABLE, "error: No space left on device\n"),
    ],
)
def test_failure_is_a_sentence_and_an_exit_code(failing, error, code, message):
    result = failing(error)
    assert (result.code, result.err) == (code, message)


def test_traceback_is_printed_if_the_environment_asks_for_it(failing, monkeypatch):
    monkeypatch.setenv("BATCHSCHED_TRACEBACK", "1")
    assert "Traceback" in failing(RuntimeError("boom")).err


@pytest.mark.parametrize(
    "arguments", [("version",), ("schema", "snapshot"), ("--help",)], ids=lambda one: one[0]
)
def test_a_closed_output_pipe_is_not_a_failure(arguments):
    code = "import sys; from batchsched.cli import main; sys.argv[0] = 'batchsched'; main()"
    done = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert done.stdout is not None
    done.stdout.close()
    assert done.stderr is not None
    told = done.stderr.read()
    done.stderr.close()
    assert (done.wait(), told) == (0, "")
