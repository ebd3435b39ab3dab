"""What owners call for, written to the API for people to see: PodGroups, and the labels of members.

No decision waits for it: sessions know all this from the owners themselves. A PodGroup is owned by whoever calls for
it, so that it is collected with it. Pods get their labels with their binding, where the API server takes labels there
(1.35 and later), and by a patch when they have been without for a while.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from batchsched.api.crd.base import API_VERSION
from batchsched.api.crd.podgroup import PodGroup, PodGroupSpec
from batchsched.errors import ApiError, BatchschedError
from batchsched.kube.resources import PODS, Resource
from batchsched.kube.writer import Writer
from batchsched.podgrouper.groups import MADE, OWNER_LABEL, STATED, WRITTEN, PodGroupSources
from batchsched.podgrouper.members import GangMembership
from batchsched.podgrouper.owners import Owner
from batchsched.ports.clock import Clock

_LOG: Final = logging.getLogger(__name__)
PODGROUPS: Final = Resource(API_VERSION, "podgroups", "PodGroup", namespaced=True)
TURN: Final = 0.5
"""Seconds between two looks at what is to be written."""
SETTLED: Final = 3.0
"""Seconds for which a pod may be without its labels: most are bound by then, and have them."""
RETRY: Final = 5.0
NOT_INSTALLED: Final = 60.0
"""Seconds to wait where there is no kind PodGroup."""
_AT_ONCE: Final = 16
"""Writes in flight: bindings come first."""


class PodGroupWriter:
    """Writes while we lead.

    Args:
      groups: all PodGroups.
      members: which pods belong to them.
      writer: sends.
      clock: tells time.
    """

    def __init__(
        self, groups: PodGroupSources, members: GangMembership, writer: Writer, clock: Clock
    ) -> None:
        self._groups = groups
        self._members = members
        self._writer = writer
        self._clock = clock
        self._due: dict[str, float] = {}
        self._since: dict[str, float] = {}

    async def run(self) -> None:
        """Write until cancelled, everything once at first: another leader may have left something undone."""
        self._groups.touched |= self._groups.of(MADE).keys() | self._groups.of(WRITTEN).keys()
        while True:
            await self.turn(self._clock.monotonic())
            await self._clock.sleep(TURN)

    async def turn(self, now: float) -> None:
        """Write what is to be written by now, in seconds of the monotonic clock."""
        for key in self._groups.touched:
            self._due.setdefault(key, now)
        self._groups.touched.clear()
        groups = sorted(key for key, due in self._due.items() if due <= now)
        for key in groups:
            del self._due[key]
        await self._each(groups, self._write_group, now)
        await self._each(self._unlabelled(now), self._write_labels, now)

    async def _each(self, keys: list[str], write: Any, now: float) -> None:
        for first in range(0, len(keys), _AT_ONCE):
            await asyncio.gather(*(write(key, now) for key in keys[first : first + _AT_ONCE]))

    def _unlabelled(self, now: float) -> list[str]:
        """Return the pods that have been without their labels for too long."""
        wanted = self._members.labels
        self._since = {key: self._since.get(key, now) for key in wanted}
        return sorted(key for key, since in self._since.items() if now - since >= SETTLED)

    async def _write_group(self, key: str, now: float) -> None:
        namespace, _, name = key.partition("/")
        wanted, written = self._groups.of(MADE).get(key), self._groups.of(WRITTEN).get(key)
        if key in self._groups.of(STATED):
            return  # a user's own
        try:
            if wanted is not None and written is None:
                await self._writer.create(PODGROUPS, namespace, self._manifest(wanted))
            elif wanted is not None and written is not None:
                if wanted.spec != written.spec:
                    await self._writer.patch(PODGROUPS, namespace, name, {"spec": _patch(wanted.spec)})
            elif written is not None and self._members.owner_of_group(written) is not None:
                # Its owner is there and calls for it no more. Where the owner is gone it is garbage, and collected.
                await self._writer.delete(PODGROUPS, namespace, name, written.metadata.uid)
        except ApiError as error:
            if error.status != 409:  # 409: it is there already, and the watch will show it
                self._later(f"PodGroup {key}", key, now, error, error.status)
        except BatchschedError as error:
            self._later(f"PodGroup {key}", key, now, error, 0)

    def _later(self, what: str, key: str, now: float, error: Exception, status: int) -> None:
        _LOG.log(logging.INFO if status == 404 else logging.WARNING, "%s is not written: %s", what, error)
        self._due[key] = now + (NOT_INSTALLED if status == 404 else RETRY)

    async def _write_labels(self, key: str, now: float) -> None:
        labels, pod = self._members.labels.get(key), self._members.get(key)
        if labels is None or pod is None:
            return
        self._since[key] = now + RETRY - SETTLED
        meta: dict[str, Any] = {"labels": dict(labels)}
        if pod.metadata.uid:  # another pod of its name is not meant
            meta["uid"] = pod.metadata.uid
        try:
            await self._writer.patch(PODS, pod.namespace, pod.name, {"metadata": meta})
        except ApiError as error:
            if error.status not in (404, 409):
                _LOG.warning("labels of %s are not written: %s", key, error)
        except BatchschedError as error:
            _LOG.warning("labels of %s are not written: %s", key, error)

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
    """Return the change that makes any spec this one: what is not stated is taken away."""
    stated = spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    every = spec.model_dump(mode="json", by_alias=True)
    return {name: stated.get(name) for name in every}
