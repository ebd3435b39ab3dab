"""The meter: what is used and what is offered, moment by moment."""

from collections.abc import Iterable

from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod, PodSpec
from batchsched.api.core.requests import requests
from batchsched.simulator.result import Series

GPU_SUFFIX = "/gpu"


class UtilizationRecorder:
    """Adds up requests of bound pods, by resource, and keeps a row for each moment.

    Args:
      nodes: that are up; they say which resources are metered.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.resources: tuple[str, ...] = ()
        self._known: dict[int, tuple[PodSpec, dict[str, int]]] = {}
        self._rows: list[tuple[int, ...]] = []
        self._total: tuple[int, ...] = ()
        offered = [node.allocatable() for node in nodes]
        names = {name for one in offered for name, amount in one.items() if amount and name != "pods"}
        self.resources = tuple(sorted(names))
        self._devices = tuple(name for name in self.resources if name.endswith(GPU_SUFFIX))
        self._used = dict.fromkeys(self.resources, 0)
        self.offer(nodes)

    def offer(self, nodes: Iterable[Node]) -> None:
        """Take in which nodes are up now."""
        offered = [node.allocatable() for node in nodes]
        self._total = tuple(sum(one.get(name, 0) for one in offered) for name in self.resources)

    def requests(self, pod: Pod) -> dict[str, int]:
        """Return what a pod asks for, in base units."""
        known = self._known.get(id(pod.spec))
        if known is None:
            asked = {name: amount for name, amount in requests(pod).items() if name in self._used}
            known = self._known[id(pod.spec)] = (pod.spec, asked)
        return known[1]

    def gpus(self, pods: Iterable[Pod]) -> int:
        """Return how many devices pods ask for together."""
        if not self._devices:
            return 0
        return sum(self.requests(pod).get(name, 0) for pod in pods for name in self._devices)

    def units(self, pods: Iterable[Pod]) -> tuple[tuple[str, int], ...]:
        """Return (node, units there) of bound pods: devices where they ask for any, else pods."""
        devices: dict[str, int] = {}
        counts: dict[str, int] = {}
        for pod in pods:
            node = pod.node
            devices[node] = devices.get(node, 0) + self.gpus((pod,))
            counts[node] = counts.get(node, 0) + 1
        chosen = devices if any(devices.values()) else counts
        return tuple((node, amount) for node, amount in chosen.items() if amount)

    def add(self, pods: Iterable[Pod], sign: int = 1) -> None:
        """Count pods that were bound, or, with sign -1, that are gone."""
        used = self._used
        for pod in pods:
            for name, amount in self.requests(pod).items():
                used[name] += sign * amount

    def sample(self, now: int, waiting: int, running: int) -> None:
        """Keep the moment; of several rows of one second the last stays."""
        row = (now, waiting, running, *self._used.values(), *self._total)
        if self._rows and self._rows[-1][0] == now:
            self._rows[-1] = row
        else:
            self._rows.append(row)

    def series(self) -> Series:
        """Return the columns."""
        columns = list(zip(*self._rows, strict=True)) or [()] * (3 + 2 * len(self.resources))
        width = len(self.resources)
        return Series(
            times=columns[0],
            waiting=columns[1],
            running=columns[2],
            used=dict(zip(self.resources, columns[3 : 3 + width], strict=True)),
            total=dict(zip(self.resources, columns[3 + width :], strict=True)),
        )
