"""The scheduler of simulations with the gang order `auto`; it waits for each forecast before a session.

The number of gangs that arrived decides when a forecast runs, so that a simulation repeats. In a cluster, forecasts
run in a thread next to the sessions instead (`batchsched.controllers.policy_worker`).
"""

from collections import Counter

from typing_extensions import override

from batchsched.api.decision import Decision
from batchsched.api.gang import gang_identity
from batchsched.api.snapshot import HeldGang, Snapshot
from batchsched.config.schema import Profile
from batchsched.ports.cluster import ClusterChanges, Scheduler
from batchsched.queues.usage_history import UsageHistory
from batchsched.runner.policy_chooser import CandidateChoice, PolicyChooser, arguments_of_auto_policy
from batchsched.session.session import Session


class SimulationAutoOrderScheduler(Scheduler):
    """A scheduler for simulations in which the policy `auto` chooses the gang order before each session.

    Args:
      session: decides the sessions.
      cluster: the cluster from which `session` was created.
      chooser: chooses the candidate gang order by forecasts.
    """

    def __init__(self, session: Session, cluster: Snapshot, chooser: PolicyChooser) -> None:
        self.session = session
        self.chooser = chooser
        self.choices: list[CandidateChoice] = []
        """The choices so far."""
        self.sessions_by_policy: Counter[str] = Counter()
        """The number of sessions under each candidate."""
        self._cluster = cluster
        self._arrived: dict[str, None] = {}

    @override
    def apply_changes(self, changes: ClusterChanges) -> None:
        self._arrived |= dict.fromkeys(gang_identity(pod) for pod in changes.added_pods if not pod.node_name)
        self.session.apply_changes(changes)

    @override
    def set_waiting_gangs(self, held: tuple[HeldGang, ...]) -> None:
        self.session.set_waiting_gangs(held)

    @override
    def decide(self, now: float, seed: int) -> Decision:
        self.session.tables.update_pending_gangs_and_indexes()
        self.chooser.record_arrived_gangs(self.session, self._arrived)
        self._arrived.clear()
        if self.chooser.is_forecast_due(now):
            frozen = self.chooser.build_next_forecast_input(self.session, self._cluster, now)
            self.choices.append(
                self.chooser.choose_gang_order(self.chooser.forecast_all_candidates(frozen), now)
            )
        self.session.use_gang_order_candidate(self.chooser.policy)
        self.sessions_by_policy[self.chooser.policy] += 1
        return self.session.decide(now, seed)


class SimulationSchedulerBuilder:
    """A builder that creates the schedulers of a simulation and keeps the scheduler that it created last.

    Each scheduler takes over the past usage of queues from the scheduler before it.

    Args:
      profile: the profile.

    Raises:
      InvalidInput: the profile has invalid arguments of `auto`.
    """

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._arguments = arguments_of_auto_policy(profile)
        self._past = UsageHistory({}, profile.usage_half_life_seconds)
        self._auto: SimulationAutoOrderScheduler | None = None
        self._session: Session | None = None

    def make_scheduler(self, cluster: Snapshot) -> Scheduler:
        """Return a scheduler that starts from the given Snapshot and then receives changes of the cluster.

        Its decisions state no refusals.
        """
        self._session = Session.for_simulation(cluster, self._profile, self._past)
        if self._arguments is None:
            return self._session
        self._auto = SimulationAutoOrderScheduler(self._session, cluster, PolicyChooser(self._arguments))
        return self._auto

    @property
    def session_of_last_scheduler(self) -> Session:
        """The `Session` object of the scheduler that this builder created last."""
        assert self._session is not None  # a simulation makes its scheduler first
        return self._session

    @property
    def session_counts_by_policy(self) -> dict[str, int]:
        """The number of sessions under each candidate gang order of `auto`; {} without the policy `auto`.

        Only the sessions of the scheduler that was created last are counted.
        """
        return dict(self._auto.sessions_by_policy) if self._auto is not None else {}
