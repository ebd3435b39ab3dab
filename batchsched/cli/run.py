"""`batchsched run`: schedule a cluster."""

from pathlib import Path
from typing import Annotated

import typer

from batchsched.cli.options import Config

EXAMPLES = """Examples:

batchsched run  (the cluster of KUBECONFIG, from outside)

batchsched run --config batchsched.yaml --lease kube-system/batchsched

batchsched run --no-leader-elect -v
"""


def run(
    config: Config = None,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            help="The cluster; without it KUBECONFIG, the cluster we run in, or ~/.kube/config.", exists=True
        ),
    ] = None,
    context: Annotated[str | None, typer.Option(help="A context of the kubeconfig.")] = None,
    leader_elect: Annotated[
        bool, typer.Option("--leader-elect/--no-leader-elect", help="Wait for the Lease before scheduling.")
    ] = True,
    lease: Annotated[
        str,
        typer.Option(metavar="NAMESPACE/NAME", help="The Lease; its namespace is ours where none is stated."),
    ] = "batchsched",
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log each session.")] = False,
) -> None:
    """Schedule the pods of a cluster whose schedulerName is one of ours, until SIGTERM or Ctrl-C.

    Several may run at once: one leads, the others wait for its Lease.
    """
    from batchsched.service.start import Options, start

    namespace, _, name = lease.rpartition("/")
    code = start(
        Options(
            config=config,
            kubeconfig=kubeconfig,
            context=context,
            lease=(namespace, name) if leader_elect else None,
            verbose=verbose,
        )
    )
    raise typer.Exit(code)
