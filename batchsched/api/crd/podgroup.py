"""PodGroup: the gang, as its user states it."""

from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from batchsched.api.core.metadata import seconds
from batchsched.api.crd.base import (
    LARGEST_INT32,
    LONGEST_LABEL,
    LONGEST_NAME,
    Conditions,
    CustomMeta,
    Resources,
    SpecPart,
    rule,
    rules,
)

DEFAULT_QUEUE = "default"
SCHEDULE_TIMEOUT = 600
"""Seconds that a held gang may keep its place, where the PodGroup does not say."""
MOST_SUBGROUPS = 1000

Phase = Literal["Pending", "Held", "Scheduled", "Running", "Succeeded", "Failed"]
Name = Annotated[str, Field(max_length=LONGEST_NAME)]
Seconds = Annotated[int, Field(ge=0, le=LARGEST_INT32, strict=True)]


def _without_default(schema: dict[str, Any]) -> None:
    """Leave out a default that depends on other fields: nobody is to fill it in."""
    del schema["default"]


class TopologyRequest(SpecPart):
    """Levels of a Topology that a gang must, or would like to, stay inside of."""

    name: Name = "default"
    """The Topology."""
    required: Name | None = None
    """All pods in one domain of this level, elastic ones too."""
    preferred: Name | None = None
    """All pods in as few domains of this level as can be."""


class SubGroupTopology(SpecPart):
    """As the gang's own topology; the name is inherited from it where it is not stated."""

    name: Name | None = None
    """The Topology; the gang's where it is not stated."""
    required: Name | None = None
    """All pods of the subgroup in one domain of this level."""
    preferred: Name | None = None
    """All pods of the subgroup in as few domains of this level as can be."""


class SubGroup(SpecPart):
    """A part of a gang with a minimum and a topology of its own."""

    name: str = Field(min_length=1, max_length=LONGEST_LABEL)
    """What its pods carry in the label `scheduling.batchsched.dev/sub-group`."""
    min_member: int = Field(default=1, ge=0, le=LARGEST_INT32, strict=True)
    """How many of its pods must run for any of the gang to run."""
    topology: SubGroupTopology | None = None
    """Where its pods are to be; the gang's level binds them too."""


class PodGroupSpec(SpecPart):
    """What a gang needs."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!has(self.minMember) || !has(self.subGroups)"
                " || self.subGroups.map(s, s.minMember).sum() <= self.minMember",
                "minMember is less than the subGroups' sum; raise minMember to the sum or more, or leave it out",
                ".minMember",
            )
        )
    )

    min_member: int = Field(
        default=1, ge=1, le=LARGEST_INT32, strict=True, json_schema_extra=_without_default
    )
    """How many pods must run for any to run. With `subGroups` at least their sum, which is then the default; the
    excess may be any member."""
    queue: str = Field(default=DEFAULT_QUEUE, min_length=1, max_length=LONGEST_NAME)
    """The Queue it waits in. It does not change while pods of the gang have a place."""
    priority_class_name: Name = ""
    """Where it is not stated, the pods' own priority holds."""
    preemption_policy: Literal["PreemptLowerPriority", "Never"] = "PreemptLowerPriority"
    """`Never`: it does not preempt others."""
    preemptible: bool = Field(default=True, strict=True)
    """`false`: never a victim."""
    stranded_policy: Literal["Complete", "Rollback"] = "Complete"
    """What happens to a gang found half bound: `Complete` or `Rollback`."""
    disruption_mode: Literal["Gang", "Elastic"] = "Gang"
    """`Gang`: all or nothing also when evicted. `Elastic`: surplus pods first, one by one."""
    min_resources: Resources | None = None
    """What the gang needs as a whole."""
    schedule_timeout_seconds: int = Field(default=SCHEDULE_TIMEOUT, ge=1, le=LARGEST_INT32, strict=True)
    """How long a gang may be held at Permit."""
    expected_runtime_seconds: Seconds | None = None
    """For reservations and backfill."""
    min_runtime_seconds: Seconds = 0
    """Not a victim before."""
    topology: TopologyRequest | None = None
    """`name` of a Topology; `required`: all pods in one domain of that level, elastic ones too; `preferred`: in as few
    as can be."""
    sub_groups: tuple[SubGroup, ...] = Field(
        default=(),
        max_length=MOST_SUBGROUPS,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    """Parts with a `minMember` and a `topology` of their own. A subgroup's topology inherits `name`, and the gang's
    level binds it too."""

    @model_validator(mode="after")
    def _subgroups_add_up(self) -> Self:
        names = [sub.name for sub in self.sub_groups]
        if len(set(names)) != len(names):
            raise ValueError("subGroups: two of them have one name; each needs a name of its own")
        total = sum(sub.min_member for sub in self.sub_groups)
        stated = "min_member" in self.model_fields_set
        if stated and total > self.min_member:
            raise ValueError(
                f"minMember: {self.min_member} is less than the subGroups' sum {total}; "
                f"raise minMember to {total} or more, or leave it out"
            )
        return self


class PodGroupStatus(SpecPart):
    """What became of a gang; written by the controller, read by nobody here."""

    phase: Phase = "Pending"
    """Where the gang is in its life."""
    placed: int = 0
    """Pods that have a node: bound ones that go on, and those being bound."""
    running: int = 0
    """Pods that run."""
    succeeded: int = 0
    """Pods that ended well."""
    failed: int = 0
    """Pods that failed."""
    conditions: Conditions = ()
    """`Scheduled`: whether the minimum has its places, and if not, what is missing and what would help."""
    queue_position: int | None = None
    """How many gangs of its queue are to start before it, and one; for gangs that wait."""
    estimated_start_time: str | None = None
    """When the places that are kept for it become free."""


class PodGroup(SpecPart):
    """A gang of pods, placed all or nothing up to its minimum."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                f"self.metadata.name.size() <= {LONGEST_LABEL}",
                f"metadata.name: expected {LONGEST_LABEL} characters or less: pods name their PodGroup in a label",
            ),
            rule(
                "self.spec.queue == oldSelf.spec.queue || !has(oldSelf.status)"
                " || !has(oldSelf.status.placed) || oldSelf.status.placed == 0",
                "the queue cannot change while pods of the gang have a place",
                ".spec.queue",
            ),
        )
    )

    api_version: Literal["scheduling.batchsched.dev/v1alpha1"] = "scheduling.batchsched.dev/v1alpha1"
    kind: Literal["PodGroup"] = "PodGroup"
    metadata: CustomMeta
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus | None = None

    @property
    def name(self) -> str:
        """The name, unique in the namespace."""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """The namespace, `default` where none is stated."""
        return self.metadata.namespace or "default"

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def min_member(self) -> int:
        """The members that must be placed together: minMember, and never less than the subGroups' sum."""
        return max(self.spec.min_member, sum(sub.min_member for sub in self.spec.sub_groups))

    @property
    def created(self) -> float:
        """Seconds since 1970; 0 where unknown."""
        return seconds(self.metadata.creation_timestamp)
