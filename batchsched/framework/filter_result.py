"""The result of the Filter plugins for one pod class and all nodes, and the message that summarizes it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from batchsched.framework.cycle_state import CycleState
from batchsched.framework.status import BoolArray, Code, IndexArray, Status, Verdict

NOT_NARROWED = "node(s) didn't satisfy plugin(s) [{plugins}]"


@dataclass(frozen=True, slots=True, eq=False)
class FilterResult:
    """The combined answers of the PreFilter and Filter plugins about one pod class and all N nodes.

    Args:
      state: the cycle state of the class.
      status: the PreFilter's refusal, or Success.
      fits: [N] feasible nodes.
      refused_by: [N] index into `plugins` of the first plugin that refuses the node, -1 for none.
      plugins, verdicts: the Filter plugins that were called, and their answers, in order.
      narrowed_by: PreFilter plugins that restricted the nodes.
      outside: [N] nodes that a PreFilter or a domain excludes; None for none. No entry of `plugins` refuses them.
    """

    state: CycleState
    status: Status
    fits: BoolArray
    refused_by: IndexArray
    plugins: tuple[str, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    narrowed_by: tuple[str, ...] = ()
    outside: BoolArray | None = None

    def restricted_to(self, allowed: BoolArray) -> "FilterResult":
        """Return a copy of the filter result, in which nodes with False in `allowed` [N] are not feasible."""
        outside = ~allowed if self.outside is None else self.outside | ~allowed
        return replace(self, fits=self.fits & allowed, outside=outside)

    def without_prefilter_exclusion(self, node: int) -> "FilterResult":
        """Return the filter result as it would be if no PreFilter plugin had excluded the given node.

        Only the Filters decide about the node.
        """
        if self.outside is None or not self.outside[node]:
            return self
        outside, fits, refused_by = self.outside.copy(), self.fits.copy(), self.refused_by.copy()
        outside[node] = False
        refusing = (by for by, verdict in enumerate(self.verdicts) if not verdict.feasible_mask[node])
        refused_by[node] = next(refusing, -1)
        fits[node] = refused_by[node] < 0
        return replace(self, fits=fits, refused_by=refused_by, outside=outside)

    def with_refusals(self, refusals: Sequence[tuple[str, Verdict]]) -> "FilterResult":
        """Return the filter result with further refusals, such as those of extenders.

        Each refusal is a pair: the name of the plugin or extender, and its verdict about all N nodes.
        """
        fits, refused_by = self.fits.copy(), self.refused_by.copy()
        for number, (_, verdict) in enumerate(refusals, start=len(self.verdicts)):
            refused_by[fits & ~verdict.feasible_mask] = number
            fits &= verdict.feasible_mask
        names, verdicts = zip(*refusals, strict=True) if refusals else ((), ())
        return replace(
            self,
            fits=fits,
            refused_by=refused_by,
            plugins=(*self.plugins, *names),
            verdicts=(*self.verdicts, *verdicts),
        )

    def reasons_at(self, node: int) -> tuple[str, ...]:
        """Return the reasons for which a node is refused; () if the node is feasible."""
        if self.outside is not None and self.outside[node]:
            return (NOT_NARROWED.format(plugins=", ".join(self.narrowed_by)),)
        by = int(self.refused_by[node])
        return self.verdicts[by].reasons_at(node) if by >= 0 else ()

    def code_at(self, node: int) -> Code:
        """Return the status code of a node's refusal, or Success if the node is feasible.

        A PreFilter's refusal applies to every node.
        """
        if not self.status.ok:
            return self.status.code
        if self.outside is not None and self.outside[node]:
            return Code.UNRESOLVABLE
        by = int(self.refused_by[node])
        if by < 0:
            return Code.SUCCESS
        return Code.UNRESOLVABLE if self.verdicts[by].unresolvable[node] else Code.UNSCHEDULABLE

    def nodes_where_preemption_may_help(self) -> list[int]:
        """Return the indexes of the nodes that are refused with code Unschedulable, where evictions may help."""
        everywhere = range(len(self.fits))
        if not self.status.ok:
            return list(everywhere) if self.status.code is Code.UNSCHEDULABLE else []
        helpable = self.refused_by >= 0
        if self.outside is not None:
            helpable &= ~self.outside
        for by, verdict in enumerate(self.verdicts):
            helpable &= ~((self.refused_by == by) & verdict.unresolvable)
        return [int(at) for at in np.flatnonzero(helpable)]

    def reason_counts(self) -> Counter[str]:
        """Return for each reason the number of nodes that are refused for it.

        Only the first plugin that refuses a node counts.
        """
        counts: Counter[str] = Counter()
        for by, verdict in enumerate(self.verdicts):
            first_refused = self.refused_by == by
            if first_refused.any():
                for reason, refused in zip(verdict.reasons, verdict.refused, strict=True):
                    counts[reason] += int((refused & first_refused).sum())
        if self.outside is not None and self.outside.any():
            counts[NOT_NARROWED.format(plugins=", ".join(self.narrowed_by))] += int(self.outside.sum())
        return +counts

    def fit_error_message(self) -> str:
        """Return kube-scheduler's message `0/N nodes are available: …` for this filter result."""
        if not self.status.ok:
            return fit_error_message(len(self.fits), self.status.reasons)
        return fit_error_message(
            len(self.fits), [f"{count} {reason}" for reason, count in self.reason_counts().items()]
        )


def fit_error_message(nodes: int, parts: Sequence[str]) -> str:
    """Return kube-scheduler's message `0/N nodes are available: a, b.` with the given reasons in sorted order.

    Source: `FitError.Error` of kube-scheduler's framework.
    """
    head = f"0/{nodes} nodes are available"
    return f"{head}: {', '.join(sorted(parts))}." if parts else f"{head}."


def no_refusals(count: int) -> IndexArray:
    """Return a `FilterResult.refused_by` for `count` nodes that no plugin refuses: an array of -1."""
    return np.full(count, -1, np.int32)
