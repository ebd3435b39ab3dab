"""Kubernetes' own owners and those of its SIGs: Job, JobSet, LeaderWorkerSet, StatefulSet."""

from typing import Final

from batchsched.podgrouper.shape import (
    Manifest,
    PodsOf,
    Shape,
    count,
    listed,
    mapping,
    spec_of,
    status_of,
    text,
)

REPLICATED_JOB: Final = "jobset.sigs.k8s.io/replicatedjob-name"
LEADER_WORKER_SET: Final = "leaderworkerset.sigs.k8s.io/name"
GROUP_INDEX: Final = "leaderworkerset.sigs.k8s.io/group-index"
EXCLUSIVE: Final = "leaderworkerset.sigs.k8s.io/exclusive-topology"


def job(manifest: Manifest) -> Shape | None:
    """All pods that run at once; what has completed is not needed again.

    A Job without completions makes no new pods once one has succeeded, so that from then on each counts for itself.
    """
    spec, status = spec_of(manifest), status_of(manifest)
    if spec.get("suspend") is True:
        return None
    pods = _pods_of_job(spec)
    succeeded = count(status.get("succeeded"))
    if isinstance(spec.get("completions"), int):
        left = count(spec["completions"]) - succeeded - _indexes(text(status.get("failedIndexes")))
    else:
        left = pods if not succeeded else 1
    needed = max(0, min(pods, left))
    return Shape((PodsOf("", pods, needed, mapping(spec.get("template")), pods - needed),))


def _pods_of_job(spec: Manifest) -> int:
    parallelism = count(spec.get("parallelism"), 1)
    return min(parallelism, count(spec.get("completions"), parallelism))


def _indexes(intervals: str) -> int:
    """Count the indexes of a text such as `1,3-5`."""
    found = 0
    for part in intervals.split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            found += int(last) - int(first) + 1 if last.isdigit() else 1
    return found


def jobset(manifest: Manifest) -> Shape | None:
    """The pods of all replicated jobs; those that start only after others are not waited for."""
    spec = spec_of(manifest)
    if spec.get("suspend") is True:
        return None
    in_order = mapping(spec.get("startupPolicy")).get("startupPolicyOrder") == "InOrder"
    done = {
        text(one.get("name")): count(one.get("succeeded"))
        for one in listed(status_of(manifest).get("replicatedJobsStatus"))
    }
    parts: list[PodsOf] = []
    for at, one in enumerate(listed(spec.get("replicatedJobs"))):
        name, jobs, made = text(one.get("name")), count(one.get("replicas"), 1), spec_of(_template(one))
        each = _pods_of_job(made)
        later = (in_order and at > 0) or bool(listed(one.get("dependsOn")))
        left = max(0, jobs - done.get(name, 0)) * each
        pods = mapping(made.get("template"))
        parts.append(PodsOf(name, jobs * each, 0 if later else left, pods, jobs * each - left))
    return Shape(tuple(parts), (REPLICATED_JOB,)) if parts else None


def _template(replicated_job: Manifest) -> Manifest:
    return mapping(replicated_job.get("template"))


def leader_worker_set(manifest: Manifest) -> Shape | None:
    """A gang for each group: a leader and its workers, unless the workers come only after the leader has a place."""
    spec = spec_of(manifest)
    template = mapping(spec.get("leaderWorkerTemplate"))
    size = count(template.get("size"), 1)
    annotations = mapping(mapping(manifest.get("metadata")).get("annotations"))
    leader_first = spec.get("startupPolicy") == "LeaderReady" or EXCLUSIVE in annotations
    pods = mapping(template.get("leaderTemplate")) or mapping(template.get("workerTemplate"))
    needed = min(size, 1) if leader_first else size
    return Shape((PodsOf("", size, needed, pods),), gang_label=GROUP_INDEX)


def stateful_set(manifest: Manifest) -> Shape | None:
    """All replicas where they start together; otherwise each waits for the one before it, and is no gang."""
    spec = spec_of(manifest)
    if spec.get("podManagementPolicy") != "Parallel":
        return None
    replicas = count(spec.get("replicas"), 1)
    return Shape((PodsOf("", replicas, replicas, mapping(spec.get("template"))),))
