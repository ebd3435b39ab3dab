"""The pods that wait at Permit, as plugins see them during a session."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from batchsched.api.core.pod import Pod
from batchsched.framework.status import SUCCESS, Code, Status


@dataclass(slots=True)
class WaitingPod:
    """A pod that passed Reserve and waits at Permit. A plugin may allow it on its own behalf, or reject it.

    Args:
      pod: the pod.
      node: the index of its node in the table.
      gang: the identity of its gang.
      until: plugin → end of the wait in seconds since 1970.
      rejection: the plugin's rejection with its reasons, or Success.
    """

    pod: Pod
    node: int
    gang: str
    until: dict[str, float]
    rejection: Status = SUCCESS

    @property
    def pending_plugins(self) -> tuple[str, ...]:
        """The names of the Permit plugins that have not allowed the waiting pod yet."""
        return tuple(self.until)

    def allow(self, plugin: str) -> None:
        """Allow a pod that waits at Permit, on behalf of one plugin.

        The wait ends when no other plugin holds the pod.
        """
        self.until.pop(plugin, None)

    def reject(self, plugin: str, reason: str) -> None:
        """Reject a pod that waits at Permit, and thereby its gang. Only the first rejection counts."""
        if self.rejection.ok:
            self.rejection = Status(Code.UNSCHEDULABLE, (reason,), plugin)


class WaitingPods:
    """The pods that wait at Permit, by gang, including pods that earlier sessions placed.

    Plugins get this object as `nodes.waiting`, and allow or reject its pods. The session acts on the result.
    """

    def __init__(self) -> None:
        self._gangs: dict[str, dict[str, WaitingPod]] = {}

    def add_waiting_pod(self, waiting: WaitingPod) -> None:
        """Add a pod to the pods that wait at Permit."""
        self._gangs.setdefault(waiting.gang, {})[waiting.pod.key] = waiting

    def __iter__(self) -> Iterator[WaitingPod]:
        """All waiting pods, by gang, in the order in which they were added."""
        for pods in self._gangs.values():
            yield from pods.values()

    def get(self, pod: str) -> WaitingPod | None:
        """Return the pod `namespace/name` if it waits at Permit, otherwise None."""
        return next((pods[pod] for pods in self._gangs.values() if pod in pods), None)

    def first_rejection_of_gang(self, gang: str) -> Status:
        """Return the first rejection among a gang's pods that wait at Permit, or Success if none is rejected."""
        return next((one.rejection for one in self.pods_of_gang(gang) if not one.rejection.ok), SUCCESS)

    def pods_of_gang(self, gang: str) -> Iterable[WaitingPod]:
        """Return the pods of a gang that wait at Permit, in the order in which they were added."""
        return self._gangs.get(gang, {}).values()

    def remove_pod(self, gang: str, pod: str) -> None:
        """Remove one pod `namespace/name` of a gang, if it waits at Permit."""
        self._gangs.get(gang, {}).pop(pod, None)

    def allow_gang(self, gang: str, plugin: str) -> None:
        """Allow all pods of a gang that wait at Permit, on behalf of one plugin."""
        for waiting in self._gangs.get(gang, {}).values():
            if waiting.until:
                waiting.allow(plugin)

    def remove_gang(self, gang: str) -> None:
        """Remove a gang's pods from the pods that wait at Permit."""
        self._gangs.pop(gang, None)

    def is_gang_allowed(self, gang: str) -> bool:
        """Return True if all Permit plugins have allowed all waiting pods of a gang.

        Return True also if the gang has no waiting pods.
        """
        return not any(waiting.until for waiting in self._gangs.get(gang, {}).values())
