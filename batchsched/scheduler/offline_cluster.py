"""A cluster that was read from files, in the same form in which the scheduler keeps a live cluster.

Dumps are loaded by the same code as the objects of a live cluster, so both result in the same decision. Owners in
manifests that no API server has created yet get the pods that their controllers would create.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from batchsched.api.core.pod import Pod
from batchsched.api.decision import SetAside
from batchsched.api.snapshot import OBJECT_KINDS, Snapshot, api_group
from batchsched.errors import InvalidInput
from batchsched.kube.clock import SystemClock
from batchsched.kube.connection import Connection
from batchsched.kube.credentials import CredentialsReader
from batchsched.kube.reflector import Reflector
from batchsched.manifests.api_server import snapshot_with_creation_times_and_claims
from batchsched.manifests.documents import (
    ENVELOPE_DECODER,
    Document,
    Envelope,
    not_an_object_error,
    split_documents,
)
from batchsched.manifests.reader import ReadResult, find_manifest_files, skipped_kind_warnings
from batchsched.manifests.unknown_fields import unknown_field_warnings
from batchsched.podgrouper.owners import (
    decode_owner_of_file,
    gang_owner_reference_of_pod,
    owner_and_pod_template_warnings,
)
from batchsched.podgrouper.training_rules import TRAINING_RUNTIMES
from batchsched.record.cluster_files import SessionSettings
from batchsched.record.dump import ClusterDump
from batchsched.runner.event_handlers import read_identity
from batchsched.scheduler.app import SchedulerApp
from batchsched.scheduler.live_snapshot import list_set_aside_objects
from batchsched.scheduler.what_if_cluster import WhatIfCluster, addition_sort_key


@dataclass(slots=True)
class OfflineCluster:
    """A cluster that was read from files, in the same form in which the scheduler keeps a live cluster.

    Args:
      settings: the time and the profile of the session.
    """

    settings: SessionSettings
    service: SchedulerApp = field(init=False)
    """A scheduler that opens no connection."""
    remainder: Snapshot = field(init=False, default_factory=Snapshot)
    """What no object states: held gangs, usage, reservations, and the objects that were set aside."""
    warnings: list[str] = field(init=False, default_factory=list)
    """Messages for users."""
    dump_file: str = field(init=False, default="")
    """The file of the dump that was loaded."""

    def __post_init__(self) -> None:
        clock, profiles = SystemClock(), [self.settings.profile]
        self.service = SchedulerApp(
            Connection(CredentialsReader(), clock), clock, profiles, grouping=self.settings.grouping
        )

    def snapshot(self) -> Snapshot:
        """Return the cluster as the input of a session."""
        remainder = self.remainder
        snapshot = snapshot_with_creation_times_and_claims(self.service.cache.snapshot(), self.settings.now)
        return replace(
            snapshot,
            held=remainder.held,
            resting=remainder.resting,
            rejected=remainder.rejected,
            usage=remainder.usage,
            reservations=remainder.reservations,
            refused_evictions=remainder.refused_evictions,
            chosen_policy=remainder.chosen_policy,
            set_aside=(
                *remainder.set_aside,
                *snapshot.set_aside,
                *list_set_aside_objects(self.service, self.dump_file),
            ),
        )

    def load_dump(self, dump: ClusterDump) -> None:
        """Load the objects of a dump through the same reflectors that load the objects of a live cluster."""
        self.dump_file = dump.file
        reflectors: dict[tuple[str, str], list[Reflector]] = defaultdict(list)
        for reflector in self.service.reflectors:
            reflectors[reflector.resource.api_version, reflector.resource.kind].append(reflector)
        items: list[tuple[Envelope, bytes]] = []
        for number, item in enumerate(dump.items, start=1):
            try:
                items.append((ENVELOPE_DECODER.decode(item), bytes(item)))
            except (ValueError, RecursionError) as error:
                self.record_set_aside(not_an_object_error(error, item, dump.file, f"(item {number})"))
        # Owners first and pods last, so that no pod is assigned to a gang twice.
        owner_kinds = self.service.grouper.kinds.by_group_and_name
        items.sort(key=lambda item: (item[0].kind == "Pod", _kind_name(item[0]) not in owner_kinds))
        skipped: Counter[tuple[str, str]] = Counter()
        for envelope, raw in items:
            kind = envelope.api_version, envelope.kind
            for reflector in reflectors[kind]:
                reflector.add_or_update_from_json(raw)
            if not reflectors[kind]:
                skipped[kind] += 1
        self.warnings += skipped_kind_warnings(skipped)

    def load_snapshot(self, snapshot: Snapshot) -> None:
        """Load the objects of a Snapshot into the cluster state. Pods of known owners join their gangs."""
        self.remainder = replace(snapshot, set_aside=(*snapshot.set_aside, *self.remainder.set_aside))
        members = self.service.grouper.members
        for kind in OBJECT_KINDS:
            if kind.type is not Pod:
                self.service.grouper.store_for(kind).replace(kind.type, getattr(snapshot, kind.field))
        for pod in snapshot.pods:
            members.add_owner_if_spark_driver(pod)
        refs = [(pod, gang_owner_reference_of_pod(pod, members.kinds)) for pod in snapshot.pods]
        owned = [
            pod
            for pod, ref in refs
            if ref is not None and members.owners.resolve_owner_reference(ref) is not None
        ]
        # Input of people need not contain all owners: a pod without its owner is what its own labels state.
        keys = {pod.key for pod in owned}
        self.service.cache.replace(Pod, [pod for pod in snapshot.pods if pod.key not in keys])
        for pod in owned:
            members.put(pod)

    def load_manifests(self, reading: ReadResult) -> None:
        """Load manifests, and create the pods that controllers would create for owners such as Jobs."""
        self.warnings += reading.warnings
        kinds = self.service.grouper.kinds
        refs = filter(None, (gang_owner_reference_of_pod(pod, kinds) for pod in reading.snapshot.pods))
        with_pods = {(ref.group, ref.kind, ref.namespace, ref.name) for ref in refs}
        new: list[Document] = []
        for document in reading.owners:
            if _kind_name(document.envelope) in TRAINING_RUNTIMES:
                new.append(document)
                continue
            kind = kinds.by_group_and_name[_kind_name(document.envelope)]
            try:
                title = document.kind_and_name(namespaced=True)
                owner = decode_owner_of_file(kind, bytes(document.raw), document.file, title)
            except InvalidInput as error:
                self.record_set_aside(error)
                continue
            ref = owner.ref
            if ref.uid or (ref.group, ref.kind, ref.namespace, ref.name) in with_pods:
                self.warnings += [
                    f"{document.file}: {owner.kind_and_name}: {warning}" for warning in owner.warnings
                ]
                self.service.grouper.members.owners.put_owner(owner)
            elif kind.name != "ReplicaSet" and (
                kind.name != "StatefulSet" or kind.rule(msgspec.json.decode(document.raw)) is not None
            ):
                # ReplicaSets belong to Deployments, and affect the spread of pods.
                new.append(document)
            else:
                unused = owner_and_pod_template_warnings(owner, bytes(document.raw))
                self.warnings += [
                    f"{document.file}: {owner.kind_and_name}: {sentence}" for sentence in unused
                ]
        self.load_snapshot(reading.snapshot)
        self._warn_of_missing_pods(reading)
        self._add(new)

    def _warn_of_missing_pods(self, reading: ReadResult) -> None:
        """Warn of owners that were listed from a cluster without their pods."""
        owners, kinds = self.service.grouper.members.owners, self.service.grouper.kinds
        with_pods = {
            ref.uid
            for pod in reading.snapshot.pods
            for ref, _ in owners.owner_and_ancestors(gang_owner_reference_of_pod(pod, kinds))
        }
        for document in reading.owners:
            if _kind_name(document.envelope) in TRAINING_RUNTIMES:
                continue
            kind = kinds.by_group_and_name[_kind_name(document.envelope)]
            meta = read_identity(bytes(document.raw))
            shape = kind.rule(msgspec.json.decode(document.raw)) if meta.uid else None
            if (
                shape is not None
                and not shape.is_optional
                and shape.unfinished_pod_count_per_gang
                and meta.uid not in with_pods
            ):
                self.warnings.append(
                    f"{kind.name} {meta.namespace or 'default'}/{meta.name} comes from a cluster, and its pods are in "
                    "no file; remove metadata.uid, and its pods are created in memory"
                )

    def add_objects_from_files(self, files: Sequence[Path]) -> None:
        """Add the objects of manifests, and the pods that controllers would create for owners such as Jobs.

        An added object replaces an existing object of the same name.
        """
        documents: list[Document] = []
        for source in find_manifest_files(files):
            for document in split_documents(source.read(), source.name):
                if isinstance(document, InvalidInput):
                    self.record_set_aside(document)
                else:
                    documents.append(document)
        self.warnings += unknown_field_warnings(documents, self.service.grouper.kinds.kinds_read_from_files)
        self._add(documents)

    def _add(self, documents: Sequence[Document]) -> None:
        supposed = WhatIfCluster(
            self.service, self.settings.profile.scheduler_name, self.settings.now, adopts_pods=False
        )
        for document in sorted(documents, key=addition_sort_key):
            try:
                supposed.add_document(document)
            except InvalidInput as error:
                self.record_set_aside(error)
        self.warnings += supposed.warnings

    def record_set_aside(self, error: InvalidInput) -> None:
        """Record that an invalid object in a file is ignored."""
        entry = SetAside(error.file, error.object, error.field, error.message)
        self.remainder = replace(self.remainder, set_aside=(*self.remainder.set_aside, entry))


def _kind_name(envelope: Envelope) -> tuple[str, str]:
    return api_group(envelope.api_version), envelope.kind
