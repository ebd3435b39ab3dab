"""The rules for owners that wrap other owners: AppWrapper."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from batchsched.podgrouper.shape import (
    Manifest,
    OwnerGangShape,
    OwnerPart,
    mapping_entries_of_list,
    mapping_or_empty,
    spec_of,
    text_or_empty,
)


def app_wrapper_gang_shape(
    manifest: Manifest, rule_of: Callable[[Manifest], OwnerGangShape | None]
) -> OwnerGangShape | None:
    """Return how the pods of all components of an AppWrapper form one gang.

    A single component keeps its subgroups. All pods of a Deployment are needed. The result is None if the AppWrapper is
    suspended, or if no component is of a kind with a rule.

    Source: `AppWrapperSpec` of workload.codeflare.dev/v1beta2.

    Args:
      manifest: the AppWrapper.
      rule_of: returns the shape of a component; None if its kind has no rule.
    """
    spec = spec_of(manifest)
    if spec.get("suspend") is True:
        return None
    shapes = [shape for shape in map(rule_of, _templates(spec)) if shape is not None and shape.parts]
    if not shapes:
        return None
    shapes = [_needed_together(shape) for shape in shapes]
    if len(shapes) == 1:
        return shapes[0]
    parts = tuple(part for shape in shapes for part in shape.parts)
    # Names of parts are unique in one component only, and pods do not name their component.
    return OwnerGangShape(tuple(replace(part, name="") for part in parts))


def _needed_together(shape: OwnerGangShape) -> OwnerGangShape:
    if not shape.is_optional:
        return shape
    parts = tuple(replace(part, minimum=part.pods) for part in shape.parts)
    return OwnerGangShape(parts, shape.sub_group_labels, shape.gang_label)


def app_wrapper_child_manifests(manifest: Manifest, _: object = ()) -> list[dict[str, Any]]:
    """Return the manifests of the components of an AppWrapper."""
    return [dict(template) for template in _templates(spec_of(manifest))]


def wrapped_pod_gang_shape(manifest: Manifest) -> OwnerGangShape:
    """Return how a Pod in an AppWrapper forms a gang: the gang has one part with one pod."""
    return OwnerGangShape((OwnerPart("", 1, 1, manifest),))


def _templates(spec: Manifest) -> list[Manifest]:
    components = mapping_entries_of_list(spec.get("components"))
    templates = (mapping_or_empty(component.get("template")) for component in components)
    return [template for template in templates if text_or_empty(template.get("kind"))]
