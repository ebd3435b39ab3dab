"""Ray clusters: a head and groups of workers with a minimum each. Workers beyond the minimum are elastic."""

from typing import Final

from batchsched.podgrouper.shape import (
    Manifest,
    OwnerPart,
    Shape,
    count,
    mapping,
    mappings,
    spec_of,
    text,
)

GROUP: Final = "ray.io/group"
HEAD: Final = "headgroup"


def ray_cluster(manifest: Manifest) -> Shape | None:
    """Return the head and `minReplicas` of each group of workers."""
    return _cluster(spec_of(manifest))


def ray_job(manifest: Manifest) -> Shape | None:
    """Return the cluster that the job starts. The pod that submits the job is created when the cluster runs."""
    spec = spec_of(manifest)
    if spec.get("suspend") is True or mapping(spec.get("clusterSelector")):
        return None
    return _cluster(mapping(spec.get("rayClusterSpec")))


def _cluster(spec: Manifest) -> Shape | None:
    if spec.get("suspend") is True or not mapping(spec.get("headGroupSpec")):
        return None
    parts = [OwnerPart(HEAD, 1, 1, mapping(mapping(spec["headGroupSpec"]).get("template")))]
    for group in mappings(spec.get("workerGroupSpecs")):
        if group.get("suspend") is True:
            continue
        least = count(group.get("minReplicas"))
        replicas = max(least, count(group.get("replicas"), least))
        hosts = count(group.get("numOfHosts"), 1)
        template = mapping(group.get("template"))
        parts.append(OwnerPart(text(group.get("groupName")), replicas * hosts, least * hosts, template))
    return Shape(tuple(parts), (GROUP,))
