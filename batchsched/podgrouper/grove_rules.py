"""The rules for PodCliqueSets of Grove: how their pods form gangs, and which labels of a pod name its gang.

The first gang of each replica, its base gang, consists of the cliques outside scaling groups, and of the first
`minAvailable` replicas of each scaling group. Each further replica of a scaling group is a gang of its own.
Source: `PodCliqueSetSpec` of grove.io/v1alpha1, and `computeExpectedPodGangs` of Grove's operator.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from batchsched.api.crd.podgroup import MOST_SUBGROUPS
from batchsched.api.template_claims import UID_PREFIX_OF_HYPOTHETICAL_OBJECTS
from batchsched.errors import InvalidInput
from batchsched.podgrouper.shape import (
    ColocatedParts,
    GangVariant,
    Manifest,
    OwnerGangShape,
    OwnerPart,
    mapping_entries_of_list,
    mapping_or_empty,
    pod_count_or_default,
    raise_if_too_many_pods,
    spec_of,
    text_or_empty,
)

POD_GANG: Final = "grove.io/podgang"
POD_CLIQUE: Final = "grove.io/podclique"
BASE_POD_GANG: Final = "grove.io/base-podgang"
REPLICA: Final = "grove.io/podcliqueset-replica-index"
SCALING_GROUP: Final = "grove.io/podcliquescalinggroup"
SCALING_GROUP_REPLICA: Final = "grove.io/podcliquescalinggroup-replica-index"
PART_OF: Final = "app.kubernetes.io/part-of"
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
OPERATOR: Final = "grove-operator"


def pod_clique_set_gang_shape(manifest: Manifest) -> OwnerGangShape | None:
    """Return how the pods of a PodCliqueSet of Grove form gangs.

    Each scaling group has a `GangVariant` for its replicas that are gangs of their own.

    The result is None if the PodCliqueSet has no cliques.
    """
    template = mapping_or_empty(spec_of(manifest).get("template"))
    cliques = {
        text_or_empty(clique.get("name")): clique
        for clique in mapping_entries_of_list(template.get("cliques"))
    }
    scaling_groups = mapping_entries_of_list(template.get("podCliqueScalingGroups"))
    scaled = {name for group in scaling_groups for name in _clique_names(group)}
    parts = [_part(clique, name) for name, clique in cliques.items() if name not in scaled]
    groups: list[ColocatedParts] = []
    variants: dict[str, GangVariant] = {}
    spec_fields: dict[str, Any] = {}
    if text_or_empty(template.get("priorityClassName")):
        spec_fields["priorityClassName"] = template["priorityClassName"]
    topology = _topology(template)
    if topology:
        spec_fields["topology"] = topology
    for group in scaling_groups:
        members = [(name, cliques[name]) for name in _clique_names(group) if name in cliques]
        group_name, constraint = _group_name(group), _topology(group)
        least = _min_available(group)
        if len(parts) + least * max(1, len(members)) > MOST_SUBGROUPS:
            return _refused(parts, [(clique, name) for name, clique in members], least, spec_fields)
        for replica in range(least):
            prefix = f"{group_name}-{replica}"
            if constraint:
                groups.append(ColocatedParts(prefix, constraint))
            parent = prefix if constraint else ""
            parts += [_part(clique, f"{prefix}-{name}", parent) for name, clique in members]
        further = {**spec_fields, "topology": constraint} if constraint else spec_fields
        further_parts = tuple(_part(clique, name) for name, clique in members)
        variants[group_name] = GangVariant(further_parts, _with_single_part(further, further_parts))
    if not parts:
        return None
    spec_fields = _with_single_part(spec_fields, parts, groups)
    return OwnerGangShape(tuple(parts), (POD_CLIQUE,), POD_GANG, spec_fields, tuple(groups), variants)


def _refused(
    parts: Sequence[OwnerPart], members: Sequence[tuple[Manifest, str]], least: int, spec_fields: Manifest
) -> OwnerGangShape:
    """Return a shape without subgroups for a PodCliqueSet with more parts than subgroups are allowed."""
    scaled = [_part(clique, name) for clique, name in members]
    whole = [replace(part, pods=part.pods * least, minimum=part.minimum * least) for part in scaled]
    problem = (
        f"spec.template.podCliqueScalingGroups: minAvailable {least} needs more than {MOST_SUBGROUPS} subgroups; "
        "lower minAvailable"
    )
    every = (*parts, *whole) or (OwnerPart("", least, least),)
    return OwnerGangShape(every, (), POD_GANG, spec_fields, problem=problem)


def _with_single_part(
    spec_fields: dict[str, Any], parts: Sequence[OwnerPart], groups: Sequence[ColocatedParts] = ()
) -> dict[str, Any]:
    """Return the fields of a gang's PodGroupSpec. The constraints of a single part replace those of the gang."""
    if len(parts) != 1:
        return spec_fields
    levels = {
        **spec_fields.get("topology", {}),
        **{level: name for group in groups for level, name in group.topology.items()},
        **parts[0].topology,
    }
    return {**spec_fields, "topology": levels} if levels else spec_fields


def _clique_names(group: Manifest) -> list[str]:
    names = group.get("cliqueNames")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _group_name(group: Manifest) -> str:
    return text_or_empty(group.get("name"))


def _min_available(group: Manifest) -> int:
    return pod_count_or_default(group.get("minAvailable"), 1)


def _further_replicas(group: Manifest) -> range:
    """Return the indexes of the replicas of a scaling group that are gangs of their own."""
    least = _min_available(group)
    return range(least, max(least, pod_count_or_default(group.get("replicas"), 1)))


def _part(clique: Manifest, name: str, parent: str = "") -> OwnerPart:
    spec = spec_of(clique)
    replicas = pod_count_or_default(spec.get("replicas"), 1)
    least = min(replicas, pod_count_or_default(spec.get("minAvailable"), replicas))
    template = {
        "metadata": {
            "labels": mapping_or_empty(clique.get("labels")),
            "annotations": mapping_or_empty(clique.get("annotations")),
        },
        "spec": mapping_or_empty(spec.get("podSpec")),
    }
    path = "spec.template.cliques"
    return OwnerPart(name, replicas, least, template, field=path, topology=_topology(clique), parent=parent)


def _topology(group: Manifest) -> Mapping[str, str]:
    """Return the topology constraint of a PodCliqueSet, scaling group or clique as fields of a PodGroup."""
    constraint = mapping_or_empty(group.get("topologyConstraint"))
    pack = mapping_or_empty(constraint.get("pack"))
    levels = {
        "name": text_or_empty(constraint.get("topologyName")),
        "required": text_or_empty(pack.get("required")) or text_or_empty(constraint.get("packDomain")),
        "preferred": text_or_empty(pack.get("preferred")),
    }
    return {name: level for name, level in levels.items() if level}


def grove_variant_and_subgroup(labels: Mapping[str, str]) -> tuple[str, str]:
    """Return the gang variant and the subgroup of a Grove pod, according to its labels.

    The variant of the base gang is "". Grove names a clique `SET-REPLICA-CLIQUE`, or
    `SET-REPLICA-GROUP-REPLICA-CLIQUE` in a scaling group.
    """
    clique, group = labels.get(POD_CLIQUE, ""), labels.get(SCALING_GROUP, "")
    replica = f"{labels.get(PART_OF, '')}-{labels.get(REPLICA, '')}-"
    if labels.get(BASE_POD_GANG) and group:
        prefix = f"{group}-{labels.get(SCALING_GROUP_REPLICA, '')}-"
        return group.removeprefix(replica), clique.removeprefix(prefix)
    return "", clique.removeprefix(replica)


def pod_clique_set_child_manifests(manifest: Manifest, _: object = ()) -> list[dict[str, Any]]:
    """Return the manifests of the pods that Grove creates for a PodCliqueSet.

    Raises:
      InvalidInput: the PodCliqueSet has too many pods, or too many parts.
    """
    shape = pod_clique_set_gang_shape(manifest)
    if shape is None:
        return []
    if shape.problem:
        raise InvalidInput(shape.problem)
    name = text_or_empty(mapping_or_empty(manifest.get("metadata")).get("name"))
    spec = spec_of(manifest)
    groups = mapping_entries_of_list(mapping_or_empty(spec.get("template")).get("podCliqueScalingGroups"))
    replicas = pod_count_or_default(spec.get("replicas"))
    further = sum(
        len(_further_replicas(group)) * sum(part.pods for part in shape.variants[_group_name(group)].parts)
        for group in groups
    )
    raise_if_too_many_pods(replicas * (shape.pod_count_per_gang + further))
    pods: list[dict[str, Any]] = []
    for replica in range(replicas):
        base = f"{name}-{replica}"
        labels = {PART_OF: name, MANAGED_BY: OPERATOR, REPLICA: str(replica)}
        for part in shape.parts:
            pods += _pods(part, f"{base}-{part.name}", {**labels, POD_GANG: base})
        for group in groups:
            group_name, least = _group_name(group), _min_available(group)
            qualified = f"{base}-{group_name}"
            for index in _further_replicas(group):
                marks = {
                    **labels,
                    POD_GANG: f"{qualified}-{index - least}",
                    BASE_POD_GANG: base,
                    SCALING_GROUP: qualified,
                    SCALING_GROUP_REPLICA: str(index),
                }
                for part in shape.variants[group_name].parts:
                    pods += _pods(part, f"{qualified}-{index}-{part.name}", marks)
    return pods


def _pods(part: OwnerPart, clique: str, labels: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    owner = {
        "apiVersion": "grove.io/v1alpha1",
        "kind": "PodClique",
        "name": clique,
        "uid": f"{UID_PREFIX_OF_HYPOTHETICAL_OBJECTS}PodClique-{clique}",
        "controller": True,
    }
    return part.create_pods(clique, {**labels, POD_CLIQUE: clique}, owner)
