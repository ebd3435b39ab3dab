"""Host ports of pods, and conflicts between them."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from batchsched.api.core.pod import Pod

EVERY_ADDRESS: Final = "0.0.0.0"
DEFAULT_PROTOCOL: Final = "TCP"


class HostPort(NamedTuple):
    """A port of the host: address (0.0.0.0 for all addresses), protocol and number."""

    address: str
    protocol: str
    number: int

    def conflicts(self, other: "HostPort") -> bool:
        """Return True if both ports cannot be used on one host."""
        if (self.protocol, self.number) != (other.protocol, other.number):
            return False
        return EVERY_ADDRESS in (self.address, other.address) or self.address == other.address


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """Return the host ports that a pod uses while it runs. Init containers count only if they are restartable.

    Source: `GetHostPorts` of kube-scheduler's util and `HostPortInfo` of its framework.
    """
    spec = pod.spec
    if spec.init_containers is None and not any(container.ports for container in spec.containers):
        return ()
    init = (one for one in spec.init_containers or () if one.restart_policy == "Always")
    return tuple(
        HostPort(port.host_ip or EVERY_ADDRESS, port.protocol or DEFAULT_PROTOCOL, port.host_port)
        for container in (*init, *spec.containers)
        for port in container.ports or ()
        if port.host_port > 0
    )


def any_conflict(requested: Iterable[HostPort], taken: Iterable[HostPort]) -> bool:
    """Return True if a wanted port conflicts with a used port."""
    held = tuple(taken)
    return any(one.conflicts(other) for one in requested for other in held)
