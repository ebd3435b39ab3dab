"""Conversion of the Queues of Volcano (`scheduling.volcano.sh/v1beta1`).

Source: `QueueSpec` of volcano.sh/apis, and the annotations of its plugin drf for hierarchical queues.
"""

from collections.abc import Sequence
from typing import Any, Final

from batchsched.manifests.conversion.source_object import (
    SourceObject,
    format_amounts,
    mapping_or_empty,
    queue_manifest,
)

_HIERARCHY: Final = "volcano.sh/hierarchy"
_WEIGHTS: Final = "volcano.sh/hierarchy-weights"
_ROOT: Final = "root"
_MOST_LEVELS: Final = 64
"""Maximum depth of a hierarchy of queues; the names of the queues above contain the whole path."""
_CONVERTED: Final = (
    *(
        "weight",
        "capability",
        "guarantee",
        "deserved",
        "parent",
        "priority",
        "reclaimable",
        "dequeueStrategy",
    ),
)
_REMARKS: Final = {
    "affinity": "a Queue selects no nodes; state node affinity or a node selector in the pods",
    "extendClusters": "batchsched schedules one cluster",
    "type": "batchsched has no types of queues",
}


def convert_queues(queues: Sequence[SourceObject]) -> list[dict[str, Any]]:
    """Convert the Queues of Volcano, and the queue hierarchies in their annotations, to Queues of batchsched.

    Raises:
      InvalidInput: a quantity is invalid.
    """
    parents: dict[str, dict[str, Any]] = {}
    converted = []
    for queue in queues:
        if queue.name == _ROOT:
            if queue.spec.get("capability") or queue.spec.get("deserved"):
                queue.record_warning(
                    "spec", "the root of the tree has no Queue in batchsched; limit its children"
                )
            continue
        converted.append(_convert(queue, parents))
    names = {queue.name for queue in queues}
    return [*(parent for name, parent in parents.items() if name not in names), *converted]


def _convert(queue: SourceObject, parents: dict[str, dict[str, Any]]) -> dict[str, Any]:
    spec = queue.spec
    queue.record_unconverted_field_warnings(_CONVERTED, _REMARKS)
    reserved = queue.parse_amounts(
        "spec.guarantee.resource", mapping_or_empty(spec.get("guarantee")).get("resource")
    )
    deserved = queue.parse_amounts("spec.deserved", spec.get("deserved"))
    guarantee = {
        resource: max(reserved.get(resource, 0), deserved.get(resource, 0))
        for resource in (*deserved, *reserved)
    }
    # Volcano never lends what spec.guarantee reserves. It lends the rest of spec.deserved, and reclaims it.
    lending = {resource: guarantee[resource] - amount for resource, amount in reserved.items()}
    if spec.get("reclaimable") is False:
        queue.record_warning(
            "spec.reclaimable",
            "other queues may reclaim what the queue uses above its guarantee; set preemptible: false in its PodGroups",
        )
    if spec.get("dequeueStrategy") == "fifo":
        queue.record_warning(
            "spec.dequeueStrategy",
            "a gang that does not fit does not block those behind it; set selection: ordered and blocking: true in the "
            "profile",
        )
    parent = spec.get("parent") if spec.get("parent") != _ROOT else None
    weight = queue.parse_number("spec.weight", spec.get("weight"), 1.0) or 1.0
    if mapping_or_empty(queue.metadata.get("annotations")).get(_HIERARCHY):
        parent, weight = _add_parents(queue, parents)
    return queue_manifest(
        queue.name,
        parent=parent,
        weight=weight,
        priority=queue.parse_integer("spec.priority", spec.get("priority")),
        guarantee=format_amounts(guarantee),
        limit=format_amounts(queue.parse_amounts("spec.capability", spec.get("capability"))),
        lendingLimit=format_amounts(lending),
    )


def _add_parents(queue: SourceObject, parents: dict[str, dict[str, Any]]) -> tuple[str | None, float]:
    """Add the ancestors of a queue that its annotations state; return its parent (or None) and its weight."""
    annotations = mapping_or_empty(queue.metadata.get("annotations"))
    path = str(annotations[_HIERARCHY]).split("/")
    if len(path) > _MOST_LEVELS:
        raise queue.invalid_field_error(
            f"metadata.annotations[{_HIERARCHY}]", f"has {len(path)} levels; expected at most {_MOST_LEVELS}"
        )
    try:
        weights = [float(text) for text in str(annotations.get(_WEIGHTS, "")).split("/")]
    except ValueError:
        weights = []
    if len(weights) != len(path):
        queue.record_warning(
            f"metadata.annotations[{_WEIGHTS}]", f"expected {len(path)} numbers; the weights are left out"
        )
        weights = [1.0] * len(path)
    parent = None
    for depth in range(1, len(path) - 1):
        name = "-".join(path[1 : depth + 1])
        outer_queue = queue_manifest(name, parent=parent, weight=weights[depth])
        if parents.setdefault(name, outer_queue) != outer_queue:
            queue.record_warning(
                f"metadata.annotations[{_WEIGHTS}]",
                f"another queue states another weight of {name}, which counts",
            )
        parent = name
    return parent, weights[-1]
