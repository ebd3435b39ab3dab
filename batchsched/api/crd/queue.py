"""Queue, the custom resource that defines a share of the cluster."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import ConfigDict, Field, model_validator
from typing_extensions import override

from batchsched.api.core.metadata import LONGEST_LABEL
from batchsched.api.core.selector import LabelSelector, SelectorRequirement
from batchsched.api.crd.base import (
    LARGEST_INT32,
    LONGEST_NAME,
    Amounts,
    Conditions,
    CustomMeta,
    Resources,
    StrictModel,
    cel_quantity_expression,
    parse_quantities_in_base_units,
    remove_schema_default,
    validation_rule,
    validation_rules_schema_extension,
)

LONGEST_LABEL_KEY: Final = 317
"""Maximum length of a label key: a prefix of 253 characters, a slash, and a name of 63."""
MOST_SELECTOR_VALUES: Final = 64
"""Maximum number of labels, expressions and values of a selector. The API server limits the cost of rules over them."""
LabelText = Annotated[str, Field(max_length=LONGEST_LABEL)]
Count = Annotated[int, Field(ge=0, le=LARGEST_INT32, strict=True)]


def _at_most(amount: str, bound: str) -> str:
    return f"{cel_quantity_expression(amount)}.compareTo({cel_quantity_expression(bound)}) <= 0)"


class PolicyChoice(StrictModel):
    """The policy of a queue by name, with its arguments."""

    name: str = Field(default="drf", max_length=LONGEST_NAME)
    """Name of the policy."""
    args: dict[str, Any] = Field(default={})
    """Arguments of the policy."""


class NamespaceRequirement(StrictModel):
    """An expression over the labels of a Namespace."""

    model_config = ConfigDict(
        json_schema_extra=validation_rules_schema_extension(
            validation_rule(
                "self.operator in ['In', 'NotIn'] ? has(self.values) && self.values.size() > 0"
                " : !has(self.values) || self.values.size() == 0",
                "In and NotIn need values, Exists and DoesNotExist take none",
                ".values",
            )
        )
    )

    key: str = Field(min_length=1, max_length=LONGEST_LABEL_KEY)
    """Key of the label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """Relation of the label to the values."""
    values: tuple[LabelText, ...] = Field(default=(), max_length=MOST_SELECTOR_VALUES)
    """Values, for `In` and `NotIn`."""

    @model_validator(mode="after")
    def _has_values_if_needed(self) -> Self:
        if (self.operator in ("In", "NotIn")) != bool(self.values):
            raise ValueError(
                "values: In and NotIn need values, Exists and DoesNotExist take none; "
                f"{self.operator} has {len(self.values)}"
            )
        return self

    @override
    def __str__(self) -> str:
        """Return the expression as kubectl prints it, such as `team in (a,b)`."""
        match self.operator:
            case "Exists":
                return self.key
            case "DoesNotExist":
                return f"!{self.key}"
        return f"{self.key} {self.operator.lower()} ({','.join(self.values)})"


class NamespaceSelector(StrictModel):
    """A label selector over Namespaces. All labels and expressions must match; the selector `{}` selects all."""

    match_labels: dict[str, LabelText] | None = Field(default=None, max_length=MOST_SELECTOR_VALUES)
    """Labels that the Namespace must have."""
    match_expressions: tuple[NamespaceRequirement, ...] = Field(default=(), max_length=MOST_SELECTOR_VALUES)
    """Expressions over its labels."""

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the selector selects a Namespace with these labels."""
        expressions = tuple(
            SelectorRequirement(requirement.key, requirement.operator, requirement.values)
            for requirement in self.match_expressions
        )
        return LabelSelector(self.match_labels, expressions).matches(labels)

    @override
    def __str__(self) -> str:
        """Return the selector as kubectl prints it, or "all namespaces" if it is empty."""
        labels = [f"{key}={value}" for key, value in sorted((self.match_labels or {}).items())]
        return ",".join([*labels, *map(str, self.match_expressions)]) or "all namespaces"


class QueueSpec(StrictModel):
    """The spec of a Queue: its position in the queue tree, and the resources that it may use."""

    model_config = ConfigDict(
        json_schema_extra=validation_rules_schema_extension(
            validation_rule(
                "!has(self.guarantee) || !has(self.limit) || self.guarantee.all(r, !(r in self.limit) || "
                + _at_most("self.guarantee[r]", "self.limit[r]"),
                "a guarantee above the limit can never be used; lower it, or raise the limit",
                ".guarantee",
            ),
            validation_rule(
                "!has(self.lendingLimit) || self.lendingLimit.all(r, has(self.guarantee) && r in self.guarantee"
                " && " + _at_most("self.lendingLimit[r]", "self.guarantee[r]"),
                "a queue lends of its guarantee; lower the lendingLimit, or raise the guarantee",
                ".lendingLimit",
            ),
        )
    )

    parent: str | None = Field(default=None, max_length=LONGEST_NAME)
    """Name of the parent queue. Default: a child of the root."""
    # A Queue that states one of these fields divides the cluster (`queues.tree.ENTITLING`). The API server must not.
    weight: float = Field(
        default=1.0, ge=0, allow_inf_nan=False, strict=True, json_schema_extra=remove_schema_default
    )
    """Weight of the queue when surplus is divided among siblings; 1 by default."""
    priority: int = Field(
        default=0,
        ge=-LARGEST_INT32 - 1,
        le=LARGEST_INT32,
        strict=True,
        json_schema_extra=remove_schema_default,
    )
    """Siblings with a higher priority are served first; 0 by default."""
    guarantee: Resources | None = None
    """Resources that the queue is always entitled to."""
    limit: Resources | None = None
    """Maximum resources of the queue with its descendants."""
    lending_limit: Resources | None = None
    """Part of an unused guarantee that other queues may use. Default: all of it."""
    borrowing_limit: Resources | None = None
    """Resources that the queue may use above its guarantee. Default: no limit."""
    user_limits: Resources | None = None
    """Maximum resources of each user, that is, of each value of the label `scheduling.batchsched.dev/user`.

    Pods without the label count together as one user. The label of a PodGroup applies to all its pods. Otherwise all
    pods of a gang must have the same value.
    """
    reclaim_min_runtime_seconds: Count = 0
    """Time in seconds after their start during which pods of the queue are not evicted for a reclaim."""
    max_min_runtime_seconds: Count | None = None
    """Maximum of the minRuntimeSeconds of PodGroups. Default: that of the parent; without one, no maximum."""
    namespace_selector: NamespaceSelector | None = None
    """Namespaces with gangs that may use the queue. Default: that of the parent; without one, all namespaces."""
    policy: PolicyChoice | None = None
    """Policy for the children of the queue, and for its own PodGroups."""
    max_running_pod_groups: Count | None = None
    """Maximum number of running PodGroups in the queue."""

    @model_validator(mode="after")
    def _amounts_agree(self) -> Self:
        guarantee, limit = (
            parse_quantities_in_base_units(self.guarantee),
            parse_quantities_in_base_units(self.limit),
        )
        for resource, amount in guarantee.items():
            if amount > limit.get(resource, amount):
                raise ValueError(
                    f"guarantee: {resource}: a guarantee above the limit can never be used; "
                    "lower it, or raise the limit"
                )
        for resource, amount in parse_quantities_in_base_units(self.lending_limit).items():
            if amount > guarantee.get(resource, -1):
                raise ValueError(
                    f"lendingLimit: {resource}: a queue lends of its guarantee; "
                    "lower the lendingLimit, or raise the guarantee"
                )
        return self


class QueueStatus(StrictModel):
    """The status of a Queue: its usage and entitlement, written by the status controller."""

    allocated: Amounts | None = None
    """Resources that are allocated to pods of the queue and its descendants."""
    pending: int = 0
    """Number of pending PodGroups in the queue and its descendants; a pod without a PodGroup counts as one."""
    fair_share: Amounts | None = None
    """Current entitlement of the queue."""
    conditions: Conditions = ()
    """`Active`: whether the queue takes part in sessions. A queue with a missing parent, or in a cycle, does not."""


class Queue(StrictModel):
    """A queue of the queue tree, to which PodGroups are submitted."""

    model_config = ConfigDict(
        json_schema_extra=validation_rules_schema_extension(
            validation_rule(
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
        """The name of the Queue, unique in the cluster."""
        return self.metadata.name
