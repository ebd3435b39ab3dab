"""What a plugin answers: a status for a pod, a verdict for nodes.

A refusal is a value. Breakage is a `PluginError`, raised by whoever called the plugin.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]
IndexArray = NDArray[np.int32]
FloatArray = NDArray[np.float64]


class Code(StrEnum):
    """The answers of kube-scheduler's framework, under its names."""

    SUCCESS = "Success"
    UNSCHEDULABLE = "Unschedulable"
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    WAIT = "Wait"
    SKIP = "Skip"
    PENDING = "Pending"
    ERROR = "Error"


@dataclass(frozen=True, slots=True)
class Status:
    """An answer about a pod as a whole.

    Args:
      code: what follows from it.
      reasons: sentences for people, none for Success.
      plugin: who said it; the pipeline fills it in.
    """

    code: Code = Code.SUCCESS
    reasons: tuple[str, ...] = ()
    plugin: str = ""

    @property
    def ok(self) -> bool:
        """True for Success and Skip: nothing stands against the pod."""
        return self.code is Code.SUCCESS or self.code is Code.SKIP


SUCCESS: Final = Status()
SKIP: Final = Status(Code.SKIP)


@dataclass(frozen=True, slots=True)
class PreFilterAnswer:
    """A PreFilter's answer: a status, and the nodes to which it narrows the search.

    Args:
      status: Skip drops the plugin's Filter for this pod.
      nodes: names of the only nodes that can fit, or None for all.
    """

    status: Status = SUCCESS
    nodes: frozenset[str] | None = None


ASK_FILTER: Final = PreFilterAnswer()
SKIP_FILTER: Final = PreFilterAnswer(SKIP)


@dataclass(frozen=True, slots=True)
class PermitAnswer:
    """A Permit's answer: Success, a refusal, or Wait with the seconds it may last."""

    status: Status = SUCCESS
    timeout_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class PostFilterAnswer:
    """A PostFilter's answer.

    Args:
      status: Success when room can be made; Unschedulable lets the next plugin try; UnschedulableAndUnresolvable
        ends the chain, and so does Error.
      node: the node that the pod is nominated for from now on, "" for none; None leaves its nomination as it is.
      victims: namespace/name of the pods that must leave it, the most important first.
    """

    status: Status = SUCCESS
    node: str | None = None
    victims: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """A Filter's answer about n nodes.

    Args:
      reasons: K sentences.
      refused: [K, n] node j is refused for reasons[k]; a node may have several reasons.
      unresolvable: [n] no eviction can help on that node.
    """

    reasons: tuple[str, ...]
    refused: BoolArray
    unresolvable: BoolArray

    @property
    def fits(self) -> BoolArray:
        """[n] the nodes that no reason refuses."""
        fits: BoolArray = ~np.asarray(self.refused.any(axis=0))
        return fits

    def reasons_at(self, node: int) -> tuple[str, ...]:
        """Return the sentences for the j-th of the nodes."""
        return tuple(self.reasons[k] for k in np.flatnonzero(self.refused[:, node]))

    def among(self, nodes: IndexArray, count: int) -> "Verdict":
        """Return the same answer about n of `count` nodes as one about all of these; the others fit."""
        refused, unresolvable = np.zeros((len(self.reasons), count), np.bool_), np.zeros(count, np.bool_)
        refused[:, nodes] = self.refused
        unresolvable[nodes] = self.unresolvable
        return Verdict(self.reasons, refused, unresolvable)

    @classmethod
    def accept(cls, count: int) -> "Verdict":
        """All of `count` nodes fit."""
        return cls((), np.zeros((0, count), np.bool_), np.zeros(count, np.bool_))

    @classmethod
    def refuse(cls, refused: BoolArray, reason: str, *, unresolvable: bool) -> "Verdict":
        """The nodes marked in `refused` [n] do not fit, all for one reason."""
        return cls((reason,), refused[np.newaxis, :], refused & unresolvable)
