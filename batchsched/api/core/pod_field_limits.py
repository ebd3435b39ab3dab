"""Limits of the scheduling constraints of one pod.

The API server limits the size of a pod, not its work: a pod of 1 MiB may state thousands of affinity terms or
resources, and each of them costs a session time on every node. A pending pod above a limit is therefore refused before
any table is built for it. The limits are far above those of real workloads. kube-scheduler has no such limits.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

import msgspec

from batchsched.api.core.pod import Container, PodAffinityTerm, PodSpec
from batchsched.api.core.selector import LabelSelector, NodeSelectorTerm, SelectorRequirement

LARGE_SPEC_BYTES: Final = 2**14
"""Bytes of JSON from which the spec of one pod matters for memory; smaller ones are neither reduced nor counted."""


@dataclass(frozen=True, slots=True)
class PodFieldLimit:
    """The maximum number of entries in one field of a pod's spec, such as tolerations.

    Pods with more entries are refused.

    Args:
      field: the limited field, relative to `spec`.
      noun: what is counted, in the plural.
      maximum: the highest number that is scheduled.
      count: returns the number of these entries in a pod spec.
    """

    field: str
    noun: str
    maximum: int
    count: Callable[[PodSpec], int]


def describe_exceeded_field_limit(spec: PodSpec) -> str:
    """Return a sentence about the first field limit that a pod spec exceeds; "" if it exceeds none."""
    if spec.exceeded_limit:
        return spec.exceeded_limit
    for limit in FIELD_LIMITS:
        number = limit.count(spec)
        if number > limit.maximum:
            return (
                f"spec.{limit.field} has {number} {limit.noun}, and batchsched schedules pods with at most "
                f"{limit.maximum}; state fewer"
            )
    return ""


def reduce_pending_spec_above_field_limit(spec: PodSpec) -> PodSpec:
    """Return a pod spec, without containers and constraints if the pod is pending and exceeds a field limit.

    A pending pod with a field above its limit is refused, whatever the omitted fields state. Decoded, the omitted
    fields of one pod take up to 5 MiB. The spec of a bound pod is always unchanged.
    """
    exceeded_limit = describe_exceeded_field_limit(spec)
    if spec.node_name or not exceeded_limit:
        return spec
    return msgspec.structs.replace(
        spec,
        containers=(),
        init_containers=None,
        overhead=None,
        resources=None,
        node_selector=None,
        affinity=None,
        tolerations=None,
        topology_spread_constraints=None,
        exceeded_limit=exceeded_limit,
    )


def _pod_affinity_terms(spec: PodSpec) -> Iterator[PodAffinityTerm]:
    affinity = spec.affinity
    if affinity is None:
        return
    for pod_affinity in (affinity.pod_affinity, affinity.pod_anti_affinity):
        if pod_affinity is not None:
            yield from pod_affinity.required_terms
            yield from (term.pod_affinity_term for term in pod_affinity.preferred_terms)


def _label_selectors(spec: PodSpec) -> Iterator[LabelSelector]:
    for term in _pod_affinity_terms(spec):
        yield from filter(None, (term.label_selector, term.namespace_selector))
    constraints = spec.topology_spread_constraints or ()
    yield from (
        constraint.label_selector for constraint in constraints if constraint.label_selector is not None
    )


def _count_selected_values(spec: PodSpec) -> int:
    """Count the labels, values and namespaces in the selectors of a pod spec, at least 1 per expression."""
    selectors = sum(
        len(selector.match_labels or ()) + _count_values(selector.match_expressions or ())
        for selector in _label_selectors(spec)
    )
    return selectors + sum(len(term.namespaces or ()) for term in _pod_affinity_terms(spec))


def _node_selector_terms(spec: PodSpec) -> Iterator[NodeSelectorTerm]:
    affinity = spec.affinity.node_affinity if spec.affinity else None
    if affinity is None:
        return
    required = affinity.required_during_scheduling_ignored_during_execution
    yield from required.node_selector_terms if required is not None else ()
    preferred = affinity.preferred_during_scheduling_ignored_during_execution or ()
    yield from (term.preference for term in preferred)


def _node_expressions(spec: PodSpec) -> Iterator[SelectorRequirement]:
    for term in _node_selector_terms(spec):
        yield from chain(term.match_expressions or (), term.match_fields or ())


def _count_node_expressions(spec: PodSpec) -> int:
    return sum(1 for _ in _node_selector_terms(spec)) + sum(1 for _ in _node_expressions(spec))


def _count_values(expressions: Iterable[SelectorRequirement]) -> int:
    return sum(max(1, len(expression.values or ())) for expression in expressions)


def _containers(spec: PodSpec) -> Iterable[Container]:
    return chain(spec.containers, spec.init_containers or ())


def _count_resources(spec: PodSpec) -> int:
    requirements = (*(container.resources for container in _containers(spec)), spec.resources)
    requested = (amounts.requests or {} for amounts in requirements if amounts is not None)
    return len(set(chain(spec.overhead or {}, *requested)))


def _count_host_ports(spec: PodSpec) -> int:
    return sum(port.host_port > 0 for container in _containers(spec) for port in container.ports or ())


FIELD_LIMITS: Final = (
    PodFieldLimit("containers", "different resources", 64, _count_resources),
    PodFieldLimit("containers", "host ports", 1000, _count_host_ports),
    PodFieldLimit("nodeSelector", "labels", 256, lambda spec: len(spec.node_selector or ())),
    PodFieldLimit("affinity.nodeAffinity", "terms and expressions", 256, _count_node_expressions),
    PodFieldLimit(
        "affinity.nodeAffinity",
        "values of expressions",
        10_000,
        lambda spec: _count_values(_node_expressions(spec)),
    ),
    PodFieldLimit(
        "affinity",
        "terms of podAffinity and podAntiAffinity",
        64,
        lambda spec: sum(1 for _ in _pod_affinity_terms(spec)),
    ),
    PodFieldLimit(
        "topologySpreadConstraints",
        "constraints",
        64,
        lambda spec: len(spec.topology_spread_constraints or ()),
    ),
    PodFieldLimit(
        "affinity and spec.topologySpreadConstraints",
        "labels, values and namespaces of selectors",
        1000,
        _count_selected_values,
    ),
    PodFieldLimit("tolerations", "tolerations", 256, lambda spec: len(spec.tolerations or ())),
)
"""The limits of all pods, in the order in which they are checked."""
