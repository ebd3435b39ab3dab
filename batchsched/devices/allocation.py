"""Conversion of the devices that a search chose into the allocation of a ResourceClaim."""

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Final
from uuid import NAMESPACE_OID, uuid5

from batchsched.api.core.device import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from batchsched.api.core.selector import NodeSelector, NodeSelectorTerm, SelectorRequirement
from batchsched.config.kubernetes_release import DeviceRules
from batchsched.devices.allocator import ChosenDevice, PodDeviceAllocation, UsedAlternatives
from batchsched.devices.requests import AllocationError, ClaimRequests, ResolvedDeviceRequest

FROM_CLASS: Final = "FromClass"
FROM_CLAIM: Final = "FromClaim"
_FRACTIONS: Final = ((10**3, "m"), (10**6, "u"), (10**9, "n"))
_BINARY: Final = ((6, "Ei"), (5, "Pi"), (4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki"))


ClaimConfiguration = tuple[DeviceAllocationConfiguration, ...] | None
"""The configuration of the devices of one claim; None if there is none."""


def build_allocations(
    solution: PodDeviceAllocation,
    claims: Sequence[ResourceClaim],
    node: str,
    configurations: Sequence[ClaimConfiguration],
) -> tuple[AllocationResult, ...]:
    """Return the allocation of each ResourceClaim with the devices that were chosen for it on a node.

    Args:
      solution: the devices.
      claims: the claims, in the order of the search.
      node: the name of the node.
      configurations: what `configurations_of_claims` returns for claims with these specs.

    Raises:
      AllocationError: a slice has a node selector with several terms.
    """
    return tuple(
        [
            AllocationResult(
                devices=DeviceAllocationResult(
                    results=tuple([_allocated(entry, claim, place) for place, entry in enumerate(chosen)]),
                    config=configuration,
                ),
                node_selector=_node_selector(chosen, node),
            )
            for claim, chosen, configuration in zip(claims, solution.devices, configurations, strict=True)
        ]
    )


def configurations_of_claims(
    claims: Sequence[ClaimRequests], alternatives: UsedAlternatives, rules: DeviceRules
) -> tuple[ClaimConfiguration, ...]:
    """Return the device configuration of each claim, from the claim and from the DeviceClasses that it uses.

    For equal claims, it depends only on the `firstAvailable` alternatives that are used.
    """
    return tuple(
        _configuration(entry, _used_requests(entry, number, alternatives), rules) or None
        for number, entry in enumerate(claims)
    )


def _used_requests(entry: ClaimRequests, number: int, used: UsedAlternatives) -> list[ResolvedDeviceRequest]:
    """Return for each request of a claim the alternative that is used."""
    return [
        alternatives[used.get((number, position), 0)] for position, alternatives in enumerate(entry.requests)
    ]


def _allocated(entry: ChosenDevice, claim: ResourceClaim, position: int) -> DeviceRequestAllocationResult:
    device, request = entry.device.device, entry.request
    driver, pool, name = entry.device.key
    share = None
    if entry.consumed is not None:
        # The same snapshot gives the same decision, so the identity of a share is derived, not drawn.
        owner = claim.metadata.uid or claim.key
        share = str(
            uuid5(NAMESPACE_OID, f"{owner}/{request.qualified_name}/{'/'.join(entry.device.key)}/{position}")
        )
    return DeviceRequestAllocationResult(
        request=request.qualified_name,
        driver=driver,
        pool=pool,
        device=name,
        admin_access=True if request.admin else None,
        tolerations=request.tolerations or None,
        binding_conditions=device.binding_conditions,
        binding_failure_conditions=device.binding_failure_conditions,
        share_id=share,
        consumed_capacity={name: format_amount(amount) for name, amount in entry.consumed.items()}
        if entry.consumed
        else None,
    )


def format_amount(amount: Decimal) -> str:
    """Return an amount as a Kubernetes quantity: `80Gi`, `12`, `500m`."""
    if amount != amount.to_integral_value():
        # Rounded up like every quantity of Kubernetes, so that no consumed capacity is lost.
        return next(
            f"{parts}{suffix}"
            for factor, suffix in _FRACTIONS
            if (parts := math.ceil(amount * factor)) == amount * factor or suffix == "n"
        )
    whole = int(amount)
    for power, suffix in _BINARY:
        if whole and whole % 1024**power == 0:
            return f"{whole // 1024**power}{suffix}"
    return str(whole)


def _configuration(
    entry: ClaimRequests, used: Sequence[ResolvedDeviceRequest], rules: DeviceRules
) -> tuple[DeviceAllocationConfiguration, ...]:
    """Return the configuration of the used classes, and then that of the claim for the used requests."""
    configurations: list[DeviceAllocationConfiguration] = []
    requests_of_class: dict[str, list[ResolvedDeviceRequest]] = {}
    for request in used:
        requests_of_class.setdefault(request.device_class.metadata.name, []).append(request)
    for requests in requests_of_class.values():
        names = tuple(request.qualified_name for request in requests)
        configurations.extend(
            DeviceAllocationConfiguration(source=FROM_CLASS, requests=names, opaque=config.opaque)
            for config in requests[0].device_class.spec.config or ()
        )
    used_names = {name for request in used for name in _names(request)}
    configurations.extend(
        DeviceAllocationConfiguration(source=FROM_CLAIM, requests=config.requests, opaque=config.opaque)
        for config in entry.claim.spec.devices.config or ()
        if not config.requests or not used_names.isdisjoint(config.requests)
    )
    if not rules.shortens_config_requests:
        return tuple(configurations)
    return tuple(
        DeviceAllocationConfiguration(
            source=config.source,
            requests=None if _concerns_all(config.requests or (), used) else config.requests,
            opaque=config.opaque,
        )
        for config in configurations
    )


def _names(request: ResolvedDeviceRequest) -> tuple[str, ...]:
    return (request.parent, request.qualified_name) if request.parent else (request.name,)


def _concerns_all(names: Iterable[str], used: Sequence[ResolvedDeviceRequest]) -> bool:
    return all(not set(_names(request)).isdisjoint(names) for request in used)


def _node_selector(chosen: Sequence[ChosenDevice], node: str) -> NodeSelector | None:
    """Return the nodes from which the devices of a claim are accessible, None for all.

    Raises:
      AllocationError: a slice has a node selector with several terms.
    """
    fields: list[SelectorRequirement] = []
    expressions: list[SelectorRequirement] = []
    for entry in chosen:
        device, spec = entry.device.device, entry.device.parent.spec
        source = device if spec.per_device_node_selection else spec
        if source.node_name is not None or device.binds_to_node:
            own_name = SelectorRequirement(key="metadata.name", operator="In", values=(node,))
            return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(own_name,)),))
        terms = source.node_selector.node_selector_terms if source.node_selector is not None else ()
        if len(terms) > 1:
            raise AllocationError(f"unsupported ResourceSlice.NodeSelector with {len(terms)} terms")
        for term in terms:
            _add_new(term.match_fields, fields)
            _add_new(term.match_expressions, expressions)
    if not fields and not expressions:
        return None
    term = NodeSelectorTerm(match_fields=tuple(fields) or None, match_expressions=tuple(expressions) or None)
    return NodeSelector(node_selector_terms=(term,))


def _add_new(added: Iterable[SelectorRequirement] | None, requirements: list[SelectorRequirement]) -> None:
    for entry in added or ():
        if not any(
            entry.key == other.key
            and entry.operator == other.operator
            and set(entry.values or ()) == set(other.values or ())
            for other in requirements
        ):
            requirements.append(entry)
