"""`batchsched explain`: print why a PodGroup is placed, waits or is refused, as text or as data."""

import sys
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from batchsched.api.core.quantity import pluralize
from batchsched.api.decision import Assignment, Eviction, Refusal, WaitingAtPermit, refusal_text
from batchsched.api.gang import gang_key_of_pod
from batchsched.cli.options import (
    Config,
    Context,
    Format,
    Kubeconfig,
    Now,
    OutputFormat,
    ProfileName,
    SessionSeed,
    check_no_cluster_options,
)
from batchsched.cli.printing import (
    add_row,
    console,
    format_pod_counts_by_node,
    format_resource_amounts,
    new_table,
    print_data,
    refused_gangs_with_evictions,
)

if TYPE_CHECKING:
    from rich.console import Console

    from batchsched.cli.session import DecidedSession
    from batchsched.session.feasibility_report import GangFeasibility, LevelFeasibility, PartFeasibility
    from batchsched.session.queue_report import PendingGangReport

_MAX_DOMAINS: Final = 8
EXAMPLES = """Examples:

batchsched explain podgroup/bert -n team-a

batchsched explain examples/ podgroup/long-context -n research

batchsched explain cluster.json.gz --pod-group team-a/bert -o json
"""
_GANG_KINDS: Final = frozenset({"podgroup", "podgroups", "pg", "pod", "pods", "po"})
_QUEUE_KINDS: Final = frozenset({"queue", "queues", "bq"})


def explain(
    subject: Annotated[
        list[str],
        typer.Argument(
            metavar="[podgroup/NAME] [FILE]...",
            help="A PodGroup, a pod (pod/NAME) or an owner of pods (job/NAME), of the cluster, or of manifests, as for "
            "decide.",
            show_default=False,
        ),
    ],
    pod_group: Annotated[
        str | None,
        typer.Option(
            "--pod-group",
            metavar="NS/NAME",
            help="The PodGroup in the files, a pod, or an owner of pods such as a Job. Without it, all refused gangs "
            "are explained.",
            show_default=False,
        ),
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option(
            "-n",
            "--namespace",
            help="The namespace of the PodGroup; default: that of the context, with files `default`.",
        ),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    config: Config = None,
    profile: ProfileName = None,
    seed: SessionSeed = None,
    now: Now = None,
    verbose: Annotated[
        bool,
        typer.Option(
            "-v",
            "--verbose",
            help="Also count the refused nodes by reason, and print the free room of each topology domain.",
        ),
    ] = False,
    output: Format = OutputFormat.TABLE,
) -> None:
    """Decide one session, and explain why one PodGroup is placed, waits or is refused.

    The command prints whether the gang can ever start, what is missing, which gangs go first, and a smallest change
    that admits it. The change was verified by deciding again. Without --pod-group, it explains all refused gangs.
    """
    from batchsched.cli.live_cluster import LiveClusterOptions
    from batchsched.cli.session import decide_live_session, decide_session_over_files

    name, owner_kind, files = _split_subject(subject)
    if files:
        check_no_cluster_options(kubeconfig, context)
        name, namespace = pod_group or name, namespace or "default"
        session = decide_session_over_files(files, config, profile, seed, now)
    else:
        access = LiveClusterOptions(kubeconfig, context, config, profile)
        namespace = namespace or access.namespace
        session = decide_live_session(access, seed)
    if (
        name
        and not owner_kind
        and name.partition("/")[0] not in {pod.namespace for pod in session.snapshot.pods}
    ):
        name, owner_kind = _split_owner(name)
    if name:
        key = _checked_key(name if "/" in name else f"{namespace}/{name}", session, owner_kind)
        explanations = explain_gangs(session.with_explained_refusals({key}), [key])
    else:
        session = session.with_explained_refusals()
        explanations = explain_gangs(session, [refusal.pod_group for refusal in session.decision.refusals])
    if output is not OutputFormat.TABLE:
        print_data(explanations[0] if name else explanations, output)
    else:
        for explanation in explanations:
            print_explanation(explanation, verbose=verbose)
        if not explanations:
            console().print("no gang is refused")
    raise typer.Exit(session.exit_code)


def _split_subject(subject: list[str]) -> tuple[str, str, list[Path]]:
    """Split the arguments into the name in `podgroup/NAME`, `pod/NAME` or `job/NAME`, the kind of owner, and the files.

    Name and kind are "" if there is none.

    Raises:
      BadParameter: several objects are named, or an object of another kind.
    """
    names, files, owner_kind = [], [], ""
    for argument in subject:
        kind, _, name = argument.partition("/")
        if Path(argument).exists() or argument == "-" or (Path(argument).suffix and not name):
            files.append(Path(argument))
        elif kind.lower() in _GANG_KINDS:
            names.append(name)
        elif _split_owner(argument)[1]:
            names.append(name)
            owner_kind = _split_owner(argument)[1]
        elif kind.lower() in _QUEUE_KINDS:
            raise typer.BadParameter(f"for a queue: batchsched queues explain {name}")
        elif "/" in name or Path(argument).suffix:
            files.append(Path(argument))
        else:
            name = name or kind
            raise typer.BadParameter(
                f"there is no file {argument!r}; for an object: podgroup/{name}, pod/{name} or job/{name}"
            )
    if len(names) > 1:
        raise typer.BadParameter(f"expected one object, found {len(names)}: {', '.join(names)}")
    return "".join(names), owner_kind, files


def _split_owner(name: str) -> tuple[str, str]:
    """Split `job/NAME` into the name and the kind of an owner; another name has the kind ""."""
    from batchsched.podgrouper.owners import OWNER_KIND_BY_LOWER_NAME

    kind, _, rest = name.partition("/")
    owner_kind = OWNER_KIND_BY_LOWER_NAME.get(kind.lower(), "")
    return (rest, owner_kind) if owner_kind and rest else (name, "")


def _checked_key(key: str, session: "DecidedSession", owner_kind: str = "") -> str:
    """Return the `namespace/name` of a gang, given that of a PodGroup, a pod, or an owner of pods such as a Job.

    The PodGroup of a pod or an owner is named on standard error.

    Args:
      key: the `namespace/name` of the object.
      session: the session.
      owner_kind: the kind of the owner; "" if any object may be meant.

    Raises:
      BadParameter: the input has no such object, or an owner has several gangs.
    """
    from batchsched.api.crd.validation import suggest_name
    from batchsched.cli.session import check_not_set_aside

    pod_groups = [group.key for group in session.snapshot.pod_groups]
    refused = [record.pod_group for record in session.decision.refusals]
    if owner_kind:
        return _gang_of_owner(key, session, owner_kind)
    pod = next((pod for pod in session.snapshot.pods if pod.key == key), None)
    if pod is not None and key not in pod_groups:
        gang = gang_key_of_pod(pod)
        if gang != key:
            print(f"pod {key} is a member of PodGroup {gang}", file=sys.stderr)
        return gang
    if key in pod_groups or key in refused:
        return key
    check_not_set_aside(session, f"PodGroup {key}", f"Pod {key}")
    gang = _gang_of_owner(key, session)
    if gang:
        return gang
    kinds = {pod.key: "pod" for pod in session.snapshot.pods} | dict.fromkeys(pod_groups, "podgroup")
    # An equal name in another namespace precedes similar names: the usual cause is a missing -n.
    name = key.partition("/")[2]
    elsewhere = sorted(known for known in kinds if known.partition("/")[2] == name)
    if elsewhere:
        namespace = elsewhere[0].partition("/")[0]
        raise typer.BadParameter(
            f"there is no PodGroup or pod {key!r}; did you mean {kinds[elsewhere[0]]}/{elsewhere[0]}? "
            f"Its namespace is selected by -n {namespace}"
        )
    similar = get_close_matches(key, kinds, n=1, cutoff=0.6)
    names = [f"{kinds[name]}/{name}" for name in similar or sorted(kinds)]
    advice = f"did you mean {names[0]}?" if similar else suggest_name(key, names)
    if not similar:
        advice += f"; a pending pod must have spec.schedulerName: {session.profile.scheduler_name}"
    raise typer.BadParameter(f"there is no PodGroup or pod {key!r}; {advice}")


def _gang_of_owner(key: str, session: "DecidedSession", kind: str = "") -> str:
    """Return the gang of the pods of an owner; "" if no pod has this owner and no kind is stated.

    Raises:
      BadParameter: the owner has several gangs, or none although its kind is stated.
    """
    from batchsched.podgrouper.owners import gang_keys_of_owner

    namespace, _, name = key.partition("/")
    gangs = sorted(gang_keys_of_owner(session.snapshot.pods, namespace, name, kind))
    if len(gangs) > 1:
        raise typer.BadParameter(f"{key} has {len(gangs)} gangs; name one of them: {', '.join(gangs[:10])}")
    if gangs:
        print(f"{kind or 'owner'} {key} has the PodGroup {gangs[0]}", file=sys.stderr)
    elif kind:
        raise typer.BadParameter(f"there is no pod of {kind} {key!r}")
    return "".join(gangs)


class GangOutcome(StrEnum):
    """The outcome of a session for one gang, such as Placed, Waiting (at Permit) or Refused.

    It is placed, waits at Permit, waits until pods that are evicted for it have left, is refused, is evicted itself,
    is bound, or has no pods.
    """

    PLACED = "Placed"
    WAITING = "Waiting"
    PREEMPTING = "Preempting"
    REFUSED = "Refused"
    EVICTED = "Evicted"
    BOUND = "Bound"
    EMPTY = "Empty"


class Explanation(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What a session decided for one PodGroup, and why, with the nodes on which its pods can be placed.

    Args:
      pod_group: `namespace/name` of the PodGroup or of the single pod.
      state: the outcome for the gang.
      assignments: the pods of the gang that are to be bound.
      refusal, waiting: the entries of the decision; None if the decision has none.
      evictions: the pods of the gang that are to be evicted.
      turn: the gang's queue, entitlement class and priority; None if the gang is not pending.
      position: the gang's position among the pending gangs of its queue, from 1; 0 if the gang is not pending.
      outlook: open nodes and room after all other placements; None if the gang has no pods.
      kind: `Pod` for a pod without a PodGroup, otherwise `PodGroup`.
      node: the node of a bound pod without a PodGroup; "" otherwise.
    """

    pod_group: str
    state: GangOutcome
    assignments: tuple[Assignment, ...] = ()
    refusal: Refusal | None = None
    waiting: WaitingAtPermit | None = None
    evictions: tuple[Eviction, ...] = ()
    turn: "PendingGangReport | None" = None
    position: int = 0
    outlook: "GangFeasibility | None" = None
    kind: str = "PodGroup"
    node: str = ""


def explain_gangs(session: "DecidedSession", keys: Collection[str]) -> list[Explanation]:
    """Return an explanation of what a session decided for each of the given gangs.

    Args:
      session: the session.
      keys: the `namespace/name` of each PodGroup or single pod.
    """
    from batchsched.session.queue_report import report_pending_gangs

    turns = report_pending_gangs(session.snapshot, session.profile, session.now) if keys else ()
    return [_explain_gang(session, key, turns) for key in keys]


def _explain_gang(session: "DecidedSession", key: str, turns: "Sequence[PendingGangReport]") -> Explanation:
    from batchsched.session.feasibility_report import report_feasibility

    decision = session.decision
    turn = next((item for item in turns if item.pod_group == key), None)
    outlook = report_feasibility(session.snapshot, decision, session.profile, key)
    refusal = next((entry for entry in decision.refusals if entry.pod_group == key), None)
    waiting = next((entry for entry in decision.waiting if entry.pod_group == key), None)
    pods = [pod for pod in session.snapshot.pods if gang_key_of_pod(pod) == key]
    pod_keys = {pod.key for pod in pods}
    is_single_pod = pod_keys == {key} and all(group.key != key for group in session.snapshot.pod_groups)
    assigned = tuple(entry for entry in decision.assignments if entry.pod_key in pod_keys)
    evicted = tuple(entry for entry in decision.evictions if entry.pod_key in pod_keys)
    if assigned:
        state = GangOutcome.PLACED
    elif waiting is not None:
        state = GangOutcome.WAITING
    elif refusal is not None:
        state = (
            GangOutcome.PREEMPTING if key in refused_gangs_with_evictions(decision) else GangOutcome.REFUSED
        )
    elif evicted:
        state = GangOutcome.EVICTED
    else:
        state = GangOutcome.BOUND if outlook is not None and outlook.bound else GangOutcome.EMPTY
    return Explanation(
        pod_group=key,
        state=state,
        assignments=assigned,
        refusal=refusal,
        waiting=waiting,
        evictions=evicted,
        turn=turn,
        position=0 if turn is None else turn.position,
        outlook=outlook,
        kind="Pod" if is_single_pod else "PodGroup",
        node=pods[0].node_name if is_single_pod else "",
    )


def print_explanation(explanation: Explanation, *, verbose: bool = False) -> None:
    """Print the explanation of a PodGroup as text.

    `verbose` adds the counts of refused nodes by reason, and the free room of each topology domain.
    """
    out = console()
    name = f"{explanation.kind} {explanation.pod_group}"
    if (
        explanation.kind == "Pod"
        and explanation.state is GangOutcome.BOUND
        and explanation.outlook is not None
    ):
        out.print(f"{name} runs on {explanation.node}, queue {explanation.outlook.queue}", style="bold")
        return
    out.print(f"{name}: {_headline(explanation)}", style="bold")
    if explanation.outlook is not None and explanation.kind != "Pod":
        counts = _member_counts(explanation.outlook, len(explanation.evictions))
        out.print(f"minMember {explanation.outlook.min_member}; {counts}")
    if explanation.turn is not None:
        turn = explanation.turn
        share = "" if turn.share == "all" else f", share {turn.share}"
        out.print(f"queue {turn.queue}, position {explanation.position}{share}, priority {turn.priority}")
    if explanation.assignments:
        pairs = ((assignment.pod, assignment.node) for assignment in explanation.assignments)
        out.print(f"to be bound: {format_pod_counts_by_node(pairs, most=40)}")
    if explanation.refusal is not None:
        out.print(refusal_text(explanation.refusal))
    for part in explanation.outlook.parts if explanation.outlook and verbose else ():
        _print_part(part, out)


def _member_counts(outlook: "GangFeasibility", evicted: int) -> str:
    """Return how many members run, are evicted and are pending, without the counts that are 0.

    Args:
      outlook: the gang after the decision, in which evicted pods are not bound.
      evicted: the number of its pods that the session evicts.
    """
    counts = []
    if outlook.bound:
        counts.append(f"{pluralize(outlook.bound, 'member')} {'runs' if outlook.bound == 1 else 'run'}")
    if evicted:
        verbs = "runs and is evicted" if evicted == 1 else "run and are evicted"
        counts.append(f"{pluralize(evicted, 'member')} {verbs}")
    if outlook.pending:
        counts.append(f"{pluralize(outlook.pending, 'member')} pending")
    return ", ".join(counts) or "no member exists"


def _headline(explanation: Explanation) -> str:
    match explanation.state:
        case GangOutcome.PLACED:
            return f"placed, {pluralize(len(explanation.assignments), 'pod')}"
        case GangOutcome.WAITING if explanation.waiting is not None:
            return f"held at Permit by {explanation.waiting.plugin} until {explanation.waiting.until}"
        case GangOutcome.REFUSED if explanation.refusal is not None:
            return f"refused, {explanation.refusal.reason}"
        case GangOutcome.PREEMPTING:
            return "starts when the pods that are evicted for it have left"
        case GangOutcome.EVICTED:
            causes = sorted({f"for {entry.for_} ({entry.reason})" for entry in explanation.evictions})
            return f"evicted {', '.join(causes)}"
        case GangOutcome.BOUND if explanation.outlook is not None and not explanation.outlook.pending:
            return "it runs"
        case GangOutcome.BOUND:
            return "it runs with its minimum; further pods are pending"
        case _:
            return "it has no pods"


def _print_part(part: "PartFeasibility", out: "Console") -> None:
    name = f"subGroup {part.sub_group}: " if part.sub_group else ""
    out.print(
        f"\n{name}{pluralize(part.members, 'member')} of {format_resource_amounts(part.requests) or 'no request'}",
        style="bold",
    )
    out.print(
        f"{part.open_nodes} of {pluralize(part.nodes, 'node')} {'is' if part.open_nodes == 1 else 'are'} open to a "
        f"member, with room for {pluralize(part.room, 'member')}"
    )
    for reason, count in sorted(part.reasons.items(), key=lambda item: -item[1]):
        out.print(f"  {pluralize(count, 'node')}: {reason}")
    for level in part.levels:
        _print_level(level, out)


def _print_level(level: "LevelFeasibility", out: "Console") -> None:
    made = new_table("", f"{level.level}", "Nodes", "Open", "Room for")
    for domain in level.domains[:_MAX_DOMAINS]:
        add_row(made, domain.value, str(domain.nodes), str(domain.open_nodes), str(domain.room))
    if len(level.domains) > _MAX_DOMAINS:
        add_row(made, f"and {len(level.domains) - _MAX_DOMAINS} more", "", "", "")
    out.print(made)
