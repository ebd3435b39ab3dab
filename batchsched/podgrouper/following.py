"""The pod grouper as a whole, with the reflectors for the owners of pods and for external PodGroups."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from batchsched.api.core.pod import Pod
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.external_podgroups import FOREIGN
from batchsched.api.kinds import ObjectKind
from batchsched.kube.connection import Connection
from batchsched.kube.reflector import Reflector, ReflectorTimes
from batchsched.kube.resources import Resource, plural, resource
from batchsched.manifests.decode import Decoder
from batchsched.podgrouper.groups import ExternalGroups, NativeGroups, PodGroupSources
from batchsched.podgrouper.members import GangMembership
from batchsched.podgrouper.owners import OwnerSink, read
from batchsched.podgrouper.rules import OWNERS
from batchsched.ports.clock import Clock
from batchsched.runner.event_handlers import EventHandlers, ObjectStore
from batchsched.runner.optional_kinds import WITHOUT_GROUPS, WITHOUT_OWNERS
from batchsched.state.cluster_state import ClusterState

_TRANSLATED: Final = tuple(enumerate(FOREIGN))


@dataclass(slots=True)
class PodGrouper:
    """Assigns pods to gangs before they enter the cluster state.

    Args:
      cache: receives pods and PodGroups.
      scheduler_names: pods with these scheduler names are grouped.
      changed: is called after each change of the cluster state.
    """

    cache: ClusterState
    scheduler_names: Collection[str]
    changed: Callable[[], None]
    groups: PodGroupSources = field(init=False)
    members: GangMembership = field(init=False)

    def __post_init__(self) -> None:
        self.groups = PodGroupSources(self.cache, len(FOREIGN))
        self.members = GangMembership(self.cache, self.groups, self.scheduler_names)

    def store(self, kind: ObjectKind) -> ObjectStore:
        """Return the store that receives the objects of a kind."""
        if kind.type is Pod:
            return self.members
        return NativeGroups(self.groups) if kind.type is PodGroup else self.cache

    def reflectors(self, connection: Connection, clock: Clock, decoder: Decoder) -> Iterator[Reflector]:
        """Yield the reflectors for owners and external PodGroups. Kinds that are not installed are retried rarely."""
        for number, kind in _TRANSLATED:
            handlers = EventHandlers(kind, ExternalGroups(self.groups, number), decoder, self.changed)
            terms = ReflectorTimes(without=WITHOUT_GROUPS)
            yield Reflector(connection, resource(kind), handlers, clock, terms=terms, read=handlers.read)
        for owner in OWNERS:
            collection = Resource(owner.api_version, plural(owner.name), owner.name, namespaced=True)
            sink = OwnerSink(self.members.owners, self.changed)
            terms = ReflectorTimes(without=WITHOUT_OWNERS)
            yield Reflector(connection, collection, sink, clock, terms=terms, read=partial(read, owner))
