"""The defaults that the API server sets in an object, and its validation, for objects from files.

Defaults: limits become requests where these are absent, for containers and for the pod as a whole; with hostNetwork,
every container port is a host port. Validation: what msgspec does not check, such as amounts, selectors and ranges. A
manifest in a file was not validated by an API server. An object that passes these checks cannot break a session.

Source: k8s.io/kubernetes/pkg/apis/core/v1/defaults.go for the defaults.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from batchsched.api.core.metadata import format_timestamp
from batchsched.api.core.node import Node
from batchsched.api.core.pod import (
    Amounts,
    Container,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    Toleration,
    TopologySpreadConstraint,
)
from batchsched.api.core.quantity import format_quantity, parse_quantity_in_base_units
from batchsched.api.core.requests import MAX_POD_AMOUNT
from batchsched.api.core.selector import LabelSelector, NodeSelector, SelectorRequirement
from batchsched.api.core.volume import StorageClass, Volume
from batchsched.api.snapshot import Snapshot
from batchsched.api.template_claims import with_template_claims_of_hypothetical_pods
from batchsched.errors import InvalidInput, InvalidQuantity


def pod_spec_with_defaults(spec: PodSpec) -> PodSpec:
    """Return a pod spec with the defaults that the API server sets; drop volumes that scheduling ignores."""
    containers = tuple(_container(container, spec.host_network) for container in spec.containers)
    init = tuple(_container(container, spec.host_network) for container in spec.init_containers or ())
    volumes = tuple(volume for volume in spec.volumes or () if volume != Volume(name=volume.name))
    return replace(
        spec,
        containers=containers,
        init_containers=init or None,
        volumes=volumes or None,
        resources=_pod_level(spec.resources, (*containers, *init)),
    )


def snapshot_with_creation_times_and_claims(snapshot: Snapshot, now: float) -> Snapshot:
    """Return the Snapshot with the creation times and the pods' ResourceClaims that a cluster would add."""
    return _with_creation_times(with_template_claims_of_hypothetical_pods(snapshot), now)


def _with_creation_times(snapshot: Snapshot, now: float) -> Snapshot:
    """Return the snapshot with the creation time `now` for PodGroups and pending pods that have none.

    The API server sets creation times. An object in a file without one does not exist yet, so it is the youngest.
    Bound pods are unchanged, because their age determines how long they have run.

    Args:
      snapshot: the objects in files.
      now: seconds since 1970.
    """
    created = format_timestamp(now)
    pods, groups = snapshot.pods, snapshot.pod_groups
    if any(_is_unborn(pod) for pod in pods):
        pods = tuple(_born(pod, created) if _is_unborn(pod) else pod for pod in pods)
    if any(group.metadata.creation_timestamp is None for group in groups):
        groups = tuple(
            group
            if group.metadata.creation_timestamp is not None
            else group.model_copy(
                update={"metadata": group.metadata.model_copy(update={"creation_timestamp": created})}
            )
            for group in groups
        )
    return dataclasses.replace(snapshot, pods=pods, pod_groups=groups)


def _is_unborn(pod: Pod) -> bool:
    return not pod.node_name and pod.metadata.creation_timestamp is None


def _born(pod: Pod, created: str) -> Pod:
    return replace(pod, metadata=replace(pod.metadata, creation_timestamp=created))


def storage_class_with_default_binding_mode(storage_class: StorageClass) -> StorageClass:
    """Return a StorageClass with the volume binding mode Immediate if it states no mode."""
    if storage_class.volume_binding_mode is not None:
        return storage_class
    return replace(storage_class, volume_binding_mode="Immediate")


def _container(container: Container, host_network: bool) -> Container:
    resources = container.resources
    if resources is not None:
        resources = _requested(resources, resources.limits)
    ports = container.ports
    if host_network and ports:
        ports = tuple(replace(port, host_port=port.host_port or port.container_port) for port in ports)
    if resources is container.resources and ports is container.ports:
        return container
    return replace(container, resources=resources, ports=ports)


def _requested(
    resources: ResourceRequirements, limits: Mapping[str, str | int | float] | None
) -> ResourceRequirements:
    requests = resources.requests or {}
    missing = {resource: amount for resource, amount in (limits or {}).items() if resource not in requests}
    return replace(resources, requests={**requests, **missing}) if missing else resources


def _pod_level(
    resources: ResourceRequirements | None, containers: Iterable[Container]
) -> ResourceRequirements | None:
    """Return pod-level resources in which limits become requests, unless containers request the resource."""
    if resources is None:
        return None
    requested_resources = {
        resource
        for container in containers
        if container.resources
        for resource in container.resources.requests or ()
    }
    limits: Amounts = {
        resource: amount
        for resource, amount in (resources.limits or {}).items()
        if resource not in requested_resources
    }
    return _requested(resources, limits)


LARGEST_INT32: Final = 2**31 - 1
_LABEL_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
_NODE_OPERATORS: Final = (*_LABEL_OPERATORS, "Gt", "Lt")
_UNSATISFIABLE: Final = ("DoNotSchedule", "ScheduleAnyway")
_TOLERATION_OPERATORS: Final = ("", "Equal", "Exists")
_EFFECTS: Final = ("", "NoSchedule", "PreferNoSchedule", "NoExecute")
_HEAVIEST_PREFERENCE: Final = 100
_MAX_SHOWN_CHARACTERS: Final = 40
"""Characters of an invalid value that a message quotes."""


MAX_NODE_AMOUNT: Final = 2**53
"""The largest amount of a node, in base units."""
_MAX_INT64: Final = 2**63 - 1


def check_resource_quantities(amounts: Amounts | None, field: str, most: int = _MAX_INT64) -> None:
    """Check that each resource quantity is valid, at least 0, and at most the maximum `most`.

    The maximum is in base units of the resource, such as milli-CPU or bytes.

    Raises:
      InvalidInput: an amount is not a quantity, is negative, or is too large.
    """
    for resource, text in (amounts or {}).items():
        check_resource_quantity(resource, text, f"{field}.{resource}", most)


def check_resource_quantity(
    resource: str, text: str | int | float, field: str, most: int = _MAX_INT64
) -> None:
    """Check that the quantity of one resource is valid, at least 0, and at most the maximum `most`.

    The maximum is in base units of the resource, such as milli-CPU or bytes.

    Raises:
      InvalidInput: the text is not a quantity, is negative, or is too large.
    """
    try:
        amount = parse_quantity_in_base_units(resource, text)
    except InvalidQuantity as error:
        raise InvalidInput(error.message, field=field) from error
    if amount < 0:
        raise InvalidInput(
            f"{str(text)!r} is negative; expected 0 or more, such as 500m, 4 or 1.5Gi", field=field
        )
    if amount > most:
        raise InvalidInput(
            f"{str(text)[:_MAX_SHOWN_CHARACTERS]!r} is more than any cluster has; expected at most "
            f"{format_quantity(resource, most)}",
            field=field,
        )


def check_node(node: Node) -> None:
    """Check that the resource quantities and the taint effects of a node are valid.

    Raises:
      InvalidInput: an amount or a taint is invalid.
    """
    check_resource_quantities(node.status.allocatable, "status.allocatable", MAX_NODE_AMOUNT)
    check_resource_quantities(node.status.capacity, "status.capacity", MAX_NODE_AMOUNT)
    for index, taint in enumerate(node.taints):
        _one_of(taint.effect, _EFFECTS[1:], f"spec.taints[{index}].effect")


def check_pod_spec(spec: PodSpec) -> None:
    """Check the fields of a pod spec that scheduling reads, as the API server validates them.

    Raises:
      InvalidInput: a field is invalid or out of range.
    """
    _check_containers(spec.containers, "spec.containers")
    _check_containers(spec.init_containers or (), "spec.initContainers")
    _check_resources(spec.resources, "spec.resources")
    check_resource_quantities(spec.overhead, "spec.overhead", MAX_POD_AMOUNT)
    if spec.priority is not None:
        check_int32(spec.priority, "spec.priority")
    for index, toleration in enumerate(spec.tolerations or ()):
        _check_toleration(toleration, f"spec.tolerations[{index}]")
    for index, constraint in enumerate(spec.topology_spread_constraints or ()):
        _check_spread(constraint, f"spec.topologySpreadConstraints[{index}]")
    if spec.affinity is not None:
        _check_node_affinity(spec)
        _check_pod_affinity(spec.affinity.pod_affinity, "spec.affinity.podAffinity")
        _check_pod_affinity(spec.affinity.pod_anti_affinity, "spec.affinity.podAntiAffinity")


def check_pod_status(status: PodStatus) -> None:
    """Check that the resource quantities in the status of a pod are valid.

    Raises:
      InvalidInput: an amount is invalid.
    """
    _check_resources(status.resources, "status.resources")
    check_resource_quantities(status.allocated_resources, "status.allocatedResources", MAX_POD_AMOUNT)
    for name, statuses in (
        ("containerStatuses", status.container_statuses),
        ("initContainerStatuses", status.init_container_statuses),
    ):
        for index, container_status in enumerate(statuses or ()):
            _check_resources(container_status.resources, f"status.{name}[{index}].resources")
            check_resource_quantities(
                container_status.allocated_resources,
                f"status.{name}[{index}].allocatedResources",
                MAX_POD_AMOUNT,
            )


def check_int32(value: int, field: str) -> None:
    """Check that a number fits in the 32 bits with which Kubernetes stores it.

    Raises:
      InvalidInput: the number does not fit.
    """
    if not -LARGEST_INT32 - 1 <= value <= LARGEST_INT32:
        raise InvalidInput(f"expected a number of 32 bits, found {value}", field=field)


def check_label_selector(selector: LabelSelector | None, field: str) -> None:
    """Check the keys, operators and values of a label selector.

    Raises:
      InvalidInput: an expression is invalid.
    """
    if selector is not None:
        _check_expressions(selector.match_expressions or (), _LABEL_OPERATORS, f"{field}.matchExpressions")


def check_node_selector(selector: NodeSelector | None, field: str) -> None:
    """Check the keys, operators and values of a node selector.

    Raises:
      InvalidInput: an expression is invalid.
    """
    for index, term in enumerate(selector.node_selector_terms if selector else ()):
        place = f"{field}.nodeSelectorTerms[{index}]"
        _check_expressions(term.match_expressions or (), _NODE_OPERATORS, f"{place}.matchExpressions")
        _check_expressions(term.match_fields or (), ("In", "NotIn"), f"{place}.matchFields")


def _check_containers(containers: Iterable[Container], field: str) -> None:
    for index, container in enumerate(containers):
        if container.resources is not None:
            _check_resources(container.resources, f"{field}[{index}].resources")


def _check_resources(resources: ResourceRequirements | None, field: str) -> None:
    if resources is not None:
        check_resource_quantities(resources.requests, f"{field}.requests", MAX_POD_AMOUNT)
        check_resource_quantities(resources.limits, f"{field}.limits")


def _check_toleration(toleration: Toleration, field: str) -> None:
    _one_of(toleration.operator, _TOLERATION_OPERATORS, f"{field}.operator")
    _one_of(toleration.effect, _EFFECTS, f"{field}.effect")


def _check_spread(constraint: TopologySpreadConstraint, field: str) -> None:
    if not 1 <= constraint.max_skew <= LARGEST_INT32:
        raise InvalidInput(f"expected 1 or more, found {constraint.max_skew}", field=f"{field}.maxSkew")
    if constraint.min_domains is not None and not 1 <= constraint.min_domains <= LARGEST_INT32:
        raise InvalidInput(f"expected 1 or more, found {constraint.min_domains}", field=f"{field}.minDomains")
    _one_of(constraint.when_unsatisfiable, _UNSATISFIABLE, f"{field}.whenUnsatisfiable")
    _present(constraint.topology_key, f"{field}.topologyKey")
    check_label_selector(constraint.label_selector, f"{field}.labelSelector")


def _check_node_affinity(spec: PodSpec) -> None:
    affinity = spec.affinity.node_affinity if spec.affinity else None
    if affinity is None:
        return
    field = "spec.affinity.nodeAffinity"
    required = affinity.required_during_scheduling_ignored_during_execution
    check_node_selector(required, f"{field}.requiredDuringSchedulingIgnoredDuringExecution")
    for index, term in enumerate(affinity.preferred_during_scheduling_ignored_during_execution or ()):
        place = f"{field}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
        _check_weight(term.weight, f"{place}.weight")
        check_node_selector(NodeSelector(node_selector_terms=(term.preference,)), f"{place}.preference")


def _check_pod_affinity(affinity: PodAffinity | None, field: str) -> None:
    if affinity is None:
        return
    for index, term in enumerate(affinity.required_terms):
        _check_term(term, f"{field}.requiredDuringSchedulingIgnoredDuringExecution[{index}]")
    for index, weighted in enumerate(affinity.preferred_terms):
        place = f"{field}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
        _check_weight(weighted.weight, f"{place}.weight")
        _check_term(weighted.pod_affinity_term, f"{place}.podAffinityTerm")


def _check_term(term: PodAffinityTerm, field: str) -> None:
    _present(term.topology_key, f"{field}.topologyKey")
    check_label_selector(term.label_selector, f"{field}.labelSelector")
    check_label_selector(term.namespace_selector, f"{field}.namespaceSelector")


def _check_weight(weight: int, field: str) -> None:
    if not 1 <= weight <= _HEAVIEST_PREFERENCE:
        raise InvalidInput(f"expected 1 to {_HEAVIEST_PREFERENCE}, found {weight}", field=field)


def _check_expressions(
    expressions: Iterable[SelectorRequirement], operators: tuple[str, ...], field: str
) -> None:
    for index, expression in enumerate(expressions):
        place = f"{field}[{index}]"
        _present(expression.key, f"{place}.key")
        _one_of(expression.operator, operators, f"{place}.operator")
        count = len(expression.values or ())
        if expression.operator in ("In", "NotIn") and count == 0:
            raise InvalidInput(f"{expression.operator} needs at least one value", field=f"{place}.values")
        if expression.operator in ("Gt", "Lt") and count != 1:
            raise InvalidInput(f"{expression.operator} needs exactly one value", field=f"{place}.values")


def _present(value: str, field: str) -> None:
    if not value:
        raise InvalidInput("is required; add it", field=field)


def _one_of(value: str, allowed: Iterable[str], field: str) -> None:
    if value not in allowed:
        expected = ", ".join(value_allowed for value_allowed in allowed if value_allowed)
        raise InvalidInput(f"expected one of {expected}; found {value!r}", field=field)
