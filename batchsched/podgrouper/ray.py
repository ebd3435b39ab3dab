"""Ray: a head and groups of workers, of which so many are needed and the others come and go."""

from typing import Final

from batchsched.podgrouper.shape import (
    Manifest,
    PodsOf,
    Shape,
    count,
    listed,
    mapping,
    spec_of,
    text,
)

GROUP: Final = "ray.io/group"
HEAD: Final = "headgroup"


def ray_cluster(manifest: Manifest) -> Shape | None:
    """The head and `minReplicas` of each group of workers."""
    return _cluster(spec_of(manifest))


def ray_job(manifest: Manifest) -> Shape | None:
    """The cluster that it starts, which is all that is needed at first: who submits to it comes when it runs."""
    spec = spec_of(manifest)
    if spec.get("suspend") is True or mapping(spec.get("clusterSelector")):
        return None
    return _cluster(mapping(spec.get("rayClusterSpec")))


def _cluster(spec: Manifest) -> Shape | None:
    if spec.get("suspend") is True or not mapping(spec.get("headGroupSpec")):
        return None
    parts = [PodsOf(HEAD, 1, 1, mapping(mapping(spec["headGroupSpec"]).get("template")))]
    for group in listed(spec.get("workerGroupSpecs")):
        if group.get("suspend") is True:
            continue
        least = count(group.get("minReplicas"))
        wanted = max(least, count(group.get("replicas"), least))
        hosts = count(group.get("numOfHosts"), 1)
        template = mapping(group.get("template"))
        parts.append(PodsOf(text(group.get("groupName")), wanted * hosts, least * hosts, template))
    return Shape(tuple(parts), (GROUP,))
