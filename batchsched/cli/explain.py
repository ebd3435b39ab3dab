"""`batchsched explain`: why a PodGroup is placed, or is not."""

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
    existing,
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
            help="A PodGroup, or a pod (pod/NAME), of the cluster; or files, as decide reads them, of whose "
            "PodGroups one is explained.",
            show_default=False,
        ),
    ],
    pod_group: Annotated[
        str | None,
        typer.Option(
            "--pod-group",
            metavar="NS/NAME",
            help="The PodGroup of the files; for a pod without one, the pod.",
            show_default=False,
        ),
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option("-n", "--namespace", help="Of a PodGroup of the cluster; default: the context's."),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    config: Config = None,
    profile: ProfileName = None,
    seed: Seed = 0,
    now: Now = None,
    output: Format = Output.TABLE,
) -> None:
    """Decide one session, and say of one PodGroup why it is placed, waits or is refused.

    Prints the constraint that binds, what is missing, the smallest change that admits it, which nodes are
    refused for which reason, and the room in each domain of the topology once everything else is placed.
    """
    from batchsched.cli.explanation import explained, print_explanation
    from batchsched.cli.live import ClusterAccess, live_session
    from batchsched.cli.printing import print_data
    from batchsched.cli.session import run_session

    named = _named(subject)
    if named:
        access = ClusterAccess(kubeconfig, context, config, profile)
        named = named if "/" in named else f"{namespace or access.namespace}/{named}"
        session = live_session(access, seed)
    elif pod_group is None:
        existing([Path(one) for one in subject])
        raise typer.BadParameter("files need --pod-group NS/NAME, the one to explain")
    else:
        session = run_session(existing([Path(one) for one in subject]), config, profile, seed, now)
    found = explained(session, _key(named or pod_group or "", session))
    if output is Output.TABLE:
        print_explanation(found)
    else:
        print_data(found, output)
    raise typer.Exit(session.exit_code)


def _named(subject: list[str]) -> str:
    """Return the PodGroup of the cluster that is meant, "" where files are."""
    kind, _, name = subject[0].partition("/")
    if len(subject) > 1 or kind.lower() not in _LIVE or not name or Path(subject[0]).exists():
        return ""
    return name


def _key(stated: str, session: "DecidedSession") -> str:
    """Return the full name; one without a namespace is of `default`.

    Raises:
      BadParameter: the input has no such PodGroup or pod.
    """
    from batchsched.api.crd.validation import nearest

    key = stated if "/" in stated else f"default/{stated}"
    known = [group.key for group in session.snapshot.pod_groups]
    refused = [one.pod_group for one in session.decision.refusals]
    if key in known or key in refused or any(pod.key == key for pod in session.snapshot.pods):
        return key
    for one in session.decision.set_aside:
        if one.object in (f"PodGroup {key}", f"Pod {key}"):
            raise typer.BadParameter(f"{one.object} was set aside: {one.field}: {one.message}")
    raise typer.BadParameter(f"there is no PodGroup or pod {key!r}; {nearest(key, known)}")
