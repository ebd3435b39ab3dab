"""Reads a cluster from files: a dump, a recorded session, or manifests of pods, Jobs and other objects.

Most inputs are manifests without owners of pods, which need no component of the running scheduler. These components are
imported only for other inputs.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from batchsched.manifests.api_server import snapshot_with_creation_times_and_claims
from batchsched.manifests.input_warnings import input_warnings
from batchsched.manifests.reader import ReadResult, read_manifests
from batchsched.podgrouper.configured_rules import built_in_and_configured_owner_kinds
from batchsched.ports.external import Telemetry
from batchsched.record.cluster_files import ClusterFiles, SessionSettings

if TYPE_CHECKING:
    from batchsched.scheduler.offline_cluster import OfflineCluster


def read_snapshot_from_files(
    files: ClusterFiles, settings: SessionSettings, telemetry: Telemetry | None = None
) -> ReadResult:
    """Read a cluster from files, and return the input of a session together with warnings about the files.

    Raises:
      CommandError: the files contain no valid object.
    """
    if files.session is not None and not files.manifests:
        return ReadResult(files.session.snapshot)
    if files.session is None and files.dump is None:
        reading = _read_manifests(files, settings, telemetry)
        if not reading.owners:
            return replace(
                reading, snapshot=snapshot_with_creation_times_and_claims(reading.snapshot, settings.now)
            )
        cluster = _load_reading(reading, settings)
    else:
        cluster = load_offline_cluster(files, settings)
    snapshot = cluster.snapshot()
    return ReadResult(snapshot, tuple(dict.fromkeys((*cluster.warnings, *input_warnings(snapshot)))))


def load_offline_cluster(files: ClusterFiles, settings: SessionSettings) -> "OfflineCluster":
    """Load a cluster from files, and return it as an `OfflineCluster`, to which further objects can be added.

    Raises as `read_snapshot_from_files`.
    """
    from batchsched.scheduler.offline_cluster import OfflineCluster

    if files.session is None and files.dump is None:
        return _load_reading(_read_manifests(files, settings), settings)
    cluster = OfflineCluster(settings)
    if files.session is not None:
        cluster.load_snapshot(files.session.snapshot)
    elif files.dump is not None:
        cluster.load_dump(files.dump)
    cluster.add_objects_from_files(files.manifests)
    return cluster


def _read_manifests(
    files: ClusterFiles, settings: SessionSettings, telemetry: Telemetry | None = None
) -> ReadResult:
    name = settings.profile.scheduler_name
    kinds = built_in_and_configured_owner_kinds(settings.grouping.rules).kinds_read_from_files
    return read_manifests(files.manifests, telemetry, scheduler_name=name, owner_kinds=kinds)


def _load_reading(reading: ReadResult, settings: SessionSettings) -> "OfflineCluster":
    from batchsched.scheduler.offline_cluster import OfflineCluster

    cluster = OfflineCluster(settings)
    cluster.load_manifests(reading)
    return cluster
