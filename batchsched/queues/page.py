"""The documentation's page of policies, written from the policies themselves."""

import inspect
from collections.abc import Mapping

from pydantic import BaseModel

from batchsched.queues.gang_order.builtin import POLICIES
from batchsched.queues.sharing.registry import known
from batchsched.queues.sharing.shared_surplus import SharedSurplus

_HEAD = """# Policies

[Between queues](#between-queues) a policy divides what the cluster has and says who may take back what;
[between PodGroups](#between-podgroups) it says who is next. Each name is registered by an entry point, and a
package may add its own. An unknown name is refused with the names there are.
[Contributing](../contributing.md#add-a-policy) says how to add one."""
_QUEUES = """## Between queues

Stated under `policy` of a [Queue](custom-resources.md#queue), for its children and all below them that state none, and
under `profiles[].queuePolicy` for queues without a parent. Letters: q a queue, r a resource. What holds whatever the
policy stands in [Queues](../queues.md): guarantees, limits, lending and borrowing are none of a policy's business.

An order of PodGroups may stand here as well (`sjf`, `saf`, `wfp3`, `f1`, `fcfs`, `headroom`): the queues below share
one pool."""
_GANGS = """## Between PodGroups

Stated under `profiles[].policy`, or with `--policy` in a simulation. A policy gives each gang that waits a key; the
smallest is next, and between equal keys submission decides, then `namespace/name`.
With `selection: weight`, the default, the policy says in what order windows are filled and ties are broken; with
`selection: ordered` its order is strict, `blocking` lets the first gang that does not fit keep back all behind
it, and `backfill: easy` gives that gang a reservation around which others may start."""
_OURS = "batchsched."


def page() -> str:
    """Return the page: every policy with its formula, its source and its arguments."""
    queues = {name: one for name, one in known().items() if one.__module__.startswith(_OURS)}
    parts = [_HEAD, _QUEUES, *_all({**queues, "pool": SharedSurplus}), _GANGS, *_all(POLICIES)]
    return "\n\n".join(parts)


def _all(policies: Mapping[str, type]) -> list[str]:
    return [_policy(name, policy) for name, policy in sorted(policies.items())]


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
