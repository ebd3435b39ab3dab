"""The section "What was run" of a report: the policies, the cluster, the load, the queues, and the command.

A report file is often read without its scenario. This section explains the names in the report, and states the command
that repeats the runs.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from batchsched.api.core.quantity import pluralize
from batchsched.api.crd.queue import Queue
from batchsched.config.schema import Profile
from batchsched.lab.document import Table, TableCell, TableRow
from batchsched.lab.figure import format_duration, format_number
from batchsched.lab.plan import policy_profile
from batchsched.lab.scenario import ClusterSpec, Scenario, WorkloadSpec
from batchsched.queues.gang_order import find_gang_order_class

NO_VALUE: Final = "—"
_QUEUE_FIELDS: Final = {"guarantee": "Guarantee", "limit": "Limit", "weight": "Weight", "parent": "Parent"}


@dataclass(frozen=True, slots=True)
class ReportedRunInput:
    """The description of the runs' input in a report: the policies, cluster, load, queues and command.

    Args:
      command: The command that repeats the report, "" if unknown.
      facts: Facts about the cluster and the workloads, as (label, text).
      profiles: The profile of each policy, by the name of the policy.
      queues: The queues of the cluster.
      queue_changes: For each policy, the fields of queues that it changes.
      descriptions: Descriptions of policies that replace those of their gang orders, by the name of the policy.
      conclusion: Sentences that replace the comparison with the first policy, () for none.
    """

    command: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    profiles: Mapping[str, Profile] | None = None
    queues: tuple[Queue, ...] = ()
    queue_changes: Mapping[str, Mapping[str, Mapping[str, Any]]] | None = None
    descriptions: Mapping[str, str] | None = None
    conclusion: tuple[str, ...] = ()

    def facts_listing_queue_names(self) -> tuple[tuple[str, str], ...]:
        """Return a report line with the queue names, or () if the report has a table of queues or no queues.

        The report has a table of queues if a queue has a guarantee, a limit, a parent, or another weight than 1.
        """
        if not self.queues or any(_queue_tables(self.queues)):
            return ()
        names = ", ".join(queue.name for queue in self.queues)
        return (("Queues", f"{names}; none has a guarantee, a limit, a weight or a parent"),)

    def policy_and_queue_tables(self) -> tuple[Table, ...]:
        """Return the tables of the report that list the settings of the policies and of the queues."""
        return tuple(_policy_tables(self)) + tuple(_queue_tables(self.queues))


NO_SETTINGS: Final = ReportedRunInput()
"""The settings of a report about runs with unknown input."""


def reported_run_input_of_scenario(scenario: Scenario, command: str) -> ReportedRunInput:
    """Return what the report of a scenario states about its policies, cluster, load, queues and command.

    Raises:
      InvalidInput: A policy sets an unknown field of the profile.
    """
    return ReportedRunInput(
        command=command,
        facts=(
            *(("Load", f"{workload.name}: {describe_load(workload)}") for workload in scenario.workloads),
            *_cluster_facts(scenario),
        ),
        profiles={policy.name: policy_profile(scenario.profile, policy) for policy in scenario.policies},
        queues=scenario.queues,
        queue_changes={policy.name: policy.queues for policy in scenario.policies if policy.queues},
    )


def _cluster_facts(scenario: Scenario) -> list[tuple[str, str]]:
    """The nodes of the cluster, and the node failures, which also apply to workloads that have nodes of their own."""
    if _uses_cluster(scenario):
        return [("Cluster", describe_nodes(scenario.cluster))]
    failures = describe_failures(scenario.cluster)
    return [("Node failures", failures)] if failures else []


def _uses_cluster(scenario: Scenario) -> bool:
    """Return whether some workload of the scenario has no nodes of its own and so uses those of `cluster`."""
    return any(workload.generate or workload.philly for workload in scenario.workloads)


def describe_nodes(cluster: ClusterSpec) -> str:
    """Describe the simulated nodes in one line, such as: 8 nodes with 8 GPUs each."""
    text = f"{pluralize(cluster.nodes, 'node')} with {pluralize(cluster.gpus_per_node, 'GPU')} each"
    failures = describe_failures(cluster)
    return f"{text}; {failures}" if failures else text


def describe_failures(cluster: ClusterSpec) -> str:
    """State how often a simulated node fails, and when it is repaired; "" if nodes do not fail."""
    failures = cluster.failures
    if failures is None:
        return ""
    return (
        f"a node fails after {format_number(failures.hours_between)} h and is repaired after "
        f"{format_number(failures.hours_to_repair)} h, on average"
    )


def describe_load(workload: WorkloadSpec) -> str:
    """Describe in one line which gangs arrive in a workload, or from which file they are read."""
    if workload.generate is not None:
        made = workload.generate
        shares = ", ".join(f"{queue} {share:.0%}" for queue, share in made.shares.items())
        return (
            f"{pluralize(made.gangs, 'generated gang')} that request {format_number(made.load)} times "
            f"the GPU time of the cluster while they arrive; estimates exceed run times by {made.overestimate:.0%} "
            f"on average; shares of the gangs: {shares}"
        )
    if workload.swf is not None:
        return (
            f"the trace {workload.swf.trace.name} in the Standard Workload Format{_window(workload.swf.jobs)}"
        )
    if workload.philly is not None:
        return f"Microsoft's Philly trace, {workload.philly.trace.name}"
    if workload.manifests is not None:
        source = workload.manifests
        names = ", ".join(path.name for path in source.files)
        return f"the cluster of {names}; gangs without a run time run for {format_duration(source.runtime)}"
    if workload.session is not None:
        source_file = workload.session
        runtime = format_duration(source_file.runtime)
        return f"the recorded session {source_file.file.name}; gangs without a run time run for {runtime}"
    return "the cluster of the given files"


def _window(jobs: int | None) -> str:
    return "" if jobs is None else f", {pluralize(jobs, 'job')}"


def _policy_tables(settings: ReportedRunInput) -> Iterator[Table]:
    if not settings.profiles:
        return
    rows = []
    for name, profile in settings.profiles.items():
        changes = (settings.queue_changes or {}).get(name, {})
        parts = [*_profile_settings(profile), *_flat("queues", changes)]
        description = (settings.descriptions or {}).get(name) or _order_description(profile)
        rows.append(TableRow(name, (TableCell(description), TableCell(", ".join(parts) or "defaults"))))
    note = (
        "The first policy is the baseline. Settings are fields of the profile that differ from the defaults."
    )
    yield Table("Policies", "Policy", ("Order of gangs", "Settings"), tuple(rows), note, is_text=True)


def _order_description(profile: Profile) -> str:
    """Return the first sentence of the description of a profile's gang order."""
    if profile.selection == "weight":
        return "The solver maximises the total weight of the placed gangs; the order breaks ties only."
    chosen = find_gang_order_class(profile.policy.name)
    text = ((chosen.__doc__ if chosen is not None else "") or profile.policy.name).strip()
    return text.partition("\n")[0]


def _profile_settings(profile: Profile) -> list[str]:
    content = profile.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return [text for field, value in content.items() for text in _flat(field, value)]


def _flat(path: str, value: Any) -> list[str]:
    """Return the leaves of nested settings as texts such as `policy.name=fcfs`; a list is one leaf."""
    if isinstance(value, Mapping):
        return [text for key, inner in value.items() for text in _flat(f"{path}.{key}", inner)]
    return [f"{path}={_setting_text(value)}"]


def _setting_text(value: Any) -> str:
    """Return a setting as text; an item of a list that has only a name, such as a disabled plugin, is its name."""
    if isinstance(value, list):
        return f"[{', '.join(map(_setting_text, value))}]"
    if isinstance(value, Mapping) and list(value) == ["name"]:
        return str(value["name"])
    return value if isinstance(value, str) else json.dumps(value)


def _queue_tables(queues: Sequence[Queue]) -> Iterator[Table]:
    specs = [queue.spec.model_dump(mode="json", by_alias=True, exclude_none=True) for queue in queues]
    if not any(_states(spec, field) for spec in specs for field in _QUEUE_FIELDS):
        return
    fields = [
        field
        for field in _QUEUE_FIELDS
        if field == "guarantee" or any(_states(spec, field) for spec in specs)
    ]
    rows = tuple(
        TableRow(queue.name, tuple(TableCell(_amounts(spec.get(field))) for field in fields))
        for queue, spec in zip(queues, specs, strict=True)
    )
    columns = tuple(_QUEUE_FIELDS[field] for field in fields)
    note = "A queue is always entitled to its guarantee. It may borrow beyond that, up to its limit."
    yield Table("Queues", "Queue", columns, rows, note, is_text=True)


def _states(spec: Mapping[str, Any], field: str) -> bool:
    """Return whether the spec of a queue states a field, with another value than its default."""
    return spec.get(field) is not None and (field != "weight" or spec[field] != 1)


def _amounts(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {amount}" for name, amount in value.items()) or NO_VALUE
    return NO_VALUE if value is None else format_number(value) if isinstance(value, float) else str(value)
