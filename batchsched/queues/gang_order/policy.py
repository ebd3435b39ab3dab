"""Gang order policies: the protocol, and lookup by name.

A policy computes one key for each gang from columns of gang attributes. The gang with the smallest key is next; equal
keys are ordered by submission time, then by `namespace/name`. Policies are found by name among the built-in ones and
the entry points `batchsched.policies`.
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
    """Attributes of G pending gangs, as input of a policy.

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

    def at(self, places: Sequence[int] | IntArray) -> "GangColumns":
        """Return the columns of the gangs at these indices, in this order."""
        return GangColumns(
            self.priority[places],
            self.created[places],
            self.estimate[places],
            self.size[places],
            self.share[places],
            self.arrival[places],
        )


class Policy(Protocol):
    """An order of gangs. A policy class may have a pydantic model `Args` for its arguments."""

    name: ClassVar[str]

    def key(self, gangs: GangColumns, now: float) -> FloatArray:
        """Return [G] keys; the gang with the smallest key is next. Units are those of the columns."""
        ...


@runtime_checkable
class HorizonPolicy(Protocol):
    """A policy that skips gangs which do not leave enough capacity for later gangs."""

    @property
    def horizon(self) -> float:
        """Seconds within which the capacity of a running gang that ends counts as room."""
        ...

    def room(self, gangs: GangColumns, now: float) -> FloatArray:
        """Return [G] the share of the cluster that must remain free when each gang starts; 0 means no restriction."""
        ...


def order(policy: Policy, gangs: GangColumns, now: float) -> IntArray:
    """Return [G] the indices of the gangs in the order of the policy, by key, then by arrival."""
    return np.lexsort((gangs.arrival, policy.key(gangs, now)))


def make_policy(name: str, arguments: Mapping[str, Any], classes: Mapping[str, type]) -> Policy:
    """Create a policy by name.

    Raises:
      InvalidInput: the name is not registered, or the policy rejects its arguments.
    """
    chosen = find_policy_class(name, classes)
    if chosen is None:
        raise InvalidInput(
            f"no policy is named {name!r}; registered are {', '.join(sorted(classes))}", field="policy.name"
        )
    policy: Policy = construct_policy(chosen, name, arguments)
    return policy


def find_policy_class(name: str, classes: Mapping[str, type]) -> type | None:
    """Return the class of a built-in or registered gang order by name, or None if the name is unknown."""
    return classes.get(name) or _offered(name)


def construct_policy(chosen: type, name: str, arguments: Mapping[str, Any]) -> Any:
    """Create a policy of a class from its arguments as written in the configuration.

    Raises:
      InvalidInput: the policy rejects its arguments.
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
