"""Writes the derived PodGroups and the labels of their pods to the API, so that users can see them.

Sessions do not wait for these writes: they know the same facts from the owners. A derived PodGroup has its owner in
`ownerReferences`, so that it is garbage collected with the owner. Pods receive their labels with the binding if the
API server supports that (1.35 and later), and otherwise by a patch some seconds later.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from batchsched.api.crd.base import API_VERSION
from batchsched.api.crd.podgroup import PodGroup, PodGroupSpec
from batchsched.errors import ApiError, BatchschedError
from batchsched.kube.connection import POD_RESOURCE, ApiResource
from batchsched.kube.writer import Writer
from batchsched.podgrouper.grouper import GangAssigningPodStore
from batchsched.podgrouper.owners import Owner
from batchsched.podgrouper.pod_group_index import DERIVED, FROM_USERS, OWNER_LABEL, WRITTEN, PodGroupIndex
from batchsched.ports.cluster import Clock

_LOG: Final = logging.getLogger(__name__)
PODGROUPS: Final = ApiResource(API_VERSION, "podgroups", "PodGroup", namespaced=True)
TURN_SECONDS: Final = 0.5
"""Seconds between two checks for pending writes."""
LABEL_DELAY_SECONDS: Final = 3.0
"""Age at which a missing label is patched. Most pods are bound earlier, and receive it with the binding."""
RETRY_SECONDS: Final = 5.0
REFUSED_SECONDS: Final = 60.0
"""Seconds between two attempts if the kind PodGroup is not installed, or if the API server refuses a PodGroup."""
_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_INVALID: Final = 422
_MAX_CONCURRENT_WRITES: Final = 16
"""A low number, so that bindings are not delayed."""


def do_nothing_on_kept_queue(_key: str, _queue_of_owner: str | None) -> None:
    """Do nothing; this is the default callback for a PodGroup that keeps its queue."""


class PodGroupWriter:
    """The component that writes derived PodGroups and the gang labels of pods to the API server.

    Args:
      groups: all PodGroups.
      members: the gangs of pods.
      writer: sends the writes.
      clock: the current time.
      patch_pods: whether pods that are pending for some seconds are labelled; otherwise only their binding labels them.
      on_kept_queue: is called once if the owner of a PodGroup names another queue while pods of the gang have nodes,
        with the `namespace/name` of the PodGroup and the queue that the owner names.
    """

    def __init__(
        self,
        groups: PodGroupIndex,
        members: GangAssigningPodStore,
        writer: Writer,
        clock: Clock,
        *,
        patch_pods: bool = True,
        on_kept_queue: Callable[[str, str | None], None] = do_nothing_on_kept_queue,
    ) -> None:
        self._groups = groups
        self._members = members
        self._writer = writer
        self._clock = clock
        self._patch_pods = patch_pods
        self._on_kept_queue = on_kept_queue
        self._may_patch_pods = True
        self._due: dict[str, float] = {}
        self._logged: dict[str, str] = {}
        """By PodGroup: the message of its last attempt, if that failed."""
        self._kept_queues: dict[str, tuple[str, str | None]] = {}
        """By PodGroup with a queue that its owner no longer names: its uid, and the queue that the owner names."""
        self._since: dict[str, float] = {}
        self._under_way: asyncio.Future[list[None]] | None = None
        """The last writes. The event loop refers weakly to tasks, so they would end early without this reference."""

    async def run(self) -> None:
        """Write changed PodGroups and missing pod labels to the API server until the task is canceled.

        At first it writes all derived PodGroups, because a former leader may have left writes undone.
        """
        self._groups.touched |= (
            self._groups.groups_of_origin(DERIVED).keys() | self._groups.groups_of_origin(WRITTEN).keys()
        )
        while True:
            await self.write_due_groups_and_labels(self._clock.monotonic())
            await self._clock.sleep(TURN_SECONDS)

    async def write_due_groups_and_labels(self, now: float) -> None:
        """Write the PodGroups and pod labels that are due at `now`, a time in seconds of the monotonic clock."""
        for key in self._groups.touched:
            self._due.setdefault(key, now)
        self._groups.touched.clear()
        written = self._groups.groups_of_origin(WRITTEN)
        self._kept_queues = {key: kept for key, kept in self._kept_queues.items() if key in written}
        groups = sorted(key for key, due in self._due.items() if due <= now)
        for key in groups:
            del self._due[key]
        await self._each(groups, self._write_group, now)
        if self._patch_pods:
            await self._each(self._unlabelled(now), self._write_labels, now)

    async def _each(self, keys: list[str], write: Any, now: float) -> None:
        for first in range(0, len(keys), _MAX_CONCURRENT_WRITES):
            self._under_way = asyncio.gather(
                *(write(key, now) for key in keys[first : first + _MAX_CONCURRENT_WRITES])
            )
            # The API server may carry out a cancelled request after the Lease is released. Requests that are not
            # cancelled stay in flight for `Writer.wait_until_idle`.
            await asyncio.shield(self._under_way)

    def _unlabelled(self, now: float) -> list[str]:
        """Return the keys of the pods that have lacked a label for too long."""
        self._since = {key: self._since.get(key, now) for key in self._members.labels}
        return sorted(key for key, since in self._since.items() if now - since >= LABEL_DELAY_SECONDS)

    async def _write_group(self, key: str, now: float) -> None:
        logged = self._logged.pop(key, "")
        self._report_kept_queue(key)
        if key in self._groups.groups_of_origin(FROM_USERS):
            return  # a user created it
        try:
            await self._create_update_or_delete(key)
        except BatchschedError as error:
            status = error.status if isinstance(error, ApiError) else 0
            if status == _CONFLICT:  # it exists already, and the watch will deliver it
                return
            self._due[key] = now + (REFUSED_SECONDS if status in (_NOT_FOUND, _INVALID) else RETRY_SECONDS)
            self._logged[key] = str(error)
            if str(error) != logged:
                level = logging.INFO if status == _NOT_FOUND else logging.WARNING
                _LOG.log(level, "PodGroup %s was not written: %s", key, error)

    async def _create_update_or_delete(self, key: str) -> None:
        """Make the PodGroup in the API equal to the derived one.

        Raises:
          BatchschedError: the API server refused the write, or could not be reached.
        """
        namespace, _, name = key.partition("/")
        derived = self._groups.derived_pod_group(key)
        written = self._groups.groups_of_origin(WRITTEN).get(key)
        if derived is not None and written is None:
            await self._writer.create(PODGROUPS, namespace, self._manifest(derived))
        elif derived is not None and written is not None:
            if derived.spec != written.spec:
                await self._writer.patch(PODGROUPS, namespace, name, {"spec": _patch(derived.spec)})
        elif written is not None and self._members.owner_of_group(written) is not None:
            # The owner exists and no longer needs it. If the owner was deleted, it is garbage collected.
            await self._writer.delete(PODGROUPS, namespace, name, written.metadata.uid)

    def _report_kept_queue(self, key: str) -> None:
        """Report a PodGroup with a queue that its owner no longer names, once for each queue that the owner names."""
        needed, derived = self._groups.groups_of_origin(DERIVED).get(key), self._groups.derived_pod_group(key)
        written = self._groups.groups_of_origin(WRITTEN).get(key)
        if needed is None or derived is needed or written is None:
            self._kept_queues.pop(key, None)
            return
        kept = (written.metadata.uid, needed.spec.queue)
        if self._kept_queues.get(key) != kept:
            self._kept_queues[key] = kept
            self._on_kept_queue(key, needed.spec.queue)

    async def _write_labels(self, key: str, now: float) -> None:
        labels, pod = self._members.labels.get(key), self._members.pod_without_gang_labels(key)
        if labels is None or pod is None:
            return
        self._since[key] = now + RETRY_SECONDS - LABEL_DELAY_SECONDS
        meta: dict[str, Any] = {"labels": dict(labels)}
        if pod.metadata.uid:  # protects another pod of the same name
            meta["uid"] = pod.metadata.uid
        try:
            await self._writer.patch(POD_RESOURCE, pod.namespace, pod.name, {"metadata": meta})
        except BatchschedError as error:
            status = error.status if isinstance(error, ApiError) else 0
            if status == _FORBIDDEN and self._may_patch_pods:
                # One message for all pods: without the permission, each attempt for each pod fails.
                self._may_patch_pods = False
                _LOG.warning(
                    "labels of %s were not written: %s; set podGrouper.patchPods to false if batchsched is not to "
                    "patch pods",
                    key,
                    error,
                )
            elif status not in (_NOT_FOUND, _CONFLICT, _FORBIDDEN):
                _LOG.warning("labels of %s were not written: %s", key, error)
        else:
            self._may_patch_pods = True

    def _manifest(self, group: PodGroup) -> dict[str, Any]:
        meta: dict[str, Any] = {
            "name": group.name,
            "labels": {OWNER_LABEL: group.metadata.labels[OWNER_LABEL]},
        }
        owner = self._members.owner_of_group(group)
        if owner is not None:
            meta["ownerReferences"] = [_reference(owner)]
        spec = group.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
        return {"apiVersion": API_VERSION, "kind": "PodGroup", "metadata": meta, "spec": spec}


def _reference(owner: Owner) -> Mapping[str, Any]:
    return {
        "apiVersion": owner.kind.api_version,
        "kind": owner.kind.name,
        "name": owner.ref.name,
        "uid": owner.ref.uid,
        "controller": True,
    }


def _patch(spec: PodGroupSpec) -> dict[str, Any]:
    """Return the merge patch that turns any spec into this one: fields that are not set become null."""
    set_fields = spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    all_fields = spec.model_dump(mode="json", by_alias=True)
    return {name: set_fields.get(name) for name in all_fields}
