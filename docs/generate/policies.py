"""The reference page of policies, generated from their docstrings and arguments."""

import inspect
from collections.abc import Mapping

from pydantic import BaseModel

from batchsched.queues.gang_order import POLICIES
from batchsched.queues.sharing.policy import UndividedSurplusPolicy, registered_policy_classes

_HEAD = """# Policies

[Between queues](#between-queues) a policy divides the capacity of the cluster and decides which queue may reclaim from
which. [Between PodGroups](#between-podgroups) it decides which PodGroup is next. A package may add policies by
entry points. An unknown name is rejected with a list of the known names. [Your first policy](../first-policy.md)
describes how to add a policy."""
_QUEUES = """## Between queues

Set `policy` of a [Queue](custom-resources.md#queue) for its children, and for all queues below them that set no policy
of their own. Set `profiles[].queuePolicy` for queues without a parent. In formulas, q is a queue and r is a resource.
[Queues](../queues.md) describes what holds under every policy: guarantees, limits, lending and borrowing.

The name of an order of PodGroups is allowed here as well (`sjf`, `saf`, `wfp3`, `f1`, `fcfs`, `headroom`): the queues
below then share one surplus in that order."""
_GANGS = """## Between PodGroups

Set `profiles[].policy`, or use `--policy` in a simulation. A policy computes a key for each pending gang. The gang with
the smallest key is next; equal keys are ordered by submission time, then by `namespace/name`.
With `selection: weight`, the default, the policy determines which gangs are inside the entitlement of their queue, and
which gangs a session with `sessionWindow` considers. Without entitlements, commands warn that sessions do not read the policy.
With `selection: ordered` the order is strict: `blocking` makes the first gang that does not fit block all gangs behind
it, and `backfill: easy` gives that gang a reservation around which other gangs may start."""
_OURS = "batchsched."


def policies() -> str:
    """Return the page: every policy with its formula, its source and its arguments."""
    queues = {
        name: one for name, one in registered_policy_classes().items() if one.__module__.startswith(_OURS)
    }
    parts = [_HEAD, _QUEUES, *_all({**queues, "pool": UndividedSurplusPolicy}), _GANGS, *_all(POLICIES)]
    return "\n\n".join(parts)


def _all(classes: Mapping[str, type]) -> list[str]:
    return [_policy(name, policy) for name, policy in sorted(classes.items())]


def _policy(name: str, policy: type) -> str:
    text = inspect.getdoc(policy) or ""
    model = getattr(policy, "Args", None)
    title = name if name == "pool" else f"`{name}`"
    return f"### {title}\n\n{text}" + (f"\n\n{_arguments(model)}" if model is not None else "")


def _arguments(model: type[BaseModel]) -> str:
    rows = ["| argument | default | what it is |", "|---|---|---|"]
    rows += [
        f"| `{field.alias or name}` | {field.default} | {field.description} |"
        for name, field in model.model_fields.items()
    ]
    return "\n".join(rows)
