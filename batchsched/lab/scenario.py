"""The schema of a scenario: a cluster, workloads, policies and seeds.

Every workload runs under every policy with every seed. Paths are relative to the scenario file.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from batchsched.api.crd.base import StrictModel
from batchsched.api.crd.queue import Queue
from batchsched.api.crd.validation import field_errors, suggest_name
from batchsched.config.load import parse_yaml, read_text
from batchsched.errors import InvalidInput

Name = Annotated[str, Field(min_length=1, max_length=80)]
Count = Annotated[int, Field(ge=1)]
ALL_NAMES: Final = "*"
SCENARIO_KIND: Final = "Scenario"


class NodeFailureSettings(StrictModel):
    """The mean time between two failures of a simulated node, and the mean time until the node is repaired.

    The seed determines the actual times.
    """

    hours_between: float = Field(gt=0, description="Mean hours from a node's repair to its next failure.")
    hours_to_repair: float = Field(default=2.0, gt=0, description="Mean hours until the node is repaired.")


class ClusterSpec(StrictModel):
    """The simulated nodes and GPUs for generated workloads and the Philly trace, which contain no nodes.

    Failures of nodes are simulated in all workloads.
    """

    nodes: Count = Field(default=64, description="Number of nodes, all of the same size.")
    gpus_per_node: Count = Field(default=8, description="GPUs of each node.")
    failures: NodeFailureSettings | None = Field(
        default=None, description="Failures of nodes; default: none."
    )


class TraceWindow(StrictModel):
    """The part of a trace that is simulated: its first row, and its number of rows."""

    jobs: Count | None = Field(
        default=None, description="Number of rows in a run; default: all rows from the first one on."
    )
    start: int | None = Field(
        default=None,
        ge=0,
        description="The first row, from 0. Default: a row that the seed determines if `jobs` is set, otherwise 0.",
    )


class SwfSource(TraceWindow):
    """The settings of a workload that is read from a trace in the Standard Workload Format."""

    trace: Path = Field(description="The trace file, optionally gzipped.")
    processors: Count | None = Field(
        default=None,
        description="Number of nodes with one processor each; default: the number in the header of the trace.",
    )


class PhillySource(TraceWindow):
    """The settings of a workload that is read from Microsoft's Philly trace."""

    trace: Path = Field(
        description="CSV with the columns timestamp, duration, num_gpus and cluster, optionally gzipped."
    )
    first: datetime | None = Field(
        default=None, description="Time of the first arrival, RFC 3339; default: the start of the trace."
    )
    last: datetime | None = Field(
        default=None, description="Time of the last arrival, RFC 3339; default: the end of the trace."
    )
    teams: dict[str, tuple[str, ...]] = Field(
        default={},
        description='The virtual clusters that submit to each queue; ["*"]: all clusters that no other queue names. '
        "Jobs of other clusters are left out. Default: each virtual cluster submits to the queue vc-NAME.",
    )


class GeneratedSource(StrictModel):
    """The settings of a workload that is generated from the seed and resembles published traces."""

    gangs: Count = Field(default=1000, description="Number of gangs.")
    load: float = Field(
        default=0.9,
        gt=0,
        allow_inf_nan=False,
        description="Requested GPU time ÷ available GPU time, while gangs arrive.",
    )
    swing: float = Field(
        default=0.5, ge=0, lt=1, description="Strength of the daily variation of arrivals; 0: none."
    )
    overestimate: float = Field(
        default=0.0,
        ge=0,
        allow_inf_nan=False,
        description="Mean excess of estimates over run times, as a fraction of the run time.",
    )
    shares: dict[str, Annotated[float, Field(gt=0)]] = Field(
        default={"team-0": 0.48, "team-1": 0.24, "team-2": 0.16, "team-3": 0.12},
        min_length=1,
        description="The share of each queue in the gangs.",
    )


class ManifestSource(StrictModel):
    """The settings of a workload that the lab reads from manifests of a cluster's nodes, pods and queues.

    The gangs of the workload run until all of them have finished.
    """

    files: tuple[Path, ...] = Field(
        min_length=1, description="Files and directories of manifests; or a dump."
    )
    now: float | None = Field(
        default=None,
        ge=0,
        description="Start of the simulated time, in seconds since 1970. Default: the time of the dump, or 0 for other "
        "manifests; if pods of these run already, the field is required.",
    )
    runtime: int = Field(
        default=3600, ge=0, description="Run time in seconds of gangs without expectedRuntimeSeconds."
    )


class RecordedSessionSource(StrictModel):
    """The settings of a workload that the lab reads from a recorded session with the state of a cluster."""

    file: Path = Field(description="A file that `batchsched record` or `batchsched run` wrote.")
    runtime: int = Field(
        default=3600, ge=0, description="Run time in seconds of gangs without expectedRuntimeSeconds."
    )


class WorkloadSpec(StrictModel):
    """A workload of a scenario, with exactly one source such as a trace or a generator."""

    name: Name = Field(description="The name of the workload in results.")
    swf: SwfSource | None = Field(default=None, description="A trace in the Standard Workload Format.")
    philly: PhillySource | None = Field(default=None, description="Microsoft's Philly trace.")
    generate: GeneratedSource | None = Field(default=None, description="Gangs that the seed determines.")
    manifests: ManifestSource | None = Field(
        default=None, description="A cluster that is read from manifests."
    )
    session: RecordedSessionSource | None = Field(
        default=None, description="The cluster of a recorded session."
    )

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        sources = [name for name in SOURCES if getattr(self, name) is not None]
        if len(sources) != 1:
            raise ValueError(f"expected exactly one of {', '.join(SOURCES)}; found {len(sources)}")
        return self


SOURCES = ("swf", "philly", "generate", "manifests", "session")


class ScenarioPolicy(StrictModel):
    """One policy of a scenario: the profile fields and the queue fields that this policy changes."""

    name: Name = Field(description="The name of the policy in results.")
    profile: dict[str, Any] = Field(
        default={},
        description="Fields of the profile. Each replaces the same field of the scenario's profile.",
    )
    queues: dict[str, dict[str, Any]] = Field(
        default={},
        description='Fields of the specs of queues, by queue; "*": all queues. Fields of a named queue override these.',
    )


class TuningObjective(StrictModel):
    """The measure that `lab tune` optimizes; a scenario names it in the field `minimise` or `maximise`."""

    minimise: str | None = Field(default=None, description="The measure to minimise, such as meanSlowdown.")
    maximise: str | None = Field(default=None, description="The measure to maximise, such as utilisation.")

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.minimise is None) == (self.maximise is None):
            raise ValueError("expected either minimise or maximise, with the name of a measure")
        return self

    @property
    def measure_name(self) -> str:
        """The name of the measure that `lab tune` minimizes or maximizes."""
        return self.minimise or self.maximise or ""


class TuningParameter(StrictModel):
    """The values that `lab tune` may try for one parameter: a range or a list."""

    low: float | None = Field(default=None, description="The smallest value.")
    high: float | None = Field(default=None, description="The largest value.")
    log: bool = Field(default=False, description="Search on a logarithmic scale.")
    whole: bool = Field(default=False, description="Whole numbers only.")
    choices: tuple[str | float | bool, ...] = Field(
        default=(), description="A list of values, instead of a range."
    )

    @model_validator(mode="after")
    def _is_range_or_list(self) -> Self:
        ranged = self.low is not None and self.high is not None
        if ranged == bool(self.choices):
            raise ValueError("expected low and high, or choices")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise ValueError("expected low below high")
        if self.log and not (self.low or 0) > 0:
            raise ValueError("log: expected low above 0")
        return self


class Tuning(StrictModel):
    """The settings of `lab tune`: a policy, its parameters to search, and the objective of the search."""

    policy: str = Field(description="The name of the policy whose parameters are searched.")
    objective: TuningObjective = Field(
        description="The measure to optimise, as a mean over workloads and seeds."
    )
    parameters: dict[str, TuningParameter] = Field(
        min_length=1,
        description="Parameters, by their path in the policy, such as profile.policy.args.share or queues.a.weight.",
    )
    trials: Count = Field(default=30, description="Number of settings that the search tries.")
    at_once: Count = Field(
        default=1,
        description="Number of settings that are tried in parallel. A larger number uses more processes, and each "
        "setting can take fewer earlier results into account.",
    )
    held_out: int | tuple[int, ...] = Field(
        default=5,
        description="Seeds that the search does not use, on which the best setting is checked; a number: that many "
        "seeds after those of the scenario.",
    )

    @field_validator("held_out")
    @classmethod
    def _has_seeds(cls, held_out: int | tuple[int, ...]) -> int | tuple[int, ...]:
        if isinstance(held_out, int) and held_out < 1:
            raise ValueError(f"expected 1 or more seeds, found {held_out}")
        if isinstance(held_out, tuple) and min(held_out, default=-1) < 0:
            raise ValueError("expected at least one seed, from 0 on")
        return held_out


class Scenario(StrictModel):
    """A scenario of the lab: every workload runs under every policy with every seed."""

    api_version: Literal["config.batchsched.dev/v1alpha1"] = "config.batchsched.dev/v1alpha1"
    kind: Literal["Scenario"] = "Scenario"
    name: Name = Field(description="The name of the scenario in reports.")
    cluster: ClusterSpec = Field(
        default=ClusterSpec(), description="The cluster, for workloads that have none."
    )
    queues: tuple[Queue, ...] = Field(
        default=(), description="Queue manifests. They replace queues of the same name in a workload."
    )
    workloads: tuple[WorkloadSpec, ...] = Field(min_length=1, description="The workloads.")
    profile: dict[str, Any] = Field(default={}, description="Fields of the profile that all policies share.")
    policies: tuple[ScenarioPolicy, ...] = Field(
        min_length=1, description="The policies to compare; the first one is the baseline."
    )
    seeds: tuple[int, ...] = Field(
        default=(0, 1, 2, 3, 4),
        min_length=1,
        description="Seeds of generated workloads, windows and failures; a number n: the seeds 0 to n - 1.",
    )
    session_interval: int = Field(
        default=0, ge=0, description="Minimum seconds between two sessions; 0: a session after every change."
    )
    resource: str | None = Field(
        default=None,
        description="The resource in which fairness is measured; default: the most requested GPU resource, or cpu "
        "if no gang requests GPUs.",
    )
    tune: Tuning | None = Field(default=None, description="The search that `lab tune` makes.")

    @field_validator("seeds", mode="before")
    @classmethod
    def _counted(cls, seeds: Any) -> Any:
        if not isinstance(seeds, int) or isinstance(seeds, bool):
            return seeds
        if seeds < 1:
            raise ValueError(f"expected a number of seeds from 1 on, or a list of seeds; found {seeds}")
        return list(range(seeds))

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        for field in ("workloads", "policies", "queues"):
            names = [item.name for item in getattr(self, field)]
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise ValueError(f"{field}: two of them are named {twice!r}; each needs a name of its own")
        if len(set(self.seeds)) != len(self.seeds) or min(self.seeds) < 0:
            raise ValueError("seeds: expected different numbers from 0 on")
        if self.tune is not None and self.tune.policy not in {policy.name for policy in self.policies}:
            names = [policy.name for policy in self.policies]
            raise ValueError(
                f"tune.policy: there is no policy {self.tune.policy!r}; {suggest_name(self.tune.policy, names)}"
            )
        return self


def load_scenario(path: Path, changes: Sequence[tuple[str, Any]] = ()) -> Scenario:
    """Read a scenario from a file. The paths of its workloads become absolute.

    Args:
      path: YAML or JSON.
      changes: (dotted path, value) pairs that replace values of the file.

    Raises:
      InvalidInput: the file cannot be used, with the field and what to change.
    """
    content: Any = parse_yaml(read_text(path), str(path), SCENARIO_KIND)
    if not isinstance(content, dict):
        emptiness = "is empty; " if content is None else ""
        raise InvalidInput(f"{emptiness}expected a mapping with workloads and policies", file=str(path))
    kind = content.get("kind", SCENARIO_KIND)
    if kind != SCENARIO_KIND:
        raise InvalidInput(f"expected {SCENARIO_KIND}, found {str(kind)!r}", file=str(path), field="kind")
    for place, value in changes:
        try:
            content = with_value_at_path(content, place, value)
        except InvalidInput as error:
            raise InvalidInput(error.message, file=str(path), object="--set", field=place) from error
    try:
        scenario = Scenario.model_validate(content)
    except ValidationError as error:
        first, *further = field_errors(error, Scenario)
        more = "".join(f"\n{path}: {complaint}" for complaint in further)
        raise InvalidInput(first.message + more, file=str(path), field=first.field) from error
    return scenario.model_copy(
        update={"workloads": tuple(_located(workload, path) for workload in scenario.workloads)}
    )


def queue_names(scenario: Scenario) -> frozenset[str] | None:
    """Return the names of all queues in a scenario, or None if a workload must be read to know its queues.

    Only generated workloads, and Philly traces with `teams`, state their queues in the scenario.
    """
    named = [_queues_of_workload(workload) for workload in scenario.workloads]
    if not all(named):
        return None
    return frozenset(
        {queue.name for queue in scenario.queues}.union(*(names for part in named for names in part.values()))
    )


def unknown_queue_warnings(scenario: Scenario) -> tuple[str, ...]:
    """Return a warning for each queue that a workload or policy names but the scenario does not declare.

    A scenario without any queues declares none on purpose. Workloads from manifests bring queues of their own.
    """
    declared = {queue.name for queue in scenario.queues}
    if not declared:
        return ()
    named = {
        f"workloads.{workload.name}.{field}": names
        for workload in scenario.workloads
        for field, names in _queues_of_workload(workload).items()
    }
    warnings = [
        f"{place}: queue {name!r} is not declared in queues, so it has no guarantee, limit or parent; "
        f"{suggest_name(name, sorted(declared))}"
        for place, names in named.items()
        for name in names
        if name not in declared
    ]
    known_queues = queue_names(scenario)
    if known_queues is not None:
        warnings += [
            f"policies.{policy.name}.queues: no queue is named {name!r}; {suggest_name(name, sorted(known_queues))}"
            for policy in scenario.policies
            for name in policy.queues
            if name != ALL_NAMES and name not in known_queues
        ]
    return tuple(warnings)


def _queues_of_workload(workload: WorkloadSpec) -> dict[str, tuple[str, ...]]:
    """Return the names of the queues in the settings of a workload, by the field that contains them."""
    if workload.generate is not None:
        return {"generate.shares": tuple(workload.generate.shares)}
    if workload.philly is not None and workload.philly.teams:
        return {"philly.teams": tuple(workload.philly.teams)}
    return {}


def with_value_at_path(content: Any, place: str, value: Any) -> Any:
    """Return a copy of nested mappings and lists in which the value at a dotted path is replaced.

    A list item is given by its name or index.

    Raises:
      InvalidInput: the path does not exist in the content.
    """
    head, _, rest = place.partition(".")
    if isinstance(content, list):
        index = next((number for number, part in enumerate(content) if _name_of(part) == head), None)
        if index is None and head.isdigit() and int(head) < len(content):
            index = int(head)
        if index is None:
            names = [str(name) for name in map(_name_of, content) if name is not None]
            raise InvalidInput(f"there is no part {head!r}; {suggest_name(head, names)}", field=place)
        inner = with_value_at_path(content[index], rest, value) if rest else value
        return [*content[:index], inner, *content[index + 1 :]]
    if content is None:
        content = {}
    if not isinstance(content, Mapping) or not head:
        raise InvalidInput(f"expected the path of a field, but {str(content)!r} has no fields", field=place)
    return {**content, head: with_value_at_path(content.get(head), rest, value) if rest else value}


def policy_with_settings(
    policy: ScenarioPolicy, settings: Mapping[str, str | float | bool]
) -> ScenarioPolicy:
    """Return a copy of a policy with new values at some dotted paths, such as `profile.solver.guardSeconds`.

    Raises:
      InvalidInput: A path does not exist.
    """
    content: Any = policy.model_dump(mode="json", by_alias=True)
    for place, value in settings.items():
        if place.partition(".")[0] not in ("profile", "queues"):
            raise InvalidInput(f"expected profile.… or queues.…, found {place!r}", field="tune.parameters")
        content = with_value_at_path(content, place, value)
    return ScenarioPolicy.model_validate(content)


def value_at_path(content: Any, place: str) -> Any:
    """Return the value at a dotted path in nested mappings, or None if the path does not exist."""
    for name in place.split("."):
        content = content.get(name) if isinstance(content, Mapping) else None
    return content


def _name_of(item: Any) -> Any:
    """Return the name of a list item, which is its field name or metadata.name; None if it has none."""
    if not isinstance(item, Mapping):
        return None
    return item.get("name", (item.get("metadata") or {}).get("name"))


def _located(workload: WorkloadSpec, scenario: Path) -> WorkloadSpec:
    """Return a workload with absolute paths of its files.

    Raises:
      InvalidInput: A file does not exist.
    """
    for source_name, field in _FILE_FIELDS:
        source = getattr(workload, source_name)
        if source is None:
            continue
        paths = getattr(source, field)
        place = f"{source_name}.{field}"
        if isinstance(paths, tuple):
            located: Any = tuple(
                _existing_path(path, scenario, workload.name, f"{place}.{index}")
                for index, path in enumerate(paths)
            )
        else:
            located = _existing_path(paths, scenario, workload.name, place)
        return workload.model_copy(update={source_name: source.model_copy(update={field: located})})
    return workload


_FILE_FIELDS: Final = (("swf", "trace"), ("philly", "trace"), ("session", "file"), ("manifests", "files"))
"""The fields of workloads that name files, each with its source."""


def _existing_path(path: Path, scenario: Path, workload: str, place: str) -> Path:
    """Return the absolute path of a file that a workload names relative to the scenario.

    Raises:
      InvalidInput: The file does not exist.
    """
    whole = (scenario.parent / path).resolve()
    if not whole.exists():
        raise InvalidInput(
            f"there is no file {str(whole)!r}; correct the path, which is relative to the scenario, or set it with "
            f"--set workloads.{workload}.{place}=FILE",
            file=str(scenario),
            object=f"workload {workload}",
            field=place,
        )
    return whole
