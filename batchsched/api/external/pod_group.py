"""The base class of the PodGroups of other projects, and the annotations that mark a converted PodGroup."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from batchsched.api.core.device import POD_GROUP_API_GROUP
from batchsched.api.core.metadata import KubernetesObject
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.unsupported_fields import UNSUPPORTED_FIELD

SOURCE: Final = "scheduling.batchsched.dev/source"
"""Annotation of a converted PodGroup with the API version of its source. Such a PodGroup does not exist in the API."""
SOURCE_UID: Final = "scheduling.batchsched.dev/source-uid"
"""Annotation of a converted PodGroup with the uid of its source."""
SOURCE_KIND: Final = "scheduling.batchsched.dev/source-kind"
"""Annotation of a converted PodGroup with the kind of its source, if that is no PodGroup."""
SOURCE_PRIORITY: Final = "scheduling.batchsched.dev/source-priority"
"""Annotation of a converted PodGroup with the priority that its source states as a number."""

SHARED_CLAIMS: Final = "scheduling.batchsched.dev/source-resource-claims"
"""Annotation of a converted PodGroup with the templates of the ResourceClaims that pods share, as JSON."""

Spec = dict[str, Any]
Marks = tuple[str | None, str | None]
"""The PodGroup and the subgroup that a pod names."""


class ExternalPodGroup(KubernetesObject, frozen=True, gc=False):
    """The base class of the PodGroups of other projects, such as Volcano.

    To read another kind, add a module with a subclass in this package, and in `external.conversion` an entry in
    `EXTERNAL_KINDS` and a reader of its labels in `_READERS`.
    """

    def to_batchsched_spec_fields(self) -> Spec:
        """Return this PodGroup as fields of a batchsched PodGroup spec. None means an absent field."""
        raise NotImplementedError

    def describe_unsupported_field(self) -> str:
        """Return a sentence about a field that batchsched does not support; "" if this PodGroup has none.

        Such a field states a constraint, so that batchsched must not ignore it.
        """
        return ""

    @property
    def stated_priority(self) -> int | None:
        """The priority that this PodGroup states as a number; None if it states none."""
        return None

    @property
    def claim_template_names(self) -> Mapping[str, str]:
        """The ResourceClaimTemplates of the claims that all pods of this PodGroup share, by the name of the claim."""
        return {}

    @property
    def stated_conditions(self) -> Sequence[dict[str, Any]]:
        """The conditions in the status of this PodGroup that are copied to the converted PodGroup.

        They are () for kinds of which no conditions are read.
        """
        return ()


def source_annotations(
    source: ExternalPodGroup, api_version: str, *, kind: str = "", problem: str = ""
) -> dict[str, str]:
    """Return the annotations by which a converted PodGroup names the PodGroup that it was converted from.

    Args:
      source: the PodGroup of another project.
      api_version: its `apiVersion`.
      kind: its kind; "" for PodGroup.
      problem: a sentence about a field of it that is not supported; "" if there is none.
    """
    marks = {
        SOURCE: api_version,
        SOURCE_KIND: kind,
        SOURCE_UID: source.metadata.uid,
        SOURCE_PRIORITY: "" if source.stated_priority is None else str(source.stated_priority),
        UNSUPPORTED_FIELD: problem,
    }
    return {key: text for key, text in marks.items() if text}


def build_pod_group(
    source: ExternalPodGroup,
    api_version: str,
    spec: Spec,
    *,
    kind: str = "",
    problem: str = "",
    below: Sequence[ExternalPodGroup] = (),
) -> PodGroup:
    """Return a batchsched PodGroup with the given spec fields, and the metadata of an external PodGroup.

    The PodGroup also has the conditions of the external PodGroup. It has no uid, because it does not exist in the API.

    Args:
      source: the PodGroup of another project.
      api_version: its `apiVersion`.
      spec: fields of the spec; None means an absent field.
      kind: the kind of the source; "" for PodGroup.
      problem: a sentence about a field of the source that is not supported; "" if there is none.
      below: the PodGroups that belong to the same gang, if the source is the root of a tree.

    Raises:
      pydantic.ValidationError: the source has values that a batchsched PodGroup does not allow.
    """
    meta, conditions = source.metadata, source.stated_conditions
    marks = source_annotations(source, api_version, kind=kind, problem=problem)
    claims = {
        group.metadata.name: group.claim_template_names
        for group in (source, *below)
        if group.claim_template_names
    }
    if claims:
        marks[SHARED_CLAIMS] = msgspec.json.encode(claims).decode()
    return PodGroup.model_validate(
        {
            "metadata": without_none(
                name=meta.name,
                namespace=meta.namespace,
                labels=meta.labels,
                annotations={**(meta.annotations or {}), **marks},
                creationTimestamp=meta.creation_timestamp,
                generation=meta.generation,
            ),
            "spec": without_none(**spec),
            **({"status": {"conditions": conditions}} if conditions else {}),
        }
    )


def min_member_and_subgroup_fields(min_member: int, parts: list[Spec]) -> Spec:
    """Return the fields `subGroups` and `minMember`, with minMember raised to the sum of subgroup minimums.

    A minMember above this sum is kept. Other projects allow a minMember below this sum. If the subGroups form a tree,
    there is no field `minMember`.
    """
    if any("parent" in part or "minSubGroups" in part for part in parts):
        return {"subGroups": parts}  # the minimum of a tree follows from its subgroups
    minimum = max(1, min_member, sum(part["minMember"] for part in parts))
    return {"minMember": minimum, "subGroups": parts or None}


def without_none(**fields: Any) -> Spec:
    """Return a mapping of the given fields, without the fields that are None."""
    return {name: value for name, value in fields.items() if value is not None}


def is_converted_from_external(group: PodGroup) -> bool:
    """Return whether a batchsched PodGroup was converted from a PodGroup of another project."""
    return SOURCE in group.metadata.annotations


def is_converted_from_kubernetes(group: PodGroup) -> bool:
    """Return whether a batchsched PodGroup was converted from groups of the Workload API of Kubernetes."""
    return group.metadata.annotations.get(SOURCE, "").startswith(f"{POD_GROUP_API_GROUP}/")


def shared_claim_template_names(group: PodGroup) -> Mapping[str, Mapping[str, str]]:
    """Return the ResourceClaimTemplates of the claims that the pods of each PodGroup of Kubernetes in a gang share.

    The result has, by the name of the PodGroup and of the claim in the specs of its pods, the name of the template.
    """
    text = group.metadata.annotations.get(SHARED_CLAIMS) if is_converted_from_external(group) else None
    return msgspec.json.decode(text, type=dict[str, dict[str, str]]) if text else {}


def external_api_version_and_uid(group: PodGroup) -> tuple[str, str]:
    """Return the API version and the uid of the external PodGroup from which `group` was converted.

    Both are "" if the PodGroup was not converted.
    """
    marks = group.metadata.annotations
    return marks.get(SOURCE, ""), marks.get(SOURCE_UID, "")
