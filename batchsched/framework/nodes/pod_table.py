"""Pod table: the pods on nodes, with indexes by node, labels, pod affinity, host ports and volumes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

import numpy as np

from batchsched.api.core.pod import Pod, PodSpec
from batchsched.framework.nodes.affinity_groups import AffinityGroups
from batchsched.framework.nodes.label_index import PodLabelGroup, PodLabelGroups, PodSelector
from batchsched.framework.status import BoolArray, IntArray

T = TypeVar("T")


EVERY_ADDRESS: Final = "0.0.0.0"


DEFAULT_PROTOCOL: Final = "TCP"


class HostPort(NamedTuple):
    """A host port of a pod: address (0.0.0.0 for all addresses of the node), protocol and port number."""

    address: str
    protocol: str
    number: int

    def conflicts_with(self, other: "HostPort") -> bool:
        """Return True if two host ports cannot be in use on the same node."""
        if (self.protocol, self.number) != (other.protocol, other.number):
            return False
        return EVERY_ADDRESS in (self.address, other.address) or self.address == other.address


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """Return the host ports that a pod uses while it runs. Init containers count only if they are restartable.

    Source: `GetHostPorts` of kube-scheduler's util and `HostPortInfo` of its framework.
    """
    spec = pod.spec
    if spec.init_containers is None and not any(container.ports for container in spec.containers):
        return ()
    init = (one for one in spec.init_containers or () if one.restart_policy == "Always")
    return tuple(
        HostPort(port.host_ip or EVERY_ADDRESS, port.protocol or DEFAULT_PROTOCOL, port.host_port)
        for container in (*init, *spec.containers)
        for port in container.ports or ()
        if port.host_port > 0
    )


def any_port_conflict(requested: Iterable[HostPort], taken: Iterable[HostPort]) -> bool:
    """Return True if a requested host port conflicts with a port that is in use."""
    held = tuple(taken)
    return any(one.conflicts_with(other) for one in requested for other in held)


def _is_indexed(pod: Pod) -> bool:
    """Whether the pods of this spec are in the indexes of pod affinity, host ports or volumes."""
    return bool(host_ports(pod) or pod.spec.volumes or pod.spec.affinity is not None)


class PodTable:
    """The pods on nodes, indexed by node, labels, pod affinity, host ports and volumes.

    Args:
      nodes: the number of nodes.
    """

    def __init__(self, nodes: int) -> None:
        self._count = nodes
        self._pods: dict[str, tuple[Pod, int]] = {}
        self._groups = PodLabelGroups()
        # One slot for each pod. The last pod takes the slot of a removed one, so the arrays have no gaps.
        self._slot: dict[str, int] = {}
        self._keys: list[str] = []
        self._node_at = np.zeros(64, np.int32)
        self._group_at = np.zeros(64, np.int32)
        self._on: dict[int, dict[str, Pod]] = {}
        self.affinity_groups = AffinityGroups()
        """The pods that have pod affinity or anti-affinity."""
        self.with_affinity: dict[str, tuple[Pod, int]] = {}
        """Key → pod and its node, for pods with pod affinity or anti-affinity."""
        self.ports_on: dict[int, dict[str, tuple[HostPort, ...]]] = {}
        """Node → pod key → the host ports that the pod uses. A node may have an empty entry."""
        self.disks_on: dict[int, dict[str, Pod]] = {}
        """Node → pods that mount a disk directly (GCE, EBS, iSCSI, RBD)."""
        self.attaching_on: dict[int, dict[str, Pod]] = {}
        """Node → pods with volumes that may count against the node's attachment limits."""
        self.claim_users: dict[str, dict[str, Pod]] = {}
        """Claim, `namespace/name` → pods on any node that use it."""

    def add_pods(self, placements: Sequence[tuple[Pod, int]]) -> list[str]:
        """Add pods to the pod table, each on its node.

        Args:
          placements: each pod with the index of its node; no pod is on a node already.

        Returns:
          The `namespace/name` of each pod.
        """
        keys = [pod.key for pod, _ in placements]
        begin, end = len(self._keys), len(self._keys) + len(keys)
        self._pods.update(zip(keys, placements, strict=True))
        self._slot.update(zip(keys, range(begin, end), strict=True))
        self._keys += keys
        self._make_room(end)
        self._node_at[begin:end] = [node for _, node in placements]
        self._group_at[begin:end] = self._groups.add_pods([pod for pod, _ in placements])
        spec: PodSpec | None = None
        indexed = False
        for key, (pod, node) in zip(keys, placements, strict=True):
            self._on.setdefault(node, {})[key] = pod
            # Decoded pods of one template share their spec object, so this is computed once for a gang.
            if pod.spec is not spec:
                spec, indexed = pod.spec, _is_indexed(pod)
            if indexed:
                self._take(pod, node)
        return keys

    def _make_room(self, slots: int) -> None:
        size = max(2 * len(self._node_at), slots)
        if slots > len(self._node_at):
            self._node_at = np.resize(self._node_at, size)
            self._group_at = np.resize(self._group_at, size)

    def _take(self, pod: Pod, node: int) -> None:
        """Index a pod's affinity, host ports and volumes."""
        self._state(pod, node, 1)
        ports = host_ports(pod)
        if ports:
            self.ports_on.setdefault(node, {})[pod.key] = ports
        for index in self._volume_indexes(pod, node):
            index[pod.key] = pod

    def _volume_indexes(self, pod: Pod, node: int) -> Iterator[dict[str, Pod]]:
        """Yield the indexes to which a pod with volumes belongs."""
        for volume in pod.spec.volumes or ():
            if volume.may_conflict_on_node:
                yield self.disks_on.setdefault(node, {})
            if volume.may_count_against_attach_limit:
                yield self.attaching_on.setdefault(node, {})
            if volume.persistent_volume_claim:
                claim = f"{pod.namespace}/{volume.persistent_volume_claim.claim_name}"
                yield self.claim_users.setdefault(claim, {})

    def remove_pods(self, keys: Sequence[str]) -> list[int]:
        """Remove pods from the pod table.

        Args:
          keys: `namespace/name` of each pod.

        Returns:
          The index of the node on which each pod was.

        Raises:
          KeyError: a pod is on no node, or is named twice.
        """
        nodes = self._take_off_nodes(keys)
        size = len(self._keys) - len(keys)
        # A session removes the pods that it added last. Their slots are at the end, so no other pod moves.
        if all(self._slot[key] >= size for key in keys):
            for key in keys:
                del self._slot[key]
            del self._keys[size:]
            self._groups.remove_pods_from_groups(self._group_at[size : size + len(keys)].tolist())
        else:
            for key in keys:
                self._free_slot(key)
        self._forget_groups()
        return nodes

    def _take_off_nodes(self, keys: Sequence[str]) -> list[int]:
        """Remove pods from the indexes by node; return the node of each."""
        nodes: list[int] = []
        spec: PodSpec | None = None
        indexed = False
        for key in keys:
            pod, node = self._pods.pop(key)
            del self._on[node][key]
            if pod.spec is not spec:
                spec, indexed = pod.spec, _is_indexed(pod)
            if indexed:
                self._remove_from_indexes(pod, node)
            nodes.append(node)
        return nodes

    def _remove_from_indexes(self, pod: Pod, node: int) -> None:
        """Remove a pod from the indexes of pod affinity, host ports and volumes."""
        self._state(pod, node, -1)
        if node in self.ports_on:
            self.ports_on[node].pop(pod.key, None)
        for index in self._volume_indexes(pod, node):
            index.pop(pod.key, None)

    def _free_slot(self, key: str) -> None:
        """Give the slot of a pod to the pod in the last slot, so that the arrays have no gaps."""
        slot = self._slot.pop(key)
        self._groups.remove_pods_from_groups((int(self._group_at[slot]),))
        last = self._keys.pop()
        size = len(self._keys)
        if last != key:
            self._keys[slot] = last
            self._slot[last] = slot
            self._node_at[slot] = self._node_at[size]
            self._group_at[slot] = self._group_at[size]

    def _forget_groups(self) -> None:
        size, numbers = len(self._keys), self._groups.drop_empty_groups()
        if numbers is not None:
            self._group_at[:size] = numbers[self._group_at[:size]]

    def _state(self, pod: Pod, node: int, by: int) -> None:
        """Update the affinity groups for a pod that is added (by=1) or removed (by=-1)."""
        affinity = pod.spec.affinity
        if affinity is None or not (affinity.pod_affinity or affinity.pod_anti_affinity):
            return
        if by > 0:
            self.with_affinity[pod.key] = (pod, node)
        else:
            del self.with_affinity[pod.key]
        self.affinity_groups.update_pod_count(pod, affinity, node, by)

    def renumber_nodes(self, numbers: list[int], nodes: int) -> None:
        """Replace the node indexes of all pods after nodes were added or removed. Nodes that are removed have no pods.

        Args:
          numbers: old index → new index.
          nodes: the new number of nodes.
        """
        self._count = nodes
        self._pods = {key: (pod, numbers[node]) for key, (pod, node) in self._pods.items()}
        size = len(self._keys)
        self._node_at[:size] = np.asarray(numbers, np.int32)[self._node_at[:size]]
        self._on = _renumbered(self._on, numbers)
        self.affinity_groups.renumber_nodes(numbers)
        self.with_affinity = {key: (pod, numbers[node]) for key, (pod, node) in self.with_affinity.items()}
        self.ports_on = _renumbered(self.ports_on, numbers)
        self.disks_on = _renumbered(self.disks_on, numbers)
        self.attaching_on = _renumbered(self.attaching_on, numbers)

    def pods_on(self, node: int) -> Iterable[Pod]:
        """Return the pods on a node, in the order in which they were added."""
        return self._on.get(node, {}).values()

    def __len__(self) -> int:
        """The number of pods on nodes."""
        return len(self._pods)

    def __contains__(self, key: str) -> bool:
        """Return True if the pod `namespace/name` is on a node."""
        return key in self._pods

    def pods_with_node_indexes(self) -> Iterable[tuple[Pod, int]]:
        """Return all pods with the indexes of their nodes, in the order in which they were added."""
        return iter(self._pods.values())

    def count_pods_passing_test_by_node(self, matches: Callable[[PodLabelGroup], bool]) -> IntArray:
        """Return for each node [N] the number of pods in label groups for which `matches` returns True."""
        return self._count_in(self._groups.mask_pod_groups_passing_test(matches))

    def count_pods_matching_selector_by_node(
        self, selection: PodSelector, *, terminating: bool = True
    ) -> IntArray:
        """Return for each node [N] how many of its pods a pod selector matches.

        Terminating pods count only if `terminating`.
        """
        return self._count_in(
            self._groups.mask_pod_groups_matching_selector(selection, terminating=terminating)
        )

    def _count_in(self, chosen: BoolArray) -> IntArray:
        if not chosen.any():
            return np.zeros(self._count, np.int64)
        size = len(self._keys)
        nodes = self._node_at[:size][chosen[self._group_at[:size]]]
        return np.bincount(nodes, minlength=self._count).astype(np.int64)


def _renumbered(by_node: dict[int, dict[str, T]], numbers: list[int]) -> dict[int, dict[str, T]]:
    """Return a mapping by node under the nodes' new indexes, without nodes that have no pods."""
    return {numbers[node]: pods for node, pods in by_node.items() if pods}
