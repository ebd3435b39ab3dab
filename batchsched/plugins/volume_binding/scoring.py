"""Score of a node by the share of its storage that a pod's claims would use.

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
    VolumeSearchResult,
    capacity_of,
    counted_size,
    room_for,
    size_of,
)


@dataclass(slots=True, eq=False)
class Use:
    """Use of one storage class on n nodes.

    Args:
      counts: [n] the nodes on which the pod uses the class.
      requested: [n] bytes that the pod's claims request.
      capacity: [n] bytes that exist.
    """

    counts: BoolArray
    requested: IntArray
    capacity: IntArray

    @classmethod
    def none(cls, count: int) -> "Use":
        """Return the usage of a StorageClass that no claim uses, for `count` nodes."""
        return cls(np.zeros(count, np.bool_), np.zeros(count, np.int64), np.zeros(count, np.int64))

    def scores(self, line: IntArray) -> IntArray:
        """[n] Return the score of the class by the shape [101]. A request above the capacity counts as full use."""
        full = (self.capacity == 0) | (self.requested > self.capacity)
        percent = self.requested * MAX_UTILIZATION // np.where(self.capacity == 0, 1, self.capacity)
        scored: IntArray = line[np.where(full, MAX_UTILIZATION, percent)]
        return np.where(self.counts, scored, 0)


def capacity_scores(result: VolumeSearchResult, nodes: Nodes, line: IntArray) -> IntArray:
    """[n] Return the mean score over the classes that the pod uses; 0 if it uses none.

    If volumes exist for some claims, these determine the score, and volumes to be provisioned do not count.

    Args:
      result: the search for the pod's volumes on these nodes.
      nodes: n nodes.
      line: [101] the score by percent of use.
    """
    static, dynamic = _static(result, nodes), _dynamic(result, nodes)
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
    # Rounded to the nearest integer, halves upwards.
    return np.where(classes > 0, (2 * total + classes) // np.maximum(1, 2 * classes), 0)


def _static(result: VolumeSearchResult, nodes: Nodes) -> dict[str, Use]:
    """Add up claims and their existing volumes by the volumes' class."""
    uses: dict[str, Use] = {}
    for claim, choice in result.matches:
        for index in np.unique(choice[choice >= 0]).tolist():
            volume, chosen = result.volumes[index], choice == index
            use = uses.setdefault(volume.spec.storage_class_name, Use.none(len(nodes)))
            use.counts |= chosen
            use.requested[chosen] += size_of(claim)
            use.capacity[chosen] += capacity_of(volume)
    return uses


def _dynamic(result: VolumeSearchResult, nodes: Nodes) -> dict[str, Use]:
    """Add up claims with volumes to be provisioned, by class.

    A class counts its capacity once, that of the last claim.
    """
    uses: dict[str, Use] = {}
    for claim, where in result.provisioned:
        chosen = storage_of(nodes.table).classes[claim_class(claim)]
        size = counted_size(claim, chosen, nodes)
        if size is None:
            continue
        room = room_for(chosen.metadata.name, size, nodes)
        nodes_with_room = where & (room != NO_ROOM)
        use = uses.setdefault(chosen.metadata.name, Use.none(len(nodes)))
        use.counts |= nodes_with_room
        use.requested[nodes_with_room] += size
        use.capacity[nodes_with_room] = room[nodes_with_room]
    return uses
