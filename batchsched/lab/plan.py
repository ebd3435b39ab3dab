"""The runs of a scenario, each with a key that identifies its result.

The key is a digest of all input of a run: the workload with the content of its files, the cluster, the queues, the
profile, the seed, and the version of batchsched. Names of policies and workloads are not part of the key, so a
renamed policy need not run again.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from batchsched import __version__
from batchsched.api.crd.queue import Queue, QueueSpec
from batchsched.api.crd.validation import field_errors, suggest_name
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.errors import InvalidInput
from batchsched.lab.scenario import ALL_NAMES, ClusterSpec, Scenario, ScenarioPolicy, WorkloadSpec
from batchsched.session.session import Session
from batchsched.simulator.workload import Workload

FORMAT: Final = 2
"""Version of the result format; a change invalidates all results."""
_KEY_DIGITS: Final = 24


@dataclass(frozen=True)
class PlannedRun:
    """A planned run: one workload under one policy with one seed.

    Args:
      workload: The workload, with absolute paths.
      policy: The name of the policy.
      cluster: The cluster, for workloads without one.
      queues: Queues in addition to those of the workload; they replace queues of the same name.
      changes: Changed fields of Queue specs, by queue.
      profile: The profile to schedule with.
      seed: The seed of all random draws.
      interval: Minimum seconds between two sessions.
      resource: The resource of the fairness measure; None selects the most requested one.
      digests: The digests of the workload's files, by path.
      prepared: The workload itself, if its source can be read only once, such as standard input. It is not part of
        the key.
    """

    workload: WorkloadSpec
    policy: str
    cluster: ClusterSpec
    profile: Profile
    seed: int
    interval: int = 0
    queues: tuple[Queue, ...] = ()
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    resource: str | None = None
    digests: Mapping[str, str] = field(default_factory=dict)
    prepared: Workload | None = None

    @cached_property
    def result_key(self) -> str:
        """The key of the run's result file: a digest of all input of the run."""
        inputs = {
            "format": FORMAT,
            "batchsched": __version__,
            "workload": self.workload.model_dump(mode="json", exclude={"name"}),
            "cluster": self.cluster.model_dump(mode="json"),
            "queues": [queue.model_dump(mode="json", exclude_unset=True) for queue in self.queues],
            "changes": self.changes,
            "profile": self.profile.model_dump(mode="json"),
            "seed": self.seed,
            "interval": self.interval,
            "resource": self.resource,
        }
        text = json.dumps(inputs, sort_keys=True)
        for path, digest in self.digests.items():
            text = text.replace(json.dumps(path), json.dumps(digest))
        return hashlib.sha256(text.encode()).hexdigest()[:_KEY_DIGITS]

    def queues_with_policy_changes(self, queues: Sequence[Queue]) -> tuple[Queue, ...]:
        """Return all queues of the simulated cluster, with the field values that the run's policy sets.

        These are the queues of the workload (`queues`) and of the run. A queue of the run replaces a queue of the
        workload that has the same name.

        Raises:
          InvalidInput: A changed queue or field does not exist.
        """
        queues_by_name = {queue.name: queue for queue in (*queues, *self.queues)}
        unknown = [name for name in self.changes if name != ALL_NAMES and name not in queues_by_name]
        if unknown:
            raise InvalidInput(
                f"there is no queue {unknown[0]!r}; {suggest_name(unknown[0], list(queues_by_name))}",
                object=f"policy {self.policy}",
            )
        return tuple(self._changed(queue) for queue in queues_by_name.values())

    def _changed(self, queue: Queue) -> Queue:
        fields = {**self.changes.get(ALL_NAMES, {}), **self.changes.get(queue.name, {})}
        if not fields:
            return queue
        spec_fields = queue.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
        try:
            spec = QueueSpec.model_validate({**spec_fields, **fields})
        except ValidationError as error:
            first = field_errors(error, QueueSpec)[0]
            raise InvalidInput(
                first.message, object=f"policy {self.policy}: queue {queue.name}", field=first.field
            ) from error
        return queue.model_copy(update={"spec": spec})


def plan_runs(scenario: Scenario) -> tuple[PlannedRun, ...]:
    """Return the runs of a scenario: every workload under every policy with every seed.

    They are ordered by workload, policy and seed.

    Raises:
      InvalidInput: A policy sets an unknown field of the profile, or a file cannot be read.
    """
    return tuple(plan_runs_of_policies(scenario, scenario.policies, scenario.seeds))


def plan_runs_of_policies(
    scenario: Scenario, policies: Sequence[ScenarioPolicy], seeds: Sequence[int]
) -> Iterator[PlannedRun]:
    """Yield a run for each workload of a scenario with each of the given policies and seeds.

    Raises:
      InvalidInput: As for `plan_runs`.
    """
    profiles = [policy_profile(scenario.profile, policy) for policy in policies]
    for workload in scenario.workloads:
        digests = {str(path): _digest(path) for path in _files(workload)}
        for policy, profile in zip(policies, profiles, strict=True):
            for seed in seeds:
                yield PlannedRun(
                    workload=workload,
                    policy=policy.name,
                    cluster=scenario.cluster,
                    profile=profile,
                    seed=seed,
                    interval=scenario.session_interval,
                    queues=scenario.queues,
                    changes=policy.queues,
                    resource=scenario.resource,
                    digests=digests,
                )


def policy_profile(base: Mapping[str, Any], policy: ScenarioPolicy) -> Profile:
    """Return the profile that a policy of a scenario uses: the base profile with the fields that the policy sets.

    Raises:
      InvalidInput: The policy sets an unknown field, or names an unknown plugin or policy.
    """
    try:
        profile = Profile.model_validate({**base, **policy.profile})
        Session(Snapshot(), profile)  # the first run would be late for what can be said now
    except InvalidInput as error:
        field = error.field.removeprefix("profiles[].")
        # The order of gangs names its arguments from its own point of view.
        field = f"policy.{field}" if field.split(".")[0] == "args" else field
        raise InvalidInput(error.message, object=f"policy {policy.name}", field=f"profile.{field}") from error
    except ValidationError as error:
        first = field_errors(error, Profile)[0]
        raise InvalidInput(
            first.message, object=f"policy {policy.name}", field=f"profile.{first.field}"
        ) from error
    return profile


def _files(workload: WorkloadSpec) -> tuple[Path, ...]:
    if workload.manifests is not None:
        return workload.manifests.files
    if workload.session is not None:
        return (workload.session.file,)
    trace = workload.swf or workload.philly
    return (trace.trace,) if trace is not None else ()


def _digest(path: Path) -> str:
    """Return the digest of a file, or of all files below a folder."""
    digest = hashlib.sha256()
    try:
        for file in sorted(filter(Path.is_file, path.rglob("*"))) if path.is_dir() else [path]:
            digest.update(file.relative_to(path).as_posix().encode() + b"\0" + file.read_bytes())
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror}", file=str(path)) from error
    return f"sha256:{digest.hexdigest()}"
