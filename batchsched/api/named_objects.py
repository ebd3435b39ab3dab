"""Objects that pods name and that do not exist: a gang that waits for one may still start when it appears."""

from collections.abc import Iterable

from batchsched.api.core.pod import Pod
from batchsched.api.snapshot import Snapshot


class NamedObjects:
    """The volume claims, ResourceClaims and DeviceClasses of a cluster, by name.

    Args:
      snapshot: the cluster.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._volume_claims = {claim.key for claim in snapshot.persistent_volume_claims}
        self._claims = {claim.key: claim for claim in snapshot.resource_claims}
        self._classes = {device_class.name for device_class in snapshot.device_classes}

    def is_any_absent_for(self, pods: Iterable[Pod]) -> bool:
        """Return whether pods name a volume claim, a ResourceClaim or a DeviceClass that does not exist."""
        return any(self._is_claim_absent(pod) or self._is_volume_claim_absent(pod) for pod in pods)

    def _is_claim_absent(self, pod: Pod) -> bool:
        present = {status.name for status in pod.status.resource_claim_statuses or ()}
        if any(
            entry.resource_claim_name is None and entry.name not in present
            for entry in pod.spec.resource_claims or ()
        ):
            return True  # it is still to be created from a template
        claims = [self._claims.get(key) for key in pod.resource_claim_keys]
        return any(
            claim is None or not self._classes.issuperset(claim.spec.device_class_names) for claim in claims
        )

    def _is_volume_claim_absent(self, pod: Pod) -> bool:
        sources = (volume.persistent_volume_claim for volume in pod.spec.volumes or ())
        return any(
            source is not None and f"{pod.namespace}/{source.claim_name}" not in self._volume_claims
            for source in sources
        )
