"""Sends the writes of binding cycles to the API server."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from batchsched.errors import BindFailed
from batchsched.kube.resources import Resource
from batchsched.kube.writer import Writer
from batchsched.ports.binder import Binding, NodeSelection, VolumeBinding

CLAIMS: Final = Resource("v1", "persistentvolumeclaims", "PersistentVolumeClaim", namespaced=True)
VOLUMES: Final = Resource("v1", "persistentvolumes", "PersistentVolume", namespaced=False)
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
BOUND_BY: Final = "pv.kubernetes.io/bound-by-controller"


class _Claim(msgspec.Struct, frozen=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    claim_ref: _Claim | None = None


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _Volume(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()


class ApiBinder:
    """Implements `ports.binder.Binder`.

    Args:
      writer: sends the requests.
      is_bound: whether a claim, `namespace/name`, has its volume according to the watch.
      poll: seconds between two checks of claims.
    """

    def __init__(self, writer: Writer, is_bound: Callable[[str], bool], poll: float = 0.5) -> None:
        self._writer = writer
        self._is_bound = is_bound
        self._poll = poll

    async def bind(self, binding: Binding) -> None:
        """Bind a pod to its node."""
        await self._writer.bind(binding)

    async def bind_volume(self, binding: VolumeBinding) -> None:
        """Bind a PersistentVolume to its claim.

        Raises:
          BindFailed: the volume is bound to another claim.
          ApiError: the volume was modified concurrently (409), or the server refused.
        """
        now = msgspec.json.decode(await self._writer.get(VOLUMES, "", binding.volume), type=_Volume)
        holder = now.spec.claim_ref
        if holder is not None and holder.uid:
            if holder.uid == binding.uid:
                return
            raise BindFailed(f"volume {binding.volume} is already bound to {holder.namespace}/{holder.name}")
        claim = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "uid": binding.uid}
        change = {
            # With the resourceVersion, only one of two concurrent writers succeeds.
            "metadata": {"resourceVersion": now.metadata.resource_version, "annotations": {BOUND_BY: "yes"}},
            "spec": {"claimRef": {**claim, "namespace": binding.namespace, "name": binding.claim}},
        }
        await self._writer.patch(VOLUMES, "", binding.volume, change)

    async def select_node(self, selection: NodeSelection) -> None:
        """Write the selected node of a claim."""
        change = {"metadata": {"annotations": {SELECTED_NODE: selection.node}}}
        await self._writer.patch(CLAIMS, selection.namespace, selection.claim, change)

    async def claims_bound(self, claims: Sequence[str], timeout_seconds: float) -> bool:
        """Wait until all claims are bound. Return False if the timeout expires first."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while not all(self._is_bound(claim) for claim in claims):
                    await asyncio.sleep(self._poll)
        except TimeoutError:
            return False
        return True
