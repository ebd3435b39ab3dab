"""Queue: a team's share of the cluster, as its administrator states it."""

from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from batchsched.api.crd.base import (
    LARGEST_INT32,
    LONGEST_NAME,
    Amounts,
    Conditions,
    CustomMeta,
    Resources,
    SpecPart,
    in_base_units,
    in_cel,
    rule,
    rules,
)

Count = Annotated[int, Field(ge=0, le=LARGEST_INT32, strict=True)]


def _at_most(amount: str, bound: str) -> str:
    return f"{in_cel(amount)}.compareTo({in_cel(bound)}) <= 0)"


class PolicyChoice(SpecPart):
    """A policy by name, with its arguments."""

    name: str = Field(default="drf", max_length=LONGEST_NAME)
    """The policy."""
    args: dict[str, Any] = Field(default={})
    """Its arguments."""


class QueueSpec(SpecPart):
    """Where a queue stands in the tree, and what it may use."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!has(self.guarantee) || !has(self.limit) || self.guarantee.all(r, !(r in self.limit) || "
                + _at_most("self.guarantee[r]", "self.limit[r]"),
                "a guarantee above the limit can never be used; lower it, or raise the limit",
                ".guarantee",
            ),
            rule(
                "!has(self.lendingLimit) || self.lendingLimit.all(r, has(self.guarantee) && r in self.guarantee"
                " && " + _at_most("self.lendingLimit[r]", "self.guarantee[r]"),
                "a queue lends of its guarantee; lower the lendingLimit, or raise the guarantee",
                ".lendingLimit",
            ),
        )
    )

    parent: str | None = Field(default=None, max_length=LONGEST_NAME)
    """None: a child of the root."""
    weight: float = Field(default=1.0, ge=0, allow_inf_nan=False, strict=True)
    """How surplus is divided between siblings."""
    priority: int = Field(default=0, ge=-LARGEST_INT32 - 1, le=LARGEST_INT32, strict=True)
    """Which sibling is asked first."""
    guarantee: Resources | None = None
    """What the queue may always have."""
    limit: Resources | None = None
    """What it may never exceed, with its descendants."""
    lending_limit: Resources | None = None
    """How much of an unused guarantee others may use."""
    borrowing_limit: Resources | None = None
    """How much above the guarantee this queue may use."""
    user_limits: Resources | None = None
    """For each value of the label `scheduling.batchsched.dev/user`."""
    reclaim_min_runtime_seconds: Count = 0
    """Its pods are no victims of a reclaim before."""
    policy: PolicyChoice | None = None
    """For the children of this queue, and for its own PodGroups."""
    max_running_pod_groups: Count | None = None
    """How many PodGroups may run in it at once."""

    @model_validator(mode="after")
    def _amounts_agree(self) -> Self:
        guarantee, limit = in_base_units(self.guarantee), in_base_units(self.limit)
        for resource, amount in guarantee.items():
            if amount > limit.get(resource, amount):
                raise ValueError(
                    f"guarantee: {resource}: a guarantee above the limit can never be used; "
                    "lower it, or raise the limit"
                )
        for resource, amount in in_base_units(self.lending_limit).items():
            if amount > guarantee.get(resource, -1):
                raise ValueError(
                    f"lendingLimit: {resource}: a queue lends of its guarantee; "
                    "lower the lendingLimit, or raise the guarantee"
                )
        return self


class QueueStatus(SpecPart):
    """What a queue holds; written by the controller."""

    allocated: Amounts | None = None
    """What its pods, and those of its descendants, have of the cluster."""
    pending: int = 0
    """PodGroups that wait in it or below; a pod alone counts as one."""
    fair_share: Amounts | None = None
    """What its policy entitles it to."""
    conditions: Conditions = ()
    """`Active`: whether it takes part; not when its parent is absent or the tree has a cycle here."""


class Queue(SpecPart):
    """A queue of the tree."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!has(self.spec.parent) || self.spec.parent != self.metadata.name",
                "a queue cannot be its own parent; name another one, or leave it out",
                ".spec.parent",
            )
        )
    )

    api_version: Literal["scheduling.batchsched.dev/v1alpha1"] = "scheduling.batchsched.dev/v1alpha1"
    kind: Literal["Queue"] = "Queue"
    metadata: CustomMeta
    spec: QueueSpec = QueueSpec()
    status: QueueStatus | None = None

    @model_validator(mode="after")
    def _has_another_parent(self) -> Self:
        if self.spec.parent == self.metadata.name:
            raise ValueError(
                f"spec.parent: a queue cannot be its own parent ({self.name} → {self.name}); "
                "name another one, or leave it out"
            )
        return self

    @property
    def name(self) -> str:
        """The name, unique in the cluster."""
        return self.metadata.name
