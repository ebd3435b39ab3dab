"""`batchsched what-if`: what would become of a job, were it made now?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from batchsched.cli.options import Config, Context, Format, Kubeconfig, Output, ProfileName, Seed, existing

if TYPE_CHECKING:
    from batchsched.api.decision import Eviction
    from batchsched.cli.explanation import Explanation

EXAMPLES = """Examples:

batchsched what-if -f job.yaml

kubectl create job x --image=busybox --dry-run=client -o yaml | batchsched what-if -f -

batchsched what-if -f podgroup.yaml -f pods.yaml -o json
"""


class Outcome(msgspec.Struct, frozen=True, rename="camel"):
    """What would become of the objects, and of others for their sake.

    Args:
      gangs: what was asked about, one by one.
      evictions: pods that would have to go.
      displaced: gangs that have a place in the next session without it, and none with it.
    """

    gangs: "tuple[Explanation, ...]"
    evictions: "tuple[Eviction, ...]"
    displaced: tuple[str, ...]


def what_if(
    files: Annotated[
        list[Path],
        typer.Option(
            "-f",
            "--filename",
            metavar="FILE",
            help="Pods, PodGroups, or owners of pods such as Jobs and PyTorchJobs; - is standard input.",
            callback=existing,
            show_default=False,
        ),
    ],
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    config: Config = None,
    profile: ProfileName = None,
    seed: Seed = 0,
    output: Format = Output.TABLE,
) -> None:
    """Look at the cluster, suppose that some objects were made now, and decide a session. Nothing is written.

    Says of each gang of theirs where it would go or why it would wait, which pods would be evicted for it, and
    which gangs that wait now would wait longer. Use the configuration of the running scheduler.
    """
    from batchsched.cli.explanation import explained
    from batchsched.cli.live import ClusterAccess, what_if_sessions
    from batchsched.cli.printing import print_data

    before, after, gangs = what_if_sessions(ClusterAccess(kubeconfig, context, config, profile), files, seed)
    from batchsched.cli.tables import placed_pods

    placed = placed_pods(before.decision, before.snapshot).keys()
    displaced = placed - placed_pods(after.decision, after.snapshot).keys()
    known = {(one.namespace, one.pod) for one in before.decision.evictions}
    found = Outcome(
        tuple(explained(after, key) for key in gangs),
        tuple(one for one in after.decision.evictions if (one.namespace, one.pod) not in known),
        tuple(sorted(displaced)),
    )
    if output is Output.TABLE:
        _print(found)
    else:
        print_data(found, output)


def _print(found: Outcome) -> None:
    from batchsched.cli.explanation import print_explanation
    from batchsched.cli.printing import console

    out = console()
    for one in found.gangs:
        print_explanation(one)
    for eviction in found.evictions:
        out.print(f"would be evicted: {eviction.namespace}/{eviction.pod}, for {eviction.for_}")
    for gang in found.displaced:
        out.print(f"would wait longer: {gang}")
