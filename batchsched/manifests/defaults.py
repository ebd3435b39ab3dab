"""Defaults that the API server sets, as far as scheduling depends on them.

Source: k8s.io/kubernetes/pkg/apis/core/v1/defaults.go: limits become requests where these are absent, for containers
and for the pod as a whole; with hostNetwork, every container port is a host port.
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from batchsched.api.core.pod import Amounts, Container, PodSpec, ResourceRequirements
from batchsched.api.core.volume import StorageClass, Volume


def with_defaults(spec: PodSpec) -> PodSpec:
    """Return a pod's spec with the defaults of the API server, without volumes that scheduling ignores."""
    containers = tuple(_container(one, spec.host_network) for one in spec.containers)
    init = tuple(_container(one, spec.host_network) for one in spec.init_containers or ())
    volumes = tuple(volume for volume in spec.volumes or () if volume != Volume(name=volume.name))
    return replace(
        spec,
        containers=containers,
        init_containers=init or None,
        volumes=volumes or None,
        resources=_pod_level(spec.resources, (*containers, *init)),
    )


def with_binding_mode(storage_class: StorageClass) -> StorageClass:
    """Return a StorageClass with its binding mode; the default is Immediate."""
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
    stated = resources.requests or {}
    missing = {resource: amount for resource, amount in (limits or {}).items() if resource not in stated}
    return replace(resources, requests={**stated, **missing}) if missing else resources


def _pod_level(
    resources: ResourceRequirements | None, containers: Iterable[Container]
) -> ResourceRequirements | None:
    """Set the pod-level requests from the pod-level limits, except for resources that a container requests."""
    if resources is None:
        return None
    asked = {resource for one in containers if one.resources for resource in one.resources.requests or ()}
    limits: Amounts = {
        resource: amount for resource, amount in (resources.limits or {}).items() if resource not in asked
    }
    return _requested(resources, limits)
