"""What one solve hands over to a later one: its placements, its capacity prices and the gap of its answer.

A start never changes which answers are legal: its placements are taken only as far as they fit, and its prices give a
valid bound for every problem (`solver.tiered.prices`).

Shapes: P placements (triples of a class, a node and a number of pods).
"""

from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class SlotPrice:
    """The price of one slot, such as the room for a request of 4 GPUs, on the nodes of one node pool.

    Args:
      capacity: allocatable amounts of a node of the pool, by resource.
      devices: free devices of a node of the pool.
      ordinal: tells pools apart that have the same amounts.
      requests: (resource, size) pairs of the slot: an amount contains as many slots as the minimum of floor(amount /
        size) over the pairs.
      price: at least 0, in the unit of the solve that found it.
    """

    capacity: tuple[int, ...]
    devices: tuple[int, ...]
    ordinal: int
    requests: tuple[tuple[int, int], ...]
    price: float


@dataclass(frozen=True, slots=True)
class CapacityPrices:
    """The dual values of one Benders cut of the tiered model: a price of each slot kind on each node pool."""

    slots: tuple[SlotPrice, ...]


@dataclass(frozen=True, slots=True, eq=False)
class WarmStart:
    """The placements, capacity prices and gap of an earlier solve, from which a solve starts.

    The indexes of classes and nodes are those of the problem that is solved now.

    Args:
      classes, nodes, counts: [P] planned placements, one triple for each class and node; they need not fit.
      gap: the gap of the last answer that was found without a start.
      prices: capacity prices of earlier solves.
    """

    classes: NDArray[np.int32]
    nodes: NDArray[np.int32]
    counts: NDArray[np.int32]
    gap: float = 0.0
    prices: tuple[CapacityPrices, ...] = ()

    def __bool__(self) -> bool:
        """Return whether the start has placements."""
        return bool(self.classes.size)

    def restrict_to_classes(self, classes: NDArray[np.int64], size: int) -> Self:
        """Return the warm start for a problem that contains only some of the pod classes.

        Args:
          classes: [C'] the classes that the problem contains; they get the indexes 0, 1, 2 and so on.
          size: the number of pod classes of the problem that this warm start is for.
        """
        number = np.full(size, -1, np.int32)
        number[classes] = np.arange(len(classes))
        kept = number[self.classes] >= 0
        return replace(
            self, classes=number[self.classes[kept]], nodes=self.nodes[kept], counts=self.counts[kept]
        )


MAX_PRICES: Final = 16
"""Maximum number of capacity prices that a start contains: the newest ones."""
_NONE: Final = np.zeros(0, np.int32)
NO_PLACEMENTS: Final = WarmStart(_NONE, _NONE, _NONE)
"""The start of the first solve of several."""
