"""The resource requests of a pod, as a node accounts for them.

Source: k8s.io/component-helpers/resource `PodRequests`: the sum over containers and restartable init containers, or
the maximum over the sequence of init containers, whichever is larger. Pod-level cpu, memory and hugepages replace it
where set; overhead is added. In-place resize counts max(spec, status, allocated), and max(status, allocated) while the
resize is infeasible: of each container until 1.36, of the whole pod since 1.37.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from enum import Enum
from typing import Final

from batchsched.api.core.pod import Amounts, Container, ContainerStatus, Pod
from batchsched.api.core.quantity import format_quantity, parse_quantity_in_base_units

MAX_POD_AMOUNT: Final = 2**50
"""The largest request of one pod, in base units: 1 PiB, or 1.1e12 CPUs, so that sums over pods are exact."""
NONZERO_CPU: Final = 100
"""Milli-CPU that scoring assumes for a container that requests none."""
NONZERO_MEMORY: Final = 200 * 1024 * 1024
"""Bytes that scoring assumes for a container that requests none."""
DEFAULTS: Final[Mapping[str, int]] = {"cpu": NONZERO_CPU, "memory": NONZERO_MEMORY}
POD_LEVEL: Final = ("cpu", "memory")


class InPlaceResizeRequestRule(Enum):
    """How the requests of a pod during an in-place resize are computed: by container, or for the whole pod.

    BY_CONTAINER: for each container. Source: component-helpers v0.36.3, `determineEffectiveRequests`.
    BY_POD: for the whole pod. If the pod's status has allocated amounts and amounts in use, they replace the sums
      over container statuses. Source: component-helpers v0.37.2, `AggregateContainerRequests`.
    """

    BY_CONTAINER = "byContainer"
    BY_POD = "byPod"


def pod_requests(
    pod: Pod, resize: InPlaceResizeRequestRule = InPlaceResizeRequestRule.BY_CONTAINER
) -> dict[str, int]:
    """Return the total resource requests of a pod in base units, as a node accounts for them.

    Each amount of a pod on a node is at most `MAX_POD_AMOUNT`. A pending pod that requests more is refused.

    Raises:
      InvalidQuantity: an amount is not a quantity.
    """
    return _total(pod, defaults={}, resize=resize)


def describe_exceeded_request_limit(requests: Mapping[str, int]) -> str:
    """Return a sentence about the first resource of which a pod requests too much; "" if there is none.

    Args:
      requests: the total requests of the pod in base units, by resource.
    """
    for resource, amount in requests.items():
        if amount > MAX_POD_AMOUNT:
            return (
                f"spec.containers request {format_quantity(resource, amount)} of {resource} together, and "
                f"batchsched schedules pods with at most {format_quantity(resource, MAX_POD_AMOUNT)}; request less"
            )
    return ""


def requests_with_pod_count(pod: Pod) -> dict[str, int]:
    """Return the resources that a pod uses on its node: its requests, and 1 of the resource `pods`."""
    return {**pod_requests(pod), "pods": 1}


def nonzero_requests(
    pod: Pod, resize: InPlaceResizeRequestRule = InPlaceResizeRequestRule.BY_CONTAINER
) -> tuple[int, int]:
    """Return the milli-CPU and the bytes of memory that a pod requests, with defaults for missing requests.

    Scoring assumes the defaults for containers without a request.
    """
    total = _total(pod, _defaults(pod, resize), resize=resize)
    return total.get("cpu", 0), total.get("memory", 0)


def pending_pod_requests_for_scoring(pod: Pod) -> dict[str, int]:
    """Return a pending pod's requests for scoring: container requests plus overhead, no pod-level requests.

    For a container without a request for CPU or memory, the defaults of scoring count.

    kube-scheduler ignores pod-level requests here, although it counts them for pods on nodes.

    Source: `calculatePodResourceRequest` of kube-scheduler's plugins/noderesources, as recorded from 1.36.
    """
    return _total(pod, DEFAULTS, pod_level=False)


def pod_and_nonzero_requests(pod: Pod) -> tuple[dict[str, int], tuple[int, int]]:
    """Return the results of both `pod_requests` and `nonzero_requests` for a pod.

    The status of the pod must contain no amounts of resources.

    Raises:
      InvalidQuantity: an amount is not a quantity.
    """
    requests = pod_requests(pod)
    containers = (*pod.spec.containers, *(pod.spec.init_containers or ()))
    # Most pods request both everywhere: then no default applies, and the sums are not computed a second time.
    if all(map(_requests_scored_resources, containers)):
        return requests, (requests.get("cpu", 0), requests.get("memory", 0))
    return requests, nonzero_requests(pod)


def _requests_scored_resources(container: Container) -> bool:
    requests = container.resources.requests if container.resources else None
    return requests is not None and DEFAULTS.keys() <= requests.keys()


def _defaults(pod: Pod, resize: InPlaceResizeRequestRule) -> Mapping[str, int]:
    """Return the requests of CPU and memory that scoring assumes for a container without these requests.

    With pod-level requests, a default applies only to resources that no container requests; otherwise it applies to
    each container without a request.

    Source: `getNonMissingContainerRequests` of kube-scheduler's framework.
    """
    if not (pod.spec.resources and pod.spec.resources.requests):
        return DEFAULTS
    requested_resources = _sum(pod, {}, pod_level=True, resize=resize)
    return {resource: amount for resource, amount in DEFAULTS.items() if resource not in requested_resources}


def stated_requests_key(pod: Pod) -> Hashable:
    """Return a hashable key of the resource requests in a pod's spec: equal keys mean equal requests.

    The key consists of the spec's fields that determine the requests, with unparsed quantities. Pods with equal
    requests may have different keys, such as for `1` and `1000m` of CPU.
    """
    spec = pod.spec
    return (
        tuple(_container_requests(container) for container in spec.containers),
        tuple((one.restart_policy, _container_requests(one)) for one in spec.init_containers or ()),
        tuple(spec.resources.requests.items()) if spec.resources and spec.resources.requests else (),
        tuple(spec.overhead.items()) if spec.overhead else (),
    )


def status_may_override_requests(pod: Pod) -> bool:
    """Return whether the status of a bound pod may override the requests in its spec (in-place resize)."""
    if not pod.spec.node_name:
        return False
    status = pod.status
    if status.resources is not None or status.allocated_resources is not None:
        return True
    return _has_resources(status.container_statuses) or _has_resources(status.init_container_statuses)


def _has_resources(statuses: Iterable[ContainerStatus] | None) -> bool:
    return statuses is not None and any(
        status.resources is not None or status.allocated_resources is not None for status in statuses
    )


def _container_requests(container: Container) -> Hashable:
    resources = container.resources
    return tuple(resources.requests.items()) if resources and resources.requests else ()


def _total(
    pod: Pod,
    defaults: Mapping[str, int],
    *,
    pod_level: bool = True,
    resize: InPlaceResizeRequestRule = InPlaceResizeRequestRule.BY_CONTAINER,
) -> dict[str, int]:
    # The API server limits no sum over containers, and a pod may name its node when it is created.
    most = MAX_POD_AMOUNT if pod.node_name else math.inf
    return {
        resource: amount if amount <= most else MAX_POD_AMOUNT
        for resource, amount in _sum(pod, defaults, pod_level, resize).items()
        if amount
    }


def _sum(
    pod: Pod, defaults: Mapping[str, int], pod_level: bool, resize: InPlaceResizeRequestRule
) -> dict[str, int]:
    """Sum up requests. A request of 0 is kept, because it still names the resource."""
    spec = pod.spec
    if resize is InPlaceResizeRequestRule.BY_POD and pod.node_name:
        largest = _maximum_of_pod(pod, defaults)
        largest.update(_pod_level_on_node(pod))
        _add(largest, _read(spec.overhead))
        return largest
    statuses = _statuses(pod)
    infeasible = _resize_infeasible(pod)
    total: dict[str, int] = {}
    for container in spec.containers:
        _add(total, _container(container, statuses, infeasible, defaults))
    if spec.init_containers:
        _apply_init(
            total,
            spec.init_containers,
            lambda each: _container(each, statuses if _restarts(each) else {}, infeasible, defaults),
        )
    if pod_level:
        total.update(_pod_level(pod, infeasible))
    if spec.overhead:
        _add(total, _read(spec.overhead))
    return total


def _apply_init(
    total: dict[str, int], containers: Iterable[Container], read: Callable[[Container], dict[str, int]]
) -> None:
    """Add to `total` what init containers need: each runs with the restartable ones started before it."""
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in containers:
        container_requests = read(container)
        if _restarts(container):
            _add(total, container_requests)
            _add(sidecars, container_requests)
            _raise_to(peak, sidecars)
        else:
            moment = dict(container_requests)
            _add(moment, sidecars)
            _raise_to(peak, moment)
    _raise_to(total, peak)


def _restarts(container: Container) -> bool:
    return container.restart_policy == "Always"


def _container(
    container: Container,
    statuses: Mapping[str, ContainerStatus],
    infeasible: bool,
    defaults: Mapping[str, int],
) -> dict[str, int]:
    amounts = _read(container.resources.requests if container.resources else None)
    status = statuses.get(container.name)
    if status is not None:
        allocated = _read(status.resources.requests if status.resources else None)
        _raise_to(allocated, _read(status.allocated_resources))
        if infeasible:
            amounts = allocated
        else:
            _raise_to(amounts, allocated)
    for resource, amount in defaults.items():
        amounts.setdefault(resource, amount)
    return amounts


def _pod_level(pod: Pod, infeasible: bool) -> dict[str, int]:
    level, status = pod.spec.resources, pod.status.resources
    spec_requests = {
        resource: amount
        for resource, amount in _read(level.requests if level else None).items()
        if _is_pod_level(resource)
    }
    if not (pod.node_name and spec_requests and status):
        return spec_requests
    status_requests = _read(status.requests)
    _raise_to(status_requests, _read(pod.status.allocated_resources))
    if not infeasible:
        _raise_to(status_requests, spec_requests)
    return {resource: status_requests.get(resource, 0) for resource in spec_requests}


ContainerAmounts = Callable[[Container], Amounts | None]


def _maximum_of_pod(pod: Pod, defaults: Mapping[str, int]) -> dict[str, int]:
    """Return by resource the maximum of what a pod on a node requests, has allocated, and uses.

    While a resize is infeasible, the spec does not count.
    """
    status = pod.status
    infeasible = _resize_infeasible(pod)
    in_status = {one.name: one for one in status.init_container_statuses or ()}
    in_status |= {one.name: one for one in status.container_statuses or ()}

    def requested_amounts(container: Container) -> Amounts | None:
        return container.resources.requests if container.resources else None

    def allocated_amounts(container: Container) -> Amounts | None:
        reported = in_status.get(container.name)
        if reported is not None and reported.allocated_resources is not None:
            return reported.allocated_resources
        return None if infeasible else requested_amounts(container)

    def amounts_in_use(container: Container) -> Amounts | None:
        reported = in_status.get(container.name)
        if (
            reported is not None
            and reported.resources is not None
            and reported.resources.requests is not None
        ):
            return reported.resources.requests
        return allocated_amounts(container)

    used = status.resources.requests if status.resources else None
    if status.allocated_resources is not None and used is not None:
        amounts = [_read(status.allocated_resources), _read(used)]
    else:
        amounts = [
            _over_containers(pod, allocated_amounts, defaults),
            _over_containers(pod, amounts_in_use, defaults),
        ]
    total = {} if infeasible else _over_containers(pod, requested_amounts, defaults)
    for each in amounts:
        _raise_to(total, each)
    return total


def _over_containers(pod: Pod, amounts_of: ContainerAmounts, defaults: Mapping[str, int]) -> dict[str, int]:
    """Return the amounts that the containers of a pod need together at any moment."""

    def amounts_with_defaults(container: Container) -> dict[str, int]:
        return {**defaults, **_read(amounts_of(container))}

    total: dict[str, int] = {}
    for container in pod.spec.containers:
        _add(total, amounts_with_defaults(container))
    _apply_init(total, pod.spec.init_containers or (), amounts_with_defaults)
    return total


def _pod_level_on_node(pod: Pod) -> dict[str, int]:
    """Return the pod-level requests of a pod on a node: the maximum of spec, status and allocated amounts."""
    level, status = pod.spec.resources, pod.status.resources
    amounts = _read(level.requests if level else None)
    if not any(map(_is_pod_level, amounts)):
        return {}
    if status is not None:
        if _resize_infeasible(pod):
            amounts = {}
        _raise_to(amounts, _read(status.requests))
        _raise_to(amounts, _read(pod.status.allocated_resources))
    return {resource: amount for resource, amount in amounts.items() if _is_pod_level(resource)}


def _is_pod_level(resource: str) -> bool:
    return resource in POD_LEVEL or resource.startswith("hugepages-")


def _statuses(pod: Pod) -> dict[str, ContainerStatus]:
    if not pod.node_name:
        return {}
    both = (pod.status.container_statuses or ()) + (pod.status.init_container_statuses or ())
    return {status.name: status for status in both if status.resources is not None}


def _resize_infeasible(pod: Pod) -> bool:
    return any(
        condition.type == "PodResizePending" and condition.reason == "Infeasible"
        for condition in pod.status.conditions or ()
    )


def _read(amounts: Amounts | None) -> dict[str, int]:
    return {
        resource: parse_quantity_in_base_units(resource, text) for resource, text in (amounts or {}).items()
    }


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for resource, amount in more.items():
        total[resource] = total.get(resource, 0) + amount


def _raise_to(total: dict[str, int], least: Mapping[str, int]) -> None:
    for resource, amount in least.items():
        if resource not in total or amount > total[resource]:
            total[resource] = amount
