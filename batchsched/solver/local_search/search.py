"""The local search: before a class falls short of pods, other pods of the session are moved.

No pod of this session is bound yet, so a move costs nothing. Three neighbourhoods are tried in turn, from the
cheapest to the dearest: relocation, clearing of nodes, exchange.
"""

from typing import Any

from batchsched.solver.local_search.neighbourhood import Neighbourhood, PlacedPods, RoomRequest
from batchsched.solver.local_search.relocate import ClearingNeighbourhood, RelocationNeighbourhood
from batchsched.solver.local_search.swap import SwapNeighbourhood
from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import IntArray


class LocalSearch:
    """The local search over one packing; it owns the tables that the neighbourhoods share."""

    def __init__(self, packing: Packing) -> None:
        """Start from a packing; it may hold pods already."""
        self._packing = packing
        placed = PlacedPods(packing)
        self._neighbourhoods: tuple[Neighbourhood[Any], ...] = (
            RelocationNeighbourhood(packing, placed),
            ClearingNeighbourhood(packing, placed),
            SwapNeighbourhood(packing, placed),
        )

    def make_room(self, class_index: int, want: int, nodes: IntArray | None) -> int:
        """Place up to `want` pods of a class by moving others.

        Args:
          class_index: the class.
          want: how many pods at most.
          nodes: ascending node numbers that the pods may use, None for all.

        Returns:
          how many pods were placed.
        """
        if class_index in self._packing.room.rows.of_class:
            return 0  # a move might break the row for pods that are placed already
        request = RoomRequest(class_index, want, nodes)
        for neighbourhood in self._neighbourhoods:
            if request.left > 0:
                self._try_moves(neighbourhood, request)
        return want - request.left

    def _try_moves(self, neighbourhood: Neighbourhood[Any], request: RoomRequest) -> None:
        room = self._packing.room
        for move in neighbourhood.propose(request):
            mark = room.mark()
            placed = neighbourhood.apply(request, move)
            if placed is None:
                room.rollback(mark)
                continue
            request.left -= placed
            # Return before the next move is drawn: a generator computes it at once, and it would not be used.
            if request.left <= 0:
                return
