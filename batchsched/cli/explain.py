"""`batchsched explain`: why a PodGroup is placed, or is not."""

from typing import TYPE_CHECKING, Annotated

import typer

from batchsched.cli.options import Config, Files, Format, Now, Output, ProfileName, Seed

if TYPE_CHECKING:
    from batchsched.cli.session import Session

EXAMPLES = """Examples:

batchsched explain examples/ --pod-group research/long-context

batchsched explain cluster.json.gz --pod-group team-a/bert -o json
"""


def explain(
    files: Files,
    pod_group: Annotated[
        str,
        typer.Option(
            "--pod-group",
            metavar="NS/NAME",
            help="The PodGroup; for a pod without one, the pod.",
            show_default=False,
        ),
    ],
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
    from batchsched.cli.printing import print_data
    from batchsched.cli.session import run_session

    session = run_session(files, config, profile, seed, now)
    found = explained(session, _key(pod_group, session))
    if output is Output.TABLE:
        print_explanation(found)
    else:
        print_data(found, output)
    raise typer.Exit(session.exit_code)


def _key(stated: str, session: "Session") -> str:
    """Return the full name; one without a namespace is of `default`.

    Raises:
      BadParameter: the input has no such PodGroup or pod.
    """
    from batchsched.model.complaint import nearest

    key = stated if "/" in stated else f"default/{stated}"
    known = [group.key for group in session.snapshot.pod_groups]
    refused = [one.pod_group for one in session.decision.refusals]
    if key in known or key in refused or any(pod.key == key for pod in session.snapshot.pods):
        return key
    for one in session.decision.set_aside:
        if one.object in (f"PodGroup {key}", f"Pod {key}"):
            raise typer.BadParameter(f"{one.object} was set aside: {one.field}: {one.message}")
    raise typer.BadParameter(f"there is no PodGroup or pod {key!r}; {nearest(key, known)}")
