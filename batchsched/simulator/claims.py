"""The ResourceClaims of simulated pods: what the resourceclaim controller of Kubernetes creates in a cluster."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import msgspec

from batchsched.api.core.device import ResourceClaim, ResourceClaimTemplate
from batchsched.api.core.metadata import ObjectMeta, OwnerReference
from batchsched.api.core.pod import Pod, PodResourceClaimStatus
from batchsched.simulator.workload import Workload


def with_claims(workload: Workload) -> Workload:
    """Return the workload with a ResourceClaim for each pod and ResourceClaimTemplate that the pod names.

    The claims exist from the start of the simulation: without their pods, they use no devices.
    """
    pods = (pod for arrival in workload.arrivals for pod in arrival.pods)
    if not any(pod.spec.resource_claims for pod in pods):
        return workload
    cluster = workload.cluster
    templates = {
        f"{template.metadata.namespace or 'default'}/{template.name}": template
        for template in cluster.resource_claim_templates
    }
    created: list[ResourceClaim] = []
    arrivals = []
    for arrival in workload.arrivals:
        arriving = []
        for pod in arrival.pods:
            owner = pod if pod.metadata.uid or not pod.spec.resource_claims else _with_uid(pod)
            claims = tuple(_missing_claims(owner, templates))
            created.extend(claim for _, claim in claims)
            arriving.append(_with_statuses(owner, claims))
        arrivals.append(replace(arrival, pods=tuple(arriving)))
    all_claims = (*cluster.resource_claims, *created)
    return replace(workload, cluster=replace(cluster, resource_claims=all_claims), arrivals=tuple(arrivals))


def _with_uid(pod: Pod) -> Pod:
    """Return a pod with a UID, by which its claims name their owner."""
    return msgspec.structs.replace(
        pod, metadata=msgspec.structs.replace(pod.metadata, uid=f"uid-of-{pod.key}")
    )


def _missing_claims(
    pod: Pod, templates: Mapping[str, ResourceClaimTemplate]
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
        metadata = ObjectMeta(
            name=f"{pod.name}-{entry.name}", namespace=pod.namespace, owner_references=(owner,)
        )
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
