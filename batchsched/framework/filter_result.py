"""Scan: what the filters say of all nodes for one class, and the sentence that sums it up."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from batchsched.framework.cycle_state import CycleState
from batchsched.framework.status import BoolArray, Code, IndexArray, Status, Verdict

NOT_NARROWED = "node(s) didn't satisfy plugin(s) [{plugins}]"


@dataclass(frozen=True, slots=True, eq=False)
class FilterResult:
    """The filters' answers for one class over all N nodes.

    Args:
      state: what the plugins keep for the class.
      status: the PreFilter's refusal, or Success.
      fits: [N] nodes that no plugin refuses.
      refused_by: [N] index into `plugins` of the first plugin that refuses, -1 where none does.
      plugins, verdicts: the Filter plugins that were asked, and their answers, in order.
      narrowed_by: PreFilter plugins that narrowed the nodes; nodes outside are refused by none of `plugins`.
    """

    state: CycleState
    status: Status
    fits: BoolArray
    refused_by: IndexArray
    plugins: tuple[str, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    narrowed_by: tuple[str, ...] = ()
    outside: BoolArray | None = None

    def only(self, allowed: BoolArray) -> "FilterResult":
        """Return the scan with the nodes outside of `allowed` [N] out of the question."""
        outside = ~allowed if self.outside is None else self.outside | ~allowed
        return replace(self, fits=self.fits & allowed, outside=outside)

    def asking_at(self, node: int) -> "FilterResult":
        """Return the scan with node j judged by the filters alone, also where PreFilter left it out."""
        if self.outside is None or not self.outside[node]:
            return self
        outside, fits, refused_by = self.outside.copy(), self.fits.copy(), self.refused_by.copy()
        outside[node] = False
        refusing = (by for by, verdict in enumerate(self.verdicts) if not verdict.fits[node])
        refused_by[node] = next(refusing, -1)
        fits[node] = refused_by[node] < 0
        return replace(self, fits=fits, refused_by=refused_by, outside=outside)

    def refusing(self, refusals: Sequence[tuple[str, Verdict]]) -> "FilterResult":
        """Return the scan after others than the plugins refused nodes: by name, what each said of all N nodes."""
        fits, refused_by = self.fits.copy(), self.refused_by.copy()
        for at, (_, verdict) in enumerate(refusals, start=len(self.verdicts)):
            refused_by[fits & ~verdict.fits] = at
            fits &= verdict.fits
        names, verdicts = zip(*refusals, strict=True) if refusals else ((), ())
        return replace(
            self,
            fits=fits,
            refused_by=refused_by,
            plugins=(*self.plugins, *names),
            verdicts=(*self.verdicts, *verdicts),
        )

    def reasons_at(self, node: int) -> tuple[str, ...]:
        """Return why node j is refused, () when it fits."""
        if self.outside is not None and self.outside[node]:
            return (NOT_NARROWED.format(plugins=", ".join(self.narrowed_by)),)
        by = int(self.refused_by[node])
        return self.verdicts[by].reasons_at(node) if by >= 0 else ()

    def code_at(self, node: int) -> Code:
        """Return the code of node j's refusal, Success when it fits; a PreFilter's refusal is every node's."""
        if not self.status.ok:
            return self.status.code
        if self.outside is not None and self.outside[node]:
            return Code.UNRESOLVABLE
        by = int(self.refused_by[node])
        if by < 0:
            return Code.SUCCESS
        return Code.UNRESOLVABLE if self.verdicts[by].unresolvable[node] else Code.UNSCHEDULABLE

    def helpable(self) -> list[int]:
        """Return the nodes whose refusal is Unschedulable: pods that leave may help there."""
        everywhere = range(len(self.fits))
        if not self.status.ok:
            return list(everywhere) if self.status.code is Code.UNSCHEDULABLE else []
        found = self.refused_by >= 0
        if self.outside is not None:
            found &= ~self.outside
        for by, verdict in enumerate(self.verdicts):
            found &= ~((self.refused_by == by) & verdict.unresolvable)
        return [int(at) for at in np.flatnonzero(found)]

    def reason_counts(self) -> Counter[str]:
        """Count the nodes by the reasons of their first refusing plugin; a node adds every reason it has."""
        counts: Counter[str] = Counter()
        for by, verdict in enumerate(self.verdicts):
            mine = self.refused_by == by
            if mine.any():
                for reason, refused in zip(verdict.reasons, verdict.refused, strict=True):
                    counts[reason] += int((refused & mine).sum())
        if self.outside is not None and self.outside.any():
            counts[NOT_NARROWED.format(plugins=", ".join(self.narrowed_by))] += int(self.outside.sum())
        return +counts

    def fit_error(self) -> str:
        """Return kube-scheduler's sentence: `0/N nodes are available: …`."""
        if not self.status.ok:
            return fit_error(len(self.fits), self.status.reasons)
        return fit_error(
            len(self.fits), [f"{count} {reason}" for reason, count in self.reason_counts().items()]
        )


def fit_error(nodes: int, parts: Sequence[str]) -> str:
    """Write `0/N nodes are available: a, b.` with the parts string-sorted.

    Source: `FitError.Error` of kube-scheduler's framework.
    """
    head = f"0/{nodes} nodes are available"
    return f"{head}: {', '.join(sorted(parts))}." if parts else f"{head}."


def nobody(count: int) -> IndexArray:
    """[N] of -1: no plugin refuses."""
    return np.full(count, -1, np.int32)
