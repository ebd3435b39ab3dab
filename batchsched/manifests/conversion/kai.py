"""Conversion of the Queues of KAI-Scheduler (`scheduling.run.ai/v2`).

Source: `QueueSpec` of its API: the quota of `cpu` is in millicores, of `memory` in 10^6 bytes, and of `gpu` in devices.
"""

import math
from collections.abc import Sequence
from typing import Any, Final

from batchsched.config.extenders import parse_duration
from batchsched.manifests.conversion.source_object import (
    SourceObject,
    format_amounts,
    mapping_or_empty,
    queue_manifest,
)

_CONVERTED: Final = ("parentQueue", "resources", "priority", "reclaimMinRuntime")
_REMARKS: Final = {
    "displayName": "batchsched shows the name of a Queue",
    "preemptMinRuntime": "state minRuntimeSeconds in the PodGroups; a Queue limits it by maxMinRuntimeSeconds",
}
_UNITS: Final = {"gpu": ("nvidia.com/gpu", 1), "cpu": ("cpu", 1), "memory": ("memory", 10**6)}
"""The resource of Kubernetes, and the number of its base units in one unit of KAI."""
_UNLIMITED: Final = -1


def convert_queues(queues: Sequence[SourceObject]) -> list[dict[str, Any]]:
    """Convert the Queues of KAI-Scheduler to Queues of batchsched."""
    names = {queue.name for queue in queues}
    for queue in queues:
        parent = queue.spec.get("parentQueue")
        if isinstance(parent, str) and parent and parent not in names:
            queue.record_warning(
                "spec.parentQueue",
                f"there is no Queue {parent!r} in the input; batchsched sets aside a Queue without its parent",
            )
    return [_convert(queue) for queue in queues]


def _convert(queue: SourceObject) -> dict[str, Any]:
    spec = queue.spec
    queue.record_unconverted_field_warnings(_CONVERTED, _REMARKS)
    guarantee, limit = {}, {}
    weights: dict[str, float] = {}
    for resource, quotas in mapping_or_empty(spec.get("resources")).items():
        field = f"spec.resources.{resource}"
        if resource not in _UNITS:
            queue.record_warning(field, "expected gpu, cpu or memory")
            continue
        name, unit = _UNITS[resource]
        quota = _number(queue, field, quotas, "quota", 0)
        bound = _number(queue, field, quotas, "limit", _UNLIMITED)
        weights[resource] = _number(queue, field, quotas, "overQuotaWeight", 0)
        if quota == _UNLIMITED:
            queue.record_warning(
                f"{field}.quota", "an unlimited guarantee has no counterpart; the queue has none"
            )
        elif quota > 0:
            guarantee[name] = math.floor(quota * unit)
            if guarantee[name] != quota * unit:
                queue.record_warning(f"{field}.quota", f"{quota:g} is rounded down to whole units")
        if bound != _UNLIMITED:
            limit[name] = math.floor(bound * unit)
            if guarantee.get(name, 0) > limit[name]:
                queue.record_warning(f"{field}.quota", "is above the limit; the limit is the guarantee")
                guarantee[name] = limit[name]
    return queue_manifest(
        queue.name,
        parent=spec.get("parentQueue"),
        weight=_weight(queue, weights),
        priority=queue.parse_integer("spec.priority", spec.get("priority")),
        guarantee=format_amounts(guarantee),
        limit=format_amounts(limit),
        reclaimMinRuntimeSeconds=_seconds(queue, spec.get("reclaimMinRuntime")) or None,
    )


def _number(queue: SourceObject, field: str, quotas: object, name: str, default: float) -> float:
    return queue.parse_number(f"{field}.{name}", mapping_or_empty(quotas).get(name), default)


def _weight(queue: SourceObject, weights: dict[str, float]) -> float:
    """Return the weight of a queue for GPUs, or for the first resource if none is stated for GPUs."""
    if not weights:
        return 1.0
    weight = weights.get("gpu", next(iter(weights.values())))
    if len(set(weights.values())) > 1:
        chosen = "gpu" if "gpu" in weights else next(iter(weights))
        queue.record_warning(
            "spec.resources.*.overQuotaWeight",
            f"a Queue has one weight for all resources; {weight:g}, that of {chosen}, is used",
        )
    return weight


def _seconds(queue: SourceObject, duration: object) -> int:
    if not duration:
        return 0
    try:
        return round(parse_duration(str(duration)))
    except ValueError as error:
        raise queue.invalid_field_error("spec.reclaimMinRuntime", str(error)) from error
