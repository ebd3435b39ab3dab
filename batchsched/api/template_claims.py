"""Creates ResourceClaims from templates for pods that no API server has created, such as pods in files.

In a cluster, the resourceclaim controller of Kubernetes creates these claims.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, count

import msgspec

from batchsched.api.core.device import ResourceClaim, ResourceClaimTemplate
from batchsched.api.core.metadata import ObjectMeta, OwnerReference
from batchsched.api.core.pod import Pod, PodResourceClaimStatus
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
    pods, claims = create_claims_from_templates(
        hypothetical_pods, snapshot.resource_claim_templates, existing
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


def create_claims_from_templates(
    pods: Iterable[Pod], templates: Iterable[ResourceClaimTemplate], existing: Iterable[str] = ()
) -> tuple[tuple[Pod, ...], tuple[ResourceClaim, ...]]:
    """Create the ResourceClaims that pods need from templates; return the updated pods and the new claims.

    The status of a returned pod names its claims. A pod without a UID gets one, by which its claims name their owner. A
    claim is not created if its template does not exist.

    Args:
      pods: the pods.
      templates: all templates.
      existing: `namespace/name` of the existing claims; no new claim gets one of these names.
    """
    taken = set(existing)
    by_key = {
        f"{template.metadata.namespace or 'default'}/{template.name}": template for template in templates
    }
    with_claims: list[Pod] = []
    created: list[ResourceClaim] = []
    for pod in pods:
        owner = pod if pod.metadata.uid or not pod.spec.resource_claims else _with_uid(pod)
        claims = tuple(_missing_claims(owner, by_key, taken))
        created.extend(claim for _, claim in claims)
        with_claims.append(_with_statuses(owner, claims))
    return tuple(with_claims), tuple(created)


def _with_uid(pod: Pod) -> Pod:
    """Return a pod with a UID, by which its claims name their owner."""
    return msgspec.structs.replace(
        pod, metadata=msgspec.structs.replace(pod.metadata, uid=f"uid-of-{pod.key}")
    )


def _missing_claims(
    pod: Pod, templates: Mapping[str, ResourceClaimTemplate], taken: set[str]
) -> Iterator[tuple[str, ResourceClaim]]:
    """Yield the claims that a pod gets from templates and does not have yet, each with its name in the pod's spec."""
    present = {status.name for status in pod.status.resource_claim_statuses or ()}
    for entry in pod.spec.resource_claims or ():
        template = templates.get(f"{pod.namespace}/{entry.resource_claim_template_name}")
        if template is None or entry.name in present:
            continue
        owner = OwnerReference(
            api_version="v1", kind="Pod", name=pod.name, uid=pod.metadata.uid, controller=True
        )
        prefix = f"{pod.name}-{entry.name}"
        names = chain((prefix,), (f"{prefix}-{number}" for number in count(1)))
        name = next(name for name in names if f"{pod.namespace}/{name}" not in taken)
        taken.add(f"{pod.namespace}/{name}")
        metadata = ObjectMeta(name=name, namespace=pod.namespace, owner_references=(owner,))
        yield entry.name, ResourceClaim(metadata=metadata, spec=template.spec.spec)


def _with_statuses(pod: Pod, claims: tuple[tuple[str, ResourceClaim], ...]) -> Pod:
    if not claims:
        return pod
    statuses = (
        *(pod.status.resource_claim_statuses or ()),
        *(PodResourceClaimStatus(name=name, resource_claim_name=claim.name) for name, claim in claims),
    )
    return msgspec.structs.replace(
        pod, status=msgspec.structs.replace(pod.status, resource_claim_statuses=statuses)
    )
