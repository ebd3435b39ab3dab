"""A Permit plugin for tests, and the environment in which `batchsched` finds it as it finds those of other packages."""

import os
from pathlib import Path
from typing import ClassVar, Final

from batchsched.api.core.pod import Pod
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.nodes.node_table import NodeTable
from batchsched.framework.status import SUCCESS, Code, PermitAnswer, Status
from tests.controlplane.process import PROGRAM, ROOT

LABEL: Final = "tests/hold"
SECONDS: Final = 2.0
PLUGINS: Final = {"permit": {"enabled": [{"name": "Hold"}]}}
"""The part of a profile that enables the plugin."""


class Hold:
    """Makes pods with a label wait."""

    name: ClassVar[str] = "Hold"

    def permit(self, pod: Pod, node: int, nodes: NodeTable, state: CycleState) -> PermitAnswer:
        """Return Wait for a pod with the label, and Success for others."""
        waits = LABEL in pod.labels
        return PermitAnswer(Status(Code.WAIT), SECONDS) if waits else PermitAnswer(SUCCESS)


def program_with_plugin(folder: Path) -> tuple[str, ...]:
    """Install the entry point of the plugin into a folder, and return a command line that finds it."""
    information = folder / "hold-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: hold\nVersion: 1\n")
    (information / "entry_points.txt").write_text(f"[batchsched.plugins]\nHold = {__name__}:Hold\n")
    return ("env", f"PYTHONPATH={folder}{os.pathsep}{ROOT}", *PROGRAM)
