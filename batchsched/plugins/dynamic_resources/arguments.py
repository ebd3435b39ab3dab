"""The arguments of DynamicResources, with the names and defaults of kube-scheduler's `DynamicResourcesArgs`.

A configuration that was written for kube-scheduler is accepted as it is. Arguments that decisions cannot follow,
because they limit wall-clock time of a search, have no effect; their descriptions state what limits the search instead.

Source: pkg/scheduler/apis/config/types_pluginargs.go of Kubernetes 1.37.
"""

from pydantic import Field, field_validator

from batchsched.api.crd.base import StrictModel
from batchsched.config.extenders import Duration, parse_duration


class DynamicResourcesArgs(StrictModel):
    """Arguments of DynamicResources, as in kube-scheduler."""

    filter_timeout: str = Field(
        default="10s",
        description="Time limit of the Filter for one node. It has no effect: the search on a node ends after 50,000 "
        "steps instead, and 64 for each device, so that decisions are repeatable.",
    )
    binding_timeout: Duration = Field(
        default="600s",
        description="Time limit for the preparation of devices with binding conditions, at least 1 second. After it, "
        "the devices of the gang are freed, and the gang is tried again.",
    )

    @field_validator("binding_timeout")
    @classmethod
    def _lasts_a_second(cls, timeout: str) -> str:
        # kube-scheduler refuses shorter ones, too: no driver would have time to prepare a device.
        if parse_duration(timeout) < 1:
            raise ValueError(f"expected at least 1 second, found {timeout}")
        return timeout

    @property
    def binding_timeout_seconds(self) -> float:
        """The time limit in seconds for the preparation of a pod's devices before the pod is bound."""
        return parse_duration(self.binding_timeout)
