"""`batchsched lab`: compare policies by many simulated runs, in parallel and resumable."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from batchsched.cli.options import Format, OutputFormat, check_writable, parse_yaml_value
from batchsched.cli.session_input import print_warnings
from batchsched.cli.simulation_options import Processes
from batchsched.cli.terminal import command_line_text
from batchsched.errors import InvalidInput

if TYPE_CHECKING:
    from batchsched.cli.session import CommandTelemetry
    from batchsched.lab.measures import RunOutcome
    from batchsched.lab.scenario import Scenario
    from batchsched.lab.tuning import TuningResult

HELP = "Run policies on many workloads and seeds, in parallel and resumable; compare and tune them."


def check_scenario_change_syntax(changes: list[str]) -> list[str]:
    """Check that each `--set` option has the form PATH=VALUE.

    Raises:
      BadParameter: a change has another form.
    """
    for change in changes:
        if "=" not in change or change.startswith("="):
            raise typer.BadParameter(f"{change!r} is not a change of the scenario; expected PATH=VALUE")
    return changes


ScenarioFile = Annotated[
    Path,
    typer.Argument(
        metavar="SCENARIO",
        help="A scenario file, YAML or JSON.",
        exists=True,
        dir_okay=False,
        show_default=False,
    ),
]
To = Annotated[
    Path | None,
    typer.Option(
        "--to",
        metavar="DIR",
        help="Folder of results; finished runs in it are kept. Default: NAME-results.",
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
        callback=check_scenario_change_syntax,
        show_default=False,
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Run on a cluster: tcp://HOST:PORT of a Dask scheduler or ray://HOST:PORT of a Ray cluster. Its "
        "workers need "
        "batchsched, and the files of the scenario under the same paths.",
        show_default=False,
    ),
]


Report = Annotated[
    Path | None,
    typer.Option(
        "--report",
        metavar="FILE",
        help="Path of the HTML report; default: report.html in the folder of results.",
        dir_okay=False,
        callback=check_writable,
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
    output: Format = OutputFormat.TABLE,
) -> None:
    """Run every workload of a scenario under every policy with every seed, and write a report.

    Each finished run is a Parquet file in the folder. If the command is interrupted, start it again: it runs only
    what is missing.
    """
    check_lab_installed()
    from batchsched.cli.outcomes import print_sweep_result
    from batchsched.lab.results import read_outcomes

    with name_scenario_in_errors(scenario):
        chosen = _load(scenario, change)
        folder = to or Path(f"{chosen.name}-results")
        run_sweep(chosen, folder, processes or os.cpu_count() or 1, address)
    results = read_outcomes(folder)
    write_report(report or folder / "report.html", chosen, results)
    print_sweep_result(chosen.name, results, output)


@contextmanager
def name_scenario_in_errors(scenario: Path) -> Iterator[None]:
    """Context manager: add the scenario's path to errors that name neither a file nor an option.

    Raises:
      InvalidInput: the code in the `with` block raised it.
    """
    try:
        yield
    except InvalidInput as error:
        if error.file or error.object.startswith("--"):
            raise
        raise InvalidInput(
            error.message, file=str(scenario), object=error.object, field=error.field
        ) from error


def _load(scenario: Path, changes: list[str]) -> "Scenario":
    """Read and check a scenario, and print warnings about its queues and policies on standard error."""
    from batchsched.lab.scenario import load_scenario, unknown_queue_warnings
    from batchsched.lab.scenario_checks import check_tuned_parameters, indistinct_scenario_policy_warnings

    chosen = load_scenario(scenario, parse_scenario_changes(changes))
    check_tuned_parameters(chosen)
    warnings = (*unknown_queue_warnings(chosen), *indistinct_scenario_policy_warnings(chosen))
    print_warnings([f"warning: {scenario}: {line}" for line in warnings])
    return chosen


def parse_scenario_changes(changes: list[str]) -> list[tuple[str, Any]]:
    """Parse the `--set` options of a command into (path, value) pairs; each value is parsed as YAML.

    Raises:
      BadParameter: a value is not YAML.
    """
    return [
        (place, parse_yaml_value(value, f"--set {place}"))
        for place, _, value in (change.partition("=") for change in changes)
    ]


def tune(
    scenario: ScenarioFile,
    to: To = None,
    change: Changes = [],  # noqa: B006 - typer copies it
    processes: Processes = None,
    address: Address = None,
    output: Format = OutputFormat.TABLE,
) -> None:
    """Search for the policy parameters that are best for the objective of a scenario, and check the result.

    The check uses seeds that the search did not see. It shows whether the objective improves there, and which
    measures become worse. If the command is interrupted, start it again: it resumes the search.
    """
    from batchsched.cli.outcomes import print_tuning_result

    with name_scenario_in_errors(scenario):
        chosen = _load(scenario, change)
        folder = to or Path(f"{chosen.name}-results")
        result = run_tuning(chosen, folder, processes or os.cpu_count() or 1, address)
    print_tuning_result(result, output)


def compare(
    base: Annotated[
        str,
        typer.Argument(
            metavar="A", help="A folder of results, or one policy in it: DIR:POLICY.", show_default=False
        ),
    ],
    other: Annotated[
        str,
        typer.Argument(
            metavar="B",
            help="The other folder or policy; :POLICY is a policy in the folder of A.",
            show_default=False,
        ),
    ],
    output: Format = OutputFormat.TABLE,
) -> None:
    """Compare two results: print how B differs from A on the same workloads and seeds, with 95 % intervals.

    Two folders are compared policy by policy, for the policies that both contain.
    """
    from batchsched.cli.outcomes import compare_policies_in_result_folders, print_comparisons

    check_lab_installed()
    print_comparisons(compare_policies_in_result_folders(base, other), output)


def serve(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER", help="A folder of results.", exists=True, file_okay=False, show_default=False
        ),
    ],
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port to listen on; 0: any free port.")
    ] = 8080,
    address: Annotated[
        str,
        typer.Option(
            metavar="IP",
            help="The IP address to listen on; if other machines can reach it, --token-file is required.",
        ),
    ] = "127.0.0.1",
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="File with the token that readers send as a bearer token, or as the password in a browser.",
            show_default=False,
        ),
    ] = None,
    tls_cert_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="TLS certificate, PEM; default: a self-signed one if other machines can reach the address.",
            show_default=False,
        ),
    ] = None,
    tls_private_key_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Private key of the certificate, PEM.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Serve a folder of results over HTTP, read-only, until Ctrl-C: the report, a list of the runs, and their files.

    `lab run` may still write to the folder: each request shows the runs that are finished at that time.
    """
    from batchsched.cli.serving import ResultsServerOptions, serve_results_folder

    check_lab_installed()
    serve_results_folder(
        folder, ResultsServerOptions(address, port, token_file, tls_cert_file, tls_private_key_file)
    )


def check_lab_installed() -> None:
    """Check that pyarrow, which the lab requires, is installed.

    Raises:
      InvalidInput: pyarrow is not installed.
    """
    if find_spec("pyarrow") is None:
        raise InvalidInput(
            "the lab needs pyarrow and optuna; run: pip install pyarrow optuna, or in the source folder: "
            "pip install --constraint constraints.txt '.[lab]'"
        )


def run_sweep(scenario: "Scenario", folder: Path, processes: int, address: str | None) -> None:
    """Execute those runs of a scenario that have no result in the result folder yet."""
    from batchsched.cli.session import CommandTelemetry
    from batchsched.lab.plan import plan_runs
    from batchsched.lab.results import execute_missing_runs, missing_runs, write_run_plan
    from batchsched.lab.workers import open_workers

    runs = plan_runs(scenario)
    write_run_plan(folder, scenario, runs, command_line_text())
    missing_count = len(missing_runs(runs, folder))
    if not missing_count:
        print(f"{folder}: all {len(runs)} runs are finished", file=sys.stderr)
        return
    with (
        closing(CommandTelemetry(logs_progress=True)) as stopwatch,
        open_workers(address, min(processes, missing_count)) as crew,
        stopwatch.stage_span("sweep"),
    ):
        try:
            made = execute_missing_runs(
                runs, folder, crew, lambda done, total: stopwatch.on_progress(done, total, "runs")
            )
        except KeyboardInterrupt:
            finished = len(runs) - len(missing_runs(runs, folder))
            _print_kept(stopwatch, f"{folder}: {finished} of {len(runs)} runs are kept")
            raise
    kept = len(runs) - missing_count
    kept_text = f", {kept} were finished before" if kept else ""
    print(
        f"{folder}: {made} runs in {stopwatch.stage_seconds('sweep'):.0f} s{kept_text}",
        file=sys.stderr,
    )


def run_tuning(scenario: "Scenario", folder: Path, processes: int, address: str | None) -> "TuningResult":
    """Search for the best policy parameters of a scenario, write the report, and return the result of the search."""
    check_lab_installed()
    from batchsched.cli.session import CommandTelemetry
    from batchsched.lab.definitions import reported_run_input_of_scenario
    from batchsched.lab.results import write_atomically
    from batchsched.lab.tuning import TuningResources, tune
    from batchsched.lab.tuning_report import render_tuning_report
    from batchsched.lab.workers import open_workers

    finished = planned = 0
    with closing(CommandTelemetry(logs_progress=True)) as stopwatch, open_workers(address, processes) as crew:

        def record_and_show_progress(done: int, total: int) -> None:
            nonlocal finished, planned
            finished, planned = done, total
            stopwatch.on_progress(done, total, "runs")

        resources = TuningResources(folder, crew, record_and_show_progress)
        try:
            result = tune(scenario, resources)
        except KeyboardInterrupt:
            _print_kept(stopwatch, f"{folder}: {finished} of {planned} runs are kept")
            raise
    settings = reported_run_input_of_scenario(scenario, command_line_text())
    html = render_tuning_report(scenario, result, settings)
    write_atomically(folder / "tuning.html", html.encode())
    print(f"report: {folder / 'tuning.html'}", file=sys.stderr)
    return result


def _print_kept(stopwatch: "CommandTelemetry", kept: str) -> None:
    """Print below the progress bar which results of an interrupted command are kept."""
    stopwatch.close()
    print(f"{kept}; run the command again to continue", file=sys.stderr)


def write_report(path: Path, scenario: "Scenario", outcomes: Sequence["RunOutcome"]) -> None:
    """Write an HTML report on the runs of a scenario, and print the path of the report.

    Raises:
      OSError: the file cannot be written.
    """
    from batchsched.lab.definitions import reported_run_input_of_scenario
    from batchsched.lab.report import render_sweep_report
    from batchsched.lab.results import write_atomically

    settings = reported_run_input_of_scenario(scenario, command_line_text())
    write_atomically(path, render_sweep_report(scenario.name, outcomes, settings).encode())
    print(f"report: {path}", file=sys.stderr)


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

batchsched lab serve results --address 0.0.0.0 --token-file token  (over TLS, for readers with the token)
""",
    ),
)
"""The commands of the lab, each with its examples."""
