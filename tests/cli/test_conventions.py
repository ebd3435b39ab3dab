"""The conventions of command lines: version, help, completion, colours, encodings, and the kubectl plugin."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from batchsched import __version__
from batchsched.cli import ExitCode, run_command
from batchsched.cli.app import app
from batchsched.cli.help import value_placeholder
from batchsched.cli.options import parse_time
from tests.cli.conftest import NOW

SCRIPT = "import sys; from batchsched.cli import main; sys.argv[0] = sys.argv.pop(1); main()"
PYTHON_TYPES = re.compile(r"<(int|float|bool|str|list|path|file|uuid)\b|list\[|int range|\{[A-Z]")


def commands(group=None, path=()):
    """Yield the path and the command of every command and group."""
    group = group or typer.main.get_command(app)
    yield path, group
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, (*path, name))


COMMANDS = dict(commands())


def program(name: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command in a process, started under the name of a script."""
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, name, *arguments],
        capture_output=True,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_version_is_an_option_too(command, option):
    assert command(option).out == f"batchsched {__version__}\n"


def test_package_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "batchsched", "--version"], capture_output=True, text=True, check=False
    )
    assert done.stdout == f"batchsched {__version__}\n"


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_of_every_command_is_plain_text_without_python_types(command, path):
    result = command(*path, "--help")
    assert result.code == ExitCode.OK
    assert result.out.startswith(f"Usage: {' '.join(('batchsched', *path))} ")
    assert not PYTHON_TYPES.search(result.out)
    assert result.out.isascii()


def test_every_parameter_has_a_help_text():
    silent = [
        (path, parameter.name)
        for path, command in COMMANDS.items()
        for parameter in command.params
        if not parameter.help and not parameter.hidden
    ]
    assert silent == []


def test_every_value_has_a_name_in_capitals_or_its_choices():
    named = re.compile(r"[\[\]A-Z0-9:=/,.|()a-z -]+")
    assert all(
        named.fullmatch(value_placeholder(parameter)) is not None
        for command in COMMANDS.values()
        for parameter in command.params
        if value_placeholder(parameter)
    )


@pytest.mark.parametrize("group", [(), ("lab",), ("simulate",)], ids=" ".join)
def test_group_without_a_command_prints_its_help(command, group):
    result = command(*group)
    assert (result.code, result.err) == (ExitCode.OK, "")
    assert "Commands:" in result.out


# Colours


@pytest.mark.parametrize(
    "arguments", [("--color", "always", "--help"), ("decide", "--help", "--color=always")]
)
def test_colors_can_be_forced_before_or_after_the_command(command, arguments):
    assert "\x1b[1m" in command(*arguments).out


def test_output_outside_a_terminal_has_no_colors(command, cluster):
    assert "\x1b" not in command("decide", cluster, "--now", NOW).out


@pytest.mark.parametrize(
    "arguments, environment, colored",
    [((), {}, True), ((), {"NO_COLOR": "1"}, False), (("--color", "never"), {}, False)],
    ids=["terminal", "NO_COLOR", "--color never"],
)
def test_terminal_gets_colors_unless_they_are_turned_off(arguments, environment, colored):
    pty = pytest.importorskip("pty")
    master, terminal = pty.openpty()
    subprocess.run(
        [sys.executable, "-m", "batchsched", *arguments, "--help"],
        stdout=terminal,
        stderr=terminal,
        check=False,
        env={**{name: value for name, value in os.environ.items() if name != "NO_COLOR"}, **environment}
        | {"TERM": "xterm"},
    )
    os.close(terminal)
    assert (b"\x1b[1m" in os.read(master, 100_000)) is colored
    os.close(master)


def test_argument_after_two_dashes_is_not_an_option(command):
    result = command("decide", "--", "--color")
    assert (result.code, "'--color'" in result.err) == (ExitCode.USAGE, True)


# Encodings


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize("arguments", [(), ("-o", "json"), ("-o", "yaml")], ids=["table", "json", "yaml"])
def test_terminal_without_utf_8_gets_similar_characters(cluster, encoding, arguments):
    done = program(
        "batchsched",
        "decide",
        str(cluster),
        "--now",
        NOW,
        *arguments,
        PYTHONIOENCODING=encoding,
        PYTHONUTF8="0",
    )
    assert (done.returncode, b"defect" in done.stderr) == (ExitCode.OK, False)
    assert b"good" in done.stdout


def test_queues_are_drawn_in_ascii_where_there_is_no_utf_8(cluster):
    done = program(
        "batchsched", "queues", str(cluster), PYTHONIOENCODING="ascii", PYTHONUTF8="0", COLUMNS="200"
    )
    assert b"....|" in done.stdout
    assert b"# allocated" in done.stderr


# Completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_of_a_shell_is_printed(shell):
    done = program("batchsched", "completion", shell)
    assert (done.returncode, done.stderr) == (ExitCode.OK, b"")
    assert b"_BATCHSCHED_COMPLETE=complete_" + shell.encode() in done.stdout


def test_bash_completes_commands_options_and_values(tmp_path):
    """The script is sourced in bash, and its function is called as bash calls it."""
    caller = tmp_path / "batchsched"
    caller.write_text(f'#!/bin/sh\nexec {sys.executable} -m batchsched "$@"\n')
    caller.chmod(0o755)
    script = """source <(batchsched completion bash)
        for words in 'de' 'lab ru' 'decide --out' 'schema podg' '--color ne' \\
            'simulate swf --policy headr' 'get pod' 'decide -o jsonp'; do
          COMP_WORDS=(batchsched $words); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
          _batchsched_completion batchsched; echo "${COMPREPLY[@]}"
        done"""
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )
    assert done.stdout.splitlines() == [
        "decide demo",
        "run",
        "--output",
        "podgroup",
        "never",
        "headroom",
        "podgroups",
        "jsonpath=",
    ]


def test_kubectl_gets_completions_and_a_directive():
    script = "import sys; from batchsched.cli import complete_for_kubectl; complete_for_kubectl()"
    done = subprocess.run(
        [sys.executable, "-c", script, "lab", ""], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["run", "tune", "compare", "serve", ":0"]


# The plugin of kubectl


def test_kubectl_plugin_names_itself_as_users_type_it():
    done = program("/usr/local/bin/kubectl-batchsched", "decide", "--help")
    assert done.stdout.startswith(b"Usage: kubectl batchsched decide [OPTIONS] FILE...")
    assert b"\n  kubectl batchsched decide examples/\n" in done.stdout
    wrong = program("kubectl-batchsched", "decide")
    assert wrong.stderr.endswith(b"Run 'kubectl batchsched decide --help' for usage.\n")


def test_entry_points_install_the_program_the_plugin_and_its_completion():
    scripts = (Path(__file__).parents[2] / "pyproject.toml").read_text().split("[project.scripts]")[1]
    for name in ("batchsched", "kubectl-batchsched", "kubectl_complete-batchsched"):
        assert f"\n{name} = " in scripts


# Exit codes


def test_every_exit_code_is_documented():
    page = (Path(__file__).parents[2] / "docs/reference/exit-codes.md").read_text()
    assert [code for code in ExitCode if f"\n| {code.value} |" not in page] == []


def test_time_without_a_zone_is_utc():
    assert parse_time("2026-01-05") == parse_time("2026-01-05T00:00:00Z") == 1_767_571_200
    assert parse_time("2026-01-05T01:00:00+01:00") == parse_time("2026-01-05T00:00:00")


def test_interruption_is_stated(capfd, monkeypatch):
    def interrupt(*_: object, **__: object):
        raise KeyboardInterrupt

    monkeypatch.setattr("batchsched.cli.session.decide_session_over_files", interrupt)
    assert run_command(["decide", str(Path(__file__))]) == ExitCode.INTERRUPTED
    assert capfd.readouterr().err == "interrupted\n"
