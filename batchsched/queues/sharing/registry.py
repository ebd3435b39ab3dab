"""Lookup of sharing policies by name: the entry points `batchsched.queue_policies`, and all gang orders.

make_sharing_policy("drf", {}) -> FairnessPolicy
"""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Final

from batchsched.errors import InvalidInput
from batchsched.queues.gang_order.builtin import POLICIES
from batchsched.queues.gang_order.policy import construct_policy, find_policy_class
from batchsched.queues.gang_order.policy import make_policy as make_order
from batchsched.queues.sharing.policy import FairnessPolicy
from batchsched.queues.sharing.shared_surplus import SharedSurplus

ENTRY_POINTS: Final = "batchsched.queue_policies"
DEFAULT: Final = "drf"
"""The policy that applies if no queue sets one."""


def make_sharing_policy(name: str, arguments: Mapping[str, Any]) -> FairnessPolicy:
    """Create a policy by name.

    Raises:
      InvalidInput: the name is not registered, or the policy rejects its arguments.
    """
    classes = registered_policies()
    if name in classes:
        made: FairnessPolicy = construct_policy(classes[name], name, arguments)
        return made
    if find_policy_class(name, POLICIES) is None:
        names = ", ".join(sorted({*classes, *POLICIES}))
        raise InvalidInput(f"no policy is named {name!r}; registered are {names}", field="policy.name")
    return SharedSurplus(make_order(name, arguments, POLICIES))


@cache
def registered_policies() -> Mapping[str, type]:
    """Return the registered policy classes by name."""
    return {
        point.name: point.load()
        for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda policy: policy.name)
    }
