"""`batchsched run`: run the scheduler for a live cluster."""

from typing import Annotated

import typer

from batchsched.cli.options import Config, Context, Kubeconfig, LogFormat

EXAMPLES = """Examples:

batchsched run  (the cluster of KUBECONFIG, from outside)

batchsched run --config batchsched.yaml --lease kube-system/batchsched

batchsched run --no-leader-elect -v

batchsched run --logging-format json -vv
"""


def run(
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    leader_elect: Annotated[
        bool | None,
        typer.Option(
            "--leader-elect/--no-leader-elect",
            help="Wait for the Lease before scheduling; default: leaderElection of the configuration, which is true.",
        ),
    ] = None,
    lease: Annotated[
        str | None,
        typer.Option(metavar="NS/NAME", help="The Lease; default namespace: the namespace of batchsched."),
    ] = None,
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose",
            "-v",
            count=True,
            help="Log each session; -vv also logs each binding, -vvv each refusal.",
        ),
    ] = 0,
    logging_format: Annotated[
        LogFormat, typer.Option("--logging-format", metavar="text|json", help="Log format.")
    ] = LogFormat.TEXT,
) -> None:
    """Run the scheduler for the pods with a schedulerName of the configuration, until SIGTERM or Ctrl-C.

    Several replicas may run at once: one leads, the others wait for its Lease. SIGHUP reloads the configuration.
    """
    from batchsched.service.process import SchedulerOptions, run_scheduler

    code = run_scheduler(
        SchedulerOptions(
            config=config,
            kubeconfig=kubeconfig,
            context=context,
            leader_elect=leader_elect,
            lease=None if lease is None else _lease_name(lease),
            verbosity=verbose,
            log_format=logging_format.value,
        )
    )
    raise typer.Exit(code)


def _lease_name(text: str) -> tuple[str, str]:
    """Return the namespace and the name of the Lease; the namespace is "" if none is stated.

    Raises:
      BadParameter: the text is neither NAME nor NS/NAME.
    """
    namespace, slash, name = text.rpartition("/")
    if not name or "/" in namespace or bool(slash) != bool(namespace):
        raise typer.BadParameter(
            f"{text!r} is not the name of a Lease; expected NAME or NS/NAME", param_hint="--lease"
        )
    return namespace, name
