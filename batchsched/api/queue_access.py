"""Queue access: to which queue a gang belongs, and which namespaces may use a queue.

A gang belongs to the queue that its PodGroup names. A pod without a PodGroup belongs to the queue that its label names.
If none is named, the label `scheduling.batchsched.dev/default-queue` of the Namespace names the queue, and otherwise it
is the queue `default`. The rule is the same for pending and running gangs: if the label of the Namespace changes, both
move. It is a label and not an annotation, as the label that names the queue of a pod: selectors can read it, kubectl
lists it as a column, and platforms protect labels of Namespaces, since Pod Security depends on them.

A queue with a `namespaceSelector`, or below one, is only for the namespaces that the selector selects. A pending gang
of another namespace is refused, and counts as demand of no queue. Its running pods stay and count.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from batchsched.api.core.cluster_objects import Namespace
from batchsched.api.core.pod import QUEUE_LABEL, Pod
from batchsched.api.crd.podgroup import DEFAULT_QUEUE, PodGroup
from batchsched.api.crd.queue import Queue

NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""Label with the name of a Namespace, which the API server sets."""


DEFAULT_QUEUE_LABEL: Final = "scheduling.batchsched.dev/default-queue"
"""Label of a Namespace: the queue of its gangs that name none."""


def stated_queue_name(pod_group: PodGroup | None, pod: Pod | None) -> str:
    """Return the queue that a PodGroup names or, for a pod without a PodGroup, the queue in the pod's label.

    The result is "" if no queue is named.
    """
    if pod_group is not None:
        return pod_group.spec.queue or ""
    return pod.labels.get(QUEUE_LABEL, "") if pod is not None else ""


def default_queue_name(namespace: Namespace | None) -> str:
    """Return the default queue of a namespace, which is the queue of its gangs that name no queue.

    Args:
      namespace: the Namespace object; None if it is unknown.
    """
    labels = namespace.metadata.labels if namespace is not None else None
    return (labels or {}).get(DEFAULT_QUEUE_LABEL) or DEFAULT_QUEUE


class QueueAccess:
    """The access rules of namespaces: the queues that a namespace may use, and its default queue.

    Args:
      queues: All queues; those with a missing parent or in a cycle may be among them.
      namespaces: All namespaces. A namespace that is missing counts as having only the label with its name.
    """

    def __init__(self, queues: Iterable[Queue] = (), namespaces: Iterable[Namespace] = ()) -> None:
        self._queues = {queue.name: queue for queue in queues}
        self._namespaces = {namespace.metadata.name: namespace for namespace in namespaces}
        self._selected: dict[tuple[str, str], bool] = {}

    def find_queue_with_namespace_selector(self, queue: str) -> Queue | None:
        """Return the nearest queue with a namespaceSelector: the given queue itself, or an ancestor of it.

        This namespaceSelector applies to the given queue. The result is None if there is no such queue.
        """
        visited: set[str] = set()
        name: str | None = queue
        while name in self._queues and name not in visited:
            current = self._queues[name]
            if current.spec.namespace_selector is not None:
                return current
            visited.add(name)
            name = current.spec.parent
        return None

    def allows_namespace(self, queue: str, namespace: str) -> bool:
        """Return whether the gangs of a namespace may use a queue."""
        selected = self._selected.get((queue, namespace))
        if selected is None:
            selecting = self.find_queue_with_namespace_selector(queue)
            selector = selecting.spec.namespace_selector if selecting is not None else None
            selected = selector is None or selector.matches(self.labels_of_namespace(namespace))
            self._selected[queue, namespace] = selected
        return selected

    def labels_of_namespace(self, namespace: str) -> Mapping[str, str]:
        """Return the labels of a namespace, including the label `kubernetes.io/metadata.name` with its name."""
        known_namespace = self._namespaces.get(namespace)
        return {
            NAMESPACE_NAME_LABEL: namespace,
            **((known_namespace.metadata.labels if known_namespace is not None else None) or {}),
        }

    def default_queue_name(self, namespace: str) -> str:
        """Return the default queue of the namespace with this name: the queue of its gangs that name none."""
        return default_queue_name(self._namespaces.get(namespace))
