"""Checks of policies from other packages: whether their entry points load, and their sort keys are valid."""

from importlib import import_module
from importlib.metadata import EntryPoint
from inspect import unwrap
from operator import attrgetter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from batchsched.errors import PolicyError

FloatArray = NDArray[np.float64]
_NUMERIC_KINDS: Final = "fiub"
"""The kinds of NumPy types that are real numbers: floating point, signed, unsigned, Boolean."""


def load_policy_class(point: EntryPoint) -> Any:
    """Return the class to which the entry point of a policy refers.

    An exception that the module itself raises is not changed, since its traceback has the file and the line.

    Raises:
      PolicyError: the module or its attribute does not exist, or the attribute has no method `key`.
    """
    try:
        module = import_module(point.module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{point.module}.".startswith(f"{error.name}."):
            raise  # The module exists, and another one that it imports does not.
        raise PolicyError(_entry_point_text(point, f"there is no module {error.name!r}")) from error
    try:
        policy: Any = attrgetter(point.attr)(module)
    except AttributeError as error:
        problem = f"{getattr(module, '__file__', point.module)} has no attribute {point.attr!r}"
        raise PolicyError(_entry_point_text(point, problem)) from error
    if not isinstance(policy, type) or not callable(getattr(policy, "key", None)):
        problem = f"expected a class with a method key, found {policy!r}"
        raise PolicyError(_entry_point_text(point, problem))
    return policy


def checked_policy_keys(policy: object, keys: object, count: int, *, several: bool = False) -> FloatArray:
    """Check that a policy computed a sort key for each gang or queue, and return the keys as an array.

    Args:
      policy: the policy.
      keys: the result of its method `key`.
      count: the number of gangs or queues for which it was called.
      several: whether each gang or queue may have several keys [count, K].

    Raises:
      PolicyError: the keys are not numbers, or do not have the shape [count].
    """
    try:
        array = np.asarray(keys)
    except ValueError:  # The rows of a nested sequence have different lengths.
        array = np.empty(0, dtype=object)
    is_numeric = array.dtype.kind in _NUMERIC_KINDS
    if is_numeric and (array.shape == (count,) or (several and array.ndim == 2 and len(array) == count)):
        return array
    name = getattr(policy, "name", type(policy).__name__)
    shape = f"an array of {count} numbers, one for each {'queue' if several else 'gang'}"
    keys_text = _shape_text(array, keys) if is_numeric else f"{keys!r:.60}"
    raise PolicyError(f"policy {name} failed in key, {_place(policy)}: expected {shape}, found {keys_text}")


def _shape_text(array: NDArray[Any], keys: object) -> str:
    """Describe numbers of a wrong shape: the number itself, or the shape of the array."""
    return f"the single number {keys!r:.60}" if array.ndim == 0 else f"an array of shape {list(array.shape)}"


def _entry_point_text(point: EntryPoint, problem: str) -> str:
    package = point.dist.name if point.dist is not None else "unknown"
    return f"policy {point.name}: entry point '{point.name} = {point.value}' of package {package}: {problem}"


def _place(policy: object) -> str:
    """Return the file and the line of the method `key` of a policy."""
    code = getattr(unwrap(type(policy).key), "__code__", None)  # type: ignore[attr-defined]
    return f"{code.co_filename}, line {code.co_firstlineno}" if code else type(policy).__module__
