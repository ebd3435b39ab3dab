"""Objects as a watch tells them: with a uid and a resourceVersion."""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.snapshot import HeldGang, Snapshot
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


def ended(pod: Pod, phase: str = "Succeeded") -> Pod:
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, phase=phase))


def leaving(pod: Pod) -> Pod:
    meta = msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    return msgspec.structs.replace(pod, metadata=meta)


def places(snapshot: Snapshot) -> dict[str, str]:
    return {one.name: one.node for one in snapshot.pods}


class Ledger:
    """A scheduler that only keeps what it is told, and complains of what makes no sense."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.nodes = {one.name for one in snapshot.nodes}
        self.pods = {one.key: one for one in snapshot.pods}
        self.groups = {one.key: one for one in snapshot.pod_groups}
        self.held: tuple[HeldGang, ...] = ()
        self.laid_out = 0

    def lay_out(self, nodes: Sequence[Node]) -> None:
        assert [one.name for one in nodes] == sorted(one.name for one in nodes)
        self.nodes = {one.name for one in nodes}
        self.laid_out += 1

    def add_group(self, group: PodGroup) -> None:
        self.groups[group.key] = group

    def remove_group(self, key: str) -> None:
        del self.groups[key]

    def add_pods(self, pods: Sequence[Pod]) -> None:
        for one in pods:
            assert one.key not in self.pods
            self.pods[one.key] = one

    def bind_pods(self, pods: Sequence[Pod]) -> None:
        for one in pods:
            assert not self.pods[one.key].node
            assert one.metadata.uid == self.pods[one.key].metadata.uid
            assert one.node in self.nodes
            self.pods[one.key] = one

    def remove_pods(self, pods: Sequence[Pod]) -> None:
        for one in pods:
            assert self.pods.pop(one.key) is one

    def hold(self, held: tuple[HeldGang, ...]) -> None:
        self.held = held

    def decide(self, now: float, seed: int) -> Any:
        raise NotImplementedError


__all__ = ["NOW", "Ledger", "ended", "leaving", "node", "places", "pod", "told"]
