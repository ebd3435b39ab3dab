"""The pod grouper as a whole: what follows the owners of pods and the gangs of others, beside what follows the rest."""

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
from batchsched.podgrouper.groups import OtherGroups, PodGroupSources, StatedGroups
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
    """Stands between what is seen and the cache.

    Args:
      cache: takes pods and PodGroups.
      scheduler_names: whose pods are ours.
      changed: is called after each change of the cache.
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
        """Return what takes in objects of a kind of ours."""
        if kind.type is Pod:
            return self.members
        return StatedGroups(self.groups) if kind.type is PodGroup else self.cache

    def reflectors(self, connection: Connection, clock: Clock, decoder: Decoder) -> Iterator[Reflector]:
        """Yield what follows owners and the PodGroups of others; kinds that are not there cost a look now and then."""
        for number, kind in _TRANSLATED:
            intake = EventHandlers(kind, OtherGroups(self.groups, number), decoder, self.changed)
            terms = ReflectorTimes(without=WITHOUT_GROUPS)
            yield Reflector(connection, resource(kind), intake, clock, terms=terms, read=intake.read)
        for owner in OWNERS:
            place = Resource(owner.api_version, plural(owner.name), owner.name, namespaced=True)
            sink = OwnerSink(self.members.owners, self.changed)
            terms = ReflectorTimes(without=WITHOUT_OWNERS)
            yield Reflector(connection, place, sink, clock, terms=terms, read=partial(read, owner))
