"""The checks with which the API server admits a new object, applied to manifests in files.

A manifest in a file may contain an object that no cluster accepts, such as a pod that requests half a GPU. If it were
scheduled, a test with files would promise what the cluster refuses. Objects that a cluster has are not checked again: a
later version of Kubernetes may be stricter than the one that accepted them.

Only fields that are stated are checked. Names and images of containers may be missing, and so may the limit of an
extended resource: scheduling does not need them, and manifests for tests often leave them out.

Source: `pkg/apis/core/validation` of Kubernetes 1.36, and `validation` of k8s.io/apimachinery.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from batchsched.api.core.cluster_objects import Namespace, PriorityClass
from batchsched.api.core.metadata import LONGEST_LABEL, ObjectMeta, is_label_value
from batchsched.api.core.node import Node
from batchsched.api.core.pod import Amounts, Container, PodSpec, ResourceRequirements, Toleration
from batchsched.api.core.quantity import parse_quantity, parse_quantity_in_base_units
from batchsched.api.crd.base import CustomMeta
from batchsched.errors import InvalidInput

_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LONGEST_SUBDOMAIN: Final = 253
_STANDARD_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage")
_HUGE_PAGES: Final = "hugepages-"
_LARGEST_USER_PRIORITY: Final = 1_000_000_000
_LARGEST_PORT: Final = 65535
_MAX_SHOWN_CHARACTERS: Final = 60


def check_object_at_creation(decoded: Any) -> None:
    """Check an object as the API server does at its creation, but do not check pod specs.

    Raises:
      InvalidInput: the API server would reject the object.
    """
    _check_metadata(decoded.metadata, kind=type(decoded))
    match decoded:
        case Node():
            _check_node_taints(decoded)
        case PriorityClass():
            _check_priority_class(decoded)
        case _:
            pass


def _check_metadata(metadata: ObjectMeta | CustomMeta, *, kind: type) -> None:
    """Check the name, the namespace, and the keys and values of labels and annotations of an object.

    Raises:
      InvalidInput: the API server would reject the metadata.
    """
    name, longest = metadata.name, _LONGEST_SUBDOMAIN
    is_valid = _SUBDOMAIN.fullmatch(name) is not None
    if kind is Namespace:
        is_valid, longest = _is_dns_label(name), LONGEST_LABEL
    if not is_valid or len(name) > longest:
        raise InvalidInput(
            f"{_shown(name)} is no name; expected at most {longest} lower-case letters, digits, '-' and '.', with a "
            "letter or digit at the beginning and at the end",
            field="metadata.name",
        )
    if metadata.namespace and not _is_dns_label(metadata.namespace):
        raise InvalidInput(
            f"{_shown(metadata.namespace)} is no name of a namespace; expected at most {LONGEST_LABEL} lower-case "
            "letters, digits and '-'",
            field="metadata.namespace",
        )
    for key, value in (metadata.labels or {}).items():
        _check_key(key, "metadata.labels")
        _check_label_value(value, f"metadata.labels[{key}]")
    for key in metadata.annotations or ():
        # Unlike a label key, the prefix of an annotation key may have capital letters.
        _check_key(key.lower(), "metadata.annotations")


def check_pod_spec_at_creation(spec: PodSpec) -> None:
    """Check the fields of a pod spec that scheduling reads, as the API server does at the pod's creation.

    Raises:
      InvalidInput: the API server would reject the spec.
    """
    _check_containers(spec.containers, "spec.containers")
    _check_containers(spec.init_containers or (), "spec.initContainers")
    names = [
        container.name for container in (*spec.containers, *(spec.init_containers or ())) if container.name
    ]
    for name in names:
        if names.count(name) > 1:
            raise InvalidInput(
                f"two containers are named {_shown(name)}; give each a name of its own",
                field="spec.containers",
            )
    if spec.resources is not None:
        _check_requests_and_limits(spec.resources, "spec.resources")
    for key, value in (spec.node_selector or {}).items():
        _check_key(key, "spec.nodeSelector")
        _check_label_value(value, f"spec.nodeSelector[{key}]")
    for index, toleration in enumerate(spec.tolerations or ()):
        _check_toleration(toleration, f"spec.tolerations[{index}]")
    _check_spread_constraints(spec)


def _check_node_taints(node: Node) -> None:
    """Check the keys and values of a node's taints, as the API server checks them when the node is created.

    Raises:
      InvalidInput: the API server would reject a taint.
    """
    for index, taint in enumerate(node.taints):
        _check_key(taint.key, f"spec.taints[{index}].key")
        _check_label_value(taint.value, f"spec.taints[{index}].value")


def _check_priority_class(priority_class: PriorityClass) -> None:
    """Check that the value of a new PriorityClass is not in the range that Kubernetes reserves for its own.

    Raises:
      InvalidInput: the value is reserved for the PriorityClasses of Kubernetes itself.
    """
    reserved = priority_class.value > _LARGEST_USER_PRIORITY
    if reserved and not priority_class.name.startswith("system-"):
        raise InvalidInput(
            f"{priority_class.value} is reserved for the system; expected at most {_LARGEST_USER_PRIORITY}",
            field="value",
        )


def _check_containers(containers: Iterable[Container], field: str) -> None:
    for index, container in enumerate(containers):
        place = f"{field}[{index}]"
        if container.name and not _is_dns_label(container.name):
            raise InvalidInput(
                f"{_shown(container.name)} is no name of a container; expected at most {LONGEST_LABEL} lower-case "
                "letters, digits and '-'",
                field=f"{place}.name",
            )
        if container.resources is not None:
            _check_requests_and_limits(container.resources, f"{place}.resources")
        for number, port in enumerate(container.ports or ()):
            if not 0 <= port.container_port <= _LARGEST_PORT or not 0 <= port.host_port <= _LARGEST_PORT:
                raise InvalidInput(
                    f"expected ports from 1 to {_LARGEST_PORT}, found {port.container_port} and {port.host_port}",
                    field=f"{place}.ports[{number}]",
                )


def _check_requests_and_limits(resources: ResourceRequirements, field: str) -> None:
    requests, limits = resources.requests or {}, resources.limits or {}
    for amounts, name in ((limits, "limits"), (requests, "requests")):
        _check_resources(amounts, f"{field}.{name}")
    for resource, text in requests.items():
        if resource not in limits:
            continue
        requested, limit = (
            parse_quantity_in_base_units(resource, text),
            parse_quantity_in_base_units(resource, limits[resource]),
        )
        place = f"{field}.requests.{resource}"
        if requested > limit:
            raise InvalidInput(
                f"{text} is more than the limit of {limits[resource]}; lower it, or raise the limit",
                field=place,
            )
        # Only the standard resources may be overcommitted.
        if requested != limit and resource not in _STANDARD_RESOURCES:
            raise InvalidInput(
                f"{text} is less than the limit of {limits[resource]}; {resource} needs the same request and limit",
                field=place,
            )


def _check_resources(amounts: Amounts, field: str) -> None:
    for resource, text in amounts.items():
        if "/" not in resource:
            if resource not in _STANDARD_RESOURCES and not resource.startswith(_HUGE_PAGES):
                raise InvalidInput(
                    f"unknown resource {_shown(resource)}; expected {', '.join(_STANDARD_RESOURCES)}, or a name with a "
                    "domain such as nvidia.com/gpu",
                    field=f"{field}.{resource}",
                )
            continue
        _check_key(resource, f"{field}.{resource}")
        value = parse_quantity(text)
        if value != value.to_integral_value():
            raise InvalidInput(
                f"{str(text)!r} is not a whole number; devices cannot be divided", field=f"{field}.{resource}"
            )


def _check_toleration(toleration: Toleration, field: str) -> None:
    if toleration.key:
        _check_key(toleration.key, f"{field}.key")
    elif toleration.operator != "Exists":
        raise InvalidInput("a toleration without a key needs the operator Exists", field=f"{field}.operator")
    if toleration.operator == "Exists" and toleration.value:
        raise InvalidInput("must be empty if the operator is Exists", field=f"{field}.value")
    _check_label_value(toleration.value, f"{field}.value")
    if toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
        raise InvalidInput("needs the effect NoExecute", field=f"{field}.tolerationSeconds")


def _check_spread_constraints(spec: PodSpec) -> None:
    seen: set[tuple[str, str]] = set()
    for index, constraint in enumerate(spec.topology_spread_constraints or ()):
        place = f"spec.topologySpreadConstraints[{index}]"
        if constraint.min_domains is not None and constraint.when_unsatisfiable != "DoNotSchedule":
            raise InvalidInput("needs whenUnsatisfiable: DoNotSchedule", field=f"{place}.minDomains")
        key = (constraint.topology_key, constraint.when_unsatisfiable)
        if key in seen:
            raise InvalidInput(
                "another constraint has the same topologyKey and whenUnsatisfiable; remove one of them",
                field=place,
            )
        seen.add(key)


def _check_key(key: str, field: str) -> None:
    if not _is_qualified_name(key):
        raise InvalidInput(
            f"{_shown(key)} is no key; expected a name of at most {LONGEST_LABEL} letters, digits, '-', '_' and '.', "
            "after an optional domain and '/'",
            field=field,
        )


def _check_label_value(value: str, field: str) -> None:
    if not is_label_value(value):
        raise InvalidInput(
            f"{_shown(value)} is no value of a label; expected at most {LONGEST_LABEL} letters, digits, '-', '_' and "
            "'.', with a letter or digit at the beginning and at the end",
            field=field,
        )


@lru_cache(maxsize=4096)
def _is_qualified_name(key: str) -> bool:
    domain, slash, name = key.rpartition("/")
    if slash and (not _SUBDOMAIN.fullmatch(domain) or len(domain) > _LONGEST_SUBDOMAIN):
        return False
    return bool(name) and is_label_value(name)


@lru_cache(maxsize=4096)
def _is_dns_label(text: str) -> bool:
    return len(text) <= LONGEST_LABEL and _DNS_LABEL.fullmatch(text) is not None


def _shown(text: str) -> str:
    return repr(text[:_MAX_SHOWN_CHARACTERS])
