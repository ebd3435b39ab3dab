"""The tables of docs/troubleshooting.md are those of a real cluster with the objects of the page."""

import contextlib
import functools
import re
from pathlib import Path

import pytest
import yaml

from batchsched.cli import run_command
from tests.controlplane.fixtures import QUEUES, eventually
from tests.docs.test_troubleshooting import CLUSTER, shown_after

pytestmark = pytest.mark.usefixtures("scheduler")
SOON = 60.0
PLURALS = {"Pod": "pods", "PodGroup": "podgroups"}


def cells(lines: list[str]) -> list[list[str]]:
    """Return the cells of a table; ages are left out."""
    rows = [re.split(r"   +", line) for line in lines]
    age = rows[0].index("AGE")
    return [[*row[:age], *row[age + 1 :]] for row in rows]


@pytest.fixture
def pending(namespace):
    """The objects of the page, in a namespace of the test instead of team-a."""
    text = Path(CLUSTER).read_text("utf-8").replace("team-a", namespace.name)
    objects = list(yaml.safe_load_all(text))
    for manifest in objects:
        if manifest["kind"] == "Node":
            namespace.nodes(1, cpu="8", memory="32Gi")
        elif manifest["kind"] == "Queue":
            namespace.api.create(QUEUES, manifest)
        else:
            group = manifest["apiVersion"] if manifest["kind"] == "PodGroup" else ""
            namespace.api.create(namespace.path(PLURALS[manifest["kind"]], group=group), manifest)
    return namespace


def test_tables_of_the_page_are_those_of_a_cluster(pending, plane, capfd):
    def printed(*arguments: str) -> list[str]:
        capfd.readouterr()
        assert run_command(["get", *arguments, "-o", "wide", "--kubeconfig", str(plane.kubeconfig())]) == 0
        return str(capfd.readouterr().out).splitlines()

    for command, arguments in (
        ("batchsched get podgroups -n team-a -o wide", ("podgroups", "-n", pending.name)),
        ("batchsched get queues -o wide", ("queues",)),
    ):
        shown = cells([line.replace("team-a", pending.name) for line in shown_after(command)])
        # Conditions show the verified texts of the page some seconds after the refusals.
        is_shown = functools.partial(lambda names, rows: cells(printed(*names)) == rows, arguments, shown)
        with contextlib.suppress(AssertionError):
            eventually(is_shown, SOON)
        assert cells(printed(*arguments)) == shown
