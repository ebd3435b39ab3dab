"""The selection of one session: waiting gangs first, then one strategy for all pending gangs."""

from collections.abc import Sequence
from dataclasses import replace

from batchsched.api.snapshot import HeldGang
from batchsched.framework.status import Code, Status
from batchsched.session.preemption.eligibility import EvictionRules
from batchsched.session.preemption.nominated import NominatedPods
from batchsched.session.preemption.protection import ProtectedGangs
from batchsched.session.preemption.victim_selection import VictimChooser
from batchsched.session.refusals import no_nodes_refusal, rolled_back_refusal
from batchsched.session.selection.in_order import InOrderSelection
from batchsched.session.selection.joint import JointSelection
from batchsched.session.selection.pod_by_pod import PodByPodSelection
from batchsched.session.selection.selection_run import SelectionRun, SelectionStrategy
from batchsched.session.statement import GangPlacement, PlannedPods
from batchsched.session.tables.gang import PendingGang
from batchsched.session.tables.pending import OrderedGangs
from batchsched.session.tables.session_tables import SessionTables

PERMIT_TIMEOUT_MESSAGE = "the gang waited at Permit longer than a Permit plugin allows"


def call_permit_again_for_waiting_gangs(run: SelectionRun, held: Sequence[HeldGang]) -> frozenset[str]:
    """Call Permit again for gangs that wait at Permit, before any other gang can take their nodes.

    Returns:
      Identities of the gangs that were asked; they do not take part in the selection.
    """
    identities = set()
    for held_gang in held:
        placement = _revisit(run, held_gang)
        if placement is None:
            continue
        identities.add(placement.gang.members.identity)
        if placement.placed:
            run.builder.placements.append(placement)
        else:
            timed_out = run.now >= held_gang.until
            run.builder.refusals.append(rolled_back_refusal(placement, timed_out=timed_out))
    return frozenset(identities)


def _revisit(run: SelectionRun, held: HeldGang) -> GangPlacement | None:
    """Place a waiting gang on its nodes again: allowed, waiting until the first deadline, or refused."""
    tables, statement = run.tables, run.statement
    members = tables.find_gang(held.pod_group)
    if members is None or not members.pending:
        return None
    for pod in [members.pending[one.pod] for one in held.pods if one.pod in members.pending]:
        # They are reserved again: the devices of the last session would keep the search from finding enough.
        tables.node_table.reserved_volumes_and_devices.release_volumes_and_devices(pod)
    gang = tables.pending_gang(members)
    checkpoint = statement.checkpoint()
    placement = statement.place_gang(gang, _plan_held_pods(tables, gang, held))
    if placement.refusal.ok and not placement.placed:
        return None  # its nodes no longer exist: it is pending like any other gang
    if run.now >= held.until and placement.held_by:
        # The rollback unreserves the pods, the last one first.
        statement.roll_back_to(checkpoint)
        placement.refusal = Status(Code.UNSCHEDULABLE, (PERMIT_TIMEOUT_MESSAGE,), held.plugin)
        placement.held_by = ""
    elif placement.held_by:
        placement.until = min(placement.until, held.until)
    return placement


def _plan_held_pods(tables: SessionTables, gang: PendingGang, held: HeldGang) -> list[PlannedPods]:
    """Return the plan to place the pods of a gang where they wait."""
    nodes = {
        held_pod.pod: node
        for held_pod in held.pods
        if (node := tables.node_table.index.get(held_pod.node)) is not None
    }
    plans = []
    for part in gang.parts:
        pods = tuple(pod for pod in part.pods if pod.key in nodes)
        if pods:
            plan_nodes = tuple(nodes[pod.key] for pod in pods)
            plans.append(PlannedPods(replace(part, pods=pods), plan_nodes, (1,) * len(pods)))
    return plans


def place_gangs_and_choose_victims(run: SelectionRun, pending: OrderedGangs) -> None:
    """Place pending gangs by the selection mode of the profile, and evict pods for gangs that were not placed.

    Args:
      run: the session; its builder receives placements, evictions and refusals.
      pending: the gangs that take part, and resting gangs that hold up others, in the policy's order.
    """
    builder = run.builder
    if not run.tables.node_table.nodes:
        builder.refusals += [
            no_nodes_refusal(members) for members in pending.members if members.identity not in run.resting
        ]
        return
    if not run.profile.solver.enabled:
        # Filters count nominated pods, and PostFilter plugins make room pod by pod, inside the strategy.
        PodByPodSelection(run).place_pending_gangs(pending)
        return
    # Nominated pods count on their nodes from here on; leaving the block takes them off the table again.
    with NominatedPods(run.tables, run.resting) as nominated:
        strategy: SelectionStrategy = (
            InOrderSelection(run, nominated)
            if run.profile.selection == "ordered"
            else JointSelection(run, nominated)
        )
        unplaced = strategy.place_pending_gangs(pending)
        builder.nominated += nominated.nominated_pods_of_gangs_outside_session
        # Preemption may place gangs on their nominated nodes again, so these pods must not count twice.
        nominated.remove_participating_pods_from_node_table()
        _make_room(run, list(unplaced))
        # Last, since a gang that pods are evicted for needs no reservation.
        builder.add_head_reservation()


def _make_room(run: SelectionRun, unplaced: Sequence[PendingGang]) -> None:
    """Evict for gangs that found no room, if a PostFilter plugin of the profile nominates nodes."""
    if not unplaced or not run.with_evictions or not run.tables.pipeline.nominates_nodes:
        return
    builder = run.builder
    protected = ProtectedGangs(run.tables, run.profile.scheduler_name, run.now)
    eligibility = EvictionRules(run.tables, run.order.latest, run.now, protected, builder.placements)
    # Victims leave the tables inside the block only: they are still running when the session ends.
    with VictimChooser(
        run.formulation_input(), run.statement, eligibility, run.now, run.seed, builder.head
    ) as victims:
        victims.select_victims(unplaced)
    builder.add_evictions(victims)
