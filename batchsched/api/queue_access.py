"""Queue access: which namespaces may use a queue.

A queue with a `namespaceSelector`, or below one, is only for the namespaces that the selector selects. A pending gang
of another namespace is refused, and counts as demand of no queue. Its running pods stay and count.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from batchsched.api.core.cluster_objects import Namespace
from batchsched.api.crd.queue import Queue

NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""Label with the name of a Namespace, which the API server sets."""


class QueueAccess:
    """Answers for one set of queues and namespaces.

    Args:
      queues: All queues; those with a missing parent or in a cycle may be among them.
      namespaces: All namespaces. A namespace that is missing has only the label with its name.
    """

    def __init__(self, queues: Iterable[Queue] = (), namespaces: Iterable[Namespace] = ()) -> None:
        self._queues = {queue.name: queue for queue in queues}
        self._labels = {namespace.metadata.name: namespace.metadata.labels or {} for namespace in namespaces}
        self._selected: dict[tuple[str, str], bool] = {}

    def find_selecting_queue(self, queue: str) -> Queue | None:
        """Return the queue that states the selector: the queue itself, or its nearest ancestor that has one."""
        visited: set[str] = set()
        name: str | None = queue
        while name in self._queues and name not in visited:
            current = self._queues[name]
            if current.spec.namespace_selector is not None:
                return current
            visited.add(name)
            name = current.spec.parent
        return None

    def selects(self, queue: str, namespace: str) -> bool:
        """Return whether gangs of a namespace may use a queue."""
        selected = self._selected.get((queue, namespace))
        if selected is None:
            selecting = self.find_selecting_queue(queue)
            selector = selecting.spec.namespace_selector if selecting is not None else None
            selected = selector is None or selector.matches(self.labels_of(namespace))
            self._selected[queue, namespace] = selected
        return selected

    def labels_of(self, namespace: str) -> Mapping[str, str]:
        """Return the labels of a namespace, always with the label that has its name."""
        return {NAMESPACE_NAME_LABEL: namespace, **self._labels.get(namespace, {})}
