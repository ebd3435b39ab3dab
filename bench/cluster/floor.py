"""`python -m bench.cluster.floor KUBECONFIG JOBS SIZE NODES`: bind all pods without a decision."""

import asyncio
import sys
from pathlib import Path

from batchsched.kube.clock import SystemClock
from batchsched.kube.connection import Connection
from batchsched.kube.credentials import CredentialsReader
from bench.cluster.trial import bind_all
from bench.cluster.workload import Row


async def main(kubeconfig: str, jobs: str, size: str, nodes: str) -> None:
    """Bind all pods, and wait until stopped, so that the CPU time can be read."""
    async with Connection(CredentialsReader(Path(kubeconfig)), SystemClock()) as connection:
        await bind_all(connection, Row(int(jobs), int(size)), int(nodes))
        await asyncio.sleep(60)


if __name__ == "__main__":
    try:
        import uvloop
    except ImportError:
        asyncio.run(main(*sys.argv[1:]))
    else:
        uvloop.run(main(*sys.argv[1:]))
