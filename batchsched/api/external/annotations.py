"""Annotations by which Kueue and KAI-Scheduler state the topology of the pods of a template or of an owner.

Source: `apis/kueue/v1beta2/topology_types.go` of Kueue, and the constants of KAI's pod grouper. Both name a level by
its node label.
"""

from collections.abc import Mapping
from typing import Any, Final

from batchsched.api.core.selector import parse_go_integer

KUEUE_REQUIRED: Final = "kueue.x-k8s.io/podset-required-topology"
KUEUE_PREFERRED: Final = "kueue.x-k8s.io/podset-preferred-topology"
KUEUE_SLICES: Final = "kueue.x-k8s.io/podset-slice-required-topology"
KUEUE_SLICE_SIZE: Final = "kueue.x-k8s.io/podset-slice-size"
KUEUE_GROUP: Final = "kueue.x-k8s.io/podset-group-name"
KAI_TOPOLOGY: Final = "kai.scheduler/topology"
KAI_REQUIRED: Final = "kai.scheduler/topology-required-placement"
KAI_PREFERRED: Final = "kai.scheduler/topology-preferred-placement"
_LEVELS: Final = (
    ("name", (KAI_TOPOLOGY,)),
    ("required", (KUEUE_REQUIRED, KAI_REQUIRED)),
    ("preferred", (KUEUE_PREFERRED, KAI_PREFERRED)),
)


def topology_from_annotations(annotations: Mapping[str, object]) -> dict[str, Any]:
    """Return the topology that annotations of Kueue or KAI state, as fields of a PodGroup or subGroup.

    Slices are left out if their size is missing, 0 or not a whole number; the annotation then counts as unsupported.
    """
    topology: dict[str, Any] = {}
    for field_name, keys in _LEVELS:
        level = next((value for key in keys if isinstance(value := annotations.get(key), str) and value), "")
        if level:
            topology[field_name] = level
    slices, size = annotations.get(KUEUE_SLICES), annotations.get(KUEUE_SLICE_SIZE)
    number = parse_go_integer(size) if isinstance(size, str) else None
    if isinstance(slices, str) and slices and number:
        topology["slices"] = {"level": slices, "size": number}
    return topology if topology.keys() != {"name"} else {}
