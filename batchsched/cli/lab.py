"""`batchsched lab`: policies tried on workloads, many runs at once, resumable."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import typer
import yaml

from batchsched.cli.options import Format, Output, writable

HELP = "Try policies on many workloads and seeds, in parallel and resumable; compare and tune them."


def changes(stated: list[str]) -> list[str]:
    """Check that changes are of the form.

    Raises:
      BadParameter: one is not.
    """
    for one in stated:
        if "=" not in one:
            raise typer.BadParameter(f"{one!r} is no change; expected PATH=VALUE")
    return stated


ScenarioFile = Annotated[
    Path,
    typer.Argument(
        metavar="SCENARIO", help="A scenario, YAML or JSON.", exists=True, dir_okay=False, show_default=False
    ),
]
To = Annotated[
    Path | None,
    typer.Option(
        "--to",
        metavar="DIR",
        help="Where results go, and where finished ones are found again; default: NAME-results.",
        file_okay=False,
        show_default=False,
    ),
]
Changes = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Replace a value of the scenario: workloads.philly.philly.trace=philly.csv.gz, seeds=3. Paths in it "
        "are relative to the scenario.",
        callback=changes,
        show_default=False,
    ),
]
Processes = Annotated[
    int | None, typer.Option(min=1, help="Runs at a time; default: one a processor.", show_default=False)
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Run on a cluster: tcp://HOST:PORT of a Dask scheduler, ray://HOST:PORT of a Ray one. Its workers need "
        "batchsched, and the scenario's files under the same paths.",
        show_default=False,
    ),
]


Report = Annotated[
    Path | None,
    typer.Option(
        "--report",
        metavar="FILE",
        help="Where the HTML report goes; default: report.html in the folder of results.",
        dir_okay=False,
        callback=writable,
        show_default=False,
    ),
]


def run(
    scenario: ScenarioFile,
    to: To = None,
    change: Changes = [],  # noqa: B006 - typer copies it
    processes: Processes = None,
    address: Address = None,
    report: Report = None,
    output: Format = Output.TABLE,
) -> None:
    """Run every workload of a scenario under every policy with every seed, and write a report.

    Each finished run is a Parquet file in the folder. Killed and started again, the command makes what is missing.
    """
    from batchsched.cli.laboratory import print_outcomes, swept, write_report
    from batchsched.lab.results import outcomes
    from batchsched.lab.scenario import load

    chosen = load(scenario, pairs(change))
    folder = to or Path(f"{chosen.name}-results")
    swept(chosen, folder, processes or os.cpu_count() or 1, address)
    found = outcomes(folder)
    write_report(report or folder / "report.html", chosen.name, found)
    print_outcomes(chosen.name, found, output)


def pairs(stated: list[str]) -> list[tuple[str, Any]]:
    """Return (path, value) of changes; values are YAML."""
    return [(one.partition("=")[0], yaml.safe_load(one.partition("=")[2])) for one in stated]


COMMANDS: Final[tuple[tuple[Callable[..., None], str], ...]] = (
    (
        run,
        """Examples:

batchsched lab run examples/lab/three-teams.yaml --to results

batchsched lab run philly.yaml --set workloads.philly.philly.trace=/data/philly.csv.gz --set seeds=3

batchsched lab run philly.yaml --address tcp://dask-scheduler:8786 -o json
""",
    ),
)
"""The commands of the lab, each with its examples."""
