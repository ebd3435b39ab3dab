"""Objects that pods name and that do not exist: a gang that waits for one may still start when it appears."""

from collections.abc import Iterable, Iterator

from batchsched.api.core.pod import Pod
from batchsched.api.snapshot import Snapshot


def lacks_named_objects(pods: Iterable[Pod], snapshot: Snapshot) -> bool:
    """Return whether pods name a volume claim, a ResourceClaim or a DeviceClass that does not exist."""
    volume_claims = {
        f"{claim.metadata.namespace or 'default'}/{claim.name}" for claim in snapshot.persistent_volume_claims
    }
    claims = {
        f"{claim.metadata.namespace or 'default'}/{claim.name}": claim for claim in snapshot.resource_claims
    }
    classes = {device_class.name for device_class in snapshot.device_classes}
    for pod in pods:
        names = [f"{pod.namespace}/{name}" for name in _resource_claim_names(pod)]
        if not claims.keys() >= set(names):
            return True
        if any(not classes.issuperset(claims[name].spec.device_class_names) for name in names):
            return True
        if not volume_claims >= {f"{pod.namespace}/{name}" for name in _volume_claim_names(pod)}:
            return True
    return False


def _resource_claim_names(pod: Pod) -> Iterator[str]:
    """Yield the ResourceClaims of a pod; "" for one that is still to be created from a template."""
    statuses = {status.name: status for status in pod.status.resource_claim_statuses or ()}
    for entry in pod.spec.resource_claims or ():
        if entry.resource_claim_name is not None:
            yield entry.resource_claim_name
        elif entry.name not in statuses:
            yield ""
        elif name := statuses[entry.name].resource_claim_name:  # without a name, the pod needs no claim
            yield name


def _volume_claim_names(pod: Pod) -> Iterator[str]:
    for volume in pod.spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            yield volume.persistent_volume_claim.claim_name
