"""The rules for Spark: SparkApplication of the Spark operator, and drivers that spark-submit creates.

A running driver creates the executors. So the driver starts alone, and the executors are elastic pods of its gang.
"""

import contextlib
from typing import Any, Final

from batchsched.api.core.pod import Pod
from batchsched.api.core.quantity import parse_quantity_in_base_units
from batchsched.api.owner_keys import SPARK_DRIVER, SPARK_ROLE
from batchsched.errors import InvalidQuantity
from batchsched.podgrouper.shape import (
    Manifest,
    OwnerGangShape,
    OwnerPart,
    mapping_or_empty,
    pod_count_or_default,
    spec_of,
    text_or_empty,
)

EXECUTOR: Final = "executor"
_MIB: Final = 1024 * 1024
_LEAST_OVERHEAD: Final = 384 * _MIB
"""Bytes that Spark adds to the memory of a pod at least. Source: `spark.driver.memoryOverhead` of Spark."""
_OVERHEAD_FACTOR: Final = 0.1
_OVERHEAD_FACTOR_WITHOUT_JVM: Final = 0.4
"""Parts of the memory that Spark adds. Source: `spark.kubernetes.memoryOverheadFactor` of Spark."""
_WITHOUT_JVM: Final = ("Python", "R")


def spark_application_gang_shape(manifest: Manifest) -> OwnerGangShape | None:
    """Return how the pods of a SparkApplication form a gang: the driver is needed, the executors are elastic.

    The result is None if the SparkApplication is suspended.

    Source: `SparkApplicationSpec` of sparkoperator.k8s.io/v1beta2.
    """
    spec = spec_of(manifest)
    if spec.get("suspend") is True:
        return None
    options = mapping_or_empty(spec.get("batchSchedulerOptions"))
    spec_fields: dict[str, Any] = {"disruptionMode": "Elastic"}
    for option, field_name in (("queue", "queue"), ("priorityClassName", "priorityClassName")):
        if text_or_empty(options.get(option)):
            spec_fields[field_name] = options[option]
    parts = (
        OwnerPart(SPARK_DRIVER, 1, 1, _template(spec, SPARK_DRIVER), field="spec.driver"),
        OwnerPart(EXECUTOR, _executors(spec), 0, _template(spec, EXECUTOR), field="spec.executor"),
    )
    return OwnerGangShape(parts, (SPARK_ROLE,), spec_fields=spec_fields, most_member=1)


def spark_driver_gang_shape(pod: Pod) -> OwnerGangShape:
    """Return how a driver that spark-submit created forms a gang with its executors.

    The number of executors is unknown.
    """
    labels = {"metadata": {"labels": dict(pod.labels)}}
    parts = (OwnerPart(SPARK_DRIVER, 1, 1, labels), OwnerPart(EXECUTOR, 0, 0))
    return OwnerGangShape(parts, (SPARK_ROLE,), spec_fields={"disruptionMode": "Elastic"}, most_member=1)


def _executors(spec: Manifest) -> int:
    """Return the number of executors with which a SparkApplication starts."""
    allocation = mapping_or_empty(spec.get("dynamicAllocation"))
    instances = pod_count_or_default(mapping_or_empty(spec.get("executor")).get("instances"), 1)
    if allocation.get("enabled") is not True:
        return instances
    least = pod_count_or_default(allocation.get("minExecutors"))
    return max(least, pod_count_or_default(allocation.get("initialExecutors"), instances))


def _template(spec: Manifest, role: str) -> Manifest:
    """Return the template of the pods that Spark creates for a role, as far as it affects their placement."""
    part = mapping_or_empty(spec.get(role))
    template = mapping_or_empty(part.get("template"))
    pod, meta = dict(mapping_or_empty(template.get("spec"))), mapping_or_empty(template.get("metadata"))
    node_selector = {
        **mapping_or_empty(pod.get("nodeSelector")),
        **mapping_or_empty(spec.get("nodeSelector")),
        **mapping_or_empty(part.get("nodeSelector")),
    }
    if node_selector:
        pod["nodeSelector"] = node_selector
    for name in ("affinity", "tolerations", "schedulerName", "priorityClassName"):
        if part.get(name):
            pod[name] = part[name]
    if spec.get("batchScheduler") and not pod.get("schedulerName"):
        pod["schedulerName"] = spec["batchScheduler"]
    containers = [entry for entry in pod.get("containers") or () if isinstance(entry, dict)] or [{}]
    first = {"name": f"spark-kubernetes-{role}", "image": part.get("image") or spec.get("image") or "spark"}
    pod["containers"] = [{**first, **containers[0], "resources": _resources(spec, part)}, *containers[1:]]
    return {
        "metadata": {
            "labels": {
                **mapping_or_empty(meta.get("labels")),
                **mapping_or_empty(part.get("labels")),
                SPARK_ROLE: role,
            },
            "annotations": {
                **mapping_or_empty(meta.get("annotations")),
                **mapping_or_empty(part.get("annotations")),
            },
        },
        "spec": pod,
    }


def _resources(spec: Manifest, part: Manifest) -> Manifest:
    cpu = text_or_empty(part.get("coreRequest")) or str(pod_count_or_default(part.get("cores"), 1))
    requests = {"cpu": cpu, "memory": str(_memory(spec, part))}
    gpu = mapping_or_empty(part.get("gpu"))
    devices = {str(gpu["name"]): str(pod_count_or_default(gpu.get("quantity")))} if gpu.get("name") else {}
    return {"requests": {**requests, **devices}, **({"limits": devices} if devices else {})}


def _memory(spec: Manifest, part: Manifest) -> int:
    """Return the memory that Spark requests for a pod, in bytes: that of the process and an overhead."""
    memory = _bytes_of(text_or_empty(part.get("memory")) or "1g")
    overhead = text_or_empty(part.get("memoryOverhead"))
    if overhead:
        return memory + _bytes_of(overhead)
    factor = _OVERHEAD_FACTOR_WITHOUT_JVM if spec.get("type") in _WITHOUT_JVM else _OVERHEAD_FACTOR
    added = int(memory * factor)
    with contextlib.suppress(ValueError, OverflowError):  # a text such as "much", "nan" or "inf" is ignored
        added = int(memory * float(text_or_empty(spec.get("memoryOverheadFactor"))))
    return memory + max(_LEAST_OVERHEAD, added)


def _bytes_of(text: str) -> int:
    """Return an amount of memory in the notation of the JVM, such as `512m`, in bytes; without a unit, it is in MiB."""
    number = text.strip().lower().removesuffix("b").removesuffix("i")
    try:
        if number[-1:] in ("k", "m", "g", "t", "p"):
            unit = number[-1].upper() if number[-1] != "k" else "K"
            return parse_quantity_in_base_units("memory", f"{number[:-1]}{unit}i")
        return parse_quantity_in_base_units("memory", f"{number}Mi")
    except InvalidQuantity:
        return 0
