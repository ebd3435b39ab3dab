"""How many members of each gang have a place, as the session moves them."""

from collections.abc import Mapping

from batchsched.api.core.pod import Pod
from batchsched.api.gang_identity import identity_of
from batchsched.framework.gang_counts import GangCount
from batchsched.session.tables.gang import PodGroupState


class PlacedPodCounts:
    """The counts of gangs, each made when it is first asked for.

    Args:
      gangs: the records of all gangs, by identity; whoever owns them says when one changed.
    """

    def __init__(self, gangs: Mapping[str, PodGroupState]) -> None:
        self._gangs = gangs
        self._counts: dict[str, GangCount] = {}

    def of(self, pod: Pod) -> GangCount:
        """Return the count of a pod's gang."""
        identity = identity_of(pod)
        return self._counts.get(identity) or self.of_members(self._gangs[identity])

    def of_members(self, members: PodGroupState) -> GangCount:
        """Return the count of a gang."""
        count = self._counts.get(members.identity)
        if count is None:
            count = self._counts[members.identity] = members.count()
        return count

    def of_gang(self, pod: Pod) -> GangCount | None:
        """As `of`; None for what stands for the pods of several gangs."""
        return self.of(pod) if pod.metadata.name else None

    def forget(self, identity: str) -> None:
        """Take in that a gang's members changed."""
        self._counts.pop(identity, None)
