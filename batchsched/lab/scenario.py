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
from batchsched.config.load import parse_document, read_text
from batchsched.errors import InvalidInput

Name = Annotated[str, Field(min_length=1, max_length=80)]
Count = Annotated[int, Field(ge=1)]
ALL_NAMES: Final = "*"


class Failures(StrictModel):
    """The mean time between two failures of a simulated node, and the mean time until the node is repaired.

    The actual times are drawn from the seed.
    """

    hours_between: float = Field(gt=0, description="Mean hours from a node's repair to its next failure.")
    hours_to_repair: float = Field(default=2.0, gt=0, description="Mean hours until it is back.")


class ClusterSpec(StrictModel):
    """The simulated cluster for traces and generated workloads, which state no nodes, unlike manifests and sessions."""

    nodes: Count = Field(default=64, description="Equal nodes.")
    gpus_per_node: Count = Field(default=8, description="Devices of each.")
    failures: Failures | None = Field(default=None, description="None: no node fails.")


class TraceWindow(StrictModel):
    """The part of a trace that is simulated: its first row, and its number of rows."""

    jobs: Count | None = Field(default=None, description="Rows in a run; None: all that follow the first.")
    start: int | None = Field(
        default=None,
        ge=0,
        description="The first row, from 0. None: drawn from the seed where `jobs` is stated, else 0.",
    )


class SwfSource(TraceWindow):
    """A workload from a trace in the Standard Workload Format."""

    trace: Path = Field(description="The file, possibly gzipped.")
    processors: Count | None = Field(
        default=None, description="One-slot nodes; None: what the header states."
    )


class PhillySource(TraceWindow):
    """A workload from Microsoft's Philly trace."""

    trace: Path = Field(description="CSV with timestamp, duration, num_gpus and cluster, possibly gzipped.")
    first: datetime | None = Field(default=None, description="Arrivals from this moment on, RFC 3339.")
    last: datetime | None = Field(default=None, description="Arrivals up to this moment.")
    teams: dict[str, tuple[str, ...]] = Field(
        default={},
        description='Queues, and the virtual clusters that submit to them; ["*"]: all that no other queue names. '
        "Jobs of the others are left out. {}: each virtual cluster is the queue vc-NAME.",
    )


class GeneratedSource(StrictModel):
    """A workload that is drawn from the seed and has the properties that published traces have in common."""

    gangs: Count = Field(default=1000, description="Gangs that arrive.")
    load: float = Field(default=0.9, gt=0, description="GPU time that arrives ÷ what the cluster has.")
    swing: float = Field(default=0.5, ge=0, lt=1, description="How much arrivals follow the day.")
    overestimate: float = Field(
        default=0.0, ge=0, description="Mean of what estimates exceed run times by, as a share of them."
    )
    shares: dict[str, Annotated[float, Field(gt=0)]] = Field(
        default={"team-0": 0.48, "team-1": 0.24, "team-2": 0.16, "team-3": 0.12},
        min_length=1,
        description="Queues, and their shares of the gangs.",
    )


class ManifestSource(StrictModel):
    """The settings of a workload that is read from manifests: the nodes, pods and queues of a cluster.

    Its gangs run until all of them have finished.
    """

    files: tuple[Path, ...] = Field(
        min_length=1, description="Files and directories of manifests; or a dump."
    )
    now: float = Field(default=0.0, ge=0, description="When the clock begins, seconds since 1970.")
    runtime: int = Field(default=3600, ge=0, description="Seconds that gangs run which do not say.")


class RecordedSessionSource(StrictModel):
    """The settings of a workload that is read from a recorded session: the cluster at the time of the session."""

    file: Path = Field(description="A file that `batchsched record` or `run` wrote.")
    runtime: int = Field(default=3600, ge=0, description="Seconds that gangs run which do not say.")


class WorkloadSpec(StrictModel):
    """A workload of a scenario, with exactly one source such as a trace or a generator."""

    name: Name = Field(description="How results call it.")
    swf: SwfSource | None = Field(default=None, description="A trace in the Standard Workload Format.")
    philly: PhillySource | None = Field(default=None, description="Microsoft's Philly trace.")
    generate: GeneratedSource | None = Field(default=None, description="Gangs drawn from the seed.")
    manifests: ManifestSource | None = Field(default=None, description="A cluster of manifests.")
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


class PolicyCase(StrictModel):
    """One policy of a scenario: the profile fields and the queue fields that this policy changes."""

    name: Name = Field(description="How results call it.")
    profile: dict[str, Any] = Field(
        default={}, description="Fields of a profile; they take the place of the scenario's, field by field."
    )
    queues: dict[str, dict[str, Any]] = Field(
        default={},
        description='Fields of queues\' specs, by queue; "*" stands for every queue, and comes first.',
    )


class TuningObjective(StrictModel):
    """The measure that `lab tune` minimises or maximises. Exactly one of the two fields is set."""

    minimise: str | None = Field(default=None, description="Such as meanSlowdown.")
    maximise: str | None = Field(default=None, description="Such as utilisation.")

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.minimise is None) == (self.maximise is None):
            raise ValueError("expected either minimise or maximise, with the name of a measure")
        return self

    @property
    def measure_name(self) -> str:
        """The name of the measure that is minimised or maximised."""
        return self.minimise or self.maximise or ""


class TuningParameter(StrictModel):
    """The values that a tuned parameter may take: a range or a list."""

    low: float | None = Field(default=None, description="The least value.")
    high: float | None = Field(default=None, description="The greatest one.")
    log: bool = Field(default=False, description="Search by orders of magnitude.")
    whole: bool = Field(default=False, description="Whole numbers only.")
    choices: tuple[str | float | bool, ...] = Field(default=(), description="A list, in place of a range.")

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
    """The settings of `lab tune`: a policy, its parameters and the objective."""

    policy: str = Field(description="Which of the policies is tuned, by name.")
    objective: TuningObjective = Field(description="What is searched for: the mean over workloads and seeds.")
    parameters: dict[str, TuningParameter] = Field(
        min_length=1,
        description="By path inside the policy, such as profile.policy.args.share or queues.a.weight.",
    )
    trials: Count = Field(default=30, description="How many settings are tried.")
    at_once: Count = Field(
        default=1,
        description="Settings that are proposed before the outcome of the last is known: more keep more processes "
        "busy, and learn less from each other.",
    )
    held_out: int | tuple[int, ...] = Field(
        default=5,
        description="Seeds that the search does not see, on which the best is checked; a number: that many, "
        "beyond the scenario's own.",
    )


class Scenario(StrictModel):
    """A scenario of the lab: every workload runs under every policy with every seed."""

    api_version: Literal["config.batchsched.dev/v1alpha1"] = "config.batchsched.dev/v1alpha1"
    kind: Literal["Scenario"] = "Scenario"
    name: Name = Field(description="How reports call it.")
    cluster: ClusterSpec = Field(default=ClusterSpec(), description="The cluster, where a workload has none.")
    queues: tuple[Queue, ...] = Field(
        default=(), description="Queue manifests; they take the place of a workload's of the same name."
    )
    workloads: tuple[WorkloadSpec, ...] = Field(min_length=1, description="What arrives.")
    profile: dict[str, Any] = Field(default={}, description="Fields of the profile of every policy.")
    policies: tuple[PolicyCase, ...] = Field(
        min_length=1, description="What is tried; the first is the base."
    )
    seeds: tuple[int, ...] = Field(
        default=(0, 1, 2, 3, 4),
        min_length=1,
        description="Of everything that is drawn; a number: 0 to n - 1.",
    )
    session_interval: int = Field(
        default=0, ge=0, description="Least seconds between two sessions; 0: one whenever something happened."
    )
    resource: str | None = Field(
        default=None,
        description="What fairness is measured in; None: the GPUs that are asked for most, or cpu where none is.",
    )
    tune: Tuning | None = Field(default=None, description="What `lab tune` searches.")

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
            names = [one.name for one in getattr(self, field)]
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise ValueError(f"{field}: two of them are named {twice!r}; each needs a name of its own")
        if len(set(self.seeds)) != len(self.seeds) or min(self.seeds) < 0:
            raise ValueError("seeds: expected different numbers from 0 on")
        if self.tune is not None and self.tune.policy not in {one.name for one in self.policies}:
            raise ValueError(f"tune.policy: there is no policy {self.tune.policy!r}")
        return self


def load_scenario(path: Path, changes: Sequence[tuple[str, Any]] = ()) -> Scenario:
    """Read a scenario from a file. The paths of its workloads become absolute.

    Args:
      path: YAML or JSON.
      changes: (dotted path, value) pairs that replace values of the file.

    Raises:
      InvalidInput: the file cannot be used, with the field and what to change.
    """
    content: Any = parse_document(read_text(path), str(path))
    if not isinstance(content, dict):
        raise InvalidInput("expected a mapping with workloads and policies", file=str(path))
    for place, value in changes:
        content = with_value_at(content, place, value)
    try:
        scenario = Scenario.model_validate(content)
    except ValidationError as error:
        first, *further = field_errors(error, Scenario)
        more = "".join(f"\n{path}: {complaint.field}: {complaint.message}" for complaint in further)
        raise InvalidInput(first.message + more, file=str(path), field=first.field) from error
    return scenario.model_copy(
        update={"workloads": tuple(_located(one, path.parent) for one in scenario.workloads)}
    )


def queue_names(scenario: Scenario) -> frozenset[str] | None:
    """Return the names of all queues of a scenario; None if a workload has queues that the scenario does not name."""
    named = [_queues_of_workload(workload) for workload in scenario.workloads]
    if not all(named):
        return None
    return frozenset(
        {queue.name for queue in scenario.queues}.union(*(names for part in named for names in part.values()))
    )


def unknown_queue_warnings(scenario: Scenario) -> tuple[str, ...]:
    """Return a warning for each queue that a workload or a policy names and that the scenario does not declare.

    A scenario without queues declares none on purpose. Other sources of workloads bring queues of their own.
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
    """Return the queues that the settings of a workload name, by the field that names them."""
    if workload.generate is not None:
        return {"generate.shares": tuple(workload.generate.shares)}
    if workload.philly is not None and workload.philly.teams:
        return {"philly.teams": tuple(workload.philly.teams)}
    return {}


def with_value_at(content: Any, place: str, value: Any) -> Any:
    """Return a copy of nested mappings and lists in which the value at a dotted path is replaced.

    A list item is given by its name or index.

    Raises:
      InvalidInput: the path leads nowhere.
    """
    head, _, rest = place.partition(".")
    if isinstance(content, list):
        index = next((number for number, part in enumerate(content) if _is_named(part, head)), None)
        if index is None and head.isdigit() and int(head) < len(content):
            index = int(head)
        if index is None:
            raise InvalidInput(f"there is no part {head!r}", field=place)
        inner = with_value_at(content[index], rest, value) if rest else value
        return [*content[:index], inner, *content[index + 1 :]]
    if content is None:
        content = {}
    if not isinstance(content, Mapping) or not head:
        raise InvalidInput("the path leads through a value that has no parts", field=place)
    return {**content, head: with_value_at(content.get(head), rest, value) if rest else value}


def value_at(content: Any, place: str) -> Any:
    """Return the value at a dotted path in nested mappings, or None if there is none."""
    for name in place.split("."):
        content = content.get(name) if isinstance(content, Mapping) else None
    return content


def _is_named(part: Any, name: str) -> bool:
    if not isinstance(part, Mapping):
        return False
    return bool(part.get("name", (part.get("metadata") or {}).get("name")) == name)


def _located(workload: WorkloadSpec, folder: Path) -> WorkloadSpec:
    def located(path: Path) -> Path:
        whole = (folder / path).resolve()
        if not whole.exists():
            raise InvalidInput(f"there is no file {str(whole)!r}", object=f"workload {workload.name}")
        return whole

    for kind, field in (("swf", "trace"), ("philly", "trace"), ("session", "file"), ("manifests", "files")):
        source = getattr(workload, kind)
        if source is None:
            continue
        paths = getattr(source, field)
        absolute = tuple(map(located, paths)) if isinstance(paths, tuple) else located(paths)
        return workload.model_copy(update={kind: source.model_copy(update={field: absolute})})
    return workload
