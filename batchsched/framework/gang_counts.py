"""What plugins may know of gangs while pods are placed: how many members there are, and how many have a place."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from batchsched.api.core.pod import SUB_GROUP_LABEL, Pod
from batchsched.framework.status import SUCCESS, Code, Status


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
        if not self.sub_minimum:  # a pod at Permit asks this
            return self.placed >= self.minimum
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
    """A pod that passed Reserve and waits at Permit. Any plugin may let it go for its own part, or reject it.

    Args:
      pod: who waits.
      node: its place in the table.
      gang: the identity of its gang.
      until: by plugin that makes it wait, until when in seconds since 1970.
      rejection: who sent it back and why; Success while nobody did.
    """

    pod: Pod
    node: int
    gang: str
    until: dict[str, float]
    rejection: Status = SUCCESS

    @property
    def held_by(self) -> tuple[str, ...]:
        """The plugins that make it wait."""
        return tuple(self.until)

    def allow(self, plugin: str) -> None:
        """Let it go as far as one plugin is concerned; it goes once nobody makes it wait."""
        self.until.pop(plugin, None)

    def reject(self, plugin: str, reason: str) -> None:
        """Send it back, and with it what its gang was given; the first rejection stands."""
        if self.rejection.ok:
            self.rejection = Status(Code.UNSCHEDULABLE, (reason,), plugin)


class WaitingPods:
    """The pods that wait at Permit, by gang, held ones of earlier sessions included.

    Plugins find them on the node table (`nodes.waiting`), and allow or reject them; the session does the rest.
    """

    def __init__(self) -> None:
        self._gangs: dict[str, dict[str, WaitingPod]] = {}

    def add(self, waiting: WaitingPod) -> None:
        """Make a pod wait."""
        self._gangs.setdefault(waiting.gang, {})[waiting.pod.key] = waiting

    def __iter__(self) -> Iterator[WaitingPod]:
        """All of them, gang by gang, in the order in which they came."""
        for pods in self._gangs.values():
            yield from pods.values()

    def get(self, pod: str) -> WaitingPod | None:
        """Return the waiting pod `namespace/name`, None where it does not wait."""
        return next((pods[pod] for pods in self._gangs.values() if pod in pods), None)

    def rejection(self, gang: str) -> Status:
        """Return who sent a pod of the gang back and why, Success where nobody did."""
        return next((one.rejection for one in self.of(gang) if not one.rejection.ok), SUCCESS)

    def of(self, gang: str) -> Iterable[WaitingPod]:
        """The waiting pods of a gang, in the order in which they came."""
        return self._gangs.get(gang, {}).values()

    def allow(self, gang: str, plugin: str) -> None:
        """Let all waiting pods of a gang go, as far as one plugin is concerned."""
        for waiting in self._gangs.get(gang, {}).values():
            if waiting.until:
                waiting.allow(plugin)

    def drop(self, gang: str) -> None:
        """Forget a gang's waiting pods."""
        self._gangs.pop(gang, None)

    def released(self, gang: str) -> bool:
        """True when no plugin makes any pod of the gang wait."""
        return not any(waiting.until for waiting in self._gangs.get(gang, {}).values())
