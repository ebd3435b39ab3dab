"""The policy chooser, which decides when to run forecasts for the policy `auto` and which gang order to use.

The chooser collects the gangs that arrive. After some arrivals a forecast simulates every candidate. The candidate
with the best score is chosen if it is better than the present one by more than the hysteresis. The choice is an input
of the next sessions and is recorded with them, so that a replay does not need the forecasts.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.queues.gang_order import AutoArgs, AutoOrder, make_gang_order_policy
from batchsched.runner.policy_forecast import (
    Forecast,
    ForecastGang,
    ForecastInput,
    build_forecast_input,
    forecast_candidate,
    to_forecast_gang,
)
from batchsched.session.session import Session

SECONDS_PER_FORECAST_SESSION: Final = 0.002
"""CPU seconds that one simulated session is assumed to take when the pauses between forecasts are computed."""
FIRST_FORECAST_GANGS: Final = 8
"""Number of gangs after which the first forecast follows."""


@dataclass(frozen=True, slots=True)
class CandidateChoice:
    """The gang order that the policy `auto` chose after forecasts of all candidates, with the reason.

    Args:
      time: seconds since 1970.
      policy: label of the chosen candidate.
      previous: label of the candidate that was used before; the same as `policy` if the choice did not change.
      reason: why the candidate was chosen.
      forecasts: the forecast of each candidate, by label.
    """

    time: float
    policy: str
    previous: str
    reason: str
    forecasts: Mapping[str, Forecast]

    @property
    def changes_gang_order(self) -> bool:
        """True if the policy `auto` uses another gang order after this choice than before it."""
        return self.policy != self.previous


def arguments_of_auto_policy(profile: Profile) -> AutoArgs | None:
    """Return the arguments of the policy `auto` in a profile; None if the profile does not use `auto`.

    A profile with the policy `auto` does not use it if its sessions ignore the gang order.

    Raises:
      InvalidInput: the arguments are invalid.
    """
    if profile.policy.name != AutoOrder.name:
        return None
    order = make_gang_order_policy(profile.policy.name, profile.policy.args)
    in_order = not profile.solver.enabled or profile.selection == "ordered"
    return order.args if isinstance(order, AutoOrder) and in_order else None


def make_chooser(profile: Profile) -> "PolicyChooser | None":
    """Return a new policy chooser for a profile with the policy `auto`; None for other profiles.

    Raises:
      InvalidInput: the arguments of `auto` are invalid.
    """
    arguments = arguments_of_auto_policy(profile)
    return PolicyChooser(arguments) if arguments is not None else None


class PolicyChooser:
    """The component that chooses a candidate gang order for a profile with the policy `auto`.

    Args:
      args: the arguments of `auto`.
    """

    def __init__(self, args: AutoArgs) -> None:
        self.args = args
        self.policy = args.candidates[0].name_with_arguments
        """The label of the chosen candidate."""
        self.last: CandidateChoice | None = None
        """The last choice."""
        self.due_forecast: ForecastInput | None = None
        """The input of a forecast that is to be run; the policy worker takes it."""
        self._recent: dict[str, ForecastGang] = {}
        """The most recent gangs by identity, the oldest first."""
        self._seen = 0
        self._since_forecast = 0
        self._rest_until = -math.inf
        self._scores: dict[str, float] = {}
        self._forecasts = 0

    def set_gang_order_and_prepare_forecast(
        self, session: Session, identities: Iterable[str], cluster: Callable[[], Snapshot], now: float
    ) -> None:
        """Set the gang order of the next session to the chosen candidate; prepare a forecast if one is due.

        The input of this forecast is in `due_forecast`, from which the policy worker takes it.

        Args:
          session: the session.
          identities: identities of the gangs that take part.
          cluster: returns the cluster; only its queues, PriorityClasses and Namespaces are read.
          now: seconds since 1970.
        """
        session.use_gang_order_candidate(self.policy)
        session.tables.update_pending_gangs_and_indexes()
        self.record_arrived_gangs(session, identities)
        if self.due_forecast is None and self.is_forecast_due(now):
            self.due_forecast = self.build_next_forecast_input(session, cluster(), now)

    def record_arrived_gangs(self, session: Session, identities: Iterable[str]) -> None:
        """Record arrived gangs for later forecasts; ignore those that are already among the recent gangs.

        Args:
          session: a session; its tables contain the gangs.
          identities: identities of pending gangs.
        """
        for identity in identities:
            members = session.tables.gangs.get(identity)
            if identity in self._recent or members is None:
                continue
            demand = to_forecast_gang(session.tables, members)
            if demand is None:
                continue
            self._recent[identity] = demand
            self._seen += 1
            self._since_forecast += 1
            while len(self._recent) > self.args.recent_gangs:
                del self._recent[next(iter(self._recent))]

    def is_forecast_due(self, now: float) -> bool:
        """Return whether the next forecast is due: enough gangs arrived, and the CPU budget allows it."""
        interval = min(max(FIRST_FORECAST_GANGS, self._seen // 2), self.args.gangs_between_forecasts)
        return self._since_forecast >= interval and now >= self._rest_until

    def build_next_forecast_input(self, session: Session, cluster: Snapshot, now: float) -> ForecastInput:
        """Return the input of a forecast that begins now, and restart the count of arriving gangs."""
        self._since_forecast = 0
        recent = sorted(self._recent.values(), key=lambda gang: (gang.created, gang.key))
        return build_forecast_input(session, cluster, recent, now)

    def forecast_all_candidates(
        self, frozen: ForecastInput, pause: Callable[[], None] | None = None
    ) -> dict[str, Forecast]:
        """Simulate every candidate gang order, and return a dict of the forecasts by candidate label.

        Any thread may call this method.

        Args:
          frozen: the input of the forecasts.
          pause: called after each simulated session.
        """
        progress = (lambda _done, _total: pause()) if pause is not None else None
        return {
            candidate.name_with_arguments: forecast_candidate(frozen, candidate, progress)
            for candidate in self.args.candidates
        }

    def choose_gang_order(self, forecasts: Mapping[str, Forecast], now: float) -> CandidateChoice:
        """Choose the gang order of the next sessions by the results of forecasts, and return the choice."""
        self._forecasts += 1
        memory = min(self.args.memory, 1.0 - 1.0 / self._forecasts)
        for label, value in _forecast_scores(forecasts, self.args.delay_weight).items():
            self._scores[label] = memory * self._scores.get(label, value) + (1.0 - memory) * value
        previous = self.policy
        best = min(self._scores, key=self._scores.__getitem__)
        gain = self._scores[previous] - self._scores[best]
        if gain > self.args.hysteresis:
            self.policy = best
        self._rest_until = now + self._pause_seconds(forecasts)
        reason = _reason(forecasts, previous, self.policy, best, gain)
        self.last = CandidateChoice(now, self.policy, previous, reason, forecasts)
        return self.last

    def _pause_seconds(self, forecasts: Mapping[str, Forecast]) -> float:
        seconds = SECONDS_PER_FORECAST_SESSION * sum(forecast.sessions for forecast in forecasts.values())
        return seconds / self.args.cpu_share


def _forecast_scores(forecasts: Mapping[str, Forecast], delay_weight: float) -> dict[str, float]:
    """Return the score of each candidate gang order, relative to the first candidate; lower is better."""
    first = next(iter(forecasts.values()))
    return {
        label: math.log(max(1.0, forecast.slowdown) / max(1.0, first.slowdown))
        + delay_weight * math.log(max(1.0, forecast.mean_end) / max(1.0, first.mean_end))
        for label, forecast in forecasts.items()
    }


def _reason(forecasts: Mapping[str, Forecast], previous: str, chosen: str, best: str, gain: float) -> str:
    """Return a sentence that states why a candidate was chosen, with the results of its forecast."""
    before, after = forecasts[previous], forecasts[best]
    figures = (
        f"mean slowdown {after.slowdown:.2f} instead of {before.slowdown:.2f}, mean end of device hours "
        f"{after.mean_end / 3600:.1f} h instead of {before.mean_end / 3600:.1f} h in the last forecast"
    )
    if chosen != previous:
        return f"{chosen} replaces {previous}: {figures}"
    if best == previous:
        return f"{chosen} stays: no candidate has a better score"
    return f"{chosen} stays: {best} is better by {gain:.3f}, which is within the hysteresis ({figures})"
