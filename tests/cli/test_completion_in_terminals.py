"""Completion in terminals: each shell runs in a pseudo-terminal, and completes what is typed when it reads a tab."""

import os
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.conftest import NOW

pty = pytest.importorskip("pty")
fcntl = pytest.importorskip("fcntl")
termios = pytest.importorskip("termios")

DEADLINE_SECONDS = 120.0
"""Seconds until a terminal must show what is expected; each tab starts a Python process."""
CONTROL = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>()][A-Z0-9]?|[\x07\r]|.\x08")
SHELLS = {
    "bash": (["bash", "--norc", "-i"], "source <(batchsched completion bash)"),
    "zsh": (
        ["zsh", "-f", "-i"],
        "autoload -Uz compinit && compinit -u -D && source <(batchsched completion zsh)",
    ),
    "fish": (["fish", "--no-config", "-i"], "batchsched completion fish | source"),
}


def _take_terminal() -> None:
    """Make standard input the controlling terminal, without which fish does not start."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """A shell in a pseudo-terminal: text is typed, and the screen is read until it shows something."""

    def __init__(self, command: list[str], path: str, home: Path) -> None:
        self._master, terminal = pty.openpty()
        self._process = subprocess.Popen(
            command,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
            preexec_fn=_take_terminal,  # noqa: PLW1509, the test process starts no threads
            env={
                **os.environ,
                "PATH": path,
                "PS1": "$ ",
                "TERM": "xterm",
                "HOME": str(home),
                "COLUMNS": "200",
            },
        )
        os.close(terminal)
        self._seen = b""

    def type(self, text: str) -> None:
        self._seen = b""
        os.write(self._master, text.encode())

    def wait_for(self, text: str) -> None:
        """Read the screen until it shows a text since the last input.

        Raises:
          AssertionError: the text does not appear.
        """
        end = time.monotonic() + DEADLINE_SECONDS
        while text.encode() not in CONTROL.sub(b"", self._seen):
            ready, _, _ = select.select([self._master], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"{text!r} does not appear in {self._seen!r}"
            self._seen += os.read(self._master, 65_536)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._master)


@contextmanager
def shell(name: str, folder: Path) -> Iterator[Terminal]:
    """Start a shell with the completion of batchsched and of its kubectl plugin on its PATH."""
    command, setup = SHELLS[name]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    for program, function in (
        ("batchsched", "main"),
        ("kubectl-batchsched", "main"),
        ("kubectl_complete-batchsched", "complete_for_kubectl"),
    ):
        script = folder / program
        script.write_text(
            f"#!{sys.executable}\nfrom batchsched.cli import {function}\nimport sys\nsys.exit({function}())\n"
        )
        script.chmod(0o755)
    terminal = Terminal(command, f"{folder}:{os.environ['PATH']}", folder)
    try:
        terminal.type(f"{setup}; echo re''ady\n")
        terminal.wait_for("ready")
        yield terminal
    finally:
        terminal.close()


@pytest.mark.parametrize("name", SHELLS)
def test_tab_completes_a_command_and_an_option(name, tmp_path):
    with shell(name, tmp_path) as terminal:
        terminal.type("batchsched repl\t")
        terminal.wait_for("batchsched replay")
        terminal.type("\x15batchsched decide --timi\t")
        terminal.wait_for("batchsched decide --timings")
        terminal.type("\x15batchsched completion fi\t")
        terminal.wait_for("completion fish")


@pytest.mark.parametrize("name", ["bash", "zsh"])
def test_tab_completes_a_file_of_a_command(name, tmp_path, monkeypatch):
    (tmp_path / "monday.yaml").touch()
    monkeypatch.chdir(tmp_path)
    with shell(name, tmp_path) as terminal:
        terminal.type("batchsched decide mond\t")
        terminal.wait_for("batchsched decide monday.yaml")


def test_kubectl_completes_and_runs_the_plugin(tmp_path, cluster):
    """kubectl finds the plugin and its completion on the PATH."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    with shell("bash", tmp_path):
        path = f"{tmp_path}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    ran = subprocess.run(
        [kubectl, "batchsched", "decide", str(cluster), "--now", NOW],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[1].startswith("team-a/good   Placed")
    completed = subprocess.run(
        [kubectl, "__complete", "batchsched", "repl"],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert completed.stdout.splitlines()[0] == "replay"
