"""`batchsched what-if`: predict where the pods of a job would be placed if it were created now."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from batchsched.api.decision import Eviction
from batchsched.cli.explain import Explanation, explain_gangs, print_explanation
from batchsched.cli.options import (
    Config,
    Context,
    Format,
    Kubeconfig,
    Now,
    OutputFormat,
    ProfileName,
    SessionSeed,
    check_files_exist,
    check_no_cluster_options,
)
from batchsched.cli.printing import console, placements_by_gang, print_data

EXAMPLES = """Examples:

batchsched what-if -f job.yaml

kubectl create job x --image=busybox --dry-run=client -o yaml | batchsched what-if -f -

batchsched what-if -f podgroup.yaml -f pods.yaml -o json

batchsched dump && batchsched what-if -f job.yaml --cluster cluster.json.gz
"""


class WhatIfOutcome(msgspec.Struct, frozen=True, rename="camel"):
    """The result of `batchsched what-if`: explanations for the added gangs, and the effect on other gangs.

    Args:
      gangs: an explanation for each gang of the files.
      evictions: pods that are evicted only if the objects are added.
      displaced: gangs that the next session places only without the added objects.
    """

    gangs: tuple[Explanation, ...]
    evictions: tuple[Eviction, ...]
    displaced: tuple[str, ...]


def what_if(
    files: Annotated[
        list[Path],
        typer.Option(
            "-f",
            "--filename",
            metavar="FILE",
            help="Pods, PodGroups, or owners of pods such as Jobs and PyTorchJobs; - is standard input.",
            callback=check_files_exist,
            show_default=False,
        ),
    ],
    cluster: Annotated[
        list[Path] | None,
        typer.Option(
            "--cluster",
            metavar="FILE",
            help="Read the cluster from this file instead of the API server: a dump, a recorded session, or "
            "manifests. May be repeated.",
            callback=lambda files: check_files_exist(files or ()),
            show_default=False,
        ),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Annotated[
        str | None,
        typer.Option(
            "-n",
            "--namespace",
            help="The namespace of objects that state none; default: the namespace of the context.",
            show_default=False,
        ),
    ] = None,
    config: Config = None,
    profile: ProfileName = None,
    seed: SessionSeed = None,
    now: Now = None,
    output: Format = OutputFormat.TABLE,
) -> None:
    """Read a cluster, add the objects of the files in memory, and decide a session. Nothing is written.

    The cluster is the live one, or with --cluster that of a dump, a recorded session or manifests.

    For each gang of the files, the command prints its nodes, or why it would wait. It also prints the pods that would
    be evicted, and the pending gangs that would wait longer. Use the configuration of the running scheduler.
    """
    from batchsched.cli.live_cluster import LiveClusterOptions
    from batchsched.cli.session import decide_what_if_sessions

    if cluster:
        check_no_cluster_options(kubeconfig, context)
    before, after, gangs = decide_what_if_sessions(
        LiveClusterOptions(kubeconfig, context, config, profile, namespace), files, cluster or (), seed, now
    )
    after = after.with_explained_refusals(gangs)
    placed = placements_by_gang(before.decision, before.snapshot).keys()
    displaced = placed - placements_by_gang(after.decision, after.snapshot).keys()
    evicted_before = {(eviction.namespace, eviction.pod) for eviction in before.decision.evictions}
    outcome = WhatIfOutcome(
        tuple(explain_gangs(after, gangs)),
        tuple(
            eviction
            for eviction in after.decision.evictions
            if (eviction.namespace, eviction.pod) not in evicted_before
        ),
        tuple(sorted(displaced)),
    )
    if output is OutputFormat.TABLE:
        _print(outcome)
    else:
        print_data(outcome, output)


def _print(outcome: WhatIfOutcome) -> None:
    out = console()
    for explanation in outcome.gangs:
        print_explanation(explanation)
    for eviction in outcome.evictions:
        out.print(f"would be evicted: {eviction.pod_key}, for {eviction.for_}")
    for gang in outcome.displaced:
        out.print(f"would wait longer: {gang}")
