"""Nominations: the nodes that are kept for pods while their victims leave.

Source: kube-scheduler's backend/queue, nominator.
"""

from batchsched.api.core.pod import Pod


class Nominator:
    """Pods by the node that is kept for them."""

    def __init__(self) -> None:
        self._node_of: dict[str, str] = {}
        self._on: dict[str, dict[str, Pod]] = {}

    def put(self, pod: Pod, node: str = "") -> None:
        """Keep a node for a pod: the one that is stated, else the one in its status; with neither, what was stands."""
        node = node or pod.status.nominated_node_name or self._node_of.get(pod.key, "")
        self.drop(pod.key)
        if node:
            self._node_of[pod.key] = node
            self._on.setdefault(node, {})[pod.key] = pod

    def update(self, old: Pod | None, new: Pod) -> None:
        """Take in a new version of a pod; only a status that lost its node ends the nomination."""
        if old is not None and old.status.nominated_node_name and not new.status.nominated_node_name:
            self.drop(new.key)
        else:
            self.put(new)

    def drop(self, key: str) -> bool:
        """End the nomination of `namespace/name`; tells whether there was one."""
        node = self._node_of.pop(key, None)
        if node is None:
            return False
        del self._on[node][key]
        if not self._on[node]:
            del self._on[node]
        return True

    def on(self, node: str) -> tuple[Pod, ...]:
        """Return the pods for which a node is kept, in the order in which they were nominated."""
        return tuple(self._on.get(node, {}).values())
