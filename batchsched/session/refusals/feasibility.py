"""The outlook of one gang: what its members find on the nodes once a decision is carried out.

A refusal names the constraint that binds. This is the wider view behind it: of each class of members, which
nodes are refused and why, and how much room each domain of the topology has.
"""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np

from batchsched.api.decision import Decision
from batchsched.api.gang_identity import SINGLE_POD_PREFIX, identity_of
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.framework.runtime.registry import standard
from batchsched.framework.status import IndexArray, IntArray
from batchsched.session.tables.gang import GangPart, PendingGang, PodGroupState
from batchsched.session.tables.session_tables import SessionTables
from batchsched.session.tables.topology_levels import Levels

DEFAULT_TOPOLOGY = "default"


class FeasibilityItem(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The base of an outlook's parts."""


class DomainFeasibility(FeasibilityItem, frozen=True):
    """A domain as one class of members finds it.

    Args:
      value: the node label's value.
      nodes: nodes in it.
      open_nodes: those that no filter refuses.
      room: members that fit on these, each node by itself.
    """

    value: str
    nodes: int
    open_nodes: int
    room: int


class LevelFeasibility(FeasibilityItem, frozen=True):
    """The domains of one level, the roomiest first; nodes without the label are in none."""

    level: str
    domains: tuple[DomainFeasibility, ...]


class PartFeasibility(FeasibilityItem, frozen=True):
    """Equal members, and what they find.

    Args:
      sub_group: the subGroup, "" for none.
      members: how many wait.
      requests: what one asks for, in base units.
      nodes, open_nodes: all nodes, and those that no filter refuses.
      room: members that fit on the open ones, each node by itself.
      reasons: refused nodes by reason.
      levels: the same by domain, the widest level first.
    """

    sub_group: str
    members: int
    requests: dict[str, int]
    nodes: int
    open_nodes: int
    room: int
    reasons: dict[str, int]
    levels: tuple[LevelFeasibility, ...]


class GangFeasibility(FeasibilityItem, frozen=True):
    """A gang and what its members find.

    Args:
      pod_group: namespace/name.
      min_member: what must be placed together.
      bound, pending: members that run, and that wait.
      parts: its classes, the largest request first.
    """

    pod_group: str
    min_member: int
    bound: int
    pending: int
    parts: tuple[PartFeasibility, ...] = ()


def report_feasibility(
    snapshot: Snapshot, decision: Decision, profile: Profile, key: str
) -> GangFeasibility | None:
    """Return the outlook of a gang after the others' assignments and evictions; None for an unknown one.

    Args:
      snapshot: as it was decided over.
      decision: what is to happen.
      profile: how it was decided.
      key: namespace/name of a PodGroup, or of a pod alone.

    Raises:
      InvalidInput: the profile names a plugin that does not exist.
      PluginError: a plugin broke.
    """
    tables = SessionTables(_afterwards(snapshot, decision, key), standard().pipeline(profile))
    members = tables.gangs.get(key) or tables.gangs.get(SINGLE_POD_PREFIX + key)
    if members is None:
        return None
    gang = tables.pending_gang(members)
    return GangFeasibility(
        pod_group=key,
        min_member=members.minimum,
        bound=len(members.bound),
        pending=len(members.pending),
        parts=tuple(_part(tables, gang, part) for part in gang.parts),
    )


def _afterwards(snapshot: Snapshot, decision: Decision, key: str) -> Snapshot:
    """Bind what is to be bound, but the gang's own members, and take away what is to be evicted."""
    nodes = {f"{one.namespace}/{one.pod}": one.node for one in decision.assignments}
    gone = {f"{one.namespace}/{one.pod}" for one in decision.evictions}
    pods = []
    for pod in snapshot.pods:
        if pod.key in gone:
            continue
        node = nodes.get(pod.key)
        if node is not None and identity_of(pod).removeprefix(SINGLE_POD_PREFIX) != key:
            spec = msgspec.structs.replace(pod.spec, node_name=node)
            pod = msgspec.structs.replace(pod, spec=spec)
        pods.append(pod)
    return replace(snapshot, pods=tuple(pods))


def _part(tables: SessionTables, gang: PendingGang, part: GangPart) -> PartFeasibility:
    table, requests = tables.node_table, part.pod_class.requests
    scan = tables.pipeline.scan(part.pod_class, table)
    free = table.allocatable - table.requested
    asked = np.flatnonzero(requests > 0)
    room = np.clip((free[:, asked] // requests[asked]).min(axis=1, initial=np.iinfo(np.int64).max), 0, None)
    room = np.where(scan.fits, room, 0) if scan.status.ok else np.zeros_like(room)
    reasons = dict.fromkeys(scan.status.reasons, len(table.nodes)) if not scan.status.ok else {}
    return PartFeasibility(
        sub_group=_sub_group(gang.members, part.subgroup),
        members=len(part.pods),
        requests={table.resources[column]: int(requests[column]) for column in asked if column > 0},
        nodes=len(table.nodes),
        open_nodes=int((room > 0).sum()),
        room=int(room.sum()),
        reasons=reasons or dict(sorted(scan.reason_counts().items())),
        levels=_levels(tables, gang.members, room),
    )


def _sub_group(members: PodGroupState, number: int) -> str:
    return members.group.spec.sub_groups[number].name if members.group and number >= 0 else ""


def _levels(tables: SessionTables, members: PodGroupState, room: IntArray) -> tuple[LevelFeasibility, ...]:
    topology = members.group.spec.topology if members.group else None
    wanted = topology.name if topology else DEFAULT_TOPOLOGY
    levels = Levels(tables.snapshot, tables.node_table)
    return tuple(
        LevelFeasibility(level=level, domains=_domains(levels.domains[number], levels.values[number], room))
        for number, (name, level) in enumerate(levels.names)
        if name == wanted
    )


def _domains(domain_of: IndexArray, values: Sequence[str], room: IntArray) -> tuple[DomainFeasibility, ...]:
    found = []
    for number, value in enumerate(values):
        here = domain_of == number
        found.append(
            DomainFeasibility(
                value=value,
                nodes=int(here.sum()),
                open_nodes=int((room[here] > 0).sum()),
                room=int(room[here].sum()),
            )
        )
    return tuple(sorted(found, key=lambda one: (-one.room, one.value)))
