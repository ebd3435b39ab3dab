"""A copy of a cluster in memory, to which a what-if session adds the objects in files as if they were new.

Nothing is written. An owner of pods, such as a Job or a PyTorchJob, adds the pods that its controller would create.
They are grouped into gangs by the same rules as in a live cluster.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from batchsched.api.core.metadata import format_timestamp
from batchsched.api.core.pod import Pod
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.gang import gang_key_of_pod
from batchsched.api.snapshot import KIND_BY_GROUP_AND_NAME, ObjectKind, api_group
from batchsched.api.template_claims import UID_PREFIX_OF_HYPOTHETICAL_OBJECTS
from batchsched.errors import CommandError, InvalidInput
from batchsched.manifests.documents import Document, format_kind_and_name, split_documents
from batchsched.manifests.reader import find_manifest_files
from batchsched.manifests.unknown_fields import unknown_field_warnings
from batchsched.podgrouper.owners import decode_owner_of_file
from batchsched.podgrouper.rules import OwnerKind
from batchsched.podgrouper.shape import (
    MOST_ADDED_PODS,
    OwnerGangShape,
    OwnerPart,
    mapping_or_empty,
    pod_count_or_default,
    raise_if_too_many_pods,
    spec_of,
    text_or_empty,
)
from batchsched.podgrouper.training_rules import TRAINING_RUNTIMES
from batchsched.scheduler.app import SchedulerApp


@dataclass(slots=True)
class WhatIfCluster:
    """A copy of a live cluster in memory, to which the objects in manifest files can be added.

    Args:
      service: The scheduler that `create_scheduler_from_cluster` returned.
      scheduler_name: The scheduler name that all added pods get, if `adopts_pods` is True.
      now: The creation time of the objects, seconds since 1970.
      namespace: The namespace of added objects that name none.
      adopts_pods: Whether pods of other schedulers are added as pods of this one.
    """

    service: SchedulerApp
    scheduler_name: str
    now: float
    namespace: str = "default"
    adopts_pods: bool = True
    warnings: list[str] = field(init=False, default_factory=list)
    pods: set[str] = field(init=False, default_factory=set)
    groups: set[str] = field(init=False, default_factory=set)
    templates: list[dict[str, Any]] = field(init=False, default_factory=list)
    """Objects that state the pods of other objects: the runtimes of TrainJobs."""

    def add_objects_from_files(self, files: Sequence[Path]) -> None:
        """Add all objects in manifest files to the listed cluster.

        Raises:
          InvalidInput: An object is invalid.
          CommandError: The files contain nothing that adds pods or PodGroups.
        """
        parsed = [
            document
            for source in find_manifest_files(files)
            for document in split_documents(source.read(), source.name)
        ]
        # Pods come last: PodGroups and queues must exist before them, in whatever order the files name them.
        for document in sorted(parsed, key=addition_sort_key):
            if isinstance(document, InvalidInput):
                raise document
            self.add_document(document)
        self.warnings += unknown_field_warnings(parsed, self.service.grouper.kinds.kinds_read_from_files)
        if not self.pods and not self.groups:
            names = ", ".join(map(str, files))
            raise CommandError(
                f"{names}: there is no pod, PodGroup or owner of pods in it, such as a Job; add one"
            )

    def added_gang_keys(self) -> list[str]:
        """Return the `namespace/name` of each added gang: of its PodGroup or of its single pod."""
        cache = self.service.cache
        waiting = (cache.get("pods", key) for key in sorted(self.pods))
        members = {gang_key_of_pod(pod) for pod in waiting if pod is not None}
        return sorted(members | self.groups)

    def add_document(self, document: Document) -> None:
        """Add the object of a manifest; if the object is an owner such as a Job, add its pods too.

        The pods are those that the controller of the owner would create.

        Raises:
          InvalidInput: The object is invalid.
        """
        envelope = document.envelope
        name = (api_group(envelope.api_version), envelope.kind)
        manifest = msgspec.json.decode(document.raw)
        owner = self.service.grouper.kinds.by_group_and_name.get(name)
        kind = KIND_BY_GROUP_AND_NAME.get(name)
        if name in TRAINING_RUNTIMES:
            self.templates.append(manifest)
        elif owner is not None:
            self._put_owner(owner, manifest, document.file)
        elif kind is not None:
            self._put_object(kind, manifest, document.file)
        elif external := [
            reflector
            for reflector in self.service.reflectors
            if (reflector.resource.api_version, reflector.resource.kind)
            == (envelope.api_version, envelope.kind)
        ]:
            self._born(manifest, namespaced=external[0].resource.namespaced)
            for reflector in external:
                reflector.add_or_update_from_json(msgspec.json.encode(manifest))
        else:
            self.warnings.append(f"{document.file}: {envelope.kind or 'what has no kind'} is passed over")

    def _put_object(self, kind: ObjectKind, manifest: dict[str, Any], file: str) -> None:
        meta = self._born(manifest, namespaced=kind.namespaced)
        key = f"{meta['namespace']}/{meta['name']}" if kind.namespaced else meta["name"]
        existing = self.service.cache.get(kind.field, key)
        if existing is not None and existing.metadata.creation_timestamp:
            # The manifest changes an object of the cluster, and a change does not make it younger.
            meta["creationTimestamp"] = existing.metadata.creation_timestamp
        if kind.type is Pod:
            self._make_pending(manifest)
        event_handler = self.service.followed.event_handlers[kind.field]
        event_handler.add_or_update_from_json(msgspec.json.encode(manifest))
        refused = event_handler.set_aside_objects.pop(key, None)
        if refused is not None:
            why = refused.why
            raise InvalidInput(why.message, file=file, object=why.object, field=why.field)
        if kind.type is Pod:
            self.pods.add(key)
        elif kind.type is PodGroup:
            self.groups.add(key)

    def _put_owner(self, kind: OwnerKind, manifest: dict[str, Any], file: str) -> None:
        meta = self._born(manifest, namespaced=True)
        manifest.pop("status", None)
        title = format_kind_and_name(kind.name, meta["namespace"], meta["name"])
        owner = decode_owner_of_file(kind, msgspec.json.encode(manifest), file, title)
        title = owner.kind_and_name
        _check_pod_counts(manifest, file, title)
        self.warnings += [f"{file}: {title}: {warning}" for warning in owner.warnings]
        shape = kind.rule(manifest)
        children = self._children(kind, manifest, file, title)
        if shape is None and not children:
            self.warnings.append(
                f"{kind.name} {meta['name']} makes no gang of pods (suspended, or one by one)"
            )
            return
        _check_templates(shape.parts if shape is not None else (), file, title)
        gangs = _gang_count(shape, manifest) if shape is not None and kind.children is None else 0
        added = sum(child.get("kind") == "Pod" for child in children)
        self._check_room(added + (gangs * shape.pod_count_per_gang if shape is not None else 0), file, title)
        self.service.grouper.members.owners.put_owner(owner)
        reference = {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "name": meta["name"],
            "uid": meta["uid"],
            "controller": True,
        }
        for child in children:
            self._put_child(child, meta["namespace"], reference, file)
        if shape is not None and gangs:
            group = self._put_pod_group_of_job(manifest, reference, file) if kind.name == "Job" else ""
            self._put_pods(shape, manifest, reference, file, group)

    def _check_room(self, pods: int, file: str, title: str) -> None:
        """Check that an owner adds no more pods than may be added.

        Raises:
          InvalidInput: It makes too many pods.
        """
        more = " more" if self.pods else ""
        try:
            raise_if_too_many_pods(pods, MOST_ADDED_PODS - len(self.pods), more)
        except InvalidInput as error:
            raise InvalidInput(error.message, file=file, object=title, field=error.field) from error

    def _children(
        self, kind: OwnerKind, manifest: dict[str, Any], file: str, title: str
    ) -> list[dict[str, Any]]:
        """Return the objects that the controller of an owner creates; [] if it is suspended or creates pods itself."""
        if kind.children is None or spec_of(manifest).get("suspend") is True:
            return []
        try:
            return kind.children(manifest, self.templates)
        except InvalidInput as error:
            raise InvalidInput(error.message, file=file, object=title, field=error.field) from error

    def _put_child(self, child: dict[str, Any], namespace: str, owner: Mapping[str, Any], file: str) -> None:
        """Add an object that the controller of an owner creates; an object without pods is passed over."""
        meta = dict(mapping_or_empty(child.get("metadata")))
        child["metadata"] = {"ownerReferences": [owner], **meta, "namespace": namespace}
        name = (api_group(text_or_empty(child.get("apiVersion"))), text_or_empty(child.get("kind")))
        kind = self.service.grouper.kinds.by_group_and_name.get(name)
        if kind is not None:
            self._put_owner(kind, child, file)
        elif name == ("", "Pod"):
            self._put_object(KIND_BY_GROUP_AND_NAME[name], child, file)

    def _put_pod_group_of_job(self, job: Mapping[str, Any], reference: Mapping[str, Any], file: str) -> str:
        """Add the PodGroup that the Job controller creates for `spec.scheduling`; return its name, "" if there is none.

        Only Jobs that state `spec.scheduling` get one here, since the feature gate is disabled by default. The Job
        controller appends hashes to the name.

        Source: job_scheduling_manager.go of k8s.io/kubernetes/pkg/controller/job, with the gate WorkloadWithJob.
        """
        spec, meta = spec_of(job), mapping_or_empty(job.get("metadata"))
        scheduling = mapping_or_empty(spec.get("scheduling"))
        template = mapping_or_empty(mapping_or_empty(spec.get("template")).get("spec"))
        if not scheduling or meta.get("ownerReferences") or template.get("schedulingGroup"):
            return ""
        policy = dict(mapping_or_empty(scheduling.get("schedulingPolicy"))) or {"basic": {}}
        if "gang" in policy:
            policy["gang"] = {
                "minCount": pod_count_or_default(spec.get("parallelism"), 1),
                **mapping_or_empty(policy["gang"]),
            }
        group_spec = {**scheduling, "schedulingPolicy": policy}
        if template.get("priorityClassName"):
            group_spec["priorityClassName"] = template["priorityClassName"]
        name = f"{meta['name']}-pgt-0"
        group = {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": meta["namespace"], "ownerReferences": [reference]},
            "spec": group_spec,
        }
        (document,) = split_documents(msgspec.json.encode(group), file)
        if isinstance(document, InvalidInput):
            raise document
        self.add_document(document)
        return name

    def _put_pods(
        self,
        shape: OwnerGangShape,
        manifest: Mapping[str, Any],
        owner: Mapping[str, Any],
        file: str,
        scheduling_group: str,
    ) -> None:
        """Add the pods that the controller of an owner creates by its shape.

        Args:
          shape: The gangs of the owner.
          manifest: The owner.
          owner: The reference to the owner.
          file: The file of the owner, for messages.
          scheduling_group: The PodGroup of Kubernetes that the pods name; "" for none.
        """
        meta = mapping_or_empty(manifest.get("metadata"))
        for gang in range(_gang_count(shape, manifest)):
            gang_labels = {shape.gang_label: str(gang)} if shape.gang_label else {}
            for part in shape.parts:
                labels = {**gang_labels, **dict.fromkeys(shape.sub_group_labels[:1], part.name)}
                prefix = "-".join(
                    part_of_name
                    for part_of_name in (meta["name"], *gang_labels.values(), part.name)
                    if part_of_name
                )
                for pod in part.create_pods(prefix, labels, owner):
                    pod["metadata"]["namespace"] = meta["namespace"]
                    if scheduling_group:
                        pod["spec"] = {**pod["spec"], "schedulingGroup": {"podGroupName": scheduling_group}}
                    self._put_object(KIND_BY_GROUP_AND_NAME["", "Pod"], pod, file)

    def _born(self, manifest: dict[str, Any], *, namespaced: bool) -> dict[str, Any]:
        """Set the metadata that the API server would set: name, namespace, UID and creation time."""
        meta: dict[str, Any] = dict(mapping_or_empty(manifest.get("metadata")))
        if not text_or_empty(meta.get("name")):
            prefix = text_or_empty(meta.get("generateName")) or "unnamed-"
            meta["name"] = f"{prefix}{len(self.pods) + len(self.groups)}"
        if namespaced:
            meta.setdefault("namespace", self.namespace)
        meta["uid"] = (
            f"{UID_PREFIX_OF_HYPOTHETICAL_OBJECTS}{text_or_empty(manifest.get('kind'))}"
            f"-{meta.get('namespace', '')}-{meta['name']}"
        )
        meta["creationTimestamp"] = format_timestamp(self.now)
        manifest["metadata"] = meta
        return meta

    def _make_pending(self, pod: dict[str, Any]) -> None:
        spec = dict(mapping_or_empty(pod.get("spec")))
        spec.pop("nodeName", None)
        scheduler_name = text_or_empty(spec.get("schedulerName")) or "default-scheduler"
        if scheduler_name != self.scheduler_name:
            line = f"pods of schedulerName {scheduler_name} are looked at as if they stated {self.scheduler_name}"
            if not self.adopts_pods:
                line = (
                    f"pods are ignored, since {scheduler_name!r} schedules them; "
                    f"set spec.schedulerName: {self.scheduler_name} in the pod template to schedule them here"
                )
            if line not in self.warnings:
                self.warnings.append(line)
        if self.adopts_pods:
            spec["schedulerName"] = self.scheduler_name
        pod["spec"] = spec
        pod.pop("status", None)


def _gang_count(shape: OwnerGangShape, manifest: Mapping[str, Any]) -> int:
    """Return the number of gangs of an owner with a controller that creates pods of this shape."""
    return pod_count_or_default(spec_of(manifest).get("replicas"), 1) if shape.gang_label else 1


_POD_COUNTS: Final = frozenset({"parallelism", "completions", "replicas", "minReplicas", "maxReplicas"})
"""Fields of owners, and of their parts, that are numbers of pods."""
_POD_COUNTS_OF_PARTS: Final = {"leaderWorkerTemplate": "size", "executor": "instances"}
"""By field of an owner: the number of pods in it."""
_NO_OWNER_PARTS: Final = frozenset(
    {
        "metadata",
        "containers",
        "initContainers",
        "volumes",
        "rayStartParams",
        "sparkConf",
        "hadoopConf",
        "status",
    }
)
"""Fields in which keys are no fields of the owner."""


def _check_pod_counts(manifest: Mapping[str, Any], file: str, name: str) -> None:
    """Check the numbers of pods in the spec of an owner and of its parts, which an API server would check.

    Raises:
      InvalidInput: A number is not a whole number from 0 on.
    """
    for field_name, value in _pod_counts(spec_of(manifest), "spec"):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            raise InvalidInput(
                f"expected a whole number, 0 or more; found {str(value)[:40]!r}",
                file=file,
                object=name,
                field=field_name,
            )


def _pod_counts(part: object, place: str) -> Iterator[tuple[str, object]]:
    """Yield (field, value) of each number of pods in a part of an owner."""
    if isinstance(part, Mapping):
        for key, value in part.items():
            field_name = f"{place}.{key}"
            if key in _POD_COUNTS or key == _POD_COUNTS_OF_PARTS.get(place.rpartition(".")[2]):
                yield field_name, value
            elif key not in _NO_OWNER_PARTS:
                yield from _pod_counts(value, field_name)
    elif isinstance(part, list):
        for index, entry in enumerate(part):
            yield from _pod_counts(entry, f"{place}[{index}]")


def _check_templates(parts: Sequence[OwnerPart], file: str, name: str) -> None:
    """Check that the pod templates of an owner have containers, which an API server would check.

    Raises:
      InvalidInput: A part of the owner has no pod template, or one without containers.
    """
    for part in parts:
        if not part.pods:
            continue
        problem, field_name = "", part.field
        if not part.template:
            problem = "the pod template is missing; add it with the containers of the pods"
        elif not mapping_or_empty(part.template.get("spec")).get("containers"):
            problem, field_name = "expected at least one container", f"{part.field}.spec.containers"
        if problem:
            raise InvalidInput(problem, file=file, object=name, field=field_name)


def addition_sort_key(document: Document | InvalidInput) -> int:
    """Return the sort key by which manifests are added: the runtimes of TrainJobs first, and pods last."""
    if not isinstance(document, Document):
        return 1
    envelope = document.envelope
    if (api_group(envelope.api_version), envelope.kind) in TRAINING_RUNTIMES:
        return 0
    return 2 if envelope.kind == "Pod" else 1
