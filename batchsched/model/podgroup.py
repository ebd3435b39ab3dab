"""PodGroup: the gang, as its user states it."""

from typing import Literal, Self

from pydantic import Field, model_validator

from batchsched.model.custom import LARGEST_INT32, CustomMeta, Part, Resources
from batchsched.model.meta import seconds

DEFAULT_QUEUE = "default"
SCHEDULE_TIMEOUT = 600
"""Seconds that a held gang may keep its place, where the PodGroup does not say."""

Phase = Literal["Pending", "Held", "Scheduled", "Running", "Succeeded", "Failed"]


class TopologyRequest(Part):
    """Levels of a Topology that a gang must, or would like to, stay inside of."""

    name: str = "default"
    required: str | None = None
    preferred: str | None = None


class SubGroupTopology(Part):
    """As `TopologyRequest`; the name is inherited from the gang where it is not stated."""

    name: str | None = None
    required: str | None = None
    preferred: str | None = None


class SubGroup(Part):
    """A part of a gang with a minimum and a topology of its own."""

    name: str = Field(min_length=1)
    min_member: int = Field(default=1, ge=0, le=LARGEST_INT32)
    topology: SubGroupTopology | None = None


class PodGroupSpec(Part):
    """What a gang needs."""

    min_member: int = Field(default=1, ge=1, le=LARGEST_INT32)
    queue: str = Field(default=DEFAULT_QUEUE, min_length=1)
    priority_class_name: str = ""
    preemption_policy: Literal["PreemptLowerPriority", "Never"] = "PreemptLowerPriority"
    preemptible: bool = True
    stranded_policy: Literal["Complete", "Rollback"] = "Complete"
    disruption_mode: Literal["Gang", "Elastic"] = "Gang"
    min_resources: Resources | None = None
    schedule_timeout_seconds: int = Field(default=SCHEDULE_TIMEOUT, ge=1, le=LARGEST_INT32)
    expected_runtime_seconds: int | None = Field(default=None, ge=0, le=LARGEST_INT32)
    min_runtime_seconds: int = Field(default=0, ge=0, le=LARGEST_INT32)
    topology: TopologyRequest | None = None
    sub_groups: tuple[SubGroup, ...] = ()

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


class PodGroupStatus(Part):
    """What became of a gang; written by the controller, read by nobody here."""

    phase: Phase = "Pending"
    placed: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    conditions: tuple[dict[str, object], ...] = ()
    queue_position: int | None = None
    estimated_start_time: str | None = None


class PodGroup(Part):
    """A gang of pods, placed all or nothing up to its minimum."""

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
