"""`batchsched run`: schedule a cluster."""

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
            help="Wait for the Lease before scheduling; default: as the configuration says, which is yes.",
        ),
    ] = None,
    lease: Annotated[
        str | None,
        typer.Option(metavar="NS/NAME", help="The Lease; its namespace is ours where none is stated."),
    ] = None,
    verbose: Annotated[
        int, typer.Option("--verbose", "-v", count=True, help="Log each session; twice: each binding.")
    ] = 0,
    logging_format: Annotated[
        LogFormat, typer.Option("--logging-format", help="How the log is written.")
    ] = LogFormat.TEXT,
) -> None:
    """Schedule the pods of a cluster whose schedulerName is one of ours, until SIGTERM or Ctrl-C.

    Several may run at once: one leads, the others wait for its Lease. SIGHUP reads the configuration again.
    """
    from batchsched.service.start import Options, start

    code = start(
        Options(
            config=config,
            kubeconfig=kubeconfig,
            context=context,
            leader_elect=leader_elect,
            lease=None if lease is None else _lease(lease),
            verbosity=verbose,
            log_format=logging_format.value,
        )
    )
    raise typer.Exit(code)


def _lease(stated: str) -> tuple[str, str]:
    """Return namespace and name; "" for a namespace that is not stated.

    Raises:
      BadParameter: it is neither NAME nor NS/NAME.
    """
    namespace, slash, name = stated.rpartition("/")
    if not name or "/" in namespace or bool(slash) != bool(namespace):
        raise typer.BadParameter(f"{stated!r} names no Lease; expected NAME or NS/NAME", param_hint="--lease")
    return namespace, name
