"""Gang order policies: the protocol, the policies that batchsched ships, and lookup by name.

A policy computes one key for each gang from columns of gang attributes. The gang with the smallest key is next; equal
keys are ordered by submission time, then by `namespace/name`. Policies are found by name among the built-in ones and
the entry points `batchsched.policies`.

The orders of classical batch systems state their formula. `size` is the number of pods of the gang; the sources call
it the number of processors. If a gang states no expected run time, `DEFAULT_RUNTIME_SECONDS` is used.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any, ClassVar, Final, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field, ValidationError
from typing_extensions import override

from batchsched.api.crd.base import StrictModel
from batchsched.api.crd.validation import FieldError, field_errors, suggest_name
from batchsched.errors import InvalidInput
from batchsched.queues.external_policy import checked_policy_keys, load_policy_class

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

ENTRY_POINTS: Final = "batchsched.policies"


@dataclass(frozen=True, slots=True, eq=False)
class GangColumns:
    """The attributes of G pending gangs as arrays, which are the input of a gang order policy.

    Args:
      priority: [G] resolved priority; a higher value is more urgent.
      created: [G] submission time in seconds since 1970.
      estimate: [G] expected run time in seconds, NaN if unknown.
      size: [G] number of pods that the gang requests.
      share: [G] dominant share of all its pods; 1 is the whole cluster.
      arrival: [G] rank by submission time, then `namespace/name`; breaks ties between equal keys.
    """

    priority: IntArray
    created: FloatArray
    estimate: FloatArray
    size: FloatArray
    share: FloatArray
    arrival: IntArray

    def select_gangs(self, indexes: Sequence[int] | IntArray) -> "GangColumns":
        """Return the attributes of only the given gangs, in the order in which `indexes` lists them."""
        return GangColumns(*(getattr(self, column)[indexes] for column in self.__slots__))


class GangOrderPolicy(Protocol):
    """A policy that orders pending gangs by a number (key) that it computes for each gang.

    A policy class may have a pydantic model `Args` for its arguments.
    """

    name: ClassVar[str]

    def key(self, gangs: GangColumns, now: float) -> FloatArray:
        """Return a number (key) for each gang; the gang with the smallest key is tried first.

        `now` is in seconds since 1970, as `gangs.created` is.

        Returns:
          [G] the key of each gang.
        """


@runtime_checkable
class HeadroomPolicy(Protocol):
    """A policy that does not start a gang if too little capacity would remain free for later gangs."""

    @property
    def horizon_seconds(self) -> float:
        """A period in seconds: the capacity of gangs that are expected to end within it counts as free."""

    def required_free_share(self, gangs: GangColumns, now: float) -> FloatArray:
        """Return for each gang the share of the cluster that must remain free if the gang starts.

        Returns:
          [G] fractions of the cluster; 0 means no restriction.
        """


def gang_indexes_in_order(policy: GangOrderPolicy, gangs: GangColumns, now: float) -> IntArray:
    """Return the indexes of the gangs, sorted by the keys that the policy computes, then by arrival.

    Raises:
      PolicyError: the policy did not compute one number for each gang.
    """
    keys = checked_policy_keys(policy, policy.key(gangs, now), len(gangs.arrival))
    return np.lexsort((gangs.arrival, keys))


def make_gang_order_policy(name: str, arguments: Mapping[str, Any]) -> GangOrderPolicy:
    """Create the gang order policy that has this name, such as `fcfs`, with these arguments.

    Raises:
      InvalidInput: the name is not registered, or the policy rejects its arguments.
    """
    chosen = find_gang_order_class(name)
    if chosen is None:
        raise InvalidInput(
            f"there is no policy {name!r}; {suggest_name(name, gang_order_names())}", field="policy.name"
        )
    policy: GangOrderPolicy = construct_policy(chosen, name, arguments)
    return policy


@cache
def gang_order_names() -> tuple[str, ...]:
    """Return the names of all built-in and registered gang orders, sorted."""
    return tuple(sorted({*POLICIES, *(point.name for point in entry_points(group=ENTRY_POINTS))}))


@cache
def find_gang_order_class(name: str) -> type | None:
    """Return the class of the built-in or registered gang order with this name; None if the name is unknown.

    Raises:
      PolicyError: the entry point of the gang order is wrong.
    """
    registered = (load_policy_class(point) for point in entry_points(group=ENTRY_POINTS, name=name))
    return POLICIES.get(name) or next(registered, None)


def construct_policy(chosen: type, name: str, arguments: Mapping[str, Any]) -> Any:
    """Create a policy from its class and its arguments as written in the configuration.

    Raises:
      InvalidInput: the policy rejects its arguments.
    """
    model: type[BaseModel] | None = getattr(chosen, "Args", None)
    if model is not None:
        _reject_unknown_arguments(model, name, arguments)
    try:
        return chosen(model.model_validate(dict(arguments))) if model else chosen(**arguments)
    except ValidationError as error:
        first = field_errors(error, model)[0] if model else FieldError("", str(error))
        raise InvalidInput(
            first.message, object=f"policy {name}", field=f"args.{first.field}".rstrip(".")
        ) from error
    except TypeError as error:
        raise InvalidInput(
            f"the policy takes no such arguments: {', '.join(arguments) or error}",
            object=f"policy {name}",
            field="args",
        ) from error


def _reject_unknown_arguments(model: type[BaseModel], name: str, arguments: Mapping[str, Any]) -> None:
    """Reject arguments that no field of the model takes.

    A pydantic model ignores unknown fields if it does not state `extra`, so a misspelt argument would have no effect.

    Raises:
      InvalidInput: An argument has no field, and the model does not state `extra`.
    """
    if "extra" in model.model_config:
        return
    names = {field: described.alias or field for field, described in model.model_fields.items()}
    for argument in arguments:
        if argument not in names and argument not in names.values():
            hint = suggest_name(argument, tuple(names.values()))
            raise InvalidInput(f"unknown field; {hint}", object=f"policy {name}", field=f"args.{argument}")


DEFAULT_RUNTIME_SECONDS: Final = 3600.0
"""Run time in seconds that is assumed for a gang without an expected run time."""
MIN_RUNTIME_SECONDS: Final = 1.0
"""Minimum run time in seconds in formulas, which prevents division by zero."""


def expected_runtimes(gangs: GangColumns) -> FloatArray:
    """Return the expected run time of each gang in seconds, or `DEFAULT_RUNTIME_SECONDS` if it states none.

    A run time is at least `MIN_RUNTIME_SECONDS`.
    """
    return np.maximum(
        np.where(np.isnan(gangs.estimate), DEFAULT_RUNTIME_SECONDS, gangs.estimate), MIN_RUNTIME_SECONDS
    )


class PriorityOrder:
    """Highest priority first, then first come, first served: PrioritySort of kube-scheduler, applied to gangs."""

    name: ClassVar[str] = "priority"

    def key(self, gangs: GangColumns, now: float) -> FloatArray:
        """Return a sort key for each gang: higher priorities come first, then earlier submission times."""
        line = np.lexsort((gangs.created, -gangs.priority))
        priority, created = gangs.priority[line], gangs.created[line]
        places = np.zeros(len(line))
        places[line[1:]] = np.cumsum((priority[1:] != priority[:-1]) | (created[1:] != created[:-1]))
        return places


class FcfsOrder:
    """First come, first served: key = submission time of the gang."""

    name: ClassVar[str] = "fcfs"

    def key(self, gangs: GangColumns, now: float) -> FloatArray:
        """Return the submission time of each gang as its sort key."""
        return gangs.created


class SjfOrder:
    """Shortest job first: key = estimate, the expected run time of the gang."""

    name: ClassVar[str] = "sjf"

    def key(self, gangs: GangColumns, now: float) -> FloatArray:
        """Return the expected run time of each gang as its sort key."""
        return expected_runtimes(gangs)


class SafOrder:
    """Smallest area first: key = estimate · share, that is, expected run time times dominant share of the cluster.

    Source: Carastan-Santos et al., One Can Only Gain by Replacing EASY Backfilling, CCGrid 2019.
    """

    name: ClassVar[str] = "saf"

    def key(self, gangs: GangColumns, now: float) -> FloatArray:
        """Return expected run time · dominant share of the cluster as the sort key of each gang."""
        return expected_runtimes(gangs) * gangs.share


class Wfp3Order:
    """WFP3: key = -(wait / estimate)³ · share, with the gang's expected run time and its dominant share of the cluster.

    A gang moves forward as its wait grows relative to its run time.

    Source: Tang et al., Fault-aware utility-based job scheduling on Blue Gene/P systems, CLUSTER 2009.
    """

    name: ClassVar[str] = "wfp3"

    def key(self, gangs: GangColumns, now: float) -> FloatArray:
        """Return -(wait / expected run time)³ · dominant share as the sort key of each gang."""
        return -(((now - gangs.created) / expected_runtimes(gangs)) ** 3) * gangs.share


class F1Order:
    """The F1 order of gangs, with a formula that was learned from simulations: short, small and early gangs come first.

    The gang with the smallest log10(expected run time) · number of pods + 870 · log10(submission time) is first.

    Source: Carastan-Santos and de Camargo, Obtaining dynamic scheduling policies with simulation and machine
    learning, SC 2017.
    """

    name: ClassVar[str] = "f1"

    def key(self, gangs: GangColumns, now: float) -> FloatArray:
        """Return the sort key of each gang in the F1 order: long, large and recent gangs come last.

        A submission time below 1 s counts as 1 s.
        """
        submitted = np.log10(np.maximum(gangs.created, MIN_RUNTIME_SECONDS))
        return np.log10(expected_runtimes(gangs)) * gangs.size + 870.0 * submitted


SLOWDOWN_BOUND_SECONDS = 10.0
"""Minimum run time in seconds in the bounded slowdown."""
AGE_LIMIT_KEY = -(2.0**60)
"""Smallest key of a gang past the age limit: such gangs precede all others, in order of arrival."""


class HeadroomArgs(StrictModel):
    """Arguments of the gang order `headroom`, set under `policy.args`."""

    ageing: float = Field(
        default=0.02, ge=0, description="c: rate at which the slowdown of a gang reduces its area."
    )
    share: float = Field(
        default=0.125, ge=0, lt=1, description="eta: share of the cluster that remains free."
    )
    long_seconds: float = Field(
        default=3600.0, ge=0, description="L: run time in seconds above which a gang must leave room."
    )
    horizon_seconds: float = Field(
        default=3600.0, ge=0, description="H: seconds within which the share must be free."
    )
    patience: float = Field(
        default=10.0, gt=0, description="p: at a slowdown of 1 + p, a gang needs no room."
    )
    age_limit_seconds: float = Field(
        default=950400.0, gt=0, description="T: gangs that wait longer come first."
    )


class HeadroomOrder:
    """Tries the gang with the smallest run time · dominant share first; long gangs must leave some capacity free.

    This product, the area of a gang, shrinks with the slowdown of the gang. Short, wide gangs suffer most under other
    orders: a gang that runs for five seconds on 64 nodes and waits for a day has a slowdown of thousands. Therefore a
    long gang may start only if a share of the cluster remains free, within the next hour, for later gangs. The
    required share shrinks as the slowdown of the long gang grows.

    With s = max(1, (wait + estimate) / max(estimate, 10 s)): key = share · estimate / (1 + c · s); room = eta ·
    max(0, 1 - (s - 1) / p) for gangs longer than L, else 0. A gang that has waited longer than T comes first, in
    order of arrival, and needs no room. A gang with room > 0 is skipped, both as head and for backfill. It is
    not skipped if its own requests plus the room are free now or held by gangs that end within H, or if no gang is
    running.

    Source: batchsched; the decision record on headroom describes how it was found and what it costs.
    """

    name: ClassVar[str] = "headroom"
    Args: ClassVar[type[HeadroomArgs]] = HeadroomArgs

    def __init__(self, args: HeadroomArgs | None = None) -> None:
        self.args = args or HeadroomArgs()

    @property
    def horizon_seconds(self) -> float:
        """A period in seconds: the capacity of gangs that are expected to end within it counts as free."""
        return self.args.horizon_seconds

    def key(self, gangs: GangColumns, now: float) -> FloatArray:
        """Return the sort key of each gang: run time · dominant share, which shrinks as the slowdown grows.

        The product is divided by 1 + c · slowdown (`HeadroomOrder`). Gangs past the age limit come first, by arrival.
        """
        area = gangs.share * expected_runtimes(gangs)
        aged = now - gangs.created > self.args.age_limit_seconds
        return np.where(
            aged, AGE_LIMIT_KEY + gangs.arrival, area / (1.0 + self.args.ageing * self._slowdown(gangs, now))
        )

    def required_free_share(self, gangs: GangColumns, now: float) -> FloatArray:
        """Return for each gang the share of the cluster that must remain free if the gang starts.

        The share is 0 for short gangs, and for gangs that have waited longer than the age limit. For other gangs, it
        shrinks as their slowdown grows.
        """
        patience = np.maximum(0.0, 1.0 - (self._slowdown(gangs, now) - 1.0) / self.args.patience)
        kept = (expected_runtimes(gangs) > self.args.long_seconds) & (
            now - gangs.created <= self.args.age_limit_seconds
        )
        return np.where(kept, self.args.share * patience, 0.0)

    def _slowdown(self, gangs: GangColumns, now: float) -> FloatArray:
        run = expected_runtimes(gangs)
        return np.maximum(1.0, (now - gangs.created + run) / np.maximum(run, SLOWDOWN_BOUND_SECONDS))


class CandidatePolicy(StrictModel):
    """A candidate of the gang order `auto`: another gang order that `auto` may choose."""

    name: str = Field(min_length=1, description="Name of a registered gang order, other than auto.")
    args: dict[str, Any] = Field(default={}, description="Arguments of this gang order.")
    backfill: Literal["none", "easy", "kept"] | None = Field(
        default=None, description="Backfill while this gang order is chosen. Default: that of the profile."
    )

    @override
    def __repr__(self) -> str:
        """Return the name with arguments, because the policy reference shows default candidates by `repr`."""
        return self.name_with_arguments

    @property
    def name_with_arguments(self) -> str:
        """The name of the candidate gang order with its arguments, as on the command line: `headroom:share=0.25`."""
        arguments = ",".join(f"{name}={value}" for name, value in self.args.items())
        order = f"{self.name}:{arguments}" if arguments else self.name
        return f"{order} (backfill {self.backfill})" if self.backfill is not None else order


DEFAULT_CANDIDATES: Final = (
    CandidatePolicy(name="headroom"),
    CandidatePolicy(name="headroom", args={"share": 0.0625}),
    CandidatePolicy(name="headroom", args={"share": 0.25}),
    CandidatePolicy(name="headroom", backfill="none"),
    CandidatePolicy(name="headroom", args={"share": 0.25}, backfill="none"),
    CandidatePolicy(name="saf"),
)


class AutoArgs(StrictModel):
    """Arguments of the gang order `auto`, set under `policy.args`."""

    candidates: tuple[CandidatePolicy, ...] = Field(
        default=DEFAULT_CANDIDATES,
        min_length=1,
        description="The gang orders; the first one is used at the start.",
    )
    recent_gangs: int = Field(
        default=256, ge=1, le=5000, description="K: number of recent gangs that a forecast lets arrive again."
    )
    gangs_between_forecasts: int = Field(
        default=256,
        ge=1,
        description="Gangs that arrive between two forecasts; the first ones follow earlier.",
    )
    memory: float = Field(
        default=0.8, ge=0, lt=1, description="m: weight of the earlier forecasts in the score of a candidate."
    )
    hysteresis: float = Field(
        default=0.05, ge=0, description="h: difference of scores above which another candidate is chosen."
    )
    delay_weight: float = Field(
        default=1.5,
        ge=0,
        description="w: weight of the delay of device hours, relative to the mean slowdown.",
    )
    cpu_share: float = Field(
        default=0.1, gt=0, le=0.1, description="Maximum part of the time of one CPU that forecasts use."
    )


class AutoOrder:
    """Orders gangs by one of several candidate gang orders: the one that was best in recent forecasts.

    A forecast simulates each candidate with the sessions of the scheduler: the running and pending gangs, and after
    them the K most recent gangs, which arrive again at the same intervals. Each gang is one pod, and all nodes with
    the same resources are one node. The score of a candidate is log(mean bounded slowdown) + w · log(mean end,
    weighted by area), where the area of a gang is its run time · dominant share. Scores are means over forecasts, in
    which the older ones count m. The chosen candidate changes if another one is better by more than h.

    The choice is an input of a session and is recorded with it. Without a choice, the first candidate is used.

    Source: batchsched; the decision record on the choice of a policy describes how it was found.
    """

    name: ClassVar[str] = "auto"
    Args: ClassVar[type[AutoArgs]] = AutoArgs

    def __init__(self, args: AutoArgs | None = None) -> None:
        self.args = args or AutoArgs()
        self._orders: dict[str, tuple[CandidatePolicy, GangOrderPolicy, HeadroomPolicy | None]] = {}
        """By label of each candidate: the candidate, its gang order, and the same if it keeps room free."""
        for candidate in self.args.candidates:
            if candidate.name == self.name:
                raise InvalidInput(
                    "expected another gang order than auto", object="policy auto", field="args.candidates"
                )
            order = make_gang_order_policy(candidate.name, candidate.args)
            self._orders[candidate.name_with_arguments] = (
                candidate,
                order,
                order if isinstance(order, HeadroomPolicy) else None,
            )
        self._chosen = self.args.candidates[0].name_with_arguments

    def use_candidate(self, label: str) -> CandidatePolicy:
        """Switch to the candidate gang order with this label, such as `headroom:share=0.25`, and return it.

        The label is the `name_with_arguments` of the candidate. If no candidate has this label, the present candidate
        stays in use and is returned.
        """
        if label in self._orders:
            self._chosen = label
        return self._orders[self._chosen][0]

    @property
    def horizon_seconds(self) -> float:
        """A period in seconds: the capacity of gangs that are expected to end within it counts as free.

        The chosen candidate gang order determines the period, which is 0 if that gang order keeps no capacity free.
        """
        headroom = self._orders[self._chosen][2]
        return headroom.horizon_seconds if headroom is not None else 0.0

    def key(self, gangs: GangColumns, now: float) -> FloatArray:
        """Return the sort key that the chosen candidate gang order computes for each gang."""
        chosen = self._orders[self._chosen][1]
        return checked_policy_keys(chosen, chosen.key(gangs, now), len(gangs.arrival))

    def required_free_share(self, gangs: GangColumns, now: float) -> FloatArray:
        """Return for each gang the share of the cluster that must remain free if the gang starts.

        The chosen candidate gang order determines the share; 0 means no restriction.
        """
        headroom = self._orders[self._chosen][2]
        if headroom is not None:
            return headroom.required_free_share(gangs, now)
        return np.zeros(len(gangs.created))


POLICIES: Final[Mapping[str, type]] = {
    order.name: order
    for order in (PriorityOrder, FcfsOrder, SjfOrder, SafOrder, Wfp3Order, F1Order, HeadroomOrder, AutoOrder)
}
