"""`batchsched explain`: why a PodGroup is placed, waits or is refused."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from batchsched.cli.options import (
    Config,
    Context,
    Format,
    Kubeconfig,
    Now,
    Output,
    ProfileName,
    Seed,
    check_files_exist,
)

if TYPE_CHECKING:
    from batchsched.cli.session import DecidedSession

EXAMPLES = """Examples:

batchsched explain podgroup/bert -n team-a

batchsched explain examples/ --pod-group research/long-context

batchsched explain cluster.json.gz --pod-group team-a/bert -o json
"""
_LIVE = frozenset({"podgroup", "podgroups", "pg", "pod", "pods", "po"})


def explain(
    subject: Annotated[
        list[str],
        typer.Argument(
            metavar="podgroup/NAME|FILE...",
            help="A PodGroup, or a pod (pod/NAME), of the cluster; or manifests, as for decide, with --pod-group.",
            show_default=False,
        ),
    ],
    pod_group: Annotated[
        str | None,
        typer.Option(
            "--pod-group",
            metavar="NS/NAME",
            help="The PodGroup in the files, or a pod without a PodGroup.",
            show_default=False,
        ),
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option(
            "-n",
            "--namespace",
            help="The namespace of the PodGroup in the cluster; default: the namespace of the context.",
        ),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    config: Config = None,
    profile: ProfileName = None,
    seed: Seed = 0,
    now: Now = None,
    output: Format = Output.TABLE,
) -> None:
    """Decide one session, and explain why one PodGroup is placed, waits or is refused.

    The command prints the constraint that refuses the gang, what is missing, and the smallest change that admits it.
    It also counts the refused nodes by reason, and prints the free room of each topology domain after all other
    placements.
    """
    from batchsched.cli.explanation import explain_gang, print_explanation
    from batchsched.cli.live import ClusterAccess, live_session
    from batchsched.cli.printing import print_data
    from batchsched.cli.session import run_session

    named = _cluster_object_name(subject)
    if named:
        access = ClusterAccess(kubeconfig, context, config, profile)
        named = named if "/" in named else f"{namespace or access.namespace}/{named}"
        session = live_session(access, seed)
    elif pod_group is None:
        check_files_exist([Path(path) for path in subject])
        raise typer.BadParameter("name the PodGroup of the files to explain with --pod-group NS/NAME")
    else:
        session = run_session(check_files_exist([Path(path) for path in subject]), config, profile, seed, now)
    explanation = explain_gang(session, _checked_key(named or pod_group or "", session))
    if output is Output.TABLE:
        print_explanation(explanation)
    else:
        print_data(explanation, output)
    raise typer.Exit(session.exit_code)


def _cluster_object_name(subject: list[str]) -> str:
    """Return the name in `podgroup/NAME` or `pod/NAME`; "" if the arguments are files."""
    kind, _, name = subject[0].partition("/")
    if len(subject) > 1 or kind.lower() not in _LIVE or not name or Path(subject[0]).exists():
        return ""
    return name


def _checked_key(name: str, session: "DecidedSession") -> str:
    """Return namespace/name of a PodGroup or pod; the namespace defaults to `default`.

    Raises:
      BadParameter: the input has no such PodGroup or pod.
    """
    from batchsched.api.crd.validation import nearest

    key = name if "/" in name else f"default/{name}"
    pod_groups = [group.key for group in session.snapshot.pod_groups]
    refused = [record.pod_group for record in session.decision.refusals]
    if key in pod_groups or key in refused or any(pod.key == key for pod in session.snapshot.pods):
        return key
    for record in session.decision.set_aside:
        if record.object in (f"PodGroup {key}", f"Pod {key}"):
            raise typer.BadParameter(f"{record.object} was set aside: {record.field}: {record.message}")
    raise typer.BadParameter(f"there is no PodGroup or pod {key!r}; {nearest(key, pod_groups)}")
