"""The rules for owners of Kubernetes and its subprojects: Job, JobSet, LeaderWorkerSet, StatefulSet, Deployment."""

from typing import Final

from batchsched.api.core.selector import parse_go_integer
from batchsched.podgrouper.shape import (
    Manifest,
    OwnerGangShape,
    OwnerPart,
    mapping_entries_of_list,
    mapping_or_empty,
    pod_count_or_default,
    spec_of,
    status_of,
    text_or_empty,
)

REPLICATED_JOB: Final = "jobset.sigs.k8s.io/replicatedjob-name"
LEADER_WORKER_SET: Final = "leaderworkerset.sigs.k8s.io/name"
GROUP_INDEX: Final = "leaderworkerset.sigs.k8s.io/group-index"
EXCLUSIVE: Final = "leaderworkerset.sigs.k8s.io/exclusive-topology"


def job_gang_shape(manifest: Manifest) -> OwnerGangShape | None:
    """Return how the pods of a Job form a gang; its minimum is the number of pods that run in parallel.

    The result is None if the Job is suspended. A Job without `completions` creates no new pods after the first success.
    From then on, one pod is enough.
    """
    spec, status = spec_of(manifest), status_of(manifest)
    if spec.get("suspend") is True:
        return None
    pods = _pods_of_job(spec)
    succeeded = pod_count_or_default(status.get("succeeded"))
    if isinstance(spec.get("completions"), int):
        unfinished = (
            pod_count_or_default(spec["completions"])
            - succeeded
            - _indexes(text_or_empty(status.get("failedIndexes")))
        )
    else:
        unfinished = pods if not succeeded else 1
    needed = max(0, min(pods, unfinished))
    return OwnerGangShape(
        (OwnerPart("", pods, needed, mapping_or_empty(spec.get("template")), pods - needed),)
    )


def _pods_of_job(spec: Manifest) -> int:
    parallelism = pod_count_or_default(spec.get("parallelism"), 1)
    return min(parallelism, pod_count_or_default(spec.get("completions"), parallelism))


def _indexes(intervals: str) -> int:
    """Return how many indexes a text of intervals such as `1,3-5` contains."""
    total = 0
    for part in intervals.split(","):
        first, _, last = part.partition("-")
        first_index, last_index = parse_go_integer(first), parse_go_integer(last)
        if first_index is not None:
            total += 1 if last_index is None else max(0, last_index - first_index + 1)
    return total


def jobset_gang_shape(manifest: Manifest) -> OwnerGangShape | None:
    """Return how the pods of a JobSet form a gang: each replicated job has a pod count and a minimum.

    A replicated job that starts after others has minimum 0. The result is None if the JobSet is suspended or has no
    replicated job.
    """
    spec = spec_of(manifest)
    if spec.get("suspend") is True:
        return None
    in_order = mapping_or_empty(spec.get("startupPolicy")).get("startupPolicyOrder") == "InOrder"
    done = {
        text_or_empty(status.get("name")): pod_count_or_default(status.get("succeeded"))
        for status in mapping_entries_of_list(status_of(manifest).get("replicatedJobsStatus"))
    }
    parts: list[OwnerPart] = []
    for index, replicated in enumerate(mapping_entries_of_list(spec.get("replicatedJobs"))):
        name, jobs = (
            text_or_empty(replicated.get("name")),
            pod_count_or_default(replicated.get("replicas"), 1),
        )
        job_spec = spec_of(mapping_or_empty(replicated.get("template")))
        pods_per_job = _pods_of_job(job_spec)
        later = (in_order and index > 0) or bool(mapping_entries_of_list(replicated.get("dependsOn")))
        pods = jobs * pods_per_job
        unfinished = max(0, jobs - done.get(name, 0)) * pods_per_job
        template = mapping_or_empty(job_spec.get("template"))
        path = f"spec.replicatedJobs[{index}].template.spec.template"
        parts.append(OwnerPart(name, pods, 0 if later else unfinished, template, pods - unfinished, path))
    return OwnerGangShape(tuple(parts), (REPLICATED_JOB,)) if parts else None


def leader_worker_set_gang_shape(manifest: Manifest) -> OwnerGangShape | None:
    """Return how the pods of a LeaderWorkerSet form gangs: each leader and its workers are one gang.

    If the workers are created after their leader, the minimum number of pods is 1, otherwise all of them.
    """
    spec = spec_of(manifest)
    template = mapping_or_empty(spec.get("leaderWorkerTemplate"))
    size = pod_count_or_default(template.get("size"), 1)
    annotations = mapping_or_empty(mapping_or_empty(manifest.get("metadata")).get("annotations"))
    leader_first = spec.get("startupPolicy") == "LeaderReady" or EXCLUSIVE in annotations
    name = "leaderTemplate" if mapping_or_empty(template.get("leaderTemplate")) else "workerTemplate"
    pods, path = mapping_or_empty(template.get(name)), f"spec.leaderWorkerTemplate.{name}"
    needed = min(size, 1) if leader_first else size
    return OwnerGangShape((OwnerPart("", size, needed, pods, field=path),), gang_label=GROUP_INDEX)


def stateful_set_gang_shape(manifest: Manifest) -> OwnerGangShape | None:
    """Return how the pods of a StatefulSet form a gang, or None if the pods start one after the other.

    All replicas are needed together.
    """
    spec = spec_of(manifest)
    if spec.get("podManagementPolicy") != "Parallel":
        return None
    replicas = pod_count_or_default(spec.get("replicas"), 1)
    return OwnerGangShape((OwnerPart("", replicas, replicas, mapping_or_empty(spec.get("template"))),))


def deployment_gang_shape(manifest: Manifest) -> OwnerGangShape | None:
    """Return how the pods of a Deployment or a ReplicaSet form a gang, if labels or annotations ask for one.

    The shape is optional: without such labels or annotations, the pods form no gang. Each pod serves requests by
    itself, so one pod is enough, and the others are evicted one by one.
    """
    spec = spec_of(manifest)
    replicas = pod_count_or_default(spec.get("replicas"), 1)
    part = OwnerPart("", replicas, min(replicas, 1), mapping_or_empty(spec.get("template")))
    return OwnerGangShape((part,), spec_fields={"disruptionMode": "Elastic"}, is_optional=True)
