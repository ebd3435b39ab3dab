"""Removes from owners of pods, such as Jobs, all fields that the rules of the pod grouper do not read."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from batchsched.api.core.metadata import ObjectMeta
from batchsched.api.core.pod import QUEUE_LABEL, PodSpec
from batchsched.manifests.stripping import keep_fields_of_class
from batchsched.podgrouper.rules import OwnerKind
from batchsched.podgrouper.shape import mapping_or_empty

_TEMPLATES: Final = frozenset({"template", "leaderTemplate", "workerTemplate"})
"""Fields that contain a pod template, or, in a JobSet, the template of a Job."""
_PARTS_WITH_POD_METADATA: Final = frozenset({"driver", "executor", "cliques"})
"""Fields with parts of Spark and Grove that state labels and annotations of their pods, but have no `metadata`."""
_FREE_KEYS: Final = ("ReplicaSpecs", "replicaStatuses")
"""Endings of the names of fields with names of roles as their keys."""
_READ_FIELDS: Final = frozenset(
    {
        *("spec", "status", "suspend", "completions", "parallelism", "succeeded", "failedIndexes"),
        *("replicatedJobs", "replicatedJobsStatus", "name", "replicas", "dependsOn"),
        *("startupPolicy", "startupPolicyOrder", "leaderWorkerTemplate", "size", "podManagementPolicy"),
        *("runPolicy", "schedulingPolicy", "minAvailable", "scheduleTimeoutSeconds", "queue"),
        *("priorityClass", "elasticPolicy", "minReplicas", "launcherCreationPolicy"),
        *(
            "rayClusterSpec",
            "clusterSelector",
            "headGroupSpec",
            "workerGroupSpecs",
            "numOfHosts",
            "groupName",
        ),
        *("components", "apiVersion", "kind"),
        *("instances", "dynamicAllocation", "enabled", "minExecutors"),
        *("initialExecutors", "batchSchedulerOptions", "priorityClassName"),
        *("podCliqueScalingGroups", "cliqueNames", "topologyConstraint", "topologyName"),
        *("pack", "packDomain", "required", "preferred"),
    }
)
"""The fields of owners that the rules read, at any depth."""


def strip_unread_owner_fields(manifest: Mapping[str, Any], kind: OwnerKind) -> dict[str, Any]:
    """Return an owner of pods, such as a Job, without the fields that the pod grouper does not read."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": keep_fields_of_class(manifest.get("metadata"), ObjectMeta),
        **(_keep_paths(manifest, kind.read_paths) if kind.read_paths else _read_fields(manifest)),
    }


def _keep_paths(manifest: Mapping[str, Any], paths: Iterable[tuple[str | int, ...]]) -> dict[str, Any]:
    """Return the fields of an owner at the paths that an owner rule reads; lists on a path are kept whole."""
    kept: dict[str, Any] = {}
    for path in paths:
        if path[0] != "metadata":
            _keep_path(manifest, kept, path)
    return kept


def _keep_path(value: Any, kept: dict[str, Any], path: tuple[str | int, ...]) -> None:
    name, *rest = path
    if not isinstance(value, dict) or name not in value:
        return
    if not rest or isinstance(rest[0], int):
        kept[str(name)] = _without_containers(value[name])
        return
    below = kept.setdefault(str(name), {})
    if isinstance(below, dict):
        _keep_path(value[name], below, tuple(rest))


def _without_containers(part: Any) -> Any:
    """Return a part of an owner, with pod templates reduced to the fields that decisions read."""
    if isinstance(part, list):
        return [_without_containers(entry) for entry in part]
    if not isinstance(part, dict):
        return part
    spec = part.get("spec")
    if isinstance(spec, dict) and "containers" in spec:
        return _strip_template(part)
    return {name: _without_containers(entry) for name, entry in part.items()}


def _read_fields(value: Mapping[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, part in value.items():
        if name in _TEMPLATES and isinstance(part, dict):
            kept[name] = _strip_template(part)
        elif name in _PARTS_WITH_POD_METADATA:
            kept[name] = _strip_part_with_pod_metadata(part)
        elif name.endswith(_FREE_KEYS) and isinstance(part, dict):
            kept[name] = {role: _strip_part(entry) for role, entry in part.items()}
        elif name in _READ_FIELDS:
            kept[name] = part if name == "clusterSelector" else _strip_part(part)
    return kept


def _strip_part_with_pod_metadata(part: Any) -> Any:
    if isinstance(part, list):
        return [_strip_part_with_pod_metadata(entry) for entry in part]
    if not isinstance(part, dict):
        return part
    metadata = {name: part[name] for name in ("labels", "annotations") if isinstance(part.get(name), dict)}
    kept = keep_fields_of_class(metadata, ObjectMeta)
    if "labels" in kept:
        kept["labels"] = {key: text for key, text in kept["labels"].items() if key == QUEUE_LABEL}
    return {**_read_fields(part), **kept}


def _strip_part(part: Any) -> Any:
    if isinstance(part, dict):
        return _read_fields(part)
    return [_strip_part(entry) for entry in part] if isinstance(part, list) else part


def _strip_template(template: Mapping[str, Any]) -> dict[str, Any]:
    if "cliques" in template:
        return _read_fields(template)  # the template of a PodCliqueSet
    kept: dict[str, Any] = {
        "metadata": keep_fields_of_class(mapping_or_empty(template.get("metadata")), ObjectMeta)
    }
    spec = template.get("spec")
    if "kind" in template:  # a component of an AppWrapper
        if template["kind"] != "Pod":
            return {**_read_fields(template), **kept}
        kept |= {name: template[name] for name in ("apiVersion", "kind") if name in template}
    if isinstance(spec, dict) and "template" in spec:
        return {**kept, "spec": _read_fields(spec)}  # the template of a Job
    return {**kept, "spec": keep_fields_of_class(spec, PodSpec)}
