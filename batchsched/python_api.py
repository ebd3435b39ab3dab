"""Reads clusters and explains decisions for Python programs and notebooks.

The package ``batchsched`` exports these functions together with ``decide``. The commands use the same functions below
them, so a program gets the decisions and the explanations of the command line.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from batchsched.api.decision import Decision
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.record.cluster_files import SessionSettings, read_cluster_files
from batchsched.scheduler.cluster_reader import read_snapshot_from_files
from batchsched.session.explanation.explain import explain_refusals
from batchsched.session.explanation.verification import DecidedInput


@dataclass(frozen=True, slots=True)
class ClusterInput:
    """A cluster that was read from files: the arguments of `decide`, with warnings about the files.

    Args:
      snapshot: the cluster, with the objects that were set aside.
      profile: the scheduling profile.
      now: the time of the session, seconds since 1970.
      seed: the seed of all random draws.
      warnings: messages about objects and fields that have no effect.
    """

    snapshot: Snapshot
    profile: Profile
    now: float
    seed: int = 0
    warnings: tuple[str, ...] = ()


def read(*paths: Path | str, profile: Profile | None = None, now: float | None = None) -> ClusterInput:
    """Read a cluster from manifests, from a dump of `batchsched dump`, or from a recorded session.

    Pods of Jobs and other owners in manifests are created in memory, as for `batchsched decide`.

    Args:
      paths: files and directories; at most one of the files is a dump or a recorded session.
      profile: the scheduling profile; its scheduler name selects the pending pods. None: that of the recorded
        session, otherwise the default profile.
      now: seconds since 1970. None: the time of the dump or of the recorded session, otherwise the current time.

    Raises:
      InvalidInput: a dump or a recorded session cannot be used, or there are several of them.
      CommandError: the files contain no valid object.
    """
    files = read_cluster_files([Path(path) for path in paths])
    recorded = files.session
    if profile is None:
        profile = Profile() if recorded is None else recorded.profile
    now = files.session_time(now)
    reading = read_snapshot_from_files(files, SessionSettings(profile, now))
    return ClusterInput(reading.snapshot, profile, now, files.session_seed(), reading.warnings)


def explain(cluster: ClusterInput, decision: Decision, only: Collection[str] | None = None) -> Decision:
    """Return a copy of the decision in which refusals state what changes would let their gangs start.

    Changes are verified by deciding again on the changed input. An examined refusal states whether the gang can ever
    start on this cluster, which gangs go first, and a smallest set of changes after which a session places the gang.

    Args:
      cluster: the input of the decision.
      decision: the decision of `decide` over this input.
      only: `namespace/name` of the gangs to examine; None for all refused gangs.
    """
    decided = DecidedInput(cluster.snapshot, cluster.profile, cluster.now, cluster.seed, decision)
    return explain_refusals(decided, only=only)
