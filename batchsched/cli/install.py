"""`batchsched install`: apply the manifests of batchsched to a cluster, or print them."""

import re
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from batchsched.cli.options import Context, Kubeconfig

EXAMPLES = """Examples:

batchsched install --dry-run

batchsched install --image registry.example.com/batchsched:0.1.0

batchsched install --namespace scheduling --dry-run | kubectl diff -f -
"""
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def install(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the objects; write nothing.")] = False,
    namespace: Annotated[
        str, typer.Option(metavar="NAME", help="The namespace of batchsched.")
    ] = "batchsched-system",
    image: Annotated[
        str | None, typer.Option(metavar="IMAGE", help="The container image of batchsched.")
    ] = None,
    replicas: Annotated[
        int | None, typer.Option(min=1, help="Number of replicas; one of them leads.")
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Apply CRDs, RBAC rules, configuration and Deployment to a cluster. A second run updates only what differs.

    With --dry-run the manifests are printed as YAML, for review or for `kubectl apply -f -`.
    """
    import asyncio

    import yaml

    from batchsched.service.installation import Installation

    # Check the name first. Cluster-wide objects are applied first,
    # so a namespace that the API server refuses would leave a partial installation.
    if not _LABEL.fullmatch(namespace):
        raise typer.BadParameter(
            f"{namespace!r} can name no namespace; expected at most 63 lowercase letters, digits and hyphens",
            param_hint="--namespace",
        )
    manifests = list(Installation(namespace, image, replicas).manifests())
    if dry_run:
        sys.stdout.write(yaml.safe_dump_all(manifests, sort_keys=False))
        return
    asyncio.run(_apply(manifests, kubeconfig, context))


async def _apply(manifests: list[dict[str, object]], kubeconfig: Path | None, context: str | None) -> None:
    from batchsched.errors import ApiError, CommandError
    from batchsched.kube.clock import SystemClock
    from batchsched.kube.connection import Connection
    from batchsched.kube.credentials import CredentialsReader
    from batchsched.service.installation import apply_manifest

    async with Connection(CredentialsReader(kubeconfig, context), SystemClock()) as connection:
        for manifest in manifests:
            metadata = manifest["metadata"]
            name = metadata["name"] if isinstance(metadata, dict) else ""
            title = f"{str(manifest['kind']).lower()}/{name}"
            try:
                await apply_manifest(connection, manifest)
            except ApiError as error:
                raise CommandError(f"{title} could not be applied: {error}") from error
            print(f"{title} applied")
