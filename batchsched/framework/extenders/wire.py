"""Encoding of calls to extenders and decoding of their answers, in the format of kube-scheduler's extender/v1.

The field names are those of Go structs (`NodeNames`, `FailedNodes`). Answers may have them in any case. Pods and
nodes are in the Kubernetes format, with the fields that batchsched keeps. Equal calls have equal bytes.

Source: k8s.io/kube-scheduler/extender/v1/types.go.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod

T = TypeVar("T")

LARGEST_SCORE: Final = 2**31 - 1
_ENCODER: Final = msgspec.json.Encoder(order="sorted")
"""Sorted keys: a session that is read from a file must send the same bytes as the recorded one."""
_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)


class Nonsense(ValueError):
    """An answer that does not have the format of its verb; the message describes the difference."""


@dataclass(frozen=True, slots=True)
class Filtered:
    """Answer to the filter verb.

    Args:
      nodes: names of the nodes that fit.
      failed: node name → reason.
      unresolvable: node name → reason, for nodes where evictions cannot help.
    """

    nodes: tuple[str, ...]
    failed: Mapping[str, str]
    unresolvable: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MetaVictims:
    """Victims on a node, by uid, and the number of disruption budgets that their eviction violates."""

    uids: tuple[str, ...]
    violations: int


class _Named(msgspec.Struct, frozen=True):
    name: str = ""


class _Item(msgspec.Struct, frozen=True):
    metadata: _Named = _Named()


class _Items(msgspec.Struct, frozen=True):
    items: tuple[_Item, ...] | None = None


def encode(value: Pod | Node) -> bytes:
    """Return the Kubernetes format of an object. Empty parts are written, because a file cannot distinguish them."""
    return _ENCODER.encode({name: getattr(value, name) for name in value.__struct_encode_fields__})


def nodes_question(pod: Pod, nodes: Sequence[bytes] | None, names: Sequence[str] | None) -> bytes:
    """Return the arguments of filter and prioritize, with Node objects or with their names only."""
    listed = b"null" if nodes is None else b'{"metadata":{},"items":[' + b",".join(nodes) + b"]}"
    named = b"null" if names is None else msgspec.json.encode(names)
    return b'{"Pod":' + encode(pod) + b',"Nodes":' + listed + b',"NodeNames":' + named + b"}"


def victims_question(pod: Pod, victims: Mapping[str, tuple[Sequence[Pod], int]], *, by_uid: bool) -> bytes:
    """Return the arguments of preempt: for each node its victims and the number of violated disruption budgets."""
    field, told = (
        ("NodeNameToMetaVictims", lambda one: {"UID": uid_of(one)})
        if by_uid
        else ("NodeNameToVictims", lambda one: msgspec.Raw(encode(one)))
    )
    by_node = {
        node: {"Pods": [told(one) for one in pods], "NumPDBViolations": violations}
        for node, (pods, violations) in victims.items()
    }
    return _ENCODER.encode({"Pod": msgspec.Raw(encode(pod)), field: by_node})


def uid_of(pod: Pod) -> str:
    """Return a pod's uid; if a manifest has none, its `namespace/name`."""
    return pod.metadata.uid or pod.key


def binding_question(pod: Pod, node: str) -> bytes:
    """Return the arguments of bind."""
    return _ENCODER.encode(
        {"PodName": pod.name, "PodNamespace": pod.namespace, "PodUID": pod.metadata.uid, "Node": node}
    )


def filtered(body: str, *, by_name: bool) -> Filtered:
    """Decode an answer to filter.

    Args:
      body: the answer.
      by_name: the call had node names, and the answer may have names.

    Raises:
      Nonsense: the answer has another format, or reports an error.
    """
    fields = _fields(body.encode())
    error = _read(fields, "error", str, "")
    if error:
        raise Nonsense(error)
    names = _read(fields, "nodenames", tuple[str, ...], None) if by_name else None
    if names is None:
        listed = _read(fields, "nodes", _Items, None)
        names = tuple(one.metadata.name for one in (listed.items or ())) if listed is not None else ()
    return Filtered(
        names,
        _read(fields, "failednodes", dict[str, str], {}),
        _read(fields, "failedandunresolvablenodes", dict[str, str], {}),
    )


def prioritized(body: str) -> list[tuple[str, int]]:
    """Decode an answer to prioritize: node names with scores, in the order of the answer.

    Raises:
      Nonsense: the answer has another format.
    """
    scores = []
    for item in _decoded(body.encode(), list[msgspec.Raw] | None) or ():
        fields = _fields(item)
        score = _read(fields, "score", int, 0)
        if abs(score) > LARGEST_SCORE:
            raise Nonsense(f"expected scores from 0 to 10, found {score}")
        scores.append((_read(fields, "host", str, ""), score))
    return scores


def victims(body: str) -> dict[str, MetaVictims]:
    """Decode an answer to preempt: node name → victims.

    Raises:
      Nonsense: the answer has another format.
    """
    by_node = _read(_fields(body.encode()), "nodenametometavictims", dict[str, msgspec.Raw], {})
    return {node: _meta_victims(raw) for node, raw in by_node.items()}


def binding_error(body: str) -> str:
    """Decode an answer to bind: the error message, "" if the pod is bound.

    Raises:
      Nonsense: the answer has another format.
    """
    error: str = _read(_fields(body.encode()), "error", str, "")
    return error


def _meta_victims(raw: msgspec.Raw) -> MetaVictims:
    fields = _fields(raw)
    pods = _read(fields, "pods", list[msgspec.Raw], [])
    uids = tuple(_read(_fields(one), "uid", str, "") for one in pods)
    return MetaVictims(uids, _read(fields, "numpdbviolations", int, 0))


def _fields(raw: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """Return an object's fields by lower-case name. Null gives no fields, as in Go."""
    try:
        return {name.lower(): value for name, value in (_OBJECT.decode(raw) or {}).items()}
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Nonsense(f"is no answer: {error}") from error


def _read(fields: Mapping[str, msgspec.Raw], name: str, kind: Any, default: T) -> Any:
    raw = fields.get(name)
    value = None if raw is None else _decoded(raw, kind | None)
    return default if value is None else value


def _decoded(raw: bytes | msgspec.Raw, kind: Any) -> Any:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Nonsense(f"is no answer: {error}") from error
