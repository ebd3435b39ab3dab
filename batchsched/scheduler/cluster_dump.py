"""Lists the objects of a live cluster for a dump. The kinds are those that the scheduler lists and watches."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from batchsched.api.external.conversion import EXTERNAL_KINDS
from batchsched.api.external.hyper_node import HYPER_NODE_KIND
from batchsched.api.external.topology import EXTERNAL_TOPOLOGY_KINDS
from batchsched.api.snapshot import OBJECT_KINDS
from batchsched.config.schema import PodGrouperSettings, Profile
from batchsched.errors import ApiError, CommandError
from batchsched.kube.connection import ApiResource, Connection
from batchsched.kube.listing import list_pages
from batchsched.manifests.stripping import keep_fields_that_decisions_read
from batchsched.podgrouper.rules import OwnerKinds
from batchsched.podgrouper.shape import spec_of
from batchsched.podgrouper.stripping import strip_unread_owner_fields
from batchsched.ports.cluster import Clock
from batchsched.record.dump import ClusterDump
from batchsched.runner.event_handlers import read_identity
from batchsched.scheduler.app import SchedulerApp

_ATTEMPTS: Final = 3
"""Attempts to list a kind if its list expires between two pages."""
_GONE: Final = 410
_NOT_FOUND: Final = 404
_FORBIDDEN: Final = 403


async def dump_live_cluster(
    connection: Connection, clock: Clock, grouping: PodGrouperSettings | None = None
) -> ClusterDump:
    """List all objects of a live cluster on which decisions depend; leave out kinds that are not installed.

    Args:
      connection: The connection to the API server.
      clock: The clock.
      grouping: The settings of the pod grouper; its rules may name further kinds.

    Raises:
      Unreachable: The API server does not answer.
      CommandError: The API server refuses to list a kind without which nothing is scheduled.
    """
    now = clock.now()
    items: list[msgspec.Raw] = []
    warnings: list[str] = []
    # The reflectors of the scheduler own the list of kinds. StatefulSets have two of them.
    service = SchedulerApp(connection, clock, [Profile()], grouping=grouping or PodGrouperSettings())
    required = {
        reflector.resource: reflector.is_required_for_sessions for reflector in reversed(service.reflectors)
    }
    kinds = service.grouper.kinds
    for resource, is_required in reversed(required.items()):
        try:
            items += await _list_stripped(connection, resource, kinds, warnings)
        except ApiError as error:
            if error.status == _NOT_FOUND:
                continue
            if is_required or error.status != _FORBIDDEN:
                raise CommandError(f"the cluster does not list {resource.full_name}: {error}") from error
            warnings.append(f"{resource.full_name} are not in the dump: {error}")
    return ClusterDump(now, tuple(items), tuple(warnings))


async def _list_stripped(
    connection: Connection, resource: ApiResource, kinds: OwnerKinds, warnings: list[str]
) -> list[msgspec.Raw]:
    """List a kind page by page, and keep of each object the fields that decisions read."""
    for attempt in range(_ATTEMPTS):
        listed: list[msgspec.Raw] = []
        try:
            async for page, _ in list_pages(connection, resource.path(), {}):
                for raw in page:
                    try:
                        listed.append(_strip(resource, kinds, msgspec.json.decode(raw)))
                    except (ValueError, RecursionError) as error:  # users write objects: one costs no other
                        meta = read_identity(raw)
                        name = "/".join(part for part in (meta.namespace, meta.name) if part)
                        warnings.append(f"{resource.kind} {name} is not in the dump: {error}")
        except ApiError as error:
            if error.status != _GONE or attempt == _ATTEMPTS - 1:
                raise
            continue  # the list expired between two pages
        return listed
    raise AssertionError("every attempt returns or raises")


_KINDS: Final = {
    (kind.api_version, kind.name): kind
    for kind in (*OBJECT_KINDS, *EXTERNAL_KINDS, *EXTERNAL_TOPOLOGY_KINDS, HYPER_NODE_KIND)
}


def _strip(resource: ApiResource, kinds: OwnerKinds, manifest: Mapping[str, Any]) -> msgspec.Raw:
    """Return an object as JSON with the fields that are read; a StatefulSet is read as an owner and by itself."""
    name = (resource.api_version, resource.kind)
    owner = next((one for one in kinds.all if (one.api_version, one.name) == name), None)
    kind = _KINDS.get(name)
    kept = strip_unread_owner_fields(manifest, owner) if owner is not None else {}
    if kind is not None:
        stripped = keep_fields_that_decisions_read(manifest, kind)
        spec = {**spec_of(kept), **spec_of(stripped)} if kept else stripped.get("spec")
        kept = {**kept, **stripped, **({} if spec is None else {"spec": spec})}
    return msgspec.Raw(msgspec.json.encode(kept))
