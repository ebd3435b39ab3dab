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


def tune(
    scenario: ScenarioFile,
    to: To = None,
    change: Changes = [],  # noqa: B006 - typer copies it
    processes: Processes = None,
    address: Address = None,
    output: Format = Output.TABLE,
) -> None:
    """Search a policy's parameters for the objective of the scenario's tune, and check what was found.

    The check is on seeds that the search did not see: it says whether the objective improved there, and what else got
    worse. Killed and started again, the command goes on where it was.
    """
    from batchsched.cli.differences import print_tuned
    from batchsched.cli.laboratory import tuned
    from batchsched.lab.scenario import load

    chosen = load(scenario, pairs(change))
    folder = to or Path(f"{chosen.name}-results")
    print_tuned(tuned(chosen, folder, processes or os.cpu_count() or 1, address), output)


def compare(
    base: Annotated[
        str,
        typer.Argument(
            metavar="A", help="A folder of results, or one policy of it: DIR:POLICY.", show_default=False
        ),
    ],
    other: Annotated[
        str, typer.Argument(metavar="B", help="Another; :POLICY is one of A's folder.", show_default=False)
    ],
    output: Format = Output.TABLE,
) -> None:
    """Compare results: how B differs from A on the same workloads and seeds, with 95 % intervals.

    Two folders are compared policy by policy, where both have one of the same name.
    """
    from batchsched.cli.differences import print_compared, sides
    from batchsched.cli.laboratory import need_parquet

    need_parquet()
    print_compared(sides(base, other), output)


def serve(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="A folder of results.", file_okay=False, show_default=False),
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of the server; 0: any that is free.")] = 8080,
    address: Annotated[
        str, typer.Option(metavar="IP", help="On which it listens; beyond this machine it demands a token.")
    ] = "127.0.0.1",
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Holds the token that readers have to show: as a bearer, or as the password of a browser.",
            show_default=False,
        ),
    ] = None,
    tls_cert_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The certificate, PEM; without it, beyond this machine, one that we sign ourselves.",
            show_default=False,
        ),
    ] = None,
    tls_private_key_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Its key, PEM.", show_default=False)
    ] = None,
) -> None:
    """Serve a folder of results, read-only, until Ctrl-C: the report, a list of the runs, and their files.

    The folder may be one that `lab run` still writes to: what finished since is in the page that is asked for next.
    """
    from batchsched.cli.serving import ResultsAddress, serve

    serve(folder, ResultsAddress(address, port, token_file, tls_cert_file, tls_private_key_file))


COMMANDS: Final[tuple[tuple[Callable[..., None], str], ...]] = (
    (
        run,
        """Examples:

batchsched lab run examples/lab/teams.yaml --to results

batchsched lab run examples/lab/three-teams.yaml --set workloads.philly.philly.trace=/data/philly.csv.gz --set seeds=3

batchsched lab run examples/lab/teams.yaml --address tcp://dask-scheduler:8786 -o json
""",
    ),
    (
        tune,
        """Examples:

batchsched lab tune examples/lab/teams.yaml --to results

batchsched lab tune examples/lab/teams.yaml --set tune.trials=100 --set tune.objective.minimise=meanWait
""",
    ),
    (
        compare,
        """Examples:

batchsched lab compare monday-results tuesday-results

batchsched lab compare results:fcfs :headroom -o json
""",
    ),
    (
        serve,
        """Examples:

batchsched lab serve results  (then open http://127.0.0.1:8080/)

batchsched lab serve results --port 0

batchsched lab serve results --address 0.0.0.0 --token-file token  (over TLS, for whoever has the token)
""",
    ),
)
"""The commands of the lab, each with its examples."""
