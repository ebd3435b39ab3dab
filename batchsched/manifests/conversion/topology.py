"""Conversion of the Topologies of Kueue and KAI-Scheduler, and of the HyperNodes of Volcano, to a Topology."""

from collections.abc import Mapping, Sequence
from typing import Any

from batchsched.api.external.hyper_node import HYPER_NODE_TOPOLOGY, tier_labels, topology_levels_of_tiers
from batchsched.manifests.conversion.source_object import (
    SourceObject,
    batchsched_manifest,
    mapping_entries_of_list,
    mapping_or_empty,
)


def convert_topologies(topologies: Sequence[SourceObject]) -> list[dict[str, Any]]:
    """Convert the Topologies of Kueue or KAI-Scheduler to Topologies of batchsched.

    The levels keep their node labels as names.
    """
    converted = []
    for topology in topologies:
        topology.record_unconverted_field_warnings(("levels",), {})
        labels = [
            str(level.get("nodeLabel", "")) for level in mapping_entries_of_list(topology.spec.get("levels"))
        ]
        levels = [{"name": label, "nodeLabel": label} for label in labels]
        converted.append(batchsched_manifest("Topology", topology.name, {"levels": levels}))
    return converted


def convert_hyper_nodes(hyper_nodes: Sequence[SourceObject]) -> list[dict[str, Any]]:
    """Convert the HyperNodes of Volcano to a Topology with a level for each tier, and to labels of nodes.

    The levels of a Topology are node labels, so each node gets a label for each tier.
    """
    if not hyper_nodes:
        return []
    tiers = sorted({_tier(node) for node in hyper_nodes}, reverse=True)
    tier_names = {_tier(node): str(name) for node in hyper_nodes if (name := node.spec.get("tierName"))}
    levels = topology_levels_of_tiers(tiers, tier_names)
    by_name = {node.name: node for node in hyper_nodes}
    by_member: dict[str, dict[int, str]] = {}
    for node in sorted(hyper_nodes, key=lambda node: node.name):
        for member in _members(node, by_name):
            by_member.setdefault(member, {}).setdefault(_tier(node), node.name)
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": tier_labels(by_member[name], tiers)},
        }
        for name in sorted(by_member)
    ]
    return [batchsched_manifest("Topology", HYPER_NODE_TOPOLOGY, {"levels": levels}), *nodes]


def _tier(node: SourceObject) -> int:
    tier = node.spec.get("tier", 1)
    if not isinstance(tier, int):
        raise node.invalid_field_error("spec.tier", f"expected a whole number, found {str(tier)[:40]!r}")
    return tier


def _members(node: SourceObject, by_name: Mapping[str, SourceObject]) -> set[str]:
    """Return the nodes that a HyperNode and its members state by name."""
    names: set[str] = set()
    seen, waiting = {node.name}, [node]
    while waiting:
        hyper_node = waiting.pop()
        for index, member in enumerate(mapping_entries_of_list(hyper_node.spec.get("members"))):
            selector = mapping_or_empty(member.get("selector"))
            name = mapping_or_empty(selector.get("exactMatch")).get("name")
            if not isinstance(name, str):
                if hyper_node is node:
                    node.record_warning(
                        f"spec.members[{index}].selector",
                        "selects nodes by a pattern or by labels, which files do not list; label these nodes",
                    )
            elif member.get("type") != "HyperNode":
                names.add(name)
            elif name in by_name and name not in seen:
                seen.add(name)
                waiting.append(by_name[name])
    return names
