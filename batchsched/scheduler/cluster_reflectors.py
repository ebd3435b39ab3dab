"""The reflectors of all kinds of objects that a replica follows, with their event handlers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from batchsched.kube.connection import Connection, api_resources_of_snapshot
from batchsched.kube.reflector import Reflector, ReflectorSettings
from batchsched.manifests.decode import Decoder
from batchsched.podgrouper.grouper import PodGrouper
from batchsched.ports.cluster import Clock
from batchsched.runner.event_handlers import OPTIONAL_KINDS, EventHandler


@dataclass(frozen=True, slots=True)
class ClusterReflectors:
    """The reflectors of all kinds of objects that one replica follows, and their event handlers.

    Args:
      all: the reflectors of all kinds.
      event_handlers: the event handler of each kind of object in a Snapshot, by the field of Snapshot.
    """

    all: Sequence[Reflector]
    event_handlers: Mapping[str, EventHandler]

    @classmethod
    def for_cluster(
        cls, connection: Connection, clock: Clock, grouper: PodGrouper, changed: Callable[[], None]
    ) -> "ClusterReflectors":
        """Return reflectors that pass all objects of a cluster to the pod grouper and to the cluster state.

        Args:
          connection: the connection to the API server.
          clock: the clock.
          grouper: the pod grouper, which returns the store of each kind and has reflectors of its own.
          changed: called after each change.
        """
        decoder = Decoder()
        event_handlers: dict[str, EventHandler] = {}
        reflectors: list[Reflector] = []
        for kind, resource in api_resources_of_snapshot():
            handler = EventHandler(kind, grouper.store_for(kind), decoder, changed)
            event_handlers[kind.field] = handler
            terms = ReflectorSettings(without=OPTIONAL_KINDS.get(kind.field, ""))
            reflectors.append(
                Reflector(connection, resource, handler, clock, terms=terms, read=handler.decode)
            )
        return cls((*reflectors, *grouper.create_reflectors(connection, clock, decoder)), event_handlers)
