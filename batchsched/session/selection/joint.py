"""Joint selection by weight: the solver chooses among all gangs of a window at once, one window at a time.

The first gang that waits for running gangs to end gets a reservation, which the solver has to respect.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from batchsched.api.gang import gang_key_from_identity
from batchsched.session.joint.formulation import Formulation, FormulationInput, formulate_problem
from batchsched.session.joint.proposal import JointOutcome, JointPlacer, outcome_with_gang_placed_pod_by_pod
from batchsched.session.preemption.nominated import NominatedPods
from batchsched.session.refusals import explain_refused_gangs, out_of_turn_refusal
from batchsched.session.reservations import ReservedHead
from batchsched.session.selection.pod_by_pod import PodByPodPlacer
from batchsched.session.selection.selection_run import SelectionRun
from batchsched.session.tables.gang import PendingGang
from batchsched.session.tables.pending import OrderedGangs


class JointSelection:
    """A `SelectionStrategy`: the solver chooses the gangs with the largest weight, `sessionWindow` gangs at a time."""

    def __init__(self, run: SelectionRun, nominated: NominatedPods) -> None:
        self._run = run
        self._nominated = nominated

    def place_pending_gangs(self, pending: OrderedGangs) -> list[PendingGang]:
        """Place the gangs in batches of `sessionWindow` gangs, and return the gangs that could not be placed.

        Gangs behind an unplaced gang of a strict queue are not returned.
        """
        run, builder, nominated = self._run, self._run.builder, self._nominated
        with run.telemetry.stage_span("admit"):
            gangs = self._drop_gangs_behind_resting(self._admitted(pending))
        inputs = run.formulation_input()
        unnominated = [gang for gang in gangs if not nominated.has_nominated_pods(gang)]
        builder.head = ReservedHead.find_head(
            inputs,
            unnominated,
            builder.placements,
            run.reservation_rules,
            nominated.nominated_pods_outside_node_table,
        )
        for window in self._windows(gangs):
            for part in nominated.split_after_nominated_gangs(window):
                inputs = self._select_window(inputs, self._startable(part))
                # From the next tier on, room is kept for nominated pods of this part that got no place.
                inputs = inputs.after_placements(
                    nominated.add_unplaced_pods_to_node_table(part, builder.placements)
                )
        builder.compute_tiers_and_gap()
        placed = {placement.gang.members.identity for placement in builder.placements} | {""}
        return [
            gang
            for gang in gangs
            if gang.need
            and not gang.follows
            and gang.members.identity not in placed
            and gang.behind in placed  # "" for no gang ahead
        ]

    def _admitted(self, pending: OrderedGangs) -> list[PendingGang]:
        """Return the gangs that may be placed, and resting gangs that hold up others, by tier."""
        run = self._run
        admitted = {
            index: gang
            for index, members in enumerate(pending.members)
            if (gang := run.eligible_gang_or_record_refusal(members)) is not None
        }
        # The sort is stable: inside a tier, gangs with nominated pods go first, since evictions were paid for them.
        # A gang that a strict queue holds behind another one keeps its place.
        return sorted(
            run.order.iterate_gangs(pending, admitted, run.now, run.resting),
            key=lambda gang: (
                gang.tier_sort_key,
                gang.behind != "" or not self._nominated.has_nominated_pods(gang),
            ),
        )

    def _drop_gangs_behind_resting(self, gangs: Sequence[PendingGang]) -> list[PendingGang]:
        """Return the gangs without resting gangs, and without gangs that wait for one of them, which are refused."""
        waiting, selectable = set(self._run.resting), list[PendingGang]()
        for gang in gangs:
            identity = gang.members.identity
            if gang.need and gang.behind in waiting and identity not in waiting:
                waiting.add(identity)
                self._run.builder.refusals.append(
                    out_of_turn_refusal(gang.members, gang_key_from_identity(gang.behind))
                )
            elif identity not in waiting:
                selectable.append(gang)
        return selectable

    def _windows(self, gangs: Sequence[PendingGang]) -> Iterator[Sequence[PendingGang]]:
        """Cut gangs into windows of at most `sessionWindow`."""
        shares: Iterable[Iterable[PendingGang]] = [gangs]
        if any(gang.follows for gang in gangs):
            # Surplus pods are placed after their gang, which an earlier window has to place: a window must not
            # contain gangs of two shares.
            shares = (members for _, members in groupby(gangs, key=lambda gang: gang.tier_sort_key[:2]))
        size = self._run.profile.session_window
        for share in shares:
            members = list(share)
            for first in range(0, len(members), size):
                yield members[first : first + size]

    def _startable(self, gangs: Sequence[PendingGang]) -> list[PendingGang]:
        """Drop surplus of unplaced gangs, and refuse gangs ordered behind a gang that an earlier window refused."""
        builder = self._run.builder
        placed = {placement.gang.members.identity for placement in builder.placements}
        # A gang may follow one of the same window: the solver's precedence rows decide between the two.
        startable_ids, startable = set(placed), list[PendingGang]()
        for gang in gangs:
            if gang.behind and gang.behind not in startable_ids:
                builder.refusals.append(
                    out_of_turn_refusal(gang.members, gang_key_from_identity(gang.behind))
                )
            elif not gang.follows or gang.members.identity in placed:
                startable.append(gang)
                startable_ids.add(gang.members.identity)
        return startable

    def _select_window(self, inputs: FormulationInput, gangs: Sequence[PendingGang]) -> FormulationInput:
        """Select among the gangs of one window; return the input for the next window."""
        run, builder = self._run, self._run.builder
        settings, telemetry = run.profile.solver, run.telemetry
        with telemetry.stage_span("pipeline"):
            for gang in gangs:
                with telemetry.gang_span(gang.key):
                    inputs.feasible_nodes.precompute_feasible_nodes(part.pod_class for part in gang.parts)
        with telemetry.stage_span("formulate_problem"):
            formulation = formulate_problem(inputs, gangs, run.tables.pending_gangs.latest_submission_time())
            if builder.head is not None:
                formulation = builder.head.with_reservation_rows(formulation)
        placer = JointPlacer(formulation, settings, run.seed, telemetry, run.tables.pipeline.workers)
        outcome = placer.solve_and_place(run.statement)
        builder.solver_work += placer.work
        with telemetry.stage_span("walk"):
            outcome = self._place_rejected(inputs, formulation, outcome)
        builder.add_placements(outcome.placements)
        if not builder.brief:
            with telemetry.stage_span("explain"):
                builder.refusals += explain_refused_gangs(inputs, formulation, outcome, telemetry)
        builder.add_tier_objectives(formulation, outcome)
        return inputs.after_placements(outcome.placements).with_fresh_feasible_nodes()

    def _place_rejected(
        self, inputs: FormulationInput, formulation: Formulation, outcome: JointOutcome
    ) -> JointOutcome:
        """Retry gangs that the statement rejected, pod by pod.

        The pipeline may accept a placement that the solver's rows cannot express, such as a pod that has to land first.
        """
        if not outcome.rejected:
            return outcome
        run, head = self._run, self._run.builder.head
        placer = PodByPodPlacer(inputs.after_placements(outcome.placements), run.statement)
        placed = {placement.gang.members.identity for placement in outcome.placements}
        for number, rejected in sorted(outcome.rejected.items()):
            gang = formulation.gangs[number]
            # A gang may be placed although some of its surplus was rejected.
            if rejected.final or gang.members.identity in placed:
                continue
            # Pod by pod, no rule would keep the gang off the room that is reserved for the head.
            if head is not None and head.restricts_gang(gang):
                continue
            if placer.place_gang(gang) is None:
                outcome = outcome_with_gang_placed_pod_by_pod(
                    formulation, outcome, number, placer.placements[-1]
                )
        return outcome
