"""Removes from owners of pods, such as Jobs, all fields that the rules of the pod grouper do not read."""

from collections.abc import Mapping
from typing import Any, Final

from batchsched.api.core.metadata import ObjectMeta
from batchsched.api.core.pod import PodSpec
from batchsched.manifests.stripping import strip_value
from batchsched.podgrouper.rules import OwnerKind, mapping_or_empty

_TEMPLATES: Final = frozenset({"template", "leaderTemplate", "workerTemplate"})
"""Fields that contain a pod template, or, in a JobSet, the template of a Job."""
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
    }
)
"""The fields of owners that the rules read, at any depth."""


def strip_owner(manifest: Mapping[str, Any], kind: OwnerKind) -> dict[str, Any]:
    """Return an owner of pods, such as a Job, with the fields that determine its gangs and its pods."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": strip_value(manifest.get("metadata"), ObjectMeta),
        **_read_fields(manifest),
    }


def _read_fields(value: Mapping[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, part in value.items():
        if name in _TEMPLATES and isinstance(part, dict):
            kept[name] = _strip_template(part)
        elif name.endswith(_FREE_KEYS) and isinstance(part, dict):
            kept[name] = {role: _strip_part(entry) for role, entry in part.items()}
        elif name in _READ_FIELDS:
            kept[name] = part if name == "clusterSelector" else _strip_part(part)
    return kept


def _strip_part(part: Any) -> Any:
    if isinstance(part, dict):
        return _read_fields(part)
    return [_strip_part(entry) for entry in part] if isinstance(part, list) else part


def _strip_template(template: Mapping[str, Any]) -> dict[str, Any]:
    kept = {"metadata": strip_value(mapping_or_empty(template.get("metadata")), ObjectMeta)}
    spec = template.get("spec")
    if isinstance(spec, dict) and "template" in spec:
        return {**kept, "spec": _read_fields(spec)}  # the template of a Job
    return {**kept, "spec": strip_value(spec, PodSpec)}
