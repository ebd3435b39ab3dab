"""Replay of a recorded session: whether the decision is the same, and the differences if it is not."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from batchsched.api.decision import Decision, to_json, without_telemetry
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.ports.external import ExternalCalls
from batchsched.record.file import Record

Decide = Callable[[Snapshot, Profile, float, int, ExternalCalls], Decision]

_IDENTITY: Final = {
    "assignments": ("namespace", "pod"),
    "evictions": ("namespace", "pod"),
    "refusals": ("podGroup",),
    "reservations": ("podGroup",),
    "nominations": ("namespace", "pod"),
    "waiting": ("podGroup",),
    "setAside": ("file", "object", "field"),
}


@dataclass(frozen=True, slots=True)
class DecisionDifference:
    """A difference between the recorded and the replayed decision.

    Args:
      place: The list and the item, such as "assignments: team-a/bert-0".
      recorded: The recorded value, "" if there is none.
      now: The replayed value, "" if there is none.
    """

    place: str
    recorded: str
    now: str


def replay(record: Record, decide: Decide) -> tuple[DecisionDifference, ...]:
    """Decide a recorded session again. Return the differences, empty if the decision is identical byte for byte.

    Args:
      record: The session.
      decide: The function that decides: snapshot, profile, now, seed, and recorded answers.
    """
    replayed = decide(record.snapshot, record.profile, record.now, record.seed, record.answers.again())
    return differences(record.decision, replayed)


def differences(recorded: Decision, now: Decision) -> tuple[DecisionDifference, ...]:
    """Compare two decisions without their telemetry."""
    before, after = to_json(without_telemetry(recorded)), to_json(without_telemetry(now))
    if before == after:
        return ()
    old, new = msgspec.json.decode(before), msgspec.json.decode(after)
    differing = [difference for name in _IDENTITY for difference in _in_list(name, old[name], new[name])]
    differing += [
        DecisionDifference(f"solver.{field}", _text(old["solver"][field]), _text(new["solver"][field]))
        for field in old["solver"]
        if old["solver"][field] != new["solver"][field]
    ]
    return tuple(differing) or (DecisionDifference("the order of items", "as recorded", "another"),)


def _in_list(
    name: str, old: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]]
) -> list[DecisionDifference]:
    before, after = _by_identity(name, old), _by_identity(name, new)
    return [
        DecisionDifference(f"{name}: {key}", _text(before.get(key)), _text(after.get(key)))
        for key in dict.fromkeys((*before, *after))
        if before.get(key) != after.get(key)
    ]


def _by_identity(name: str, items: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    items_by_key: dict[str, list[dict[str, Any]]] = {}
    for item in items:
        key = "/".join(str(item[field]) for field in _IDENTITY[name])
        rest = {field: value for field, value in item.items() if field not in _IDENTITY[name]}
        items_by_key.setdefault(key, []).append(rest)
    return items_by_key


def _text(value: Any) -> str:
    """Format a value for people, such as `node: n1`; None gives ""."""
    if value is None:
        return ""
    if isinstance(value, list):
        return "; ".join(_text(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(
            f"{field}: {_text(part)}" for field, part in value.items() if part not in ("", {}, [])
        )
    return str(value)
