"""The pod counts of a gang, as plugins see them during a session: minimum, existing and placed pods."""

from dataclasses import dataclass, field

from batchsched.api.core.pod import SUB_GROUP_LABEL, Pod
from batchsched.api.crd.subgroup_tree import SubgroupTree


@dataclass(slots=True)
class GangPodCounts:
    """The pod counts of one gang: how many pods it needs at least, how many exist, and how many are placed.

    The session updates the numbers at Reserve and Unreserve.

    Args:
      key: the gang's identity: namespace/name of the PodGroup, or `pod/namespace/name` for a single pod.
      minimum: pods that must be placed together.
      existing: pods that exist: bound, assumed and pending.
      placed: pods that are bound, or have passed Reserve in this session.
      timeout_seconds: maximum time for which pods may wait at Permit.
      sub_minimum, sub_existing, sub_placed: the same numbers by subGroup name.
      tree: the subGroups if they are nested, or if not all of them must run; None otherwise.
    """

    key: str
    minimum: int
    existing: int
    placed: int = 0
    timeout_seconds: float = 600.0
    sub_minimum: dict[str, int] = field(default_factory=dict)
    sub_existing: dict[str, int] = field(default_factory=dict)
    sub_placed: dict[str, int] = field(default_factory=dict)
    tree: SubgroupTree | None = None

    @property
    def has_minimum_placed(self) -> bool:
        """True if the gang and each of its subGroups have at least their minimum number of placed pods.

        If the subGroups are nested, enough of them must have their minimum.
        """
        if not self.sub_minimum:  # a pod at Permit asks this
            return self.placed >= self.minimum
        if self.tree is not None:
            return self.placed >= self.minimum and not self.tree.count_missing_pods(self.sub_placed)
        return self.placed >= self.minimum and all(
            self.sub_placed.get(name, 0) >= least for name, least in self.sub_minimum.items()
        )

    @property
    def has_enough_pods(self) -> bool:
        """True if the gang and each of its subGroups have at least their minimum number of existing pods.

        If the subGroups are nested, enough of them must have their minimum.
        """
        if self.tree is not None:
            return self.existing >= self.minimum and not self.tree.count_missing_pods(self.sub_existing)
        return self.existing >= self.minimum and all(
            self.sub_existing.get(name, 0) >= least for name, least in self.sub_minimum.items()
        )

    def first_subgroup_below_minimum(self) -> tuple[str, int]:
        """Return the name and the minimum of the first subGroup that has fewer existing pods than this minimum.

        Raises:
          StopIteration: no subGroup lacks pods.
        """
        return next(
            (name, least)
            for name, least in self.sub_minimum.items()
            if self.sub_existing.get(name, 0) < least
        )

    def change_placed_counts(self, pod: Pod, change: int) -> None:
        """Add `change`, 1 or -1, to the numbers of placed pods of the gang and of the given pod's subGroup."""
        self.placed += change
        if self.sub_minimum:
            name = pod.labels.get(SUB_GROUP_LABEL, "")
            if name in self.sub_minimum:
                self.sub_placed[name] = self.sub_placed.get(name, 0) + change
