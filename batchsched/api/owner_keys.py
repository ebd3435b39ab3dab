"""The labels and annotations of owners of pods, such as Jobs, that set fields of their PodGroups.

They belong in the metadata of the owner. In a pod template, only the queue has an effect.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from batchsched.api.core.pod import (
    LAST_CHECKPOINT,
    POD_GROUP_LABEL,
    QUEUE_LABEL,
    SUB_GROUP_LABEL,
    USER_LABEL,
    Pod,
)
from batchsched.api.crd.base import GROUP
from batchsched.api.crd.validation import suggest_name

MIN_MEMBER: Final = f"{GROUP}/min-member"
PRIORITY_CLASS: Final = f"{GROUP}/priority-class"
TOPOLOGY: Final = f"{GROUP}/topology"
REQUIRED: Final = f"{GROUP}/required-topology"
PREFERRED: Final = f"{GROUP}/preferred-topology"
OWNER_KEYS: Final = frozenset({QUEUE_LABEL, MIN_MEMBER, PRIORITY_CLASS, TOPOLOGY, REQUIRED, PREFERRED})
"""Keys that batchsched reads from owners, as a label or as an annotation."""
SPARK_ROLE: Final = "spark-role"
"""Label of drivers and executors of Spark."""
SPARK_DRIVER: Final = "driver"
SPARK_APPLICATION: Final = "sparkoperator.k8s.io/app-name"
"""Label by which the Spark operator names the SparkApplication of drivers and executors."""
_KEYS_OF_PODS: Final = frozenset({POD_GROUP_LABEL, SUB_GROUP_LABEL, USER_LABEL, LAST_CHECKPOINT})
"""Keys that controllers copy from pod templates to owners that they create, such as ReplicaSets."""


def unknown_owner_metadata_key_warnings(metadata: Mapping[str, object]) -> Iterator[str]:
    """Yield a warning for each label or annotation of an owner with batchsched's prefix but an unknown name.

    Args:
      metadata: the metadata in the manifest of the owner; values of wrong types are skipped.
    """
    for place in ("labels", "annotations"):
        keys = metadata.get(place)
        for key in sorted(keys) if isinstance(keys, dict) else ():
            if key.startswith(f"{GROUP}/") and key not in OWNER_KEYS | _KEYS_OF_PODS:
                advice = suggest_name(key, sorted(OWNER_KEYS))
                yield f"metadata.{place}: unknown {place[:-1]} {key!r} has no effect; {advice}"


def ineffective_template_metadata_key_warnings(metadata: Mapping[str, object]) -> Iterator[str]:
    """Yield a warning for each label or annotation of a pod template that batchsched reads only from owners.

    There is also a warning for each key with the prefix of batchsched and an unknown name.

    Args:
      metadata: the metadata of the pod template; values of wrong types are skipped.
    """
    for place in ("labels", "annotations"):
        keys = metadata.get(place)
        for key in sorted(keys) if isinstance(keys, dict) else ():
            if key in OWNER_KEYS - {QUEUE_LABEL}:
                yield f"spec.template.metadata.{place}: {key!r} has no effect on pods; move it to metadata.{place}"
    for sentence in unknown_owner_metadata_key_warnings(metadata):
        yield f"spec.template.{sentence}"


def is_spark_driver_without_application(pod: Pod) -> bool:
    """Return whether a pod is a Spark driver that was not created for a SparkApplication.

    Such a driver is itself the owner of its executors.
    """
    return pod.metadata.label(SPARK_ROLE) == SPARK_DRIVER and not pod.metadata.label(SPARK_APPLICATION)


def owner_title_for_messages(pod: Pod) -> str:
    """Return the kind, namespace and name of a pod's controller as text for messages.

    For a pod without a controller, the text is a general description of an owner.
    """
    owner = pod.metadata.controller_owner
    if owner is None:
        return "the workload that creates the pods"
    return f"{owner.kind} {pod.namespace}/{owner.name}"
