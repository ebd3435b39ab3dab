"""The volumes and PersistentVolumeClaims that are reserved for placed pods until the volumes are bound."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self

from batchsched.api.core.pod import Pod
from batchsched.api.snapshot import Snapshot
from batchsched.devices.ledger import PodTest, no_pod_is_bound


@dataclass(frozen=True, slots=True)
class ReservedPodVolumes:
    """The volumes and PersistentVolumeClaims that are reserved for one pod.

    Args:
      volumes: pairs of a volume and the claim, `namespace/name`, to which it will be bound.
      claims: pairs of a claim and the node from which its volume will be provisioned.
    """

    volumes: tuple[tuple[str, str], ...] = ()
    claims: tuple[tuple[str, str], ...] = ()


_NO_CLUSTER: Final = Snapshot()
"""The cluster of copies, which need none. Many binding cycles make such a copy, so they share this one."""


class ReservedVolumes:
    """The volumes and PersistentVolumeClaims that are reserved for pods.

    Several pods may reserve the volume of one claim: pods that share the claim, or a deleted pod of a StatefulSet that
    is still being bound and the new pod of its name. The last of them releases it.

    Args:
      snapshot: the cluster; it shows which volumes and claims are bound.
    """

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        self.claim_of: dict[str, str] = {}
        """Volume → the claim, `namespace/name`, for which it is reserved."""
        self.node_of: dict[str, str] = {}
        """Claim → the node from which its volume will be provisioned."""
        self._snapshot = snapshot or _NO_CLUSTER
        self._by_pod: dict[tuple[str, str], ReservedPodVolumes] = {}
        """By `namespace/name` and UID: a new pod may have the name of a deleted one that is still being bound."""
        self._pods_of_volume: Counter[str] = Counter()
        """Number of pods for each volume in `claim_of`."""
        self._pods_of_claim: Counter[str] = Counter()
        """Number of pods for each claim in `node_of`."""

    def reserve(self, pod: Pod, reservation: ReservedPodVolumes) -> None:
        """Record which volumes and claims are reserved for a pod; this replaces the pod's earlier record."""
        self._reserve(_identity(pod), reservation)

    def _reserve(self, identity: tuple[str, str], reservation: ReservedPodVolumes) -> None:
        self._release(identity)
        self._by_pod[identity] = reservation
        for volume, claim in reservation.volumes:
            self.claim_of.setdefault(volume, claim)
            self._pods_of_volume[volume] += 1
        for claim, node in reservation.claims:
            self.node_of.setdefault(claim, node)
            self._pods_of_claim[claim] += 1

    def copy_reservations_of_pods_being_bound(
        self, before: Self, is_reserved: PodTest, is_bound: PodTest = no_pod_is_bound
    ) -> None:
        """Add the volumes and claims that `before` has reserved for pods which are still being bound.

        Args:
          before: the volumes and claims of an earlier node table.
          is_reserved: as of `release_reservations_of_pods_not_being_bound`.
          is_bound: as of `release_reservations_of_pods_not_being_bound`.
        """
        for identity, reservation in before._by_pod.items():
            if self._is_needed(identity, reservation, is_reserved, is_bound):
                self._reserve(identity, reservation)

    def release_reservations_of_pods_not_being_bound(
        self, is_reserved: PodTest, is_bound: PodTest = no_pod_is_bound
    ) -> None:
        """Release the reserved volumes and PersistentVolumeClaims of all pods that are no longer being bound.

        A bound pod keeps its volumes until they are bound: the API server may show the pod first.

        Args:
          is_reserved: returns whether the binding of a pod has not ended.
          is_bound: returns whether a pod is bound to a node.
        """
        for identity, reservation in list(self._by_pod.items()):
            if not self._is_needed(identity, reservation, is_reserved, is_bound):
                self._release(identity)

    def _is_needed(
        self,
        identity: tuple[str, str],
        reservation: ReservedPodVolumes,
        is_reserved: PodTest,
        is_bound: PodTest,
    ) -> bool:
        return is_reserved(*identity) or (is_bound(*identity) and self._is_pending(reservation))

    def _is_pending(self, reservation: ReservedPodVolumes) -> bool:
        """Return whether the snapshot shows something as free that is reserved for a pod."""
        return not (
            self._available_volumes.isdisjoint(volume for volume, _ in reservation.volumes)
            and self._unbound_claims.isdisjoint(claim for claim, _ in reservation.claims)
        )

    @cached_property
    def _available_volumes(self) -> frozenset[str]:
        volumes = self._snapshot.persistent_volumes
        return frozenset(volume.metadata.name for volume in volumes if volume.spec.claim_ref is None)

    @cached_property
    def _unbound_claims(self) -> frozenset[str]:
        claims = self._snapshot.persistent_volume_claims
        return frozenset(claim.key for claim in claims if not claim.spec.volume_name)

    def has_reservation_for_any_pod(self, pods: Iterable[Pod]) -> bool:
        """Return whether volumes or claims are reserved for at least one of the given pods."""
        return bool(self._by_pod) and any(_identity(pod) in self._by_pod for pod in pods)

    def copy_for_pods(self, pods: Iterable[Pod]) -> Self:
        """Return a new object with only the volumes and claims that are reserved for the given pods."""
        excerpt = type(self)()
        for pod in pods:
            reservation = self._by_pod.get(_identity(pod))
            if reservation is not None:
                excerpt.reserve(pod, reservation)
        return excerpt

    def reserved_volumes_of_pod(self, pod: Pod) -> ReservedPodVolumes:
        """Return the volumes and claims that are reserved for a pod; an empty value if there are none."""
        return self._by_pod.get(_identity(pod), ReservedPodVolumes())

    def release(self, pod: Pod) -> None:
        """Release a pod's reserved volumes and claims, except those that are also reserved for other pods."""
        self._release(_identity(pod))

    def _release(self, identity: tuple[str, str]) -> None:
        reservation = self._by_pod.pop(identity, ReservedPodVolumes())
        for volume, _ in reservation.volumes:
            _remove_pod(volume, self.claim_of, self._pods_of_volume)
        for claim, _ in reservation.claims:
            _remove_pod(claim, self.node_of, self._pods_of_claim)


def _identity(pod: Pod) -> tuple[str, str]:
    return pod.key, pod.metadata.uid


def _remove_pod(key: str, reserved: dict[str, str], pod_counts: Counter[str]) -> None:
    """Remove one pod from the pods that have reserved a volume or claim; the last one releases it."""
    pod_counts[key] -= 1
    if not pod_counts[key]:
        del pod_counts[key], reserved[key]
