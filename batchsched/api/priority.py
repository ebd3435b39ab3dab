"""Priorities of pods and gangs.

Admission of the API server judges the priority of each pod: it resolves the PriorityClass, and a ResourceQuota may
forbid a class in a namespace. Nothing judges the PriorityClass that a PodGroup or the annotation of an owner names.
So the PriorityClass of a PodGroup can only lower the priority of a gang.
"""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from batchsched.api.core.cluster_objects import PriorityClass
from batchsched.api.core.pod import Pod
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.external.pod_group import SOURCE_PRIORITY

_INTEGER: Final = re.compile(r"-?[0-9]{1,10}", re.ASCII)
SYSTEM_CRITICAL_PRIORITY: Final = 2_000_000_000
"""The lowest priority of system-critical pods. The API server lets users create only PriorityClasses below it."""
SYSTEM_PRIORITIES: Final[Mapping[str, int]] = MappingProxyType(
    {
        "system-cluster-critical": SYSTEM_CRITICAL_PRIORITY,
        "system-node-critical": SYSTEM_CRITICAL_PRIORITY + 1000,
    }
)
"""The PriorityClasses that every cluster has, also where manifests lack them."""


class PriorityTable:
    """The values of the cluster's PriorityClasses, from which the priorities of pods and gangs are computed.

    If several PriorityClasses are the global default, the lowest value applies, as in Kubernetes.

    Args:
      priority_classes: the PriorityClasses of the cluster.
    """

    def __init__(self, priority_classes: Iterable[PriorityClass]) -> None:
        listed = tuple(priority_classes)
        self._values = {**SYSTEM_PRIORITIES, **{entry.metadata.name: entry.value for entry in listed}}
        self._default = min((entry.value for entry in listed if entry.global_default), default=0)

    def pod_priority(self, pod: Pod) -> int:
        """Return a pod's own priority: `spec.priority`, else the value of its PriorityClass or the global default."""
        if pod.spec.priority is not None:
            return pod.spec.priority
        return self._values.get(pod.spec.priority_class_name, self._default)

    def highest_pod_priority(self, pods: Iterable[Pod]) -> int:
        """Return the highest priority among the pods, or the cluster's default priority if there are no pods."""
        return max((self.pod_priority(pod) for pod in pods), default=self._default)

    def gang_priority(self, group: PodGroup | None, pods: Iterable[Pod]) -> int:
        """Return a gang's priority: its highest pod priority, but at most the value of its PodGroup's PriorityClass.

        Without pods, the PriorityClass of the PodGroup has no effect.
        """
        members = tuple(pods)
        highest = self.highest_pod_priority(members)
        return self.priority_capped_by_pod_group(group, highest) if members else highest

    def priority_capped_by_pod_group(self, group: PodGroup | None, highest: int) -> int:
        """Return the smaller of the priority `highest` and the value of the PodGroup's PriorityClass."""
        return min(highest, self._class_value(group, highest))

    def advice_on_ineffective_priority_class(self, group: PodGroup, pods: Iterable[Pod]) -> str:
        """Return advice if a PodGroup's PriorityClass has no effect, because all pods have lower priorities.

        Otherwise, return "".
        """
        members = tuple(pods)
        if not members or not group.spec.priority_class_name:
            return ""
        highest = self.highest_pod_priority(members)
        value = self._class_value(group, highest)
        if value <= highest:
            return ""
        name = group.spec.priority_class_name
        field = (
            "priority is"
            if SOURCE_PRIORITY in group.metadata.annotations
            else f"priorityClassName {name} has the value"
        )
        return (
            f"{field} {value}, but the highest priority of the pods is {highest}, "
            f"which the gang has; set priorityClassName: {name} in the pod template as well"
        )

    def _class_value(self, group: PodGroup | None, default: int) -> int:
        """Return the value of a PodGroup's PriorityClass; the default if it names none that exists.

        A PodGroup of Kubernetes states the value itself: admission resolved its PriorityClass when it was created.
        """
        if group is None:
            return default
        if priority := group.metadata.annotations.get(SOURCE_PRIORITY):
            return int(priority) if _INTEGER.fullmatch(priority) else default
        return self._values.get(group.spec.priority_class_name, default)
