"""The wait for a preferred topology level: as long as it lasts, a session requires the preferred level.

Source: `preferredWaitSeconds` of a PodGroup and of its subGroups.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from batchsched.api.core.metadata import format_timestamp
from batchsched.api.crd.podgroup import PodGroup, SubGroupTopology, TopologyRequest
from batchsched.api.crd.topology import Topology


@dataclass(frozen=True, slots=True)
class _WaitingGroup:
    """A PodGroup as it was submitted, the ends of its waits, and whether each preferred level is required now."""

    group: PodGroup
    ends: tuple[float, ...]
    required: tuple[bool, ...]


class PreferredLevelWaits:
    """The PodGroups that may wait for a preferred topology level, and the levels that are required now.

    Args:
      topologies: all Topologies.
    """

    def __init__(self, topologies: Iterable[Topology]) -> None:
        self._specs = {topology.name: topology.spec for topology in topologies}
        self._waiting: dict[str, _WaitingGroup] = {}

    def put_group(self, group: PodGroup) -> None:
        """Record a PodGroup if it may wait for a preferred topology level, otherwise forget it."""
        self.remove_group(group.key)
        spec = group.spec
        names = [
            (spec.topology or TopologyRequest()).name,
            *map(spec.topology_name_of_subgroup, spec.sub_groups),
        ]
        ends = tuple(
            0.0 if end and self._requires_as_narrow(name, topology) else end
            for name, topology, end in zip(
                names,
                group.topologies_of_pod_group_and_subgroups,
                group.preferred_level_deadlines,
                strict=True,
            )
        )
        if any(ends):
            self._waiting[group.key] = _WaitingGroup(group, ends, (False,) * len(ends))

    def remove_group(self, key: str) -> None:
        """Forget the PodGroup with this `namespace/name`, if it is known."""
        self._waiting.pop(key, None)

    def _requires_as_narrow(self, name: str, topology: TopologyRequest | SubGroupTopology | None) -> bool:
        """Return whether the required level is as narrow as the preferred level, both of the Topology `name`."""
        if topology is None or topology.required is None or topology.preferred is None:
            return False
        spec = self._specs.get(name)
        if spec is None:
            return True
        required, preferred = (
            spec.find_level_index(topology.required),
            spec.find_level_index(topology.preferred),
        )
        return required is None or preferred is None or required >= preferred

    def update_required_levels(self, now: float) -> list[PodGroup]:
        """Update which preferred levels are required at the time `now`, and return the PodGroups that this changes.

        Args:
          now: seconds since 1970.

        Returns: the PodGroups as a session at `now` reads them: where a wait lasts, `required` is the preferred level.
        """
        changed = []
        for key, waiting in self._waiting.items():
            required = tuple(now < end for end in waiting.ends)
            if required != waiting.required:
                self._waiting[key] = _WaitingGroup(waiting.group, waiting.ends, required)
                changed.append(_with_required_levels(waiting.group, required))
        return changed

    def wait_sentence(self, key: str) -> str:
        """Return a sentence that states how long a PodGroup waits for a preferred level; "" if it does not wait."""
        waiting = self._waiting.get(key)
        if waiting is None or not any(waiting.required):
            return ""
        end, topology = max(
            zip(waiting.ends, waiting.group.topologies_of_pod_group_and_subgroups, strict=True),
            key=lambda wait: wait[0],
        )
        level = topology.preferred if topology is not None else None
        return f"its preferred level {level} is required until {format_timestamp(end)} (preferredWaitSeconds)"


def _with_required_levels(group: PodGroup, required: tuple[bool, ...]) -> PodGroup:
    if not any(required):
        return group
    own, *inner = (
        topology.model_copy(update={"required": topology.preferred})
        if topology is not None and is_required
        else topology
        for topology, is_required in zip(group.topologies_of_pod_group_and_subgroups, required, strict=True)
    )
    sub_groups = tuple(
        sub.model_copy(update={"topology": topology})
        for sub, topology in zip(group.spec.sub_groups, inner, strict=True)
    )
    spec = group.spec.model_copy(update={"topology": own, "sub_groups": sub_groups})
    return group.model_copy(update={"spec": spec})
