"""Fairness policies by name: entry points `batchsched.queue_policies`, and every order of gangs as a pool.

make("drf", {}) -> FairnessPolicy
"""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Final

from batchsched.errors import InvalidInput
from batchsched.queues.gang_order.builtin import POLICIES
from batchsched.queues.gang_order.policy import construct, find
from batchsched.queues.gang_order.policy import make as make_order
from batchsched.queues.sharing.policy import FairnessPolicy
from batchsched.queues.sharing.shared_surplus import SharedSurplus

ENTRY_POINTS: Final = "batchsched.queue_policies"
DEFAULT: Final = "drf"
"""The policy where no queue states one."""


def make(name: str, arguments: Mapping[str, Any]) -> FairnessPolicy:
    """Make a policy by name.

    Raises:
      InvalidInput: the name is not registered, or the policy refuses its arguments.
    """
    classes = known()
    if name in classes:
        made: FairnessPolicy = construct(classes[name], name, arguments)
        return made
    if find(name, POLICIES) is None:
        names = ", ".join(sorted({*classes, *POLICIES}))
        raise InvalidInput(f"no policy is named {name!r}; registered are {names}", field="policy.name")
    return SharedSurplus(make_order(name, arguments, POLICIES))


@cache
def known() -> Mapping[str, type]:
    """Return the classes that are registered for queues, by name."""
    return {
        point.name: point.load()
        for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda one: one.name)
    }
