"""Reads the manifests of a whole cluster into a Snapshot, which also lists the objects that were set aside.

Manifests come from files, directories and standard input, optionally gzipped.
"""

import gzip
import io
import sys
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

from batchsched.api.core.pod import SCHEDULER_NAME, Pod
from batchsched.api.crd.base import API_VERSION, GROUP
from batchsched.api.crd.validation import (
    FieldError,
    excluded_queue_reasons,
    suggest_name,
    unknown_sub_group_warnings,
)
from batchsched.api.decision import SetAside
from batchsched.api.external.conversion import with_gang_labels, with_gang_labels_of_tree
from batchsched.api.external.group_tree import TreeGroup, convert_trees_to_pod_groups
from batchsched.api.external.hyper_node import HYPER_NODE_KIND, HyperNodeTree
from batchsched.api.external.pod_group import is_converted_from_external
from batchsched.api.snapshot import OBJECT_KINDS, ObjectKind, Snapshot, api_group
from batchsched.errors import CommandError, InvalidInput
from batchsched.manifests.decode import FILE_KIND_BY_GROUP_AND_NAME, Decoder, ObjectDecodeError
from batchsched.manifests.documents import EXPECTED, LIST, Document, Found, split_documents
from batchsched.manifests.input_warnings import input_warnings
from batchsched.manifests.unknown_fields import UnknownFieldCheck
from batchsched.ports.external import NoTelemetry, Telemetry

SUFFIXES: Final = (".yaml", ".yml", ".json", ".jsonl", ".ndjson")
STDIN: Final = "-"
_GZIP_MAGIC: Final = b"\x1f\x8b"
MAX_TEXT_BYTES: Final = 2 * 2**30
"""The largest content of one file, after decompression."""
_MAX_GZIP_RATIO: Final = 1100
"""More than the highest compression ratio of the deflate format, 1032."""
_CHUNK_BYTES: Final = 2**20


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """A file of Kubernetes manifests, or standard input if `path` is None."""

    name: str
    path: Path | None

    def read(self) -> bytes:
        """Return the content of the manifest file, decompressed if it is gzip data.

        Raises:
          InvalidInput: the file cannot be read, its gzip data is broken, or it has more than `MAX_TEXT_BYTES`.
        """
        try:
            if self.path and self.path.stat().st_size > MAX_TEXT_BYTES:
                raise _too_large(self.name)
            data = self.path.read_bytes() if self.path else sys.stdin.buffer.read()
        except OSError as error:
            raise InvalidInput(f"cannot be read: {error.strerror}", file=self.name) from error
        if len(data) > MAX_TEXT_BYTES:  # a pipe has no size before it is read
            raise _too_large(self.name)
        if not data.startswith(_GZIP_MAGIC):
            return data
        try:
            return decompress(data, self.name)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise InvalidInput(f"is a broken gzip file: {error}", file=self.name) from error


def decompress(data: bytes, file: str) -> bytes:
    """Decompress gzip data, or raise `InvalidInput` if the content is larger than `MAX_TEXT_BYTES`.

    Data that may exceed the limit is decompressed twice: first in chunks that are counted and dropped, so that a
    small file with a huge content costs no memory.

    Raises:
      InvalidInput: the content has more than `MAX_TEXT_BYTES`.
      gzip.BadGzipFile, EOFError, zlib.error: the data is broken.
    """
    if len(data) * _MAX_GZIP_RATIO > MAX_TEXT_BYTES:
        size = 0
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                size += len(chunk)
                if size > MAX_TEXT_BYTES:
                    raise _too_large(file)
    return gzip.decompress(data)


def _too_large(file: str) -> InvalidInput:
    limit = f"{MAX_TEXT_BYTES / 2**30:g} GiB"
    return InvalidInput(f"has more than {limit} of text, which is the limit; split the file", file=file)


def find_manifest_files(paths: Sequence[Path | str]) -> Iterator[ManifestFile]:
    """Yield the given files, all manifest files below given directories, and standard input for `-`."""
    for path in paths:
        if str(path) == STDIN:
            yield ManifestFile("<stdin>", None)
            continue
        place = Path(path)
        if not place.is_dir():
            yield ManifestFile(str(place), place)
            continue
        for file in sorted(place.rglob("*")):
            if file.is_file() and file.name.removesuffix(".gz").endswith(SUFFIXES):
                yield ManifestFile(str(file), file)


_MAX_NAMED_PODS: Final = 3
_MOST_SHOWN: Final = 20
CONFIG_GROUP: Final = "config.batchsched.dev"
"""API group of configurations and of the lab's scenarios, which are no objects of a cluster."""
_CONFIGURATION_KINDS: Final = ("BatchSchedulerConfiguration", "KubeSchedulerConfiguration")
_STEP: Final = 2048
"""Number of objects between two progress reports."""


@dataclass(frozen=True, slots=True)
class ReadResult:
    """The result of reading manifests: a Snapshot, and warnings about ignored objects.

    Args:
      snapshot: the cluster, including the objects that were set aside.
      warnings: messages for users about ignored objects.
      owners: the objects of owner kinds such as Job, not decoded; the caller reads them.
    """

    snapshot: Snapshot
    warnings: tuple[str, ...] = ()
    owners: tuple[Document, ...] = ()

    @property
    def set_aside_objects(self) -> tuple[SetAside, ...]:
        """The invalid objects that were ignored, in the order of the input."""
        return self.snapshot.set_aside


def read_manifests(
    paths: Sequence[Path | str],
    telemetry: Telemetry | None = None,
    *,
    scheduler_name: str = SCHEDULER_NAME,
    owner_kinds: Collection[tuple[str, str]] = (),
) -> ReadResult:
    """Read Kubernetes manifests from files and directories, and return them as a Snapshot with warnings.

    The formats are YAML, JSON and JSON Lines, with or without lists and gzip compression.

    Args:
      paths: files and directories; `-` is standard input.
      telemetry: receives progress.
      scheduler_name: pending pods of other schedulers are ignored.
      owner_kinds: API groups and kinds of owners of pods, such as Jobs, that the caller reads itself.

    Raises:
      CommandError: the input contains no valid object.
    """
    listener = telemetry or NoTelemetry()
    names = [str(path) for path in paths]
    cluster = _Cluster(
        scheduler_name, ", ".join(names), frozenset(owner_kinds), sought_files=frozenset(names)
    )
    with listener.stage_span("read"):
        for source in find_manifest_files(paths):
            try:
                source_documents = split_documents(source.read(), source.name)
            except InvalidInput as error:
                cluster.add_document(error)
                continue
            while cluster.add_documents(islice(source_documents, _STEP)):
                listener.on_progress(cluster.seen, 0, f"objects of {source.name}")
        return cluster.check_and_build_result()


@dataclass(slots=True)
class _Cluster:
    """The objects that were read so far; checks that concern several objects run at the end."""

    scheduler_name: str
    sought: str
    owner_kinds: frozenset[tuple[str, str]] = frozenset()
    owners: list[Document] = field(default_factory=list)
    decoder: Decoder = field(default_factory=partial(Decoder, from_files=True))
    objects: dict[str, list[Any]] = field(default_factory=lambda: {kind.field: [] for kind in OBJECT_KINDS})
    tree_groups: list[TreeGroup] = field(default_factory=list)
    """CompositePodGroups, and the PodGroups of Kubernetes that name one as their parent."""
    homes: dict[tuple[str, str, str], str] = field(default_factory=dict)
    set_aside_objects: list[SetAside] = field(default_factory=list)
    skipped: Counter[tuple[str, str]] = field(default_factory=Counter)
    sought_files: frozenset[str] = frozenset()
    """The files that the caller names, without those in directories."""
    misplaced_configurations: list[str] = field(default_factory=list)
    """A warning for each configuration in a file that the caller names."""
    foreign_pods: dict[str, list[str]] = field(default_factory=dict)
    """The `namespace/name` of the pending pods of other schedulers, by schedulerName."""
    unknown_fields: UnknownFieldCheck = field(init=False)
    seen: int = 0
    usable: int = 0

    def __post_init__(self) -> None:
        self.unknown_fields = UnknownFieldCheck(self.owner_kinds)

    def add_documents(self, source_documents: Iterable[Found]) -> int:
        """Add the objects of an input to the cluster, or set them aside; return the number of objects."""
        before = self.seen
        for document in source_documents:
            self.add_document(document)
        return self.seen - before

    def add_document(self, document: Found) -> None:
        """Add an object in an input file to the cluster, or record it as set aside if it is invalid."""
        self.seen += 1
        if isinstance(document, InvalidInput):
            self.set_aside_objects.append(
                SetAside(document.file, document.object, document.field, document.message)
            )
            return
        envelope = document.envelope
        name = (api_group(envelope.api_version), envelope.kind)
        kind = FILE_KIND_BY_GROUP_AND_NAME.get(name)
        if name in self.owner_kinds:
            self.owners.append(document)
        self.unknown_fields.record_unknown_fields(document)
        if kind is None or not envelope.api_version:
            self._put_strange(document)
            return
        try:
            self._put_decoded(self.decoder.decode(document, kind), kind, document)
        except ObjectDecodeError as refused:
            object_name = document.kind_and_name(namespaced=kind.namespaced)
            self.set_aside_objects += [
                SetAside(document.file, object_name, complaint.field, complaint.message)
                for complaint in refused.complaints
            ]

    def _put_decoded(self, decoded: Any, kind: ObjectKind, document: Document) -> None:
        metadata = decoded.metadata
        namespace = (metadata.namespace or "default") if kind.namespaced else ""
        key = (kind.name, namespace, metadata.name)
        first = self.homes.get(key)
        if first is not None:
            where = "in this file" if first == document.file else f"in {first}"
            message = f"this name is taken: the first one, {where}, counts; rename or remove one of them"
            raise ObjectDecodeError((FieldError("metadata.name", message),))
        self.homes[key] = document.file
        self.usable += 1
        if isinstance(decoded, TreeGroup):
            self.tree_groups.append(decoded)
            return
        if kind.type is Pod:
            if not self._counts(decoded):
                return
            if decoded.spec.scheduler_name == self.scheduler_name:
                decoded = with_gang_labels(decoded)
        self.objects.setdefault(kind.field, []).append(decoded)

    def _counts(self, pod: Pod) -> bool:
        """Return whether a pod belongs to the snapshot: finished pods and pending pods of other schedulers do not."""
        if pod.is_relevant_to_schedulers((self.scheduler_name,)):
            return True
        if not pod.finished:
            self.foreign_pods.setdefault(pod.spec.scheduler_name, []).append(pod.key)
        return False

    def _put_strange(self, document: Document) -> None:
        envelope = document.envelope
        if (api_group(envelope.api_version), envelope.kind) in self.owner_kinds:
            self.usable += 1
        elif envelope.kind == LIST and envelope.items is not None:
            self.usable += 1  # an empty list: a cluster may well have nothing
        elif not envelope.kind or not envelope.api_version:
            missing = "apiVersion" if envelope.kind else "kind"
            self.set_aside_objects.append(
                SetAside(document.file, f"({document.place})", missing, f"is required; {EXPECTED}")
            )
        elif api_group(envelope.api_version) == GROUP:
            known_kinds = [kind.name for kind in OBJECT_KINDS if kind.group == GROUP]
            message = f"there is no kind {envelope.kind!r} in {API_VERSION}; {suggest_name(envelope.kind, known_kinds)}"
            self.set_aside_objects.append(SetAside(document.file, f"({document.place})", "kind", message))
        elif envelope.kind in _CONFIGURATION_KINDS and document.file in self.sought_files:
            self.misplaced_configurations.append(
                f"{document.file}: {envelope.kind} is not read here; name the file with --config"
            )
        else:
            self.skipped[envelope.api_version, envelope.kind] += 1

    def check_and_build_result(self) -> ReadResult:
        """Run the checks that need all objects, and return the Snapshot with warnings.

        Raises:
          CommandError: there are no valid objects.
        """
        self._set_queues_aside()
        self._assemble_trees()
        if not self.usable:
            raise CommandError(_nothing_usable(self.sought, self.set_aside_objects, self.skipped))
        self._apply_hyper_nodes()
        # As the API server lists them: a simulation draws the nodes that fail by their indexes.
        self.objects["nodes"].sort(key=lambda node: node.name)
        fields: dict[str, Any] = {name: tuple(objects) for name, objects in self.objects.items()}
        snapshot = Snapshot(**fields, set_aside=tuple(self.set_aside_objects))
        return ReadResult(snapshot, tuple(self._warnings(snapshot)), tuple(self.owners))

    def _assemble_trees(self) -> None:
        """Add a PodGroup for each tree of Kubernetes' groups, and label the pods as members of their tree."""
        if not self.tree_groups:
            return
        trees = convert_trees_to_pod_groups(self.tree_groups)
        self.objects["pod_groups"] += trees.gangs
        for problem in trees.problems:
            group = problem.group
            file = self.homes[group.kind, group.namespace, group.name]
            name = f"{group.kind} {group.key}"
            self.set_aside_objects.append(SetAside(file, name, problem.field, problem.message))
        self.usable -= len({(problem.group.is_composite, problem.group.key) for problem in trees.problems})
        self.objects["pods"] = [
            with_gang_labels_of_tree(pod, trees.places)
            if pod.spec.scheduler_name == self.scheduler_name
            else pod
            for pod in self.objects["pods"]
        ]

    def _apply_hyper_nodes(self) -> None:
        """Add the labels of HyperNodes to nodes, and their Topology unless one has the same name."""
        tree = HyperNodeTree.from_hyper_nodes(self.objects.pop(HYPER_NODE_KIND.field, ()))
        topology = tree.topology
        if topology is None:
            return
        self.objects["nodes"] = [tree.node_with_tier_labels(node) for node in self.objects["nodes"]]
        if all(other.name != topology.name for other in self.objects["topologies"]):
            self.objects["topologies"].append(topology)

    def _set_queues_aside(self) -> None:
        reasons = excluded_queue_reasons(self.objects["queues"])
        for name, reason in reasons.items():
            file = self.homes["Queue", "", name]
            self.set_aside_objects.append(SetAside(file, f"Queue {name}", "spec.parent", reason))
        self.objects["queues"] = [queue for queue in self.objects["queues"] if queue.name not in reasons]
        self.usable -= len(reasons)

    def _warnings(self, snapshot: Snapshot) -> Iterable[str]:
        yield from self.misplaced_configurations
        yield from self.unknown_fields.warnings()
        yield from skipped_kind_warnings(self.skipped)
        for name, pods in self.foreign_pods.items():
            first = ", ".join(pods[:_MAX_NAMED_PODS])
            named = f"pod {first} is" if len(pods) == 1 else f"{len(pods):,} pending pods are"
            more = "" if len(pods) == 1 else f" ({first}{', ...' if len(pods) > _MAX_NAMED_PODS else ''})"
            yield (
                f"{named} ignored, since {name!r} schedules {'it' if len(pods) == 1 else 'them'}{more}; "
                f"set spec.schedulerName: {self.scheduler_name} in the pod template to schedule it here"
            )
        # Pods of other schedulers may name a task or subgroup that their PodGroup does not state.
        groups = (
            group
            for group in snapshot.pod_groups
            if group.spec.sub_groups or not is_converted_from_external(group)
        )
        yield from unknown_sub_group_warnings(snapshot.pods, groups)
        yield from input_warnings(snapshot)


def skipped_kind_warnings(skipped: Mapping[tuple[str, str], int]) -> list[str]:
    """Return a warning for each kind of object that is not read, with the number of its objects.

    Args:
      skipped: the number of objects of each kind, by (apiVersion, kind).
    """
    return [
        f"{kind} of {api_version} is not read: {count} passed over"
        for (api_version, kind), count in skipped.items()
        # A directory of manifests may contain configurations and scenarios: they are input of other options.
        if api_group(api_version) != CONFIG_GROUP
    ]


def _nothing_usable(
    sought: str, set_aside_objects: Sequence[SetAside], skipped: Counter[tuple[str, str]]
) -> str:
    lines = ["there is nothing in the input that can be used"]
    lines += [format_set_aside_object(invalid_object) for invalid_object in set_aside_objects[:_MOST_SHOWN]]
    if len(set_aside_objects) > _MOST_SHOWN:
        lines.append(f"and {len(set_aside_objects) - _MOST_SHOWN} more")
    lines += [f"{kind} of {api_version} is not read" for api_version, kind in skipped]
    if len(lines) == 1:
        is_folder = Path(sought).is_dir()
        lines.append(f"{sought}: {'no YAML or JSON file in it' if is_folder else f'{EXPECTED}; found none'}")
    return "\n".join(lines)


def format_set_aside_object(invalid_object: SetAside) -> str:
    """Format a set-aside object as one line of text with file, object, field and message."""
    return ": ".join(
        part
        for part in (invalid_object.file, invalid_object.object, invalid_object.field, invalid_object.message)
        if part
    )
