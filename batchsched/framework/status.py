"""Answers of plugins: a status of a pod, or a verdict about nodes.

A refusal is a value. A failure is a `PluginError`, which the caller of the plugin raises.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]
IndexArray = NDArray[np.int32]
FloatArray = NDArray[np.float64]


class Code(StrEnum):
    """The code of a plugin's status, such as Success or Unschedulable.

    Names and meaning are those of kube-scheduler's framework.
    """

    SUCCESS = "Success"
    UNSCHEDULABLE = "Unschedulable"
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    WAIT = "Wait"
    SKIP = "Skip"
    PENDING = "Pending"
    ERROR = "Error"


@dataclass(frozen=True, slots=True)
class Status:
    """The answer of a plugin for a pod: a code and reasons.

    Args:
      code: determines what happens next.
      reasons: messages for users; for Success only of PostFilter.
      plugin: the name of the plugin, which the pipeline sets.
      lasting: read for Skip of PreFilter and PreScore. True if Skip is the answer for each pod of the class, whatever
        pods are on the nodes: the plugin is not called for the next pod. It then writes no cycle state.
    """

    code: Code = Code.SUCCESS
    reasons: tuple[str, ...] = ()
    plugin: str = ""
    # It says for how long an answer holds. Two answers with the same effect are equal.
    lasting: bool = field(default=False, compare=False)

    @property
    def ok(self) -> bool:
        """True if the status is Success or Skip, which do not refuse the pod."""
        return self.code is Code.SUCCESS or self.code is Code.SKIP


SUCCESS: Final = Status()
SKIP: Final = Status(Code.SKIP)
LASTING_SKIP: Final = Status(Code.SKIP, lasting=True)


@dataclass(frozen=True, slots=True)
class PreFilterAnswer:
    """The answer of a PreFilter plugin: a status, and the nodes that may be feasible.

    Args:
      status: Skip omits the plugin's Filter for this class.
      nodes: names of the nodes that may be feasible, None for all.
    """

    status: Status = SUCCESS
    nodes: frozenset[str] | None = None


ASK_FILTER: Final = PreFilterAnswer()
SKIP_FILTER: Final = PreFilterAnswer(SKIP)
LASTING_SKIP_FILTER: Final = PreFilterAnswer(LASTING_SKIP)


@dataclass(frozen=True, slots=True)
class PermitAnswer:
    """The answer of a Permit plugin: Success, a refusal, or Wait with the longest waiting time in seconds."""

    status: Status = SUCCESS
    timeout_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class PostFilterAnswer:
    """The answer of a PostFilter plugin: a status, the nominated node, and the pods to evict.

    Args:
      status: Success if evictions make the node feasible. After Unschedulable the next plugin is called;
        UnschedulableAndUnresolvable and Error end the chain.
      node: the node for which the pod is nominated, "" to clear the nomination, None to keep it.
      victims: `namespace/name` of the pods to evict from the node, the most important first.
    """

    status: Status = SUCCESS
    node: str | None = None
    victims: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """The answer of a Filter plugin about n nodes: which nodes it refuses, and why.

    Args:
      reasons: K messages.
      refused: [K, n] node j is refused for reasons[k]. A node may have several reasons.
      unresolvable: [n] evictions cannot make the node feasible.
    """

    reasons: tuple[str, ...]
    refused: BoolArray
    unresolvable: BoolArray

    @property
    def feasible_mask(self) -> BoolArray:
        """An array [n]: True for each node that the Filter does not refuse."""
        if not self.reasons:
            return np.ones(len(self.unresolvable), np.bool_)
        fits: BoolArray = ~np.asarray(self.refused.any(axis=0))
        return fits

    def reasons_at(self, node: int) -> tuple[str, ...]:
        """Return the reasons why the Filter refuses the node at position `node` of the verdict."""
        return tuple(self.reasons[k] for k in np.flatnonzero(self.refused[:, node]))

    def refusal_status_at(self, node: int, plugin: str) -> Status:
        """Return the status with which the Filter refuses the node at position `node` of the verdict."""
        code = Code.UNRESOLVABLE if self.unresolvable[node] else Code.UNSCHEDULABLE
        return Status(code, self.reasons_at(node), plugin)

    def expand_to_all_nodes(self, nodes: IndexArray, count: int) -> "Verdict":
        """Extend this verdict about the nodes `nodes` [n] to a verdict about all `count` nodes.

        The result refuses no node outside of `nodes`.
        """
        refused, unresolvable = np.zeros((len(self.reasons), count), np.bool_), np.zeros(count, np.bool_)
        refused[:, nodes] = self.refused
        unresolvable[nodes] = self.unresolvable
        return Verdict(self.reasons, refused, unresolvable)

    @classmethod
    def accept(cls, count: int) -> "Verdict":
        """Return a verdict of a Filter that refuses none of `count` nodes."""
        return cls((), np.zeros((0, count), np.bool_), np.zeros(count, np.bool_))

    @classmethod
    def refuse(cls, refused: BoolArray, reason: str, *, unresolvable: bool) -> "Verdict":
        """Return a verdict of a Filter that refuses the nodes marked in `refused` [n], all for one reason."""
        return cls((reason,), refused[np.newaxis, :], refused & unresolvable)
