"""Feasibility of one gang: where its pods fit after a decision is carried out.

A refusal names one binding constraint. This report has the details: for each class of pods, the nodes that are refused
and the reasons, and the room in each topology domain.
"""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np

from batchsched.api.decision import Decision
from batchsched.api.gang import gang_key_of_pod
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.framework.runtime.registry import standard_registry
from batchsched.framework.status import IndexArray, IntArray
from batchsched.session.tables.gang import GangPart, GangState, PendingGang
from batchsched.session.tables.session_tables import SessionTables
from batchsched.session.tables.topology_levels import TopologyLevels

DEFAULT_TOPOLOGY = "default"


class FeasibilityReportBase(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Base class of the objects in a feasibility report."""


class DomainFeasibility(FeasibilityReportBase, frozen=True):
    """One topology domain, with the number of pods of one pod class that fit in it.

    Args:
      value: the node label's value.
      nodes: number of nodes in the domain.
      open_nodes: number of nodes on which a pod fits.
      room: number of pods that fit, summed over the nodes.
    """

    value: str
    nodes: int
    open_nodes: int
    room: int


class LevelFeasibility(FeasibilityReportBase, frozen=True):
    """The domains of one topology level, each with the number of pods of one pod class that fit in it.

    The domains are sorted: those in which most pods fit come first. Nodes without the level's label are left out.
    """

    level: str
    domains: tuple[DomainFeasibility, ...]


class PartFeasibility(FeasibilityReportBase, frozen=True):
    """A gang part (equal pods of a subGroup), with the number of its pods that fit in the cluster.

    Args:
      sub_group: the subGroup, "" for none.
      members: number of pending pods.
      requests: requests of one pod, in base units.
      nodes: number of all nodes.
      open_nodes: number of nodes on which a pod fits.
      room: number of pods that fit, summed over the nodes.
      reasons: number of refused nodes by reason.
      levels: the numbers of pods that fit in each domain, the widest level first.
    """

    sub_group: str
    members: int
    requests: dict[str, int]
    nodes: int
    open_nodes: int
    room: int
    reasons: dict[str, int]
    levels: tuple[LevelFeasibility, ...]


class GangFeasibility(FeasibilityReportBase, frozen=True):
    """A report on where the pending pods of a gang fit, separately for each gang part.

    Args:
      pod_group: namespace/name.
      min_member: number of pods that must be placed together.
      bound: number of bound pods.
      pending: number of pending pods.
      parts: its classes of pods, the largest request first.
      queue: the queue of the gang.
    """

    pod_group: str
    min_member: int
    bound: int
    pending: int
    parts: tuple[PartFeasibility, ...] = ()
    queue: str = ""


def report_feasibility(
    snapshot: Snapshot, decision: Decision, profile: Profile, key: str
) -> GangFeasibility | None:
    """Return a report on where a gang fits after a decision is carried out; None if the gang does not exist.

    Args:
      snapshot: the cluster that the decision was made for.
      decision: the decision; assignments of the gang itself are ignored.
      profile: the profile of the decision.
      key: namespace/name of a PodGroup, or of a pod without one.

    Raises:
      InvalidInput: the profile names a plugin that does not exist.
      PluginError: a plugin failed.
    """
    tables = SessionTables(
        snapshot_after_decision(snapshot, decision, key), standard_registry().create_pipeline(profile)
    )
    members = tables.find_gang(key)
    if members is None:
        return None
    gang = tables.pending_gang(members)
    return GangFeasibility(
        pod_group=key,
        min_member=members.minimum,
        bound=len(members.bound),
        pending=len(members.pending),
        parts=tuple(_part(tables, gang, part) for part in gang.parts),
        queue=members.queue,
    )


def snapshot_after_decision(snapshot: Snapshot, decision: Decision, key: str) -> Snapshot:
    """Return the snapshot as it is after a decision: assigned pods are bound, and evicted pods are gone.

    Args:
      snapshot: the input of the decision.
      decision: the decision.
      key: `namespace/name` of a gang, the pods of which stay pending; "" for none.
    """
    nodes = {one.pod_key: one.node for one in decision.assignments}
    evicted = {one.pod_key for one in decision.evictions}
    pods = []
    for pod in snapshot.pods:
        if pod.key in evicted:
            continue
        # The gang itself stays pending, so that the report says where it fits at all.
        node = nodes.get(pod.key)
        if node is not None and gang_key_of_pod(pod) != key:
            spec = msgspec.structs.replace(pod.spec, node_name=node)
            pod = msgspec.structs.replace(pod, spec=spec)
        pods.append(pod)
    return replace(snapshot, pods=tuple(pods))


def _part(tables: SessionTables, gang: PendingGang, part: GangPart) -> PartFeasibility:
    table, requests = tables.node_table, part.pod_class.requests
    scan = tables.pipeline.find_nodes_that_pass_filters(part.pod_class, table)
    room = part.count_fitting_pods(table.allocatable - table.requested)
    # A PreFilter refusal has no verdict for single nodes: it holds for all of them.
    room = np.where(scan.fits, room, 0) if scan.status.ok else np.zeros_like(room)
    reasons = dict.fromkeys(scan.status.reasons, len(table.nodes)) if not scan.status.ok else {}
    return PartFeasibility(
        sub_group=_sub_group(gang.members, part.subgroup),
        members=len(part.pods),
        requests={
            table.resources[column]: int(requests[column])
            for column in np.flatnonzero(requests)
            if column > 0
        },
        nodes=len(table.nodes),
        open_nodes=int((room > 0).sum()),
        room=int(room.sum()),
        reasons=reasons or dict(sorted(scan.reason_counts().items())),
        levels=_levels(tables, gang.members, room),
    )


def _sub_group(members: GangState, number: int) -> str:
    return members.group.spec.sub_groups[number].name if members.group and number >= 0 else ""


def _levels(tables: SessionTables, members: GangState, room: IntArray) -> tuple[LevelFeasibility, ...]:
    topology = members.group.spec.topology if members.group else None
    topology_name = topology.name if topology else DEFAULT_TOPOLOGY
    levels = TopologyLevels(tables.snapshot, tables.node_table)
    return tuple(
        LevelFeasibility(level=level, domains=_domains(levels.domains[number], levels.values[number], room))
        for number, (name, level) in enumerate(levels.names)
        if name == topology_name
    )


def _domains(domain_of: IndexArray, values: Sequence[str], room: IntArray) -> tuple[DomainFeasibility, ...]:
    domains = []
    for number, value in enumerate(values):
        inside = domain_of == number
        domains.append(
            DomainFeasibility(
                value=value,
                nodes=int(inside.sum()),
                open_nodes=int((room[inside] > 0).sum()),
                room=int(room[inside].sum()),
            )
        )
    return tuple(sorted(domains, key=lambda domain: (-domain.room, domain.value)))
