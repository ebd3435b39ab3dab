"""Records used and allocatable amounts over time."""

from collections.abc import Iterable

from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod, PodSpec
from batchsched.api.core.requests import requests
from batchsched.simulator.result import Series

GPU_SUFFIX = "/gpu"


class UtilizationRecorder:
    """Adds up requests of bound pods by resource, and records a row for each time.

    Args:
      nodes: the nodes that are up; they determine the recorded resources.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.resources: tuple[str, ...] = ()
        self._requests_by_spec: dict[int, tuple[PodSpec, dict[str, int]]] = {}
        self._rows: list[tuple[int, ...]] = []
        self._total: tuple[int, ...] = ()
        offered = [node.allocatable() for node in nodes]
        names = {name for amounts in offered for name, amount in amounts.items() if amount and name != "pods"}
        self.resources = tuple(sorted(names))
        self._devices = tuple(name for name in self.resources if name.endswith(GPU_SUFFIX))
        self._used = dict.fromkeys(self.resources, 0)
        self.offer(nodes)

    def offer(self, nodes: Iterable[Node]) -> None:
        """Set the nodes that are up."""
        offered = [node.allocatable() for node in nodes]
        self._total = tuple(sum(amounts.get(name, 0) for amounts in offered) for name in self.resources)

    def requests(self, pod: Pod) -> dict[str, int]:
        """Return the requests of a pod in base units."""
        cached = self._requests_by_spec.get(id(pod.spec))
        if cached is None:
            amounts = {name: amount for name, amount in requests(pod).items() if name in self._used}
            cached = self._requests_by_spec[id(pod.spec)] = (pod.spec, amounts)
        return cached[1]

    def gpus(self, pods: Iterable[Pod]) -> int:
        """Return the number of devices that pods request together."""
        if not self._devices:
            return 0
        return sum(self.requests(pod).get(name, 0) for pod in pods for name in self._devices)

    def units(self, pods: Iterable[Pod]) -> tuple[tuple[str, int], ...]:
        """Return (node, number of units) of bound pods: devices if the pods request any, otherwise pods."""
        devices: dict[str, int] = {}
        counts: dict[str, int] = {}
        for pod in pods:
            node = pod.node
            devices[node] = devices.get(node, 0) + self.gpus((pod,))
            counts[node] = counts.get(node, 0) + 1
        chosen = devices if any(devices.values()) else counts
        return tuple((node, amount) for node, amount in chosen.items() if amount)

    def add(self, pods: Iterable[Pod], sign: int = 1) -> None:
        """Count pods that were bound, or, with sign -1, removed."""
        used = self._used
        for pod in pods:
            for name, amount in self.requests(pod).items():
                used[name] += sign * amount

    def sample(self, now: int, waiting: int, running: int) -> None:
        """Record a row. The last row within one second replaces earlier ones."""
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
