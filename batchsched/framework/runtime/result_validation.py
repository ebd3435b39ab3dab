"""Validation of plugin answers: an invalid answer counts as a failure of the plugin.

`POINTS` defines which status codes each extension point permits. The functions below check answers against it.
The page about the life of a pod is generated from it.
"""

import math
from collections.abc import Container, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from batchsched.errors import PluginError
from batchsched.framework.constrain import ALL_NODES, EVERY_NODE, CandidateSet, ConstraintRow, RowRelief
from batchsched.framework.plugin_support.scores import MAX_SCORE
from batchsched.framework.runtime.plugin_call import call_plugin, plugin_name
from batchsched.framework.status import (
    SUCCESS,
    Code,
    IntArray,
    PermitAnswer,
    PostFilterAnswer,
    PreFilterAnswer,
    Status,
    Verdict,
)


@dataclass(frozen=True, slots=True)
class ExtensionPoint:
    """The plugin method that is called at an extension point, and the status codes that it may return.

    Args:
      method: the method of a plugin.
      codes: the codes that a status may have; empty if the answer is not a status.
    """

    method: str
    codes: tuple[Code, ...] = ()


_BOOLEANS: Final = (bool, np.bool_)
_REFUSALS: Final = (Code.UNSCHEDULABLE, Code.UNRESOLVABLE, Code.PENDING)

POINTS: Final[dict[str, ExtensionPoint]] = {
    "PreEnqueue": ExtensionPoint("preenqueue", (Code.SUCCESS, Code.SKIP, *_REFUSALS)),
    "QueueSort": ExtensionPoint("sort_key"),
    "PreFilter": ExtensionPoint(
        "prefilter", (Code.SUCCESS, Code.SKIP, Code.UNSCHEDULABLE, Code.UNRESOLVABLE)
    ),
    "Filter": ExtensionPoint("filter"),
    "PostFilter": ExtensionPoint(
        "postfilter", (Code.SUCCESS, Code.UNSCHEDULABLE, Code.PENDING, Code.UNRESOLVABLE, Code.ERROR)
    ),
    "PreScore": ExtensionPoint("prescore", (Code.SUCCESS, Code.SKIP)),
    "Score": ExtensionPoint("score"),
    "NormalizeScore": ExtensionPoint("normalize"),
    "Constrain": ExtensionPoint("constrain"),
    "Reserve": ExtensionPoint("reserve", (Code.SUCCESS, *_REFUSALS)),
    "Unreserve": ExtensionPoint("unreserve"),
    "Permit": ExtensionPoint("permit", (Code.SUCCESS, Code.WAIT, *_REFUSALS)),
    "PreBind": ExtensionPoint("prebind", (Code.SUCCESS, Code.SKIP, *_REFUSALS)),
    "Bind": ExtensionPoint("bind", (Code.SUCCESS, Code.SKIP, *_REFUSALS)),
    "PostBind": ExtensionPoint("postbind"),
}
"""The extension points in the order of their calls. Signature and labels come before all of them."""


def checked_status(plugin: object, point: str, answer: object) -> Status:
    """Check that a plugin's answer is a status with a code that the extension point permits, and return it.

    Raises:
      PluginError: the answer is invalid; this applies to all functions below.
    """
    # Nearly all answers are SUCCESS, which every point allows.
    if answer is SUCCESS:
        return SUCCESS
    if not isinstance(answer, Status):
        raise _nonsense(plugin, point, "a Status", answer)
    if answer.code not in POINTS[point].codes:
        raise _nonsense(plugin, point, f"one of {', '.join(POINTS[point].codes)}", answer.code)
    return answer


def checked_prefilter_answer(plugin: object, answer: object) -> PreFilterAnswer:
    """Check the answer of a PreFilter plugin, and return it. Unknown node names are valid; they permit no node."""
    if not isinstance(answer, PreFilterAnswer):
        raise _nonsense(plugin, "PreFilter", "a PreFilterAnswer", answer)
    checked_status(plugin, "PreFilter", answer.status)
    # None permits all nodes, an empty set none.
    if answer.nodes is not None and not isinstance(answer.nodes, frozenset | set):
        raise _nonsense(plugin, "PreFilter", "a frozenset of node names", answer.nodes)
    return answer


def checked_verdict(plugin: object, answer: object, count: int) -> Verdict:
    """Check that the answer of a Filter plugin is a verdict about `count` nodes, and return it."""
    if isinstance(answer, Verdict):
        refused, unresolvable = answer.refused, answer.unresolvable
        # Check shapes and types only: checking values would cost more than the Filter itself.
        if (
            getattr(refused, "shape", None) == (len(answer.reasons), count)
            and getattr(unresolvable, "shape", None) == (count,)
            and (not count or refused.dtype == unresolvable.dtype == np.bool_)
        ):
            return answer
    raise PluginError(plugin_name(plugin), "Filter", f"expected a Verdict over {count} nodes")


def checked_postfilter_answer(plugin: object, answer: object, nodes: Container[str]) -> PostFilterAnswer:
    """Check the answer of a PostFilter plugin, and return it with the name of the plugin.

    The node must be one of `nodes`.
    """
    if not isinstance(answer, PostFilterAnswer):
        raise _nonsense(plugin, "PostFilter", "a PostFilterAnswer", answer)
    checked = checked_status(plugin, "PostFilter", answer.status)
    node: object = answer.node
    if node is not None and not (isinstance(node, str) and (not node or node in nodes)):
        raise _nonsense(plugin, "PostFilter", "the name of a node", node)
    victims: object = answer.victims
    if not isinstance(victims, tuple) or not all(isinstance(one, str) for one in victims):
        raise _nonsense(plugin, "PostFilter", "a tuple of namespace/name", victims)
    return PostFilterAnswer(
        Status(checked.code, checked.reasons, plugin_name(plugin)), answer.node, answer.victims
    )


def checked_raw_scores(plugin: object, answer: object, count: int) -> IntArray:
    """Check that the answer of a Score plugin has one whole number for each of `count` nodes, and return it [n]."""
    scores = call_plugin(plugin, "Score", np.asarray, answer)
    if scores.shape != (count,) or (count and scores.dtype.kind not in "iu"):
        raise PluginError(plugin_name(plugin), "Score", f"expected {count} whole numbers")
    return scores


def checked_scores(plugin: object, point: str, answer: object, count: int) -> IntArray:
    """Check that scores are one whole number from 0 to 100 for each of `count` nodes; return them."""
    numbers = call_plugin(plugin, point, np.asarray, answer)
    if numbers.shape == (count,) and (not count or numbers.dtype.kind in "iu"):
        made = numbers.astype(np.int64, copy=False)
        # As an unsigned number, a negative score is very large: one comparison checks both bounds.
        if not count or np.maximum.reduce(made.view(np.uint64)) <= MAX_SCORE:
            return made
    raise PluginError(plugin_name(plugin), point, f"expected {count} whole numbers from 0 to {MAX_SCORE}")


def checked_permit_answer(plugin: object, answer: object) -> PermitAnswer:
    """Check the answer of a Permit plugin, and return it with the name of the plugin in its status.

    A Success without a timeout is returned without the name.
    """
    if not isinstance(answer, PermitAnswer):
        raise _nonsense(plugin, "Permit", "a PermitAnswer", answer)
    # The usual answer, checked first because Permit is called for each pod.
    if answer.status is SUCCESS and answer.timeout_seconds == 0:
        return answer
    checked = checked_status(plugin, "Permit", answer.status)
    seconds: object = answer.timeout_seconds
    if not isinstance(seconds, int | float) or not math.isfinite(seconds) or seconds < 0:
        raise _nonsense(plugin, "Permit", "a timeout of 0 seconds or more", seconds)
    made = status_with_plugin_name(checked, plugin)
    return answer if made is answer.status else PermitAnswer(made, seconds)


def checked_bool(plugin: object, point: str, answer: object) -> bool:
    """Check that a plugin's answer is True or False, and return it."""
    if not isinstance(answer, _BOOLEANS):
        raise _nonsense(plugin, point, "True or False", answer)
    return bool(answer)


def checked_signatures(plugins: Sequence[object], signatures: tuple[Hashable, ...]) -> tuple[Hashable, ...]:
    """Check that the signatures that plugins returned for a pod are hashable, and return them."""
    try:
        # All at once: this is called for each new pod spec, and few plugins fail.
        call_plugin(plugins, "Signature", hash, signatures)
    except PluginError:
        for plugin, signature in zip(plugins, signatures, strict=True):
            call_plugin(plugin, "Signature", hash, signature)
    return signatures


def checked_selector_label_keys(plugin: object, answer: object) -> frozenset[str]:
    """Check that the label keys that a plugin declares are a set of strings, and return them."""
    if not isinstance(answer, frozenset | set) or not all(isinstance(key, str) for key in answer):
        raise _nonsense(plugin, "Signature", "a frozenset of label keys", answer)
    return frozenset(answer)


def indexes_sorted_by_queue_sort_key(plugin: object, keys: Sequence[Any]) -> list[int]:
    """Return the indexes of a QueueSort plugin's keys, ordered from the smallest to the largest key.

    Equal keys keep their order.
    """
    return call_plugin(plugin, "QueueSort", _sorted, keys)


def checked_constraint_rows(
    plugin: object, answer: object, batch: CandidateSet, nodes: int
) -> tuple[ConstraintRow, ...]:
    """Check that linear constraints of a plugin refer only to known classes, gangs and domains, and return them."""
    if not isinstance(answer, Sequence):
        raise _nonsense(plugin, "Constrain", "a sequence of Rows", answer)
    if not answer:  # as from most plugins for most batches
        return ()
    bounds = _Bounds.from_candidate_set(batch, nodes)
    for row in answer:
        if not isinstance(row, ConstraintRow):
            raise _nonsense(plugin, "Constrain", "a ConstraintRow", row)
        call_plugin(plugin, "Constrain", bounds.check_row, row)
    return tuple(answer)


def status_with_plugin_name(unsigned: Status, plugin: object) -> Status:
    """Return a status with the name of the plugin, unless the status already names a plugin."""
    return unsigned if unsigned.plugin else Status(unsigned.code, unsigned.reasons, plugin_name(plugin))


@dataclass(frozen=True, slots=True)
class _Bounds:
    """What rows may refer to: classes, gangs and units of the batch, and its partitions with the number of domains."""

    classes: frozenset[int]
    gangs: frozenset[int]
    domains: dict[int, int]
    units: int

    @classmethod
    def from_candidate_set(cls, batch: CandidateSet, nodes: int) -> "_Bounds":
        sizes = {at: int(one.max(initial=-1)) + 1 for at, one in enumerate(batch.partitions)}
        return cls(
            frozenset(one.index for one in batch.candidates),
            frozenset(one.gang for one in batch.candidates),
            {ALL_NODES: 1, EVERY_NODE: nodes} | sizes,
            len(batch.units),
        )

    def check_row(self, row: ConstraintRow) -> None:
        domains = self.domains.get(row.partition)
        if domains is None:
            raise ValueError(f"no partition has the number {row.partition}")
        shape = (len(row.right), len(row.gangs))
        expected = {
            "classes": row.classes.ndim == 1 and self.classes.issuperset(row.classes.tolist()),
            "coefficients": row.coefficients.shape == row.classes.shape,
            "right": row.right.ndim == 1 and len(row.right) >= domains,
            "gangs": row.gangs.ndim == 1 and self.gangs.issuperset(row.gangs.tolist()),
            "gang_coefficients": not len(row.gangs) or row.gang_coefficients.shape == shape,
            "relief": row.relief is None or self._fits_row(row.relief, row),
        }
        wrong = [name for name, holds in expected.items() if not holds]
        arrays = (row.classes, row.coefficients, row.right, row.gangs, row.gang_coefficients)
        if wrong or any(array.dtype.kind not in "iu" for array in arrays):
            raise ValueError(f"a row's {', '.join(wrong) or 'numbers'} do not belong to the batch")

    def _fits_row(self, relief: RowRelief, row: ConstraintRow) -> bool:
        columns = (relief.unit, relief.domain, relief.amount)
        if any(column.shape != relief.unit.shape or column.dtype.kind not in "iu" for column in columns):
            return False
        return all(
            int(column.min(initial=0)) >= 0 and int(column.max(initial=-1)) < limit
            for column, limit in ((relief.unit, self.units), (relief.domain, len(row.right)))
        )


def _sorted(keys: Sequence[Any]) -> list[int]:
    for key in keys:
        bool(key < key)  # one that cannot be compared with itself orders nothing
    return sorted(range(len(keys)), key=keys.__getitem__)


def _nonsense(plugin: object, point: str, expected: str, answer: object) -> PluginError:
    text = repr(answer)
    return PluginError(
        plugin_name(plugin),
        point,
        f"expected {expected}, not {text if len(text) <= 60 else text[:57] + '...'}",
    )
