"""The rule that states which pods count against a queue, and the tally of the resources that each queue uses.

A pod counts against a queue if it is bound or assumed, has not finished, and belongs to this scheduler: one of the
profiles schedules it, or one of its labels names a PodGroup or a queue. A terminating pod holds its resources until it
is gone, so it counts until then. `api.queue_access` defines the queue for which a pod counts.

The requests of a pending pod are demand of its queue only if the queue selects the pod's namespace.

A running scheduler has no other rule and no other tally: queue limits, entitlements, Queue status, metrics, the web
page and the usage history of a standby replica follow this rule.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Final

from batchsched.api.core.pod import POD_GROUP_LABEL, QUEUE_LABEL, Pod
from batchsched.api.core.requests import pod_requests, status_may_override_requests
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.queue_access import QueueAccess, stated_queue_name

POD_COUNT: Final = "pods"
"""Resource name under which pods themselves are counted, as nodes offer it."""
MAX_CACHED_REQUESTS: Final = 10_000
"""Maximum number of different pod templates with cached sums of requests."""
MAX_CACHED_PARTS: Final = 64
"""A template has its sum cached if it has at most this number of containers and requested resources together."""

ResourceUsage = Mapping[tuple[str, str], tuple[int, int]]
"""(queue, resource) → requests of bound or assumed pods, and requests of pending pods, in base units."""


def counts_against_queue(pod: Pod, scheduler_names: Container[str]) -> bool:
    """Return whether a pod counts against its queue: as usage if the pod has a node, otherwise as demand.

    Args:
      pod: The pod; a pod that terminates counts until it is deleted.
      scheduler_names: The scheduler names of the profiles.
    """
    if pod.finished:
        return False
    if pod.spec.scheduler_name in scheduler_names:
        return True
    labels = pod.labels
    return POD_GROUP_LABEL in labels or QUEUE_LABEL in labels


Origin = tuple[str, str]
"""The (queue, namespace) of pods; the queue is "" if it is the default queue of the namespace."""
AmountsByOrigin = dict[Origin, Counter[str]]


class QueueUsageTally:
    """The resource requests of pods, summed up by queue. Usage of descendant queues is not included.

    Args:
      scheduler_names: The scheduler names of the profiles.
      access: Returns which namespaces may use which queue at present.
    """

    def __init__(
        self, scheduler_names: Container[str], access: Callable[[], QueueAccess] = QueueAccess
    ) -> None:
        self._scheduler_names = scheduler_names
        self._access = access
        self._cached_requests: dict[tuple[int, ...], tuple[tuple[object, ...], dict[str, int]]] = {}
        """Sums by the ids of parts of a spec; the entry holds these parts, so that no other part can get these ids."""
        # By namespace as well: a change of a Queue or a Namespace then needs no new count.
        self._allocated: AmountsByOrigin = {}
        self._requested: AmountsByOrigin = {}

    @property
    def allocated_by_queue(self) -> dict[str, Counter[str]]:
        """The requests of bound and assumed pods in base units, summed up by queue and resource. Zeros are left out."""
        return self._sum_by_queue(self._allocated, selected_only=False)

    @property
    def pending_requests_by_queue(self) -> dict[str, Counter[str]]:
        """The requests of pending pods in base units, summed up by queue and resource. Zeros are left out.

        Pods of namespaces that the queue does not select are left out.
        """
        return self._sum_by_queue(self._requested, selected_only=True)

    def _sum_by_queue(
        self, amounts_by_origin: AmountsByOrigin, *, selected_only: bool
    ) -> dict[str, Counter[str]]:
        """Return the sums by queue, of all namespaces or only of those that the queue selects."""
        access = self._access()
        by_queue: dict[str, Counter[str]] = {}
        for (named_queue, namespace), amounts in amounts_by_origin.items():
            queue = named_queue or access.default_queue_name(namespace)
            if not selected_only or access.allows_namespace(queue, namespace):
                by_queue.setdefault(queue, Counter()).update(amounts)
        return by_queue

    def add_pod(self, pod: Pod, pod_group: PodGroup | None) -> None:
        """Add the requests of a pod to the sums of its queue."""
        self._change(pod, stated_queue_name(pod_group, pod), 1)

    def remove_pod(self, pod: Pod, pod_group: PodGroup | None) -> None:
        """Subtract the requests of a pod from the sums of its queue.

        The arguments must equal those with which `add_pod` was called for the pod.
        """
        self._change(pod, stated_queue_name(pod_group, pod), -1)

    def move_pods_to_their_queue(
        self, pods: Iterable[Pod], before: PodGroup | None, after: PodGroup | None
    ) -> None:
        """Move the requests of pods to the right queue after their PodGroup was added, changed or deleted."""
        for pod in pods:
            self.remove_pod(pod, before)
            self.add_pod(pod, after)

    def usage_and_demand_by_queue_and_resource(self) -> ResourceUsage:
        """Return a copy of the usage and demand by (queue, resource), which later changes do not affect."""
        allocated, requested = self.allocated_by_queue, self.pending_requests_by_queue
        keys = {
            (queue, resource)
            for amounts_by_queue in (allocated, requested)
            for queue, amounts in amounts_by_queue.items()
            for resource in amounts
        }
        empty: Counter[str] = Counter()
        return {
            (queue, resource): (
                allocated.get(queue, empty)[resource],
                requested.get(queue, empty)[resource],
            )
            for queue, resource in sorted(keys)
        }

    def _change(self, pod: Pod, queue: str, sign: int) -> None:
        # No session places a pending pod that terminates, so its requests are no demand.
        if not counts_against_queue(pod, self._scheduler_names) or (pod.terminating and not pod.node_name):
            return
        by_origin, origin = (self._allocated if pod.node_name else self._requested), (queue, pod.namespace)
        amounts = by_origin.get(origin)
        if amounts is None:
            amounts = by_origin[origin] = Counter()
        for resource, amount in self._requests(pod).items():
            amounts[resource] += sign * amount
            if not amounts[resource]:
                del amounts[resource]
        if not amounts:
            del by_origin[origin]

    def _requests(self, pod: Pod) -> dict[str, int]:
        """Return the requests of a pod with the pod count.

        Most pods come from few templates, so sums are cached by the parts of the spec that state requests. A pod with
        a node shares them with its pending version. A resized pod counts for what its status says, so it has its own
        sum.
        """
        if status_may_override_requests(pod):
            return {POD_COUNT: 1, **pod_requests(pod)}
        spec = pod.spec
        parts = (spec.containers, spec.init_containers, spec.resources, spec.overhead)
        key = tuple(map(id, parts))
        cached = self._cached_requests.get(key)
        if cached is not None:
            return cached[1]
        requests = {POD_COUNT: 1, **pod_requests(pod)}
        # The cache outlives the pods, so it holds no large parts.
        if len(spec.containers) + len(spec.init_containers or ()) + len(requests) <= MAX_CACHED_PARTS:
            if len(self._cached_requests) >= MAX_CACHED_REQUESTS:
                self._cached_requests.clear()
            self._cached_requests[key] = (parts, requests)
        return requests
