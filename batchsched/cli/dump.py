"""`batchsched dump`: write to one file all objects of a live cluster that a session reads."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from batchsched.cli.options import Config, Context, Kubeconfig, check_replaces_only_dump_or_session

STDOUT = "-"
EXAMPLES = """Examples:

batchsched dump --to cluster.json.gz

batchsched decide cluster.json.gz

batchsched what-if -f job.yaml --cluster cluster.json.gz

batchsched dump --to - | batchsched queues -
"""


def dump(
    to: Annotated[
        Path,
        typer.Option(
            "--to",
            metavar="FILE",
            help="Path of the dump, compressed if it ends in .gz; - is standard output.",
            dir_okay=False,
            callback=check_replaces_only_dump_or_session,
            allow_dash=True,
        ),
    ] = Path("cluster.json.gz"),
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    config: Config = None,
) -> None:
    """Write everything that decisions read of a cluster to one file, for decide, explain, queues and what-if.

    The dump has the nodes, pods, PodGroups, queues, volumes and all other kinds that batchsched watches, and the owners
    of pods such as Jobs. Nothing is written to the cluster.

    Objects have only the fields that decisions read: the dump contains no environment variables, commands, Secrets or
    ConfigMaps. It contains the names, labels and requests of pods, and the names of nodes and images. It leaves out
    annotations that only extenders or external plugins read.
    """
    import asyncio

    from batchsched.cli.session_input import pod_grouper_settings
    from batchsched.errors import InvalidInput
    from batchsched.kube.clock import SystemClock
    from batchsched.kube.connection import Connection
    from batchsched.kube.credentials import CredentialsReader
    from batchsched.record.dump import ClusterDump
    from batchsched.scheduler.cluster_dump import dump_live_cluster

    grouping = pod_grouper_settings(config)

    async def connect_and_dump() -> ClusterDump:
        clock = SystemClock()
        async with Connection(CredentialsReader(kubeconfig, context), clock) as connection:
            return await dump_live_cluster(connection, clock, grouping)

    cluster_dump = asyncio.run(connect_and_dump())
    earlier = ", which replaces an earlier file" if to.is_file() else ""
    content = cluster_dump.encode(compress=to.suffix == ".gz")
    if str(to) == STDOUT:
        sys.stdout.buffer.write(content)
    else:
        try:
            to.write_bytes(content)
        except OSError as error:
            raise InvalidInput(f"cannot be written: {error.strerror}", file=str(to)) from error
    for warning in cluster_dump.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    print(f"{len(cluster_dump.items)} objects written to {to}{earlier}", file=sys.stderr)
