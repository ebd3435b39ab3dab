"""Writes the derived PodGroups and the labels of their pods to the API, so that users can see them.

Sessions do not wait for these writes: they know the same facts from the owners. A derived PodGroup has its owner in
`ownerReferences`, so that it is garbage collected with the owner. Pods receive their labels with the binding if the
API server supports that (1.35 and later), and otherwise by a patch some seconds later.
"""

import asyncio
import logging
from collections.abc import Mapping
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
NOT_INSTALLED_SECONDS: Final = 60.0
"""Seconds between two attempts while the kind PodGroup is not installed."""
_FORBIDDEN: Final = 403
_MAX_CONCURRENT_WRITES: Final = 16
"""A low number, so that bindings are not delayed."""


class PodGroupWriter:
    """The component that writes derived PodGroups and the gang labels of pods to the API server.

    Args:
      groups: all PodGroups.
      members: the gangs of pods.
      writer: sends the writes.
      clock: the current time.
      patch_pods: whether pods that are pending for some seconds are labelled; otherwise only their binding labels them.
    """

    def __init__(
        self,
        groups: PodGroupIndex,
        members: GangAssigningPodStore,
        writer: Writer,
        clock: Clock,
        *,
        patch_pods: bool = True,
    ) -> None:
        self._groups = groups
        self._members = members
        self._writer = writer
        self._clock = clock
        self._patch_pods = patch_pods
        self._may_patch_pods = True
        self._due: dict[str, float] = {}
        self._since: dict[str, float] = {}

    async def run(self) -> None:
        """Write changed PodGroups and missing pod labels to the API server until the task is canceled.

        At first it writes all derived PodGroups, because a former leader may have left writes undone.
        """
        self._groups.touched |= (
            self._groups.groups_of_origin(DERIVED).keys() | self._groups.groups_of_origin(WRITTEN).keys()
        )
        while True:
            await self.run_once(self._clock.monotonic())
            await self._clock.sleep(TURN_SECONDS)

    async def run_once(self, now: float) -> None:
        """Write the PodGroups and pod labels that are due at `now`, a time in seconds of the monotonic clock."""
        for key in self._groups.touched:
            self._due.setdefault(key, now)
        self._groups.touched.clear()
        groups = sorted(key for key, due in self._due.items() if due <= now)
        for key in groups:
            del self._due[key]
        await self._each(groups, self._write_group, now)
        if self._patch_pods:
            await self._each(self._unlabelled(now), self._write_labels, now)

    async def _each(self, keys: list[str], write: Any, now: float) -> None:
        for first in range(0, len(keys), _MAX_CONCURRENT_WRITES):
            await asyncio.gather(*(write(key, now) for key in keys[first : first + _MAX_CONCURRENT_WRITES]))

    def _unlabelled(self, now: float) -> list[str]:
        """Return the keys of the pods that have lacked a label for too long."""
        self._since = {key: self._since.get(key, now) for key in self._members.labels}
        return sorted(key for key, since in self._since.items() if now - since >= LABEL_DELAY_SECONDS)

    async def _write_group(self, key: str, now: float) -> None:
        namespace, _, name = key.partition("/")
        derived, written = (
            self._groups.groups_of_origin(DERIVED).get(key),
            self._groups.groups_of_origin(WRITTEN).get(key),
        )
        if key in self._groups.groups_of_origin(FROM_USERS):
            return  # a user created it
        try:
            if derived is not None and written is None:
                await self._writer.create(PODGROUPS, namespace, self._manifest(derived))
            elif derived is not None and written is not None:
                if derived.spec != written.spec:
                    await self._writer.patch(PODGROUPS, namespace, name, {"spec": _patch(derived.spec)})
            elif written is not None and self._members.owner_of_group(written) is not None:
                # The owner exists and no longer needs it. If the owner was deleted, it is garbage collected.
                await self._writer.delete(PODGROUPS, namespace, name, written.metadata.uid)
        except BatchschedError as error:
            status = error.status if isinstance(error, ApiError) else 0
            if status == 409:  # it exists already, and the watch will deliver it
                return
            level, delay = logging.WARNING, RETRY_SECONDS
            if status == 404:
                level, delay = logging.INFO, NOT_INSTALLED_SECONDS
            _LOG.log(level, "PodGroup %s was not written: %s", key, error)
            self._due[key] = now + delay

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
            elif status not in (404, 409, _FORBIDDEN):
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
