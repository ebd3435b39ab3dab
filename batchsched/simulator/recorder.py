"""Records the used and the requested resources over simulated time, for the cluster and for each queue."""

from collections.abc import Iterable

from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod, PodSpec
from batchsched.api.core.requests import pod_requests
from batchsched.simulator.result import ClusterSeries, QueueSeries

GPU_SUFFIX = "/gpu"


class UsageRecorder:
    """A recorder of the resources used and requested over simulated time, in the cluster and in each queue.

    For each time, it keeps a row of the cluster and a row of each queue that changed at this time.

    Args:
      nodes: the nodes that are up; they determine the R recorded resources.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        offered = [node.parse_allocatable_in_base_units() for node in nodes]
        names = {name for amounts in offered for name, amount in amounts.items() if amount and name != "pods"}
        self.resources = tuple(sorted(names))
        self._devices = [index for index, name in enumerate(self.resources) if name.endswith(GPU_SUFFIX)]
        self._requests_by_spec: dict[int, tuple[PodSpec, tuple[int, ...]]] = {}
        self._used = [0] * len(self.resources)
        self._total: tuple[int, ...] = ()
        self._allocated: dict[str, list[int]] = {}
        self._requested: dict[str, list[int]] = {}
        self._changed_queues: dict[str, None] = {}
        # A dict keeps one row for each time: the last row of a second replaces earlier ones in place.
        self._rows: dict[int, tuple[int, ...]] = {}
        self._queue_rows: dict[tuple[int, str], tuple[tuple[int, ...], tuple[int, ...]]] = {}
        self.set_nodes(nodes)

    def set_nodes(self, nodes: Iterable[Node]) -> None:
        """Set the available nodes; the recorded capacity is the sum of their allocatable amounts from now on."""
        offered = [node.parse_allocatable_in_base_units() for node in nodes]
        self._total = tuple(sum(amounts.get(name, 0) for amounts in offered) for name in self.resources)

    def requests_of_recorded_resources(self, pod: Pod) -> tuple[int, ...]:
        """Return the amounts that a pod requests of the recorded resources, in the order of `resources`.

        The amounts are in base units.
        """
        cached = self._requests_by_spec.get(id(pod.spec))
        if cached is None:
            amounts = pod_requests(pod)
            row = tuple(amounts.get(name, 0) for name in self.resources)
            # The spec is kept with its row, so that no other spec gets its identity.
            cached = self._requests_by_spec[id(pod.spec)] = (pod.spec, row)
        return cached[1]

    def count_gpus(self, pods: Iterable[Pod]) -> int:
        """Return the number of GPUs that these pods request together."""
        return sum(self.requests_of_recorded_resources(pod)[index] for pod in pods for index in self._devices)

    def gpus_or_pods_by_node(self, pods: Iterable[Pod]) -> tuple[tuple[str, int], ...]:
        """Return (node, GPU count) for each node of the pods, or (node, pod count) if none requests GPUs."""
        devices: dict[str, int] = {}
        counts: dict[str, int] = {}
        for pod in pods:
            node = pod.node_name
            devices[node] = devices.get(node, 0) + self.count_gpus((pod,))
            counts[node] = counts.get(node, 0) + 1
        chosen = devices if any(devices.values()) else counts
        return tuple((node, amount) for node, amount in chosen.items() if amount)

    def add_cluster_usage(self, pods: Iterable[Pod], sign: int = 1) -> None:
        """Add the requests of bound pods to the usage of the cluster; with sign -1, subtract them."""
        self._add(self._used, pods, sign)

    def add_queue_and_cluster_usage(self, queue: str, pods: Iterable[Pod], sign: int = 1) -> None:
        """Add the requests of bound pods to the usage of a queue and of the cluster; with sign -1, subtract them."""
        bound = tuple(pods)
        self.add_cluster_usage(bound, sign)
        self._add_to_queue(self._allocated, queue, bound, sign)

    def add_queue_requests(self, queue: str, pods: Iterable[Pod], sign: int = 1) -> None:
        """Add the requests of pods, pending or bound, to a queue's total; with sign -1, subtract them."""
        self._add_to_queue(self._requested, queue, pods, sign)

    def record_sample(self, now: int, waiting: int, running: int) -> None:
        """Record the present usage of the cluster, and of each queue that changed since the last sample."""
        self._rows[now] = (waiting, running, *self._used, *self._total)
        nothing = [0] * len(self.resources)
        for queue in self._changed_queues:
            allocated, requested = self._allocated.get(queue, nothing), self._requested.get(queue, nothing)
            self._queue_rows[now, queue] = (tuple(allocated), tuple(requested))
        self._changed_queues.clear()

    def cluster_series(self) -> ClusterSeries:
        """Return the recorded usage of the whole cluster, with a row for each time of a sample."""
        width = len(self.resources)
        waiting, running, *amounts = (
            zip(*self._rows.values(), strict=True) if self._rows else [()] * (2 + 2 * width)
        )
        return ClusterSeries(
            times=tuple(self._rows),
            waiting=waiting,
            running=running,
            used=dict(zip(self.resources, amounts[:width], strict=True)),
            total=dict(zip(self.resources, amounts[width:], strict=True)),
        )

    def queue_series(self) -> QueueSeries:
        """Return the recorded usage and requests of all queues, with a row for each change of a queue."""
        return QueueSeries(
            self.resources,
            times=tuple(time for time, _ in self._queue_rows),
            queues=tuple(queue for _, queue in self._queue_rows),
            held=tuple(allocated for allocated, _ in self._queue_rows.values()),
            requested=tuple(requested for _, requested in self._queue_rows.values()),
        )

    def _add_to_queue(
        self, amounts: dict[str, list[int]], queue: str, pods: Iterable[Pod], sign: int
    ) -> None:
        self._add(amounts.setdefault(queue, [0] * len(self.resources)), pods, sign)
        self._changed_queues[queue] = None

    def _add(self, amounts: list[int], pods: Iterable[Pod], sign: int) -> None:
        for pod in pods:
            for index, amount in enumerate(self.requests_of_recorded_resources(pod)):
                amounts[index] += sign * amount
