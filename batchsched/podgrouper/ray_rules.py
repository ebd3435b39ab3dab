"""The rules for owners of KubeRay: RayCluster, RayJob and RayService."""

from typing import Any, Final

from batchsched.podgrouper.shape import (
    Manifest,
    OwnerGangShape,
    OwnerPart,
    mapping_entries_of_list,
    mapping_or_empty,
    pod_count_or_default,
    spec_of,
    text_or_empty,
)

GROUP: Final = "ray.io/group"
HEAD: Final = "headgroup"


def ray_cluster_gang_shape(manifest: Manifest) -> OwnerGangShape | None:
    """Return how the pods of a RayCluster form a gang.

    The head and `minReplicas` of each worker group are needed together. The result is None if the RayCluster is
    suspended or has no head.
    """
    return _cluster(spec_of(manifest), "spec")


def ray_job_gang_shape(manifest: Manifest) -> OwnerGangShape | None:
    """Return how the pods of the Ray cluster that a RayJob starts form a gang, without the submitter pod.

    The submitter pod is created when the cluster runs. The result is None if the RayJob is suspended or uses an
    existing cluster.
    """
    spec = spec_of(manifest)
    if spec.get("suspend") is True or mapping_or_empty(spec.get("clusterSelector")):
        return None
    return _cluster(mapping_or_empty(spec.get("rayClusterSpec")), "spec.rayClusterSpec")


def _cluster(spec: Manifest, path: str) -> OwnerGangShape | None:
    """Return the shape of a Ray cluster, given its spec and the path of the spec in the owner."""
    if spec.get("suspend") is True or not mapping_or_empty(spec.get("headGroupSpec")):
        return None
    head = mapping_or_empty(mapping_or_empty(spec["headGroupSpec"]).get("template"))
    parts = [OwnerPart(HEAD, 1, 1, head, field=f"{path}.headGroupSpec.template")]
    for index, group in enumerate(mapping_entries_of_list(spec.get("workerGroupSpecs"))):
        if group.get("suspend") is True:
            continue
        least = pod_count_or_default(group.get("minReplicas"))
        replicas = max(least, pod_count_or_default(group.get("replicas"), least))
        hosts = pod_count_or_default(group.get("numOfHosts"), 1)
        template, name = mapping_or_empty(group.get("template")), text_or_empty(group.get("groupName"))
        field_path = f"{path}.workerGroupSpecs[{index}].template"
        parts.append(OwnerPart(name, replicas * hosts, least * hosts, template, field=field_path))
    return OwnerGangShape(tuple(parts), (GROUP,))


def ray_service_child_manifests(manifest: Manifest, _: object = ()) -> list[dict[str, Any]]:
    """Return the RayCluster that the controller of a RayService creates.

    The PodGroup is that of the RayCluster: during an update, a RayService has a second RayCluster.
    Source: `RayServiceSpec` of ray.io/v1.
    """
    spec = spec_of(manifest)
    meta = mapping_or_empty(manifest.get("metadata"))
    return [
        {
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
            "metadata": {"name": text_or_empty(meta.get("name"))},
            "spec": dict(mapping_or_empty(spec.get("rayClusterConfig"))),
        }
    ]
