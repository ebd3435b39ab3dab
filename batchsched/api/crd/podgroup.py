"""PodGroup, the custom resource that defines a gang."""

from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from batchsched.api.core.metadata import parse_timestamp
from batchsched.api.crd.base import (
    LARGEST_INT32,
    LONGEST_LABEL,
    LONGEST_NAME,
    Conditions,
    CustomMeta,
    Resources,
    StrictModel,
    validation_rule,
    validation_rules,
)

DEFAULT_QUEUE = "default"
SCHEDULE_TIMEOUT = 600
"""Default time in seconds for which a gang may wait at Permit."""
MOST_SUBGROUPS = 1000

Phase = Literal["Pending", "Held", "Scheduled", "Running", "Succeeded", "Failed"]
Name = Annotated[str, Field(max_length=LONGEST_NAME)]
Seconds = Annotated[int, Field(ge=0, le=LARGEST_INT32, strict=True)]


def _without_default(schema: dict[str, Any]) -> None:
    """Remove a default that depends on other fields from the schema, so that the API server does not set it."""
    del schema["default"]


class TopologyRequest(StrictModel):
    """The topology of a PodGroup: the levels at which its pods are required or preferred to be in one domain."""

    name: Name = "default"
    """Name of the Topology."""
    required: Name | None = None
    """Level at which all pods, including elastic ones, must be in one domain."""
    preferred: Name | None = None
    """Level at which the pods should be in as few domains as possible."""


class SubGroupTopology(StrictModel):
    """The topology of a subgroup: the levels at which its pods are required or preferred to be in one domain.

    A missing name is inherited from the PodGroup.
    """

    name: Name | None = None
    """Name of the Topology. Default: that of the PodGroup."""
    required: Name | None = None
    """Level at which all pods of the subgroup must be in one domain."""
    preferred: Name | None = None
    """Level at which the pods of the subgroup should be in as few domains as possible."""


class SubGroup(StrictModel):
    """A named part of a gang with its own minMember and topology levels."""

    name: str = Field(min_length=1, max_length=LONGEST_LABEL)
    """Name of the subgroup; its pods have it in the label `scheduling.batchsched.dev/sub-group`."""
    min_member: int = Field(default=1, ge=0, le=LARGEST_INT32, strict=True)
    """Number of pods of the subgroup that must run for the gang to run."""
    topology: SubGroupTopology | None = None
    """Topology of the subgroup, in addition to that of the PodGroup."""


class PodGroupSpec(StrictModel):
    """The spec of a PodGroup: what its gang requires."""

    model_config = ConfigDict(
        json_schema_extra=validation_rules(
            validation_rule(
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
    """Number of pods that must run for the gang to run.

    With `subGroups`, at least the sum of their minimums, which is then the default; the difference may be pods of any
    subgroup.
    """
    queue: str | None = Field(default=None, min_length=1, max_length=LONGEST_NAME)
    """Name of the Queue. It cannot be changed while pods of the gang have nodes.

    Default: the queue that the label `scheduling.batchsched.dev/default-queue` of the Namespace names, or `default`.
    """
    priority_class_name: Name = ""
    """PriorityClass that lowers the priority of the gang. Default, and maximum: the highest priority of its pods."""
    preemption_policy: Literal["PreemptLowerPriority", "Never"] = "PreemptLowerPriority"
    """With `Never`, the gang does not preempt other gangs."""
    preemptible: bool = Field(default=True, strict=True)
    """With `false`, the gang is evicted only if another queue needs its guarantee and this queue exceeds its own."""
    stranded_policy: Literal["Complete", "Rollback"] = "Complete"
    """Action for a partially bound gang: `Complete` or `Rollback`."""
    disruption_mode: Literal["Gang", "Elastic"] = "Gang"
    """`Gang`: the gang is evicted as a whole. `Elastic`: pods beyond the minimum are evicted first, one by one."""
    min_resources: Resources | None = None
    """Total resources that the gang needs."""
    schedule_timeout_seconds: int = Field(default=SCHEDULE_TIMEOUT, ge=1, le=LARGEST_INT32, strict=True)
    """Time in seconds for which the gang may wait at Permit."""
    expected_runtime_seconds: Seconds | None = None
    """Expected run time in seconds, for reservations and backfill."""
    min_runtime_seconds: Seconds = 0
    """Time in seconds after its start during which the gang is protected, as with `preemptible: false`.

    The queue may limit it by maxMinRuntimeSeconds.
    """
    topology: TopologyRequest | None = None
    """Placement in the topology of the cluster.

    `name`: the Topology. `required`: level at which all pods, including elastic ones, must be in one domain.
    `preferred`: level at which the pods should be in as few domains as possible.
    """
    sub_groups: tuple[SubGroup, ...] = Field(
        default=(),
        max_length=MOST_SUBGROUPS,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    """Parts of the gang with their own `minMember` and `topology`.

    A subgroup inherits the name of the topology, and the level of the PodGroup applies to it as well.
    """

    @property
    def requires_level(self) -> bool:
        """Whether all pods of the gang must be in one domain of a topology level."""
        return self.topology is not None and self.topology.required is not None

    def topology_of_subgroup(self, subgroup: SubGroup) -> str:
        """Return the name of the Topology of a subGroup: that of the PodGroup, unless the subGroup names another."""
        own = subgroup.topology.name if subgroup.topology is not None else None
        return own or (self.topology or TopologyRequest()).name

    @model_validator(mode="after")
    def _subgroups_add_up(self) -> Self:
        names = [sub.name for sub in self.sub_groups]
        if len(set(names)) != len(names):
            raise ValueError("subGroups: two of them have one name; each needs a name of its own")
        total = sum(sub.min_member for sub in self.sub_groups)
        has_minimum = "min_member" in self.model_fields_set
        if has_minimum and total > self.min_member:
            raise ValueError(
                f"minMember: {self.min_member} is less than the subGroups' sum {total}; "
                f"raise minMember to {total} or more, or leave it out"
            )
        return self


class PodGroupStatus(StrictModel):
    """The status of a PodGroup: the state of its gang, written by the status controller.

    A leader reads `wholeSince` and `partiallyBoundSince` when it starts. The scheduler reads no other field.
    """

    queue: str | None = None
    """Name of the queue to which the gang belongs: that of its spec, or that of its Namespace."""
    phase: Phase = "Pending"
    """Phase of the gang."""
    placed: int = 0
    """Number of pods that have nodes and are not finished, including pods that are being bound."""
    running: int = 0
    """Number of running pods."""
    succeeded: int = 0
    """Number of succeeded pods."""
    failed: int = 0
    """Number of failed pods."""
    conditions: Conditions = ()
    """`Scheduled`: whether the minimum has nodes; if not, what is missing and which change would help."""
    queue_position: int | None = None
    """Position of a pending gang in its queue; 1 is next."""
    estimated_start_time: str | None = None
    """Time at which the capacity that is reserved for the gang becomes free."""
    whole_since: str | None = None
    """Time at which the minimum of the gang was bound. The gang is not rolled back until all its pods are gone."""
    partially_bound_since: str | None = None
    """Time since which the gang is partially bound. It is rolled back after scheduleTimeoutSeconds."""


class PodGroup(StrictModel):
    """A gang of pods: at least minMember pods are placed together, or none."""

    model_config = ConfigDict(
        json_schema_extra=validation_rules(
            validation_rule(
                f"self.metadata.name.size() <= {LONGEST_LABEL}",
                f"metadata.name: expected {LONGEST_LABEL} characters or less: pods name their PodGroup in a label",
            ),
            validation_rule(
                # Earlier versions of this API set the default, so that `default` may be left out later.
                "(has(self.spec.queue) ? has(oldSelf.spec.queue) && self.spec.queue == oldSelf.spec.queue"
                " : !has(oldSelf.spec.queue) || oldSelf.spec.queue == 'default') || !has(oldSelf.status)"
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
        """The name of the PodGroup, unique in the namespace."""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """The namespace of the PodGroup, `default` if missing."""
        return self.metadata.namespace or "default"

    @property
    def key(self) -> str:
        """The `namespace/name` of the PodGroup."""
        return f"{self.namespace}/{self.name}"

    @property
    def min_member(self) -> int:
        """The number of pods that must be placed together: minMember, or the sum over the subGroups, if larger."""
        return max(self.spec.min_member, sum(sub.min_member for sub in self.spec.sub_groups))

    @property
    def creation_time(self) -> float:
        """The creation time of the PodGroup in seconds since 1970; 0 if unknown."""
        return parse_timestamp(self.metadata.creation_timestamp)
