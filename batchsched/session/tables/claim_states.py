"""States of pods' own ResourceClaims; pods with claims in different states belong to different pod classes.

Pods of a Job have claims of equal content with different names, and form one class. A pod with a claim that is missing,
or that has an allocation already, is a class of its own: its plugin results hold for no other pod.
"""

from collections.abc import Hashable, Iterable

import msgspec

from batchsched.api.core.device import ResourceClaim
from batchsched.api.core.pod import Pod


class ClaimStates:
    """The states of all ResourceClaims, by which pods with equal specs may belong to different pod classes.

    Args:
      claims: all ResourceClaims.
    """

    def __init__(self, claims: Iterable[ResourceClaim]) -> None:
        self._claims = {claim.key: claim for claim in claims}
        self._contents: dict[str, bytes] = {}
        self._pending_users: dict[str, list[str]] = {}
        """Claim → the identity of the gang of each pending pod that uses it."""

    def add_pending_pod(self, pod: Pod, gang: str) -> None:
        """Record which ResourceClaims a pending pod of a gang uses."""
        if pod.spec.resource_claims:
            for key in pod.resource_claim_keys:
                self._pending_users.setdefault(key, []).append(gang)

    def remove_pending_pod(self, pod: Pod, gang: str) -> None:
        """Record that a pod is no longer pending; pass the version that was given to `add_pending_pod`."""
        if pod.spec.resource_claims:
            for key in pod.resource_claim_keys:
                users = self._pending_users[key]
                users.remove(gang)
                if not users:
                    del self._pending_users[key]

    def update_claims(self, changed: Iterable[ResourceClaim], removed: Iterable[str]) -> set[str]:
        """Update changed and deleted claims; return the identities of gangs with pending pods that use them.

        Args:
          changed: the claims that are new or changed.
          removed: `namespace/name` of claims that were deleted.
        """
        gangs: set[str] = set()
        for key, claim in (*((claim.key, claim) for claim in changed), *((key, None) for key in removed)):
            if claim is None:
                self._claims.pop(key, None)
            else:
                self._claims[key] = claim
            self._contents.pop(key, None)
            gangs.update(self._pending_users.get(key, ()))
        return gangs

    def claim_state_key(self, pod: Pod) -> Hashable:
        """Return a key for the states of the ResourceClaims that were created for this pod from templates.

        If two pods have equal specs and equal keys, scheduling treats them equally.
        """
        entries = pod.spec.resource_claims
        if not entries or all(entry.resource_claim_template_name is None for entry in entries):
            return ()
        return tuple(
            (status.name, self._state(pod, status.resource_claim_name))
            for status in pod.status.resource_claim_statuses or ()
        )

    def _state(self, pod: Pod, name: str | None) -> Hashable:
        if name is None:
            return None
        key = f"{pod.namespace}/{name}"
        claim = self._claims.get(key)
        if claim is None or not self._is_fresh(claim, pod):
            return key
        content = self._contents.get(key)
        if content is None:
            content = self._contents[key] = msgspec.json.encode(claim.spec)
        return content

    def _is_fresh(self, claim: ResourceClaim, pod: Pod) -> bool:
        """Return whether a claim was created for a pod and nothing has happened to it since."""
        return (
            claim.metadata.deletion_timestamp is None
            and claim.status.allocation is None
            and not claim.status.reserved_for
            and any(owner.uid == pod.metadata.uid for owner in claim.metadata.owner_references or ())
        )
