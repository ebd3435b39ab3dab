"""How much of the storage that a pod's claims would draw on they use, as a score of the node.

Source: `Score` and `buildScorerFunction` of kube-scheduler's plugins/volumebinding, with StorageCapacityScoring on.
"""

from dataclasses import dataclass

import numpy as np

from batchsched.framework.nodes.node_table import Nodes
from batchsched.framework.plugin_support.utilization import MAX_UTILIZATION
from batchsched.framework.plugin_support.volume_listers import claim_class, storage_of
from batchsched.framework.status import BoolArray, IntArray
from batchsched.plugins.volume_binding.search import (
    NO_ROOM,
    Found,
    capacity_of,
    counted_size,
    room_for,
    size_of,
)


@dataclass(slots=True, eq=False)
class Use:
    """One class of storage on n nodes.

    Args:
      counts: [n] the nodes on which the pod draws on it.
      requested: [n] bytes that the pod's claims ask for.
      capacity: [n] bytes that there are.
    """

    counts: BoolArray
    requested: IntArray
    capacity: IntArray

    @classmethod
    def none(cls, count: int) -> "Use":
        """Return no use of a class on `count` nodes."""
        return cls(np.zeros(count, np.bool_), np.zeros(count, np.int64), np.zeros(count, np.int64))

    def scores(self, line: IntArray) -> IntArray:
        """[n] the score of the class by the broken line [101]; what asks for more than there is uses all of it."""
        full = (self.capacity == 0) | (self.requested > self.capacity)
        percent = self.requested * MAX_UTILIZATION // np.where(self.capacity == 0, 1, self.capacity)
        scored: IntArray = line[np.where(full, MAX_UTILIZATION, percent)]
        return np.where(self.counts, scored, 0)


def capacity_scores(found: Found, nodes: Nodes, line: IntArray) -> IntArray:
    """[n] the mean score over the classes that the pod draws on; 0 where it draws on none.

    Where there are volumes for some of its claims these count, and what is to be provisioned beside them does not.

    Args:
      found: the search for the pod's volumes on these nodes.
      nodes: n nodes.
      line: [101] the score by percent of use.
    """
    static, dynamic = _static(found, nodes), _dynamic(found, nodes)
    bound = np.zeros(len(nodes), np.bool_)
    for use in static.values():
        bound |= use.counts
    for use in dynamic.values():
        use.counts &= ~bound
    uses = (*static.values(), *dynamic.values())
    total = np.zeros(len(nodes), np.int64)
    classes = np.zeros(len(nodes), np.int64)
    for use in uses:
        total += use.scores(line)
        classes += use.counts
    # Rounded to the nearest, halves up.
    return np.where(classes > 0, (2 * total + classes) // np.maximum(1, 2 * classes), 0)


def _static(found: Found, nodes: Nodes) -> dict[str, Use]:
    """Add up claims and the volumes that they get, by the volumes' class."""
    uses: dict[str, Use] = {}
    for claim, choice in found.matches:
        for at in np.unique(choice[choice >= 0]).tolist():
            volume, here = found.volumes[at], choice == at
            use = uses.setdefault(volume.spec.storage_class_name, Use.none(len(nodes)))
            use.counts |= here
            use.requested[here] += size_of(claim)
            use.capacity[here] += capacity_of(volume)
    return uses


def _dynamic(found: Found, nodes: Nodes) -> dict[str, Use]:
    """Add up claims whose volumes are to be made, by class; a class has its capacity once, the last claim's."""
    uses: dict[str, Use] = {}
    for claim, where in found.provisioned:
        chosen = storage_of(nodes.table).classes[claim_class(claim)]
        size = counted_size(claim, chosen, nodes)
        if size is None:
            continue
        room = room_for(chosen.metadata.name, size, nodes)
        here = where & (room != NO_ROOM)
        use = uses.setdefault(chosen.metadata.name, Use.none(len(nodes)))
        use.counts |= here
        use.requested[here] += size
        use.capacity[here] = room[here]
    return uses
