"""Owners of Kubernetes and its special interest groups: Job, JobSet, LeaderWorkerSet, StatefulSet."""

from typing import Final

from batchsched.podgrouper.shape import (
    Manifest,
    OwnerPart,
    Shape,
    count,
    mapping,
    mappings,
    spec_of,
    status_of,
    text,
)

REPLICATED_JOB: Final = "jobset.sigs.k8s.io/replicatedjob-name"
LEADER_WORKER_SET: Final = "leaderworkerset.sigs.k8s.io/name"
GROUP_INDEX: Final = "leaderworkerset.sigs.k8s.io/group-index"
EXCLUSIVE: Final = "leaderworkerset.sigs.k8s.io/exclusive-topology"


def job(manifest: Manifest) -> Shape | None:
    """Return the pods that run at the same time, without those that have completed.

    A Job without `completions` creates no new pods after the first success. From then on its minimum is 1.
    """
    spec, status = spec_of(manifest), status_of(manifest)
    if spec.get("suspend") is True:
        return None
    pods = _pods_of_job(spec)
    succeeded = count(status.get("succeeded"))
    if isinstance(spec.get("completions"), int):
        unfinished = count(spec["completions"]) - succeeded - _indexes(text(status.get("failedIndexes")))
    else:
        unfinished = pods if not succeeded else 1
    needed = max(0, min(pods, unfinished))
    return Shape((OwnerPart("", pods, needed, mapping(spec.get("template")), pods - needed),))


def _pods_of_job(spec: Manifest) -> int:
    parallelism = count(spec.get("parallelism"), 1)
    return min(parallelism, count(spec.get("completions"), parallelism))


def _indexes(intervals: str) -> int:
    """Return the number of indexes in a text such as `1,3-5`."""
    total = 0
    for part in intervals.split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            total += int(last) - int(first) + 1 if last.isdigit() else 1
    return total


def jobset(manifest: Manifest) -> Shape | None:
    """Return the pods of all replicated jobs. Jobs that start only after others have the minimum 0."""
    spec = spec_of(manifest)
    if spec.get("suspend") is True:
        return None
    in_order = mapping(spec.get("startupPolicy")).get("startupPolicyOrder") == "InOrder"
    done = {
        text(status.get("name")): count(status.get("succeeded"))
        for status in mappings(status_of(manifest).get("replicatedJobsStatus"))
    }
    parts: list[OwnerPart] = []
    for index, replicated in enumerate(mappings(spec.get("replicatedJobs"))):
        name, jobs = text(replicated.get("name")), count(replicated.get("replicas"), 1)
        job_spec = spec_of(mapping(replicated.get("template")))
        pods_per_job = _pods_of_job(job_spec)
        later = (in_order and index > 0) or bool(mappings(replicated.get("dependsOn")))
        pods = jobs * pods_per_job
        unfinished = max(0, jobs - done.get(name, 0)) * pods_per_job
        template = mapping(job_spec.get("template"))
        parts.append(OwnerPart(name, pods, 0 if later else unfinished, template, pods - unfinished))
    return Shape(tuple(parts), (REPLICATED_JOB,)) if parts else None


def leader_worker_set(manifest: Manifest) -> Shape | None:
    """Return one gang per group: a leader and its workers. It needs 1 pod if workers follow their leader."""
    spec = spec_of(manifest)
    template = mapping(spec.get("leaderWorkerTemplate"))
    size = count(template.get("size"), 1)
    annotations = mapping(mapping(manifest.get("metadata")).get("annotations"))
    leader_first = spec.get("startupPolicy") == "LeaderReady" or EXCLUSIVE in annotations
    pods = mapping(template.get("leaderTemplate")) or mapping(template.get("workerTemplate"))
    needed = min(size, 1) if leader_first else size
    return Shape((OwnerPart("", size, needed, pods),), gang_label=GROUP_INDEX)


def stateful_set(manifest: Manifest) -> Shape | None:
    """Return all replicas if they start in parallel. Otherwise they start one by one and are no gang."""
    spec = spec_of(manifest)
    if spec.get("podManagementPolicy") != "Parallel":
        return None
    replicas = count(spec.get("replicas"), 1)
    return Shape((OwnerPart("", replicas, replicas, mapping(spec.get("template"))),))
