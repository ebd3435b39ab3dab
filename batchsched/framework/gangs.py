"""What plugins may know of gangs while pods are placed: how many members there are, and how many have a place."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from batchsched.model.pod import SUB_GROUP_LABEL, Pod


@dataclass(slots=True)
class GangCount:
    """A gang's members, counted. The session moves the counts as it reserves and unreserves.

    Args:
      key: the gang's identity: namespace/name of the PodGroup, `pod/namespace/name` of a pod alone.
      minimum: members that must be placed together.
      existing: members that exist: bound, held and pending.
      placed: members that are bound, or have passed Reserve in this session.
      timeout_seconds: how long members may wait at Permit.
      sub_minimum, sub_existing, sub_placed: the same by subGroup name.
    """

    key: str
    minimum: int
    existing: int
    placed: int = 0
    timeout_seconds: float = 600.0
    sub_minimum: dict[str, int] = field(default_factory=dict)
    sub_existing: dict[str, int] = field(default_factory=dict)
    sub_placed: dict[str, int] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """True once the minimum, and every subGroup's, has a place."""
        return self.placed >= self.minimum and all(
            self.sub_placed.get(name, 0) >= least for name, least in self.sub_minimum.items()
        )

    @property
    def possible(self) -> bool:
        """True when enough members exist, in every subGroup too."""
        return self.existing >= self.minimum and all(
            self.sub_existing.get(name, 0) >= least for name, least in self.sub_minimum.items()
        )

    def count(self, pod: Pod, change: int) -> None:
        """Count a member in (1) or out (-1)."""
        self.placed += change
        if self.sub_minimum:
            name = pod.labels.get(SUB_GROUP_LABEL, "")
            if name in self.sub_minimum:
                self.sub_placed[name] = self.sub_placed.get(name, 0) + change


@dataclass(slots=True)
class WaitingPod:
    """A pod that passed Reserve and waits: by plugin, until when it may."""

    pod: Pod
    node: int
    gang: str
    until: dict[str, float]


class WaitingPods:
    """The pods that wait at Permit, by gang; plugins allow them through it."""

    def __init__(self) -> None:
        self._gangs: dict[str, dict[str, WaitingPod]] = {}

    def add(self, waiting: WaitingPod) -> None:
        """Make a pod wait."""
        self._gangs.setdefault(waiting.gang, {})[waiting.pod.key] = waiting

    def of(self, gang: str) -> Iterable[WaitingPod]:
        """The waiting pods of a gang, in the order in which they came."""
        return self._gangs.get(gang, {}).values()

    def allow(self, gang: str, plugin: str) -> None:
        """Let all waiting pods of a gang go, as far as one plugin is concerned."""
        for waiting in self._gangs.get(gang, {}).values():
            waiting.until.pop(plugin, None)

    def drop(self, gang: str) -> None:
        """Forget a gang's waiting pods."""
        self._gangs.pop(gang, None)

    def released(self, gang: str) -> bool:
        """True when no plugin makes any pod of the gang wait."""
        return not any(waiting.until for waiting in self._gangs.get(gang, {}).values())
