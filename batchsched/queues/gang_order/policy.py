"""Policies: who is next among the gangs that wait.

A policy turns columns about gangs into one key a gang; the smallest key is next, and between equal keys
submission decides, then `namespace/name`, as a fresh list of the cluster tells them. Policies are classes
behind one protocol, found by name here and by entry point (`batchsched.policies`) elsewhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, ClassVar, Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from batchsched.api.crd.validation import FieldError, complaints
from batchsched.errors import InvalidInput

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

ENTRY_POINTS: Final = "batchsched.policies"


@dataclass(frozen=True, slots=True, eq=False)
class GangColumns:
    """What policies may know of G waiting gangs.

    Args:
      priority: [G] resolved priority, the higher the more urgent.
      created: [G] seconds since 1970 at which the gang was submitted.
      estimate: [G] expected run time in seconds, NaN where it is not stated.
      size: [G] pods that the gang wants.
      share: [G] dominant share of all its pods: 1 is the whole cluster.
      arrival: [G] a number that grows with submission, then `namespace/name`; decides between equal keys.
    """

    priority: IntArray
    created: FloatArray
    estimate: FloatArray
    size: FloatArray
    share: FloatArray
    arrival: IntArray

    def at(self, places: Sequence[int] | IntArray) -> "GangColumns":
        """Return the gangs at these places, in this order."""
        return GangColumns(
            self.priority[places],
            self.created[places],
            self.estimate[places],
            self.size[places],
            self.share[places],
            self.arrival[places],
        )


class Policy(Protocol):
    """An order of gangs. `Args` (a pydantic model) is optional."""

    name: ClassVar[str]

    def key(self, gangs: GangColumns, now: float) -> FloatArray:
        """Return [G] keys, the smallest is next; seconds and shares as in the columns."""
        ...


@runtime_checkable
class HorizonPolicy(Protocol):
    """A policy that holds gangs back unless they leave room for those that come next."""

    @property
    def horizon(self) -> float:
        """Seconds within which a running gang's expected end counts as room."""
        ...

    def room(self, gangs: GangColumns, now: float) -> FloatArray:
        """Return [G] shares of the cluster that must stay free when a gang starts; 0 holds nobody back."""
        ...


def order(policy: Policy, gangs: GangColumns, now: float) -> IntArray:
    """[G] the gangs' places, next first: by key, then by arrival."""
    return np.lexsort((gangs.arrival, policy.key(gangs, now)))


def make(name: str, arguments: Mapping[str, Any], known: Mapping[str, type]) -> Policy:
    """Make a policy by name.

    Raises:
      InvalidInput: the name is not registered, or the policy refuses its arguments.
    """
    chosen = find(name, known)
    if chosen is None:
        raise InvalidInput(
            f"no policy is named {name!r}; registered are {', '.join(sorted(known))}", field="policy.name"
        )
    policy: Policy = construct(chosen, name, arguments)
    return policy


def find(name: str, known: Mapping[str, type]) -> type | None:
    """Return the class of an order of gangs by name, from here or by entry point; None when nobody has it."""
    return known.get(name) or _offered(name)


def construct(chosen: type, name: str, arguments: Mapping[str, Any]) -> Any:
    """Make a policy of a class from the arguments as they are written.

    Raises:
      InvalidInput: the policy refuses its arguments.
    """
    model = getattr(chosen, "Args", None)
    try:
        return chosen(model.model_validate(dict(arguments))) if model else chosen(**arguments)
    except ValidationError as error:
        first = complaints(error, model)[0] if model else FieldError("", str(error))
        raise InvalidInput(
            first.message, object=f"policy {name}", field=f"args.{first.field}".rstrip(".")
        ) from error
    except TypeError as error:
        raise InvalidInput(
            "the policy takes no such arguments", object=f"policy {name}", field="args"
        ) from error


def _offered(name: str) -> type | None:
    for point in entry_points(group=ENTRY_POINTS, name=name):
        loaded: type = point.load()
        return loaded
    return None
