"""Queue: a team's share of the cluster, as its administrator states it."""

from typing import Any, Literal

from pydantic import Field

from batchsched.model.custom import LARGEST_INT32, CustomMeta, Part, Resources


class PolicyChoice(Part):
    """A policy by name, with its arguments."""

    name: str = "drf"
    args: dict[str, Any] = Field(default={})


class QueueSpec(Part):
    """Where a queue stands in the tree, and what it may use."""

    parent: str | None = None
    weight: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    priority: int = Field(default=0, ge=-LARGEST_INT32 - 1, le=LARGEST_INT32)
    guarantee: Resources | None = None
    limit: Resources | None = None
    lending_limit: Resources | None = None
    borrowing_limit: Resources | None = None
    user_limits: Resources | None = None
    reclaim_min_runtime_seconds: int = Field(default=0, ge=0, le=LARGEST_INT32)
    policy: PolicyChoice | None = None
    max_running_pod_groups: int | None = Field(default=None, ge=0, le=LARGEST_INT32)


class QueueStatus(Part):
    """What a queue holds; written by the controller."""

    allocated: Resources | None = None
    pending: int = 0
    fair_share: Resources | None = None
    conditions: tuple[dict[str, object], ...] = ()


class Queue(Part):
    """A queue of the tree."""

    api_version: Literal["scheduling.batchsched.dev/v1alpha1"] = "scheduling.batchsched.dev/v1alpha1"
    kind: Literal["Queue"] = "Queue"
    metadata: CustomMeta
    spec: QueueSpec = QueueSpec()
    status: QueueStatus | None = None

    @property
    def name(self) -> str:
        """The name, unique in the cluster."""
        return self.metadata.name
