"""Changes of a session's input, such as a higher queue limit, and their application to a Snapshot."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import count, islice, pairwise
from typing import Any

import msgspec

from batchsched.api.core.node import HOSTNAME_LABEL, Node
from batchsched.api.core.pod import Pod
from batchsched.api.crd.base import without_nulls
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.crd.queue import Queue
from batchsched.api.decision import InputChange
from batchsched.api.gang import gang_key_of_pod
from batchsched.api.snapshot import Snapshot


def pod_group_reference(key: str) -> str:
    """Return the text by which an InputChange names a PodGroup: `PodGroup/NAMESPACE/NAME`."""
    return f"PodGroup/{key}"


def pending_pods_reference(key: str) -> str:
    """Return the text by which an InputChange names a gang's pending pods: `PodTemplate/NAMESPACE/NAME`."""
    return f"PodTemplate/{key}"


def queue_reference(name: str) -> str:
    """Return the text by which an InputChange names a Queue: `Queue/NAME`."""
    return f"Queue/{name}"


def json_pointer(*tokens: str | int) -> str:
    """Join keys and list indexes to a JSON pointer (RFC 6901), such as `/spec/queue`."""
    return "".join("/" + str(token).replace("~", "~0").replace("/", "~1") for token in tokens)


def json_pointer_tokens(path: str) -> list[str]:
    """Split a JSON pointer (RFC 6901) into its keys and indexes."""
    return [token.replace("~1", "/").replace("~0", "~") for token in path.split("/")[1:]]


def snapshot_after_changes(snapshot: Snapshot, changes: Iterable[InputChange], prefix: str = "") -> Snapshot:
    """Return the Snapshot after the given changes, which set fields of objects or add copies of nodes.

    Args:
      snapshot: the Snapshot.
      changes: the changes, in order.
      prefix: the first characters of the names of added nodes.
    """
    for change in changes:
        snapshot = _with_copies(snapshot, change, prefix) if change.copy else _with_field(snapshot, change)
    return snapshot


def _with_copies(snapshot: Snapshot, change: InputChange, prefix: str) -> Snapshot:
    name = change.copy.partition("/")[2]
    like = next(node for node in snapshot.nodes if node.name == name)
    taken = {node.name for node in snapshot.nodes}
    new_names = (f"{prefix}{name}-copy-{number}" for number in count(1))
    copies = tuple(
        _copy_of(like, new) for new in islice((new for new in new_names if new not in taken), change.count)
    )
    return replace(snapshot, nodes=(*snapshot.nodes, *copies))


def _copy_of(node: Node, name: str) -> Node:
    labels = dict(node.labels)
    if labels.get(HOSTNAME_LABEL) == node.name:
        labels[HOSTNAME_LABEL] = name
    metadata = msgspec.structs.replace(node.metadata, name=name, labels=labels)
    return msgspec.structs.replace(node, metadata=metadata)


def _with_field(snapshot: Snapshot, change: InputChange) -> Snapshot:
    kind, _, key = change.set.partition("/")
    if kind == "Queue":

        def queue_after_change(queue: Queue) -> Queue:
            return queue if queue.name != key else _changed_model(Queue, queue, change)

        return replace(snapshot, queues=tuple(map(queue_after_change, snapshot.queues)))
    if kind == "PodGroup":

        def pod_group_after_change(group: PodGroup) -> PodGroup:
            return group if group.key != key else _changed_model(PodGroup, group, change)

        return replace(snapshot, pod_groups=tuple(map(pod_group_after_change, snapshot.pod_groups)))
    if kind == "PodTemplate":
        return replace(snapshot, pods=_changed_pods(snapshot.pods, key, change))
    raise ValueError(f"{change.set}: expected Queue, PodGroup or PodTemplate")


def _changed_model(model: Any, value: Any, change: InputChange) -> Any:
    document = value.model_dump(mode="json", by_alias=True, exclude_unset=True)
    set_field(document, change.path, change.value)
    return model.model_validate(without_nulls(document))


def _changed_pods(pods: Sequence[Pod], key: str, change: InputChange) -> tuple[Pod, ...]:
    changed: Callable[[Pod], Pod] = (
        _spec_change(change) if change.path.startswith("/spec/") else _pod_change(change)
    )
    return tuple(changed(pod) if not pod.node_name and gang_key_of_pod(pod) == key else pod for pod in pods)


def _pod_change(change: InputChange) -> Callable[[Pod], Pod]:
    def pod_after_change(pod: Pod) -> Pod:
        document = msgspec.json.decode(msgspec.json.encode(pod))
        set_field(document, change.path, change.value)
        return msgspec.convert(without_nulls(document), Pod)

    return pod_after_change


def _spec_change(change: InputChange) -> Callable[[Pod], Pod]:
    """Return a function that changes a pod's spec; pods that shared one spec share one afterwards."""
    specs: dict[int, Any] = {}

    def pod_after_spec_change(pod: Pod) -> Pod:
        if id(pod.spec) not in specs:
            specs[id(pod.spec)] = _pod_change(change)(pod).spec
        return msgspec.structs.replace(pod, spec=specs[id(pod.spec)])

    return pod_after_spec_change


def set_field(document: Any, path: str, value: Any) -> None:
    """Set the field at a JSON pointer in a document of dicts and lists, and create missing parents."""
    tokens = json_pointer_tokens(path)
    for token, following in pairwise(tokens):
        if isinstance(document, list):
            document = document[int(token)]
            continue
        if document.get(token) is None:
            document[token] = [] if following == "-" else {}
        document = document[token]
    if not isinstance(document, list):
        document[tokens[-1]] = value
    elif tokens[-1] == "-":
        document.append(value)
    else:
        document[int(tokens[-1])] = value
