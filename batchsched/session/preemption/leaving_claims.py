"""ResourceClaims that will be released soon, because their pods are being deleted or no longer exist.

The resourceclaim controller of Kubernetes releases a claim some time after its last pod has gone. In between, the
devices would seem to be in use by no pod, and further pods would be evicted for them.
"""

from types import TracebackType
from typing import Final, Self

from batchsched.api.core.metadata import parse_timestamp
from batchsched.api.core.pod import Pod
from batchsched.session.tables.session_tables import SessionTables

OVERDUE_SECONDS: Final = 600.0
"""Seconds after its deletion deadline from which the room of a terminating pod is no longer expected."""


def is_termination_overdue(pod: Pod, now: float) -> bool:
    """Return True if a pod has been terminating for so long that its resources are not expected to be freed."""
    return now > parse_timestamp(pod.metadata.deletion_timestamp, now) + OVERDUE_SECONDS


class DeletedPodsWithClaims:
    """Pods that no longer exist, although ResourceClaims are still reserved for them.

    Args:
      tables: the tables of the session.
    """

    def __init__(self, tables: SessionTables) -> None:
        self._tables = tables
        self._uids: list[str] = []

    def mark_devices_as_free(self) -> None:
        """Count devices as free if their ResourceClaims are reserved only for pods that no longer exist."""
        tables = self._tables
        consumers = tables.node_table.device_ledger.consumer_pod_keys_by_uid()
        if not consumers:
            return
        existing = {
            pod.metadata.uid
            for members in tables.gangs.values()
            for pod in (*members.pending.values(), *(pod for pod, _ in members.bound.values()))
        }
        # A pod that was set aside exists, although no gang has it.
        self._uids = sorted(
            uid
            for uid, key in consumers.items()
            if uid not in existing and f"Pod {key}" not in tables.names_of_set_aside_objects
        )
        for uid in self._uids:
            tables.node_table.device_ledger.simulate_deletion_of_pod_uid(uid)

    def mark_devices_as_used_again(self) -> None:
        """Undo `mark_devices_as_free`: count the same devices as in use again."""
        for uid in self._uids:
            self._tables.node_table.device_ledger.undo_simulated_deletion_of_pod_uid(uid)
        self._uids = []


class SoonReleasedClaims:
    """A context manager in which the devices of ResourceClaims that will be released soon count as free.

    Args:
      tables: the tables of the session.
    """

    def __init__(self, tables: SessionTables) -> None:
        self._ledger = tables.node_table.device_ledger
        self._missing = DeletedPodsWithClaims(tables)
        now = tables.node_table.now
        self._terminating = [
            pod
            for members in tables.running.values()
            for pod, _ in members.bound.values()
            if pod.terminating and not is_termination_overdue(pod, now)
        ]

    def __enter__(self) -> Self:
        """Count devices as free if their ResourceClaims will be released soon."""
        self._missing.mark_devices_as_free()
        for pod in self._terminating:
            self._ledger.simulate_deletion_of_pod(pod)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Count the same devices as in use again."""
        for pod in reversed(self._terminating):
            self._ledger.undo_simulated_deletion_of_pod(pod)
        self._missing.mark_devices_as_used_again()
