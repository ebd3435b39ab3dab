"""Checks a placement of a case's gang. It shares no code with the scheduler."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from bench.groups.cases import ROOT_SIZE, Case, Group, domain_of

Devices = tuple[int, ...]
"""Numbers of devices on the node of a pod."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the pods of a gang are placed.

    Attributes:
      nodes: the node of each placed pod, by the pod's name.
      devices: the devices that its claim is allocated, by the pod's name; used for cases with claims only.
    """

    nodes: Mapping[str, int]
    devices: Mapping[str, Devices] = field(default_factory=dict)


def find_fault(case: Case, placement: Placement) -> str:
    """Return what is wrong with a placement of the gang; "" if nothing is."""
    nodes = placement.nodes
    if fault := _fault_of_amounts(case, nodes):
        return fault
    if case.has_claims and (fault := _fault_of_devices(case, placement)):
        return fault
    if not _runs(case.gang, nodes):
        return "the gang does not run"
    groups = {group.name: group for group in case.gang.iterate()}
    for group in groups.values():
        fault = _fault_of_group(group, nodes) or _fault_of_affinity(group, groups, nodes)
        if fault:
            return fault
    return ""


def _fault_of_amounts(case: Case, nodes: Mapping[str, int]) -> str:
    gpus_used: Counter[int] = Counter()
    cpus_used: Counter[int] = Counter()
    for group in case.gang.iterate():
        for name, gpus, cpus in group.iterate_pods():
            if name in nodes:
                gpus_used[nodes[name]] += gpus
                cpus_used[nodes[name]] += cpus
    for node, room in enumerate(case.free):
        if gpus_used[node] > sum(room.gpus) or cpus_used[node] > room.cpus:
            return "a node is overcommitted"
    return ""


def _fault_of_devices(case: Case, placement: Placement) -> str:
    allocated: set[tuple[int, int]] = set()
    for group in case.gang.iterate():
        for name, gpus, _ in group.iterate_pods():
            if name not in placement.nodes or not gpus:
                continue
            devices = placement.devices.get(name, ())
            node = placement.nodes[name]
            pairs = {(node, device) for device in devices}
            if len(devices) != gpus or pairs & allocated or not pairs <= _free_devices(case, node):
                return f"the claim of {name} has wrong devices"
            if gpus <= ROOT_SIZE and len({device // ROOT_SIZE for device in devices}) > 1:
                return f"the devices of {name} are behind several roots"
            allocated |= pairs
    return ""


def _free_devices(case: Case, node: int) -> set[tuple[int, int]]:
    """Return the free devices of a node: the last ones of each root, since the first ones are in use."""
    return {
        (node, root * ROOT_SIZE + device)
        for root, free in enumerate(case.free[node].gpus)
        for device in range(ROOT_SIZE - free, ROOT_SIZE)
    }


def _own_nodes(group: Group, nodes: Mapping[str, int]) -> list[int]:
    return [nodes[name] for name, _, _ in group.iterate_pods() if name in nodes]


def _runs(group: Group, nodes: Mapping[str, int]) -> bool:
    if len(_own_nodes(group, nodes)) < group.minimum:
        return False
    return sum(_runs(child, nodes) for child in group.children) >= group.min_children


def _fault_of_group(group: Group, nodes: Mapping[str, int]) -> str:
    inside = [node for below in group.iterate() for node in _own_nodes(below, nodes)]
    if not inside:
        return ""
    if not _runs(group, nodes):
        return f"{group.name} has pods and does not run"
    if group.required and len({domain_of(node, group.required) for node in inside}) > 1:
        return f"{group.name} is in several domains"
    if group.slice_size:
        pods = Counter(domain_of(node, group.slice_level) for node in inside)
        slices = {count // group.slice_size for count in pods.values()}
        if any(count % group.slice_size for count in pods.values()) or max(slices) - min(slices) > 1:
            return f"{group.name} has slices that are not whole, or not even"
    return ""


def _fault_of_affinity(group: Group, groups: Mapping[str, Group], nodes: Mapping[str, int]) -> str:
    own = _own_nodes(group, nodes)
    if group.apart and len(set(own)) < len(own):
        return f"{group.name} has two pods on a node"
    racks = {domain_of(node, "rack") for node in own}
    if group.together and len(racks) > 1:
        return f"{group.name} is in several racks"
    if group.near:
        blocks = {domain_of(node, "block") for node in _own_nodes(groups[group.near], nodes)}
        if not {domain_of(node, "block") for node in own} <= blocks:
            return f"{group.name} is not near {group.near}"
    if group.away and racks & {domain_of(node, "rack") for node in _own_nodes(groups[group.away], nodes)}:
        return f"{group.name} is not away from {group.away}"
    return ""
