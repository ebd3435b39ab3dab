"""Sends bindings and other writes to the API server, a limited number at a time, while this replica leads."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from batchsched.api.core.pod import Pod
from batchsched.api.core.volume import PersistentVolumeClaim
from batchsched.errors import ApiError, BindFailed, NotLeading, Unreachable
from batchsched.kube.clock import RetryBackoff
from batchsched.kube.connection import JSON, MERGE_PATCH, POD_RESOURCE, ApiResource, Connection
from batchsched.kube.request_limit import ApiRequestLimit
from batchsched.ports.claims import ResourceClaimBinder
from batchsched.ports.cluster import Binding, Clock, PersistentVolumeBinding, VolumeClaimSelectedNode

_LOG: Final = logging.getLogger(__name__)
_DEADLINE_SECONDS: Final = 10.0
"""The longest time that one request may take."""
_BUSY_SECONDS: Final = 60.0
"""The time for which a write is retried while the API server is busy."""
_BUSY_STATUSES: Final = (429, 503, 504)
_NO_DRY_RUN: Final = "does not support dry run"
"""Part of the message if an admission webhook has side effects."""
_MAX_BIND_ATTEMPTS: Final = 4
"""How often a Binding is sent that gets no answer and leaves the pod without a node."""


class WriteFence(Protocol):
    """The check that permits writes to the API server only while this replica holds the leader Lease."""

    def remaining_seconds(self) -> float:
        """Return the seconds for which this replica may still write; at 0 or less, another may lead."""
        ...


class _Ref(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Named(msgspec.Struct, frozen=True, rename="camel"):
    uid: str = ""
    deletion_timestamp: str | None = None


class _Bound(msgspec.Struct, frozen=True):
    metadata: _Named = _Named()
    spec: _Ref = _Ref()


class Writer:
    """The component that sends write requests to the API server, with retries, until the Lease expires.

    Args:
      connection: the connection to the API server.
      clock: the clock for waits between retries.
      fence: limits the deadline of each request; None for a single replica without leader election.
      in_flight: the number of concurrent requests.
    """

    def __init__(
        self, connection: Connection, clock: Clock, fence: WriteFence | None = None, in_flight: int = 64
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._fence = fence
        self._limit = ApiRequestLimit(in_flight)

    async def wait_until_idle(self) -> None:
        """Wait until no request is in flight."""
        await self._limit.wait_until_idle()

    async def bind(self, binding: Binding) -> None:
        """Bind a pod to a node. If a request gets no response, the pod is read, because it may be bound.

        While that is unknown the method keeps trying: the capacity of the node must not be given to another pod.

        Raises:
          BindFailed: the pod is bound to another node, was deleted, or the server refused.
          NotLeading: the fence expired first.
        """
        meta: dict[str, Any] = {"name": binding.pod, "namespace": binding.namespace}
        if binding.labels:
            meta["labels"] = dict(binding.labels)
        if binding.uid:  # protects a new pod of the same name
            meta["uid"] = binding.uid
        target = {"apiVersion": "v1", "kind": "Node", "name": binding.node}
        body = msgspec.json.encode(
            {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
        )
        path = POD_RESOURCE.path(binding.namespace, binding.pod, "binding")
        failed = f"binding {binding.pod_key} to {binding.node}"
        backoff = RetryBackoff(self._clock, first=0.1, longest=5.0)
        in_doubt, unanswered = False, 0
        while True:
            try:
                await self.send("POST", path, body)
            except (ApiError, Unreachable) as error:
                status = error.status if isinstance(error, ApiError) else 0
                refused = 0 < status < 500
                if refused and status != 409 and not in_doubt:
                    raise BindFailed(f"{failed}: {error}") from error
                in_doubt = in_doubt or not refused
                node = await self._node_of(binding, failed, error)
                if node == binding.node:
                    return
                if node is not None:
                    unanswered += 1
                    if refused or unanswered == _MAX_BIND_ATTEMPTS:
                        why = error if refused else f"no answer to {_MAX_BIND_ATTEMPTS} requests"
                        raise BindFailed(f"{failed}: {why}") from error
                await backoff.wait()
            else:
                return

    async def _node_of(self, binding: Binding, failed: str, error: ApiError | Unreachable) -> str | None:
        """Return the node of a pod after a failed bind, "" without a node, None if it cannot be read.

        Raises:
          BindFailed: the pod can never be bound to the node.
        """
        try:
            now = await self._read_pod(binding.namespace, binding.pod)
        except ApiError as answer:
            if answer.status == 404:
                raise BindFailed(f"{failed}: the pod was deleted") from error
            return None
        except (Unreachable, msgspec.DecodeError):
            return None
        if binding.uid and now.metadata.uid != binding.uid:
            raise BindFailed(f"{failed}: another pod has its name") from error
        if now.spec.node_name not in ("", binding.node):
            raise BindFailed(f"{failed}: it is already bound to {now.spec.node_name}") from error
        return now.spec.node_name

    async def evict(self, pod: Pod, *, dry_run: bool = False) -> None:
        """Evict a pod through the Eviction API, which respects PodDisruptionBudgets. A deleted pod is not an error.

        With `dry_run`, the API server only tells whether it would refuse. It cannot tell if an admission webhook does
        not support dry runs; that is not an error.

        Raises:
          ApiError: a budget does not allow the eviction (429), or the server refused.
          Unreachable: there was no answer.
          NotLeading: the fence expired first.
        """
        options: dict[str, Any] = {"preconditions": {"uid": pod.metadata.uid}} if pod.metadata.uid else {}
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": options,
        }
        path = POD_RESOURCE.path(pod.namespace, pod.name, "eviction")
        if dry_run:
            options["dryRun"] = ["All"]
        # Admission reads the query, and the eviction itself reads the options.
        query = {"dryRun": "All"} if dry_run else None
        self._allowed()
        try:
            # The API server retries an eviction with a wrong UID for ten seconds before it refuses.
            now = await self._read_pod(pod.namespace, pod.name)
            if pod.metadata.uid not in ("", now.metadata.uid):
                return
            # 429 comes from a disruption budget here; an immediate retry would not help.
            await self.send("POST", path, msgspec.json.encode(body), patient=False, query=query)
        except ApiError as error:
            unsupported = dry_run and error.status == 400 and _NO_DRY_RUN in error.message
            is_gone = error.status == 404 or (error.status == 409 and await self._is_leaving(pod))
            if not is_gone and not unsupported:
                raise

    async def _is_leaving(self, pod: Pod) -> bool:
        """Return whether a pod was deleted or is terminating, by a request to the API server."""
        try:
            now = await self._read_pod(pod.namespace, pod.name)
        except ApiError as error:
            if error.status == 404:
                return True
            raise
        return pod.metadata.uid not in ("", now.metadata.uid) or bool(now.metadata.deletion_timestamp)

    async def _read_pod(self, namespace: str, name: str) -> _Bound:
        return msgspec.json.decode(await self.get(POD_RESOURCE, namespace, name), type=_Bound)

    async def get(self, resource: ApiResource, namespace: str, name: str) -> bytes:
        """Read an object from the API server and return its JSON.

        Raises:
          ApiError: the server refused.
          Unreachable: there was no answer.
        """
        async with self._limit.request_slot(namespace):
            path = resource.path(namespace, name)
            return await self._connection.request("GET", path, deadline=_DEADLINE_SECONDS)

    async def create(self, resource: ApiResource, namespace: str, body: Any) -> bytes:
        """Create an object and return its JSON as the API server stored it. Raises as `send`."""
        return await self.send("POST", resource.path(namespace), msgspec.json.encode(body))

    async def delete(self, resource: ApiResource, namespace: str, name: str, uid: str = "") -> None:
        """Delete an object from the API server. An object that does not exist is not an error. Raises as `send`."""
        options = {"preconditions": {"uid": uid}} if uid else {}
        try:
            await self.send("DELETE", resource.path(namespace, name), msgspec.json.encode(options))
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    async def patch(
        self, resource: ApiResource, namespace: str, name: str, change: Any, subresource: str = ""
    ) -> bytes:
        """Apply a merge patch to an object, or to a subresource such as its status. Raises as `send`."""
        path = resource.path(namespace, name, subresource)
        return await self.send("PATCH", path, msgspec.json.encode(change), MERGE_PATCH)

    async def send(
        self,
        method: str,
        path: str,
        body: bytes,
        content_type: str = JSON,
        *,
        patient: bool = True,
        query: Mapping[str, str] | None = None,
    ) -> bytes:
        """Send a write request to the API server and return the body of the response.

        While the server is busy and `patient` is True, the request is sent again after the server's Retry-After.
        Many requests for objects of one namespace do not delay those of another.

        Raises:
          ApiError: the server refused, or was busy for a minute.
          Unreachable: there was no answer. The server may have executed the write.
          NotLeading: the fence expired first, and nothing was sent after that.
        """
        begun, backoff = self._clock.monotonic(), RetryBackoff(self._clock, first=0.2, longest=10.0)
        while True:
            async with self._limit.request_slot(_namespace_of(path)):
                try:
                    return await self._connection.request(
                        method,
                        path,
                        query=query,
                        body=body,
                        content_type=content_type,
                        deadline=self._allowed(),
                    )
                except ApiError as error:
                    late = self._clock.monotonic() - begun > _BUSY_SECONDS
                    if error.status not in _BUSY_STATUSES or not patient or late:
                        raise
                    retry_after = error.retry_after
            # Outside the semaphore: other requests may succeed meanwhile.
            await backoff.wait(retry_after)

    def _allowed(self) -> float:
        remaining = _DEADLINE_SECONDS if self._fence is None else self._fence.remaining_seconds()
        if remaining <= 0:
            raise NotLeading("the write was not sent: this replica may have lost the Lease")
        return min(_DEADLINE_SECONDS, remaining)


def _namespace_of(path: str) -> str:
    """Return the namespace in the URL path of a request, "" without one."""
    return path.partition("/namespaces/")[2].partition("/")[0]


VOLUME_CLAIM_RESOURCE: Final = ApiResource(
    "v1", "persistentvolumeclaims", "PersistentVolumeClaim", namespaced=True
)
VOLUMES: Final = ApiResource("v1", "persistentvolumes", "PersistentVolume", namespaced=False)
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
BOUND_BY: Final = "pv.kubernetes.io/bound-by-controller"
_MAX_VOLUME_ATTEMPTS: Final = 3
"""Maximum attempts to write a PersistentVolume or its claim that other clients change at the same time."""


class _Claim(msgspec.Struct, frozen=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    claim_ref: _Claim | None = None


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Volume(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()


class _VolumeClaim(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()


@dataclass(frozen=True, slots=True)
class VolumeClaims:
    """A pair of functions that find PersistentVolumeClaims in the cluster state, and replace them there.

    Args:
      handle_claim: receives each claim that is read or written, as JSON.
      find_claim: returns a claim, `namespace/name`, according to the watch; None if there is none.
    """

    handle_claim: Callable[[bytes], None]
    find_claim: Callable[[str], PersistentVolumeClaim | None]


class ApiBinder:
    """The component that writes bindings of pods and volumes to the API server.

    It contains the writer of ResourceClaims.

    It implements `ports.cluster.Binder`.

    Args:
      writer: sends the requests.
      claims: writes ResourceClaims.
      volume_claims: the PersistentVolumeClaims.
      poll: seconds between two checks of claims.
    """

    def __init__(
        self, writer: Writer, claims: ResourceClaimBinder, volume_claims: VolumeClaims, poll: float = 0.5
    ) -> None:
        self._writer = writer
        self.resource_claim_binder = claims
        self._volume_claims = volume_claims
        self._poll = poll

    async def bind(self, binding: Binding) -> None:
        """Bind a pod to the node that the binding names."""
        await self._writer.bind(binding)

    async def bind_volume(self, binding: PersistentVolumeBinding) -> None:
        """Bind a PersistentVolume to a PersistentVolumeClaim.

        Raises:
          BindFailed: the volume is bound to another claim, or its `claimRef` reserves it by name for another claim.
          ApiError: the server refused, or the volume was modified concurrently (409) at every attempt.
        """
        await _repeat_after_conflicts(lambda: self._try_to_bind_volume(binding))

    async def _try_to_bind_volume(self, binding: PersistentVolumeBinding) -> None:
        now = msgspec.json.decode(await self._writer.get(VOLUMES, "", binding.volume), type=_Volume)
        holder = now.spec.claim_ref
        if holder is not None and holder.uid:
            if holder.uid == binding.uid:
                return
            raise BindFailed(f"volume {binding.volume} is already bound to {holder.namespace}/{holder.name}")
        # Without a UID, a user reserves the volume for the claim of this name.
        if holder is not None and (holder.namespace, holder.name) != (binding.namespace, binding.claim):
            raise BindFailed(f"volume {binding.volume} is reserved for {holder.namespace}/{holder.name}")
        claim = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "uid": binding.uid}
        change = {
            # With the resourceVersion, only one of two concurrent writers succeeds.
            "metadata": {"resourceVersion": now.metadata.resource_version, "annotations": {BOUND_BY: "yes"}},
            "spec": {"claimRef": {**claim, "namespace": binding.namespace, "name": binding.claim}},
        }
        await self._writer.patch(VOLUMES, "", binding.volume, change)

    async def write_selected_node(self, selection: VolumeClaimSelectedNode) -> None:
        """Write the selected node of a PersistentVolumeClaim, so that its volume is provisioned for this node.

        Raises:
          BindFailed: the claim selects another node, for a pod of another profile or another scheduler.
          ApiError: the server refused, or the claim was modified concurrently (409) at every attempt.
        """
        await _repeat_after_conflicts(lambda: self._try_to_select_node(selection))

    async def _try_to_select_node(self, selection: VolumeClaimSelectedNode) -> None:
        raw = await self._writer.get(VOLUME_CLAIM_RESOURCE, selection.namespace, selection.claim)
        now = msgspec.json.decode(raw, type=_VolumeClaim).metadata
        selected = (now.annotations or {}).get(SELECTED_NODE, "")
        if selected not in ("", selection.node):
            raise BindFailed(f"PersistentVolumeClaim {selection.claim_key} selects the node {selected}")
        if not selected:
            annotations = {SELECTED_NODE: selection.node}
            # With the resourceVersion, only one of two concurrent writers succeeds.
            change = {"metadata": {"resourceVersion": now.resource_version, "annotations": annotations}}
            raw = await self._writer.patch(
                VOLUME_CLAIM_RESOURCE, selection.namespace, selection.claim, change
            )
        # Otherwise, a late watch would look like a provisioner that removes the selected node.
        self._volume_claims.handle_claim(raw)

    async def wait_for_bound_volume_claims(
        self,
        claims: Sequence[str],
        timeout_seconds: float,
        selections: Sequence[VolumeClaimSelectedNode] = (),
    ) -> bool:
        """Wait until all PersistentVolumeClaims are bound and return True; return False after the timeout.

        Raises:
          BindFailed: a claim was deleted or no longer selects its node. A provisioner removes the selected node if it
            cannot provision the volume there.
        """
        node_of_claim = {selection.claim_key: selection.node for selection in selections}
        try:
            async with asyncio.timeout(timeout_seconds):
                while True:
                    are_bound = [self._is_bound(claim, node_of_claim.get(claim)) for claim in claims]
                    if all(are_bound):
                        return True
                    await asyncio.sleep(self._poll)
        except TimeoutError:
            return False

    def _is_bound(self, key: str, node: str | None) -> bool:
        """Return whether a claim is bound that must select a node, unless the node is None."""
        claim = self._volume_claims.find_claim(key)
        if claim is None:
            raise BindFailed(f"PersistentVolumeClaim {key} was deleted")
        selected = claim.metadata.annotation(SELECTED_NODE)
        if node is not None and selected != node:
            problem = f"selects the node {selected}" if selected else f"no longer selects the node {node}"
            raise BindFailed(f"PersistentVolumeClaim {key} {problem}")
        return claim.status.phase == "Bound"


async def _repeat_after_conflicts(attempt: Callable[[], Awaitable[None]]) -> None:
    """Repeat an attempt to write an object that other clients write at the same time, such as pods with one claim."""
    for remaining_attempts in reversed(range(_MAX_VOLUME_ATTEMPTS)):
        try:
            await attempt()
        except ApiError as error:
            if error.status != 409 or not remaining_attempts:
                raise
        else:
            return
