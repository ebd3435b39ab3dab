"""The documentation's page of policies, written from the policies themselves."""

import inspect

from pydantic import BaseModel

from batchsched.ordering.known import POLICIES

_HEAD = """# Policies

A policy says who is next among the gangs that wait: it gives each a key, the smallest is next, and between
equal keys submission decides, then `namespace/name`. Choose one under `profiles[].policy`, or with `--policy` in a
simulation.
With `selection: weight`, the default, the policy says in what order windows are filled and ties are broken; with
`selection: ordered` its order is strict, `blocking` lets the first gang that does not fit keep back all behind
it, and `backfill: easy` gives that gang a reservation around which others may start.

The list is closed: an unknown name is refused with the names there are.
[Contributing](../contributing.md#add-a-policy) says how to add one."""


def page() -> str:
    """Return the page: every policy with its formula, its source and its arguments."""
    return "\n\n".join([_HEAD, *(_policy(name, policy) for name, policy in sorted(POLICIES.items()))])


def _policy(name: str, policy: type) -> str:
    text = inspect.getdoc(policy) or ""
    model = getattr(policy, "Args", None)
    return f"## `{name}`\n\n{text}" + (f"\n\n{_arguments(model)}" if model is not None else "")


def _arguments(model: type[BaseModel]) -> str:
    rows = ["| argument | default | what it is |", "|---|---|---|"]
    rows += [
        f"| `{field.alias or name}` | {field.default} | {field.description} |"
        for name, field in model.model_fields.items()
    ]
    return "\n".join(rows)
