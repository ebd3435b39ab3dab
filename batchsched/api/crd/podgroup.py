"""PodGroup, the custom resource that defines a gang."""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Final, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from batchsched.api.core.metadata import LONGEST_LABEL, parse_timestamp
from batchsched.api.crd.base import (
    LARGEST_INT32,
    LONGEST_NAME,
    Conditions,
    CustomMeta,
    Resources,
    StrictModel,
    remove_schema_default,
    validation_rule,
    validation_rules_schema_extension,
)
from batchsched.api.crd.subgroup_tree import SubgroupTree

DEFAULT_QUEUE = "default"
NO_TOPOLOGY: Final = ""
"""Name of a topology in the PodGroups of other projects that name a node label as a level."""
SCHEDULE_TIMEOUT = 600
"""Default time in seconds for which a gang may wait at Permit."""
MOST_SUBGROUPS = 1000
MOST_SUBGROUP_LEVELS: Final = 4
"""Maximum depth of nested subgroups: a subgroup without a parent has depth 1."""

Phase = Literal["Pending", "Held", "Scheduled", "Running", "Succeeded", "Failed"]
Name = Annotated[str, Field(max_length=LONGEST_NAME)]
Seconds = Annotated[int, Field(ge=0, le=LARGEST_INT32, strict=True)]


class TopologySlices(StrictModel):
    """The equal parts into which pods are divided; all pods of a slice are in one domain of a topology level.

    The slices are spread evenly over as few domains as possible: the numbers of slices of two domains in use differ by
    at most one. Pods beyond the minimum are placed in whole slices only.
    """

    model_config = ConfigDict(
        json_schema_extra=validation_rules_schema_extension(
            validation_rule("has(self.size) != has(self.count)", "state either size or count")
        )
    )

    level: Name
    """Topology level at which each slice is in one domain."""
    size: int | None = Field(default=None, ge=1, le=LARGEST_INT32, strict=True)
    """Number of pods in a slice. It divides minMember."""
    count: int | None = Field(default=None, ge=1, le=LARGEST_INT32, strict=True)
    """Number of slices that minMember is divided into, which must be possible without a remainder.

    Pods beyond minMember are further slices of the same size.
    """

    @model_validator(mode="after")
    def _states_one_number(self) -> Self:
        if (self.size is None) == (self.count is None):
            raise ValueError("state either size or count")
        return self

    def slice_size(self, min_member: int) -> int:
        """Return the number of pods in each topology slice of a gang or subgroup with this minMember."""
        return self.size if self.size is not None else max(1, min_member // (self.count or 1))

    def describe_indivisible_min_member(self, min_member: int) -> str:
        """Return an error message if minMember pods cannot be divided into equal slices; otherwise ""."""
        name, number = ("size", self.size) if self.size is not None else ("count", self.count or 1)
        if min_member % number == 0 and (min_member or self.count is None):
            return ""
        return (
            f"topology.slices.{name}: {number} does not divide minMember {min_member}; change one of the two"
        )


class _PreferredLevel(StrictModel):
    """What the topology of a PodGroup and that of a subgroup have in common: a preferred level, and a wait for it."""

    model_config = ConfigDict(
        json_schema_extra=validation_rules_schema_extension(
            validation_rule(
                "!has(self.preferredWaitSeconds) || has(self.preferred)",
                "preferredWaitSeconds: state the preferred level, or leave it out",
            )
        )
    )

    preferred: Name | None = None
    """Level at which the pods should be in as few domains as possible."""
    preferred_wait_seconds: Seconds | None = None
    """Time in seconds after the creation of the PodGroup during which the preferred level is required.

    In a Topology, each domain of the preferred level must then be inside one domain of the required level.
    """

    @model_validator(mode="after")
    def _waits_for_a_level(self) -> Self:
        if self.preferred_wait_seconds is not None and self.preferred is None:
            raise ValueError("preferredWaitSeconds: state the preferred level, or leave it out")
        return self


class TopologyRequest(_PreferredLevel):
    """The topology of a PodGroup: the levels at which its pods are required or preferred to be in one domain."""

    name: Name = "default"
    """Name of the Topology."""
    required: Name | None = None
    """Level at which all pods, including elastic ones, must be in one domain."""
    slices: TopologySlices | None = None
    """Equal parts of a PodGroup without subGroups, each within one domain of a level."""
    rank_label: str | None = Field(default=None, min_length=1, max_length=2 * LONGEST_NAME)
    """Label of the pods with their rank, a number such as `batch.kubernetes.io/job-completion-index`.

    Pods with consecutive ranks are placed in the same domain of the narrowest level possible. Ranks are counted in each
    subgroup separately.
    """


class SubGroupTopology(_PreferredLevel):
    """The topology of a subgroup: the levels at which its pods are required or preferred to be in one domain.

    A missing name is inherited from the PodGroup.
    """

    name: Name | None = None
    """Name of the Topology. Default: that of the PodGroup."""
    required: Name | None = None
    """Level at which all pods of the subgroup, and of all subgroups below it, must be in one domain."""
    slices: TopologySlices | None = None
    """Equal parts of a subgroup without children, each within one domain of a level."""


class SubGroup(StrictModel):
    """A named part of a gang with its own minMember and topology levels.

    It has either pods or, if other subgroups name it as their parent, child subgroups. It is placed with its minimum
    at least, or not at all.
    """

    name: str = Field(min_length=1, max_length=LONGEST_LABEL)
    """Name of the subgroup; its pods have it in the label `scheduling.batchsched.dev/sub-group`."""
    parent: str | None = Field(default=None, min_length=1, max_length=LONGEST_LABEL)
    """Name of the subgroup that this one is a part of. At most 4 levels of subgroups can be nested."""
    min_member: int = Field(
        default=1, ge=0, le=LARGEST_INT32, strict=True, json_schema_extra=remove_schema_default
    )
    """Number of pods of the subgroup that must run for the subgroup to run, 1 by default.

    Only a subgroup without children has a minMember. Pods beyond it are placed after the minimum of the gang.
    """
    min_sub_groups: int | None = Field(default=None, ge=1, le=LARGEST_INT32, strict=True)
    """Number of children that must run for the subgroup to run; all by default.

    Only a subgroup with children has it. The other children are placed after the minimum of the gang, each as a whole
    or not at all.
    """
    topology: SubGroupTopology | None = None
    """Topology of the subgroup, in addition to that of the PodGroup and of the subgroups above."""

    @property
    def topology_slices(self) -> TopologySlices | None:
        """The topology slices of the subgroup; None if its pods are not divided into slices."""
        return self.topology.slices if self.topology is not None else None


def _problem_of_parents(name: str, parents: Mapping[str, str | None]) -> str:
    """Return what is wrong with the chain of parents of a subgroup; "" if nothing is."""
    chain = [name]
    while (parent := parents[chain[-1]]) is not None:
        if parent not in parents:
            return f"parent: no subGroup is named {parent}; name an existing one, or leave parent out"
        if parent in chain:
            return f"parent: {' < '.join([*chain, parent])} is a cycle; leave out parent in one of them"
        chain.append(parent)
        if len(chain) > MOST_SUBGROUP_LEVELS:
            return f"parent: {' < '.join(chain)} is deeper than {MOST_SUBGROUP_LEVELS} levels; remove a level"
    return ""


def _problem_of_subgroup(sub: SubGroup, children: int) -> str:
    """Return what is wrong with the minimums and slices of a subgroup; "" if nothing is."""
    if not children:
        if sub.min_sub_groups is not None:
            return "minSubGroups: no subGroup names this one as its parent; state minMember instead"
        return (
            sub.topology_slices.describe_indivisible_min_member(sub.min_member)
            if sub.topology_slices is not None
            else ""
        )
    if "min_member" in sub.model_fields_set:
        return "minMember: a subGroup with children has no pods of its own; state minSubGroups instead"
    if sub.topology_slices is not None:
        return (
            "topology.slices: a subGroup with children has no pods of its own; state slices in the children"
        )
    if sub.min_sub_groups is not None and sub.min_sub_groups > children:
        return f"minSubGroups: {sub.min_sub_groups} is more than its {children} children; lower it, or leave it out"
    return ""


class PodGroupSpec(StrictModel):
    """The spec of a PodGroup: what its gang requires."""

    model_config = ConfigDict(
        json_schema_extra=validation_rules_schema_extension(
            validation_rule(
                # The minimum of a tree is computed when the PodGroup is read.
                "!has(self.minMember) || !has(self.subGroups) || has(self.minSubGroups)"
                " || self.subGroups.exists(s, has(s.parent))"
                " || self.subGroups.map(s, has(s.minMember) ? s.minMember : 1).sum() <= self.minMember",
                "minMember is less than the subGroups' sum; raise minMember to the sum or more, or leave it out",
                ".minMember",
            )
        )
    )

    min_member: int = Field(
        default=1, ge=1, le=LARGEST_INT32, strict=True, json_schema_extra=remove_schema_default
    )
    """Number of pods that must run for the gang to run.

    With `subGroups`, at least the sum of the minimums that must run, which is then the default; the difference may be
    pods of any subgroup.
    """
    min_sub_groups: int | None = Field(default=None, ge=1, le=LARGEST_INT32, strict=True)
    """Number of subGroups without a parent that must run for the gang to run; all by default.

    The others are placed after the minimum of the gang, each as a whole or not at all.
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
    """Time in seconds after which a partially bound gang is rolled back. GangScheduling waits as long at Permit."""
    expected_runtime_seconds: Seconds | None = None
    """Expected run time in seconds, for reservations and backfill."""
    min_runtime_seconds: Seconds = 0
    """Time in seconds after its start during which the gang is protected, as with `preemptible: false`.

    The queue may limit it by maxMinRuntimeSeconds.
    """
    topology: TopologyRequest | None = None
    """Placement in the topology of the cluster.

    `name`: the Topology. `required`: level at which all pods, including elastic ones, must be in one domain.
    `preferred`: level at which the pods should be in as few domains as possible; for `preferredWaitSeconds` after the
    creation of the PodGroup, it is required. `slices`: equal parts, each within one domain of a level; with
    subGroups, state them there. `rankLabel`: label with the rank of a pod; consecutive ranks are placed close together.
    """
    sub_groups: tuple[SubGroup, ...] = Field(
        default=(),
        max_length=MOST_SUBGROUPS,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    """Parts of the gang with their own `minMember` and `topology`. With `parent`, they form a tree.

    A subgroup inherits the name of the topology, and the levels of the PodGroup and of the subgroups above apply to it
    as well.
    """

    @property
    def requires_topology_level(self) -> bool:
        """Whether all pods of the gang must be in one domain of a topology level."""
        return self.topology is not None and self.topology.required is not None

    def topology_name_of_subgroup(self, subgroup: SubGroup) -> str:
        """Return the name of the Topology of a subGroup: that of the PodGroup, unless the subGroup names another."""
        own = subgroup.topology.name if subgroup.topology is not None else None
        return own if own is not None else (self.topology or TopologyRequest()).name

    @property
    def rank_label(self) -> str | None:
        """The key of the pod label that contains the rank of a pod; None if the pods have no ranks."""
        return self.topology.rank_label if self.topology is not None else None

    @property
    def topology_slices(self) -> TopologySlices | None:
        """The topology slices of a PodGroup without subGroups; None if its pods are not divided."""
        return self.topology.slices if self.topology is not None else None

    @cached_property
    def has_subgroup_tree_or_slices(self) -> bool:
        """Whether the gang has nested subGroups, optional subGroups, or topology slices."""
        return (
            self.topology_slices is not None
            or self.subgroup_tree.has_nested_or_optional_subgroups
            or any(sub.topology_slices is not None for sub in self.sub_groups)
        )

    @cached_property
    def subgroup_tree(self) -> SubgroupTree:
        """The subGroups of the PodGroup as a tree. The tree ignores the minMember of the PodGroup."""
        return SubgroupTree.from_parents(
            [sub.name for sub in self.sub_groups],
            [sub.parent for sub in self.sub_groups],
            [sub.min_member for sub in self.sub_groups],
            [sub.min_sub_groups for sub in self.sub_groups],
            self.min_sub_groups,
        )

    @model_validator(mode="after")
    def _subgroups_form_a_tree(self) -> Self:
        names = [sub.name for sub in self.sub_groups]
        if len(set(names)) != len(names):
            raise ValueError("subGroups: two of them have one name; each needs a name of its own")
        parents = {sub.name: sub.parent for sub in self.sub_groups}
        for number, name in enumerate(names):
            if problem := _problem_of_parents(name, parents):
                raise ValueError(f"subGroups[{number}].{problem}")
        for number, sub in enumerate(self.sub_groups):
            if problem := _problem_of_subgroup(sub, len(self.subgroup_tree.children[number])):
                raise ValueError(f"subGroups[{number}].{problem}")
        if self.min_sub_groups is not None and self.min_sub_groups > len(self.subgroup_tree.roots):
            raise ValueError(
                f"minSubGroups: {self.min_sub_groups} is more than the {len(self.subgroup_tree.roots)} subGroups "
                "without a parent; lower it, or leave it out"
            )
        return self

    @model_validator(mode="after")
    def _minimums_add_up(self) -> Self:
        total = self.subgroup_tree.minimum_pod_count
        if "min_member" in self.model_fields_set and total > self.min_member:
            raise ValueError(
                f"minMember: {self.min_member} is less than the subGroups' sum {total}; "
                f"raise minMember to {total} or more, or leave it out"
            )
        if self.topology_slices is not None:
            if self.sub_groups:
                raise ValueError(
                    "topology.slices: the PodGroup has subGroups; state slices in the topology of each subGroup"
                )
            if problem := self.topology_slices.describe_indivisible_min_member(self.min_member):
                raise ValueError(problem)
        return self


class PodGroupStatus(StrictModel):
    """The status of a PodGroup: the state of its gang, written by the status controller.

    A leader reads `wholeSince` and `partiallyBoundSince` when it starts. While `placed` is above 0, the gang keeps its
    queue. The scheduler reads no other field.
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
        json_schema_extra=validation_rules_schema_extension(
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
    def effective_min_member(self) -> int:
        """The smallest number of pods that may be placed together, according to minMember and the subGroups.

        This is the larger of two numbers: minMember, and the number of pods that the required subGroups need.
        """
        spec = self.spec
        return (
            max(spec.min_member, spec.subgroup_tree.minimum_pod_count) if spec.sub_groups else spec.min_member
        )

    @property
    def creation_time(self) -> float:
        """The creation time of the PodGroup in seconds since 1970; 0 if unknown."""
        return parse_timestamp(self.metadata.creation_timestamp)

    @property
    def topologies_of_pod_group_and_subgroups(self) -> tuple[TopologyRequest | SubGroupTopology | None, ...]:
        """The topology of the PodGroup, followed by the topology of each subGroup.

        An entry is None if the PodGroup or subGroup states no topology.
        """
        return self.spec.topology, *(sub.topology for sub in self.spec.sub_groups)

    @property
    def preferred_level_deadlines(self) -> tuple[float, ...]:
        """The times until which preferred levels of the PodGroup and its subGroups count as required.

        There is one time for each entry of `topologies_of_pod_group_and_subgroups`, in seconds since 1970. A time is 0
        if the topology states no `preferredWaitSeconds`.
        """
        return tuple(
            self.creation_time + topology.preferred_wait_seconds
            if topology is not None and topology.preferred_wait_seconds
            else 0.0
            for topology in self.topologies_of_pod_group_and_subgroups
        )
