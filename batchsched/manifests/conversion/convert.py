"""Converts the queues and topologies of Volcano, KAI-Scheduler and Kueue in files to batchsched objects."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from pydantic import BaseModel, ValidationError

from batchsched.api.crd.queue import Queue
from batchsched.api.crd.topology import Topology
from batchsched.api.crd.validation import field_errors
from batchsched.api.snapshot import api_group
from batchsched.errors import InvalidInput
from batchsched.manifests.conversion import kai, kueue, topology, volcano
from batchsched.manifests.conversion.source_object import SourceObject
from batchsched.manifests.documents import Document

Converter = Callable[[Sequence[SourceObject]], list[dict[str, Any]]]
_KUEUE: Final = "kueue.x-k8s.io"
_CONVERTERS: Final[tuple[tuple[Converter, frozenset[tuple[str, str]]], ...]] = (
    (topology.convert_topologies, frozenset({(_KUEUE, "Topology"), ("kai.scheduler", "Topology")})),
    (topology.convert_hyper_nodes, frozenset({("topology.volcano.sh", "HyperNode")})),
    (volcano.convert_queues, frozenset({("scheduling.volcano.sh", "Queue")})),
    (kai.convert_queues, frozenset({("scheduling.run.ai", "Queue")})),
    (
        kueue.convert_queues_and_priority_classes,
        frozenset(
            (_KUEUE, kind)
            for kind in ("ClusterQueue", "Cohort", "LocalQueue", "ResourceFlavor", "WorkloadPriorityClass")
        ),
    ),
)
"""The converters in the order of their results, with the API groups and kinds that they convert."""
CONVERTIBLE: Final = frozenset(name for _, names in _CONVERTERS for name in names)
"""The API groups and kinds that can be converted."""
_MODELS: Final[dict[str, type[BaseModel]]] = {"Queue": Queue, "Topology": Topology}


@dataclass(frozen=True, slots=True)
class Conversion:
    """The result of converting objects of other schedulers: objects of batchsched, and warnings.

    Args:
      objects: the objects of batchsched, and PriorityClasses, Namespaces and labels of Nodes.
      warnings: one sentence for each field that has no counterpart, and for each object of another kind.
      converted: the number of objects that were converted.
    """

    objects: tuple[dict[str, Any], ...]
    warnings: tuple[str, ...]
    converted: int


def convert_objects_of_other_schedulers(documents: Iterable[Document | InvalidInput]) -> Conversion:
    """Convert queues and topologies of other schedulers to batchsched objects; other kinds cause warnings.

    Raises:
      InvalidInput: an object is invalid, or two converted objects have the same name.
    """
    sources: dict[tuple[str, str], list[SourceObject]] = {}
    warnings: list[str] = []
    for document in documents:
        if isinstance(document, InvalidInput):
            raise document
        name = (api_group(document.envelope.api_version), document.envelope.kind)
        if name in CONVERTIBLE:
            source = SourceObject(msgspec.json.decode(document.raw), document.file)
            if not source.name:
                raise source.invalid_field_error("metadata.name", "is required")
            sources.setdefault(name, []).append(source)
        else:
            warnings.append(f"{document.file}: {document.envelope.kind or 'what has no kind'} is passed over")
    objects: list[dict[str, Any]] = []
    number = 0
    for convert, names in _CONVERTERS:
        selected = [source for name in sorted(names) for source in sources.get(name, ())]
        number += len(selected)
        objects += convert(selected)
        warnings += [warning for source in selected for warning in source.warnings]
    _check(objects)
    return Conversion(tuple(objects), tuple(warnings), number)


def _check(objects: Sequence[dict[str, Any]]) -> None:
    """Check that batchsched accepts the converted objects, and that no two have the same name.

    Raises:
      InvalidInput: an object is invalid.
    """
    seen: set[tuple[str, str]] = set()
    for manifest in objects:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        title = f"{kind} {name}"
        if (kind, name) in seen:
            raise InvalidInput("two objects are converted to this name; rename one of them", object=title)
        seen.add((kind, name))
        model = _MODELS.get(kind)
        if model is None:
            continue
        try:
            model.model_validate(manifest)
        except ValidationError as error:
            complaint = field_errors(error, model)[0]
            raise InvalidInput(complaint.message, object=title, field=complaint.field) from error
