"""The nominator: nodes that are kept free for pods while their victims terminate.

Source: kube-scheduler's backend/queue, nominator.
"""

from batchsched.api.core.pod import Pod


class Nominator:
    """Nominated pods by node."""

    def __init__(self) -> None:
        self._node_of: dict[str, str] = {}
        self._on: dict[str, dict[str, Pod]] = {}

    def put(self, pod: Pod, node: str = "") -> None:
        """Nominate a node for a pod: the given node, or the one in its status. Without either, nothing changes."""
        node = node or pod.status.nominated_node_name or self._node_of.get(pod.key, "")
        self.drop(pod.key)
        if node:
            self._node_of[pod.key] = node
            self._on.setdefault(node, {})[pod.key] = pod

    def update(self, old: Pod | None, new: Pod) -> None:
        """Process a new version of a pod. The nomination ends only if the node was removed from its status."""
        if old is not None and old.status.nominated_node_name and not new.status.nominated_node_name:
            self.drop(new.key)
        else:
            self.put(new)

    def drop(self, key: str) -> bool:
        """End the nomination of `namespace/name`, and return whether there was one."""
        node = self._node_of.pop(key, None)
        if node is None:
            return False
        del self._on[node][key]
        if not self._on[node]:
            del self._on[node]
        return True

    def on(self, node: str) -> tuple[Pod, ...]:
        """Return the pods that are nominated to a node, in the order of nomination."""
        return tuple(self._on.get(node, {}).values())
