"""Objects as in watch events: with a uid and a resourceVersion."""

from typing import Any, TypeVar
from weakref import ReferenceType, ref

import msgspec

from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.api.snapshot import HeldGang, Snapshot
from batchsched.ports.cluster import ClusterChanges
from batchsched.state.cluster_state import AssumedPod, ClusterState
from tests.session.scenario import NOW
from tests.session.scenario import node as plain_node
from tests.session.scenario import pod as plain_pod

T = TypeVar("T", bound=msgspec.Struct)


def told(found: T, version: int = 0, uid: str = "") -> T:
    metadata: Any = found.metadata  # type: ignore[attr-defined]
    meta = msgspec.structs.replace(metadata, uid=uid, resource_version=str(version) if version else "")
    return msgspec.structs.replace(found, metadata=meta)


def node(name: str, version: int = 0, uid: str = "", **more: Any) -> Node:
    return told(plain_node(name, **more), version, uid)


def pod(name: str, version: int = 0, uid: str = "", **more: Any) -> Pod:
    return told(plain_pod(name, **({"cpu": 1} | more)), version, uid)


class Payload(dict[str, str]):
    """Labels that can be referenced weakly, unlike a pod."""


def with_payload(pod: Pod) -> tuple[Pod, ReferenceType[Payload]]:
    """Return the pod with other labels, and a reference that is dead once nothing keeps the pod."""
    payload = Payload()
    metadata = msgspec.structs.replace(pod.metadata, labels=payload)
    return msgspec.structs.replace(pod, metadata=metadata), ref(payload)


def ended(pod: Pod, phase: str = "Succeeded") -> Pod:
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, phase=phase))


def leaving(pod: Pod) -> Pod:
    meta = msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    return msgspec.structs.replace(pod, metadata=meta)


def places(snapshot: Snapshot) -> dict[str, str]:
    return {one.name: one.node_name for one in snapshot.pods}


class Ledger:
    """A scheduler that only records the changes it receives, and asserts that they are consistent."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.nodes = {one.name for one in snapshot.nodes}
        self.pods = {one.key: one for one in snapshot.pods}
        self.groups = {one.key: one for one in snapshot.pod_groups}
        self.held: tuple[HeldGang, ...] = ()
        self.laid_out = 0

    def apply_changes(self, changes: ClusterChanges) -> None:
        if changes.nodes is not None:
            assert [one.name for one in changes.nodes] == sorted(one.name for one in changes.nodes)
            self.nodes = {one.name for one in changes.nodes}
            self.laid_out += 1
        self.groups |= {group.key: group for group in changes.pod_groups}
        for pod in changes.removed_pods:
            assert self.pods.pop(pod.key) is pod
        for pod in changes.bound_pods:
            assert not self.pods[pod.key].node_name
            assert pod.metadata.uid == self.pods[pod.key].metadata.uid
            assert pod.node_name in self.nodes
            self.pods[pod.key] = pod
        for pod in changes.added_pods:
            assert pod.key not in self.pods
            self.pods[pod.key] = pod
        for key in changes.removed_pod_groups:
            del self.groups[key]

    def set_waiting_gangs(self, held: tuple[HeldGang, ...]) -> None:
        self.held = held

    def decide(self, now: float, seed: int) -> Any:
        raise NotImplementedError


__all__ = ["NOW", "Ledger", "ended", "leaving", "node", "places", "pod", "told"]


def expire(state: ClusterState, now: float) -> tuple[AssumedPod, ...]:
    """Forget the assumed pods that are overdue, as the expiry controller does; returns them."""
    overdue = state.overdue_assumed_pods(now)
    for pod in overdue:
        state.forget_assumption(pod.pod, pod.assumption.node, pod.uid)
    return overdue
