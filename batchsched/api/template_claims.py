"""Creates ResourceClaims from templates for pods that no API server has created, such as pods in files.

In a cluster, the resourceclaim controller of Kubernetes creates these claims.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count
from types import MappingProxyType

import msgspec

from batchsched.api.core.device import ResourceClaim, ResourceClaimTemplate
from batchsched.api.core.metadata import ObjectMeta, OwnerReference
from batchsched.api.core.pod import Pod, PodResourceClaim, PodResourceClaimStatus
from batchsched.api.external.pod_group import shared_claim_template_names
from batchsched.api.snapshot import Snapshot

UID_PREFIX_OF_HYPOTHETICAL_OBJECTS = "supposed-"
"""Prefix of the UIDs of pods that no API server has created, such as the pods of a Job in a file."""


def with_template_claims_of_hypothetical_pods(snapshot: Snapshot) -> Snapshot:
    """Return the Snapshot with the missing ResourceClaims of pending pods that do not exist in a cluster.

    These hypothetical pods exist for example only in a manifest. Their claims are created from the
    ResourceClaimTemplates that the pods name. In a cluster, the resourceclaim controller creates the claims. A pod of
    a cluster that lacks a claim waits for it.
    """
    hypothetical_pods = [
        pod
        for pod in snapshot.pods
        if not pod.node_name and pod.spec.resource_claims and is_hypothetical_pod(pod)
    ]
    existing = (claim.key for claim in snapshot.resource_claims)
    shared = {
        (gang.metadata.namespace, name): templates
        for gang in snapshot.pod_groups
        for name, templates in shared_claim_template_names(gang).items()
    }
    pods, claims = create_claims_from_templates(
        hypothetical_pods, snapshot.resource_claim_templates, existing, shared
    )
    if not claims:
        return snapshot
    by_key = {pod.key: pod for pod in pods}
    return replace(
        snapshot,
        pods=tuple(by_key.get(pod.key, pod) for pod in snapshot.pods),
        resource_claims=(*snapshot.resource_claims, *claims),
    )


def is_hypothetical_pod(pod: Pod) -> bool:
    """Return whether a pod exists in no cluster: it has no UID, or a UID that marks hypothetical pods."""
    return not pod.metadata.uid or pod.metadata.uid.startswith(UID_PREFIX_OF_HYPOTHETICAL_OBJECTS)


SharedClaimTemplates = Mapping[tuple[str, str], Mapping[str, str]]
"""By namespace and name of a PodGroup of Kubernetes: the templates of the claims that its pods share, by claim."""


def create_claims_from_templates(
    pods: Iterable[Pod],
    templates: Iterable[ResourceClaimTemplate],
    existing: Iterable[str] = (),
    shared: SharedClaimTemplates = MappingProxyType({}),
) -> tuple[tuple[Pod, ...], tuple[ResourceClaim, ...]]:
    """Create the ResourceClaims that pods need from templates; return the updated pods and the new claims.

    The status of a returned pod names its claims. A pod without a UID gets one, by which its claims name their owner. A
    claim is not created if its template does not exist. A claim is shared if the pod and its PodGroup of Kubernetes
    name the same template for it.

    Args:
      pods: the pods.
      templates: all templates.
      existing: `namespace/name` of the existing claims; no new claim gets one of these names.
      shared: the claims that pods share.

    Source: the resourceclaim controller of Kubernetes, with the gate DRAWorkloadResourceClaims.
    """
    taken = set(existing)
    of_groups: dict[tuple[str, str, str], str] = {}
    by_key = {template.key: template for template in templates}
    with_claims: list[Pod] = []
    created: list[ResourceClaim] = []
    for pod in pods:
        owner = pod if pod.metadata.uid or not pod.spec.resource_claims else _with_uid(pod)
        names: list[tuple[str, str]] = []
        for entry, template in _entries_without_claim(owner, by_key):
            group = owner.scheduling_group_name
            is_shared = shared.get((owner.namespace, group), {}).get(entry.name) == template.name
            place = (owner.namespace, group, entry.name)
            if not is_shared or place not in of_groups:
                claim = _claim_from_template(
                    _owner_of_claim(owner, is_shared=is_shared), entry, template, taken
                )
                created.append(claim)
                if is_shared:
                    of_groups[place] = claim.name
            names.append((entry.name, of_groups[place] if is_shared else claim.name))
        with_claims.append(_with_statuses(owner, names))
    return tuple(with_claims), tuple(created)


def _with_uid(pod: Pod) -> Pod:
    """Return a pod with a UID, by which its claims name their owner."""
    return msgspec.structs.replace(
        pod, metadata=msgspec.structs.replace(pod.metadata, uid=f"uid-of-{pod.key}")
    )


def _entries_without_claim(
    pod: Pod, templates: Mapping[str, ResourceClaimTemplate]
) -> Iterator[tuple[PodResourceClaim, ResourceClaimTemplate]]:
    """Yield the entries of `spec.resourceClaims` that have a template and no claim yet, each with its template."""
    present = {status.name for status in pod.status.resource_claim_statuses or ()}
    for entry in pod.spec.resource_claims or ():
        template = templates.get(f"{pod.namespace}/{entry.resource_claim_template_name}")
        if template is not None and entry.name not in present:
            yield entry, template


def _owner_of_claim(pod: Pod, *, is_shared: bool) -> OwnerReference:
    """Return the owner of a claim from a template: the pod, or its PodGroup of Kubernetes if pods share the claim."""
    if not is_shared:
        return OwnerReference(
            api_version="v1", kind="Pod", name=pod.name, uid=pod.metadata.uid, controller=True
        )
    group = pod.scheduling_group_name
    return OwnerReference(
        api_version="scheduling.k8s.io/v1beta1",
        kind="PodGroup",
        name=group,
        uid=f"uid-of-{pod.namespace}/{group}",
        controller=True,
    )


def _claim_from_template(
    owner: OwnerReference, entry: PodResourceClaim, template: ResourceClaimTemplate, taken: set[str]
) -> ResourceClaim:
    """Return a new claim with a name that is free, and add the name to `taken`."""
    namespace = template.metadata.namespace or "default"
    prefix = f"{owner.name}-{entry.name}"
    names = chain((prefix,), (f"{prefix}-{number}" for number in count(1)))
    name = next(name for name in names if f"{namespace}/{name}" not in taken)
    taken.add(f"{namespace}/{name}")
    metadata = ObjectMeta(name=name, namespace=namespace, owner_references=(owner,))
    return ResourceClaim(metadata=metadata, spec=template.spec.spec)


def _with_statuses(pod: Pod, claims: Sequence[tuple[str, str]]) -> Pod:
    """Return a pod with a status that names these claims, given by their name in the spec and their own name."""
    if not claims:
        return pod
    statuses = (
        *(pod.status.resource_claim_statuses or ()),
        *(PodResourceClaimStatus(name=entry, resource_claim_name=name) for entry, name in claims),
    )
    return msgspec.structs.replace(
        pod, status=msgspec.structs.replace(pod.status, resource_claim_statuses=statuses)
    )
