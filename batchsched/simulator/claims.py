"""The ResourceClaims of simulated pods: what the resourceclaim controller of Kubernetes creates in a cluster."""

from dataclasses import replace

from batchsched.api.core.device import ResourceClaim
from batchsched.api.template_claims import create_claims_from_templates
from batchsched.simulator.workload import Workload


def with_claims(workload: Workload) -> Workload:
    """Return the workload with a ResourceClaim for each pod and ResourceClaimTemplate that the pod names.

    The claims exist from the start of the simulation: without their pods, they use no devices.
    """
    pods = (pod for arrival in workload.arrivals for pod in arrival.pods)
    if not any(pod.spec.resource_claims for pod in pods):
        return workload
    cluster = workload.cluster
    claims: list[ResourceClaim] = list(cluster.resource_claims)
    arrivals = []
    for arrival in workload.arrivals:
        arriving, created = create_claims_from_templates(arrival.pods, cluster.resource_claim_templates)
        claims.extend(created)
        arrivals.append(replace(arrival, pods=arriving))
    return replace(
        workload, cluster=replace(cluster, resource_claims=tuple(claims)), arrivals=tuple(arrivals)
    )
