"""The objects of a case as Kubernetes manifests: nodes, running pods, the pods of the gang, claims, and its groups.

The groups of the gang are a PodGroup of batchsched, or a tree of CompositePodGroups and PodGroups of Kubernetes 1.37,
which have no slices.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from batchsched.api.core.device import DeviceClass, ResourceClaim, ResourceSlice
from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.crd.topology import Topology
from batchsched.api.decision import ClaimAssignment, Decision
from batchsched.api.snapshot import Snapshot
from bench.groups.cases import CPUS, GPUS, LEVELS, POD_SIZES, ROOT_SIZE, Case, Group, NodeRoom, domain_of
from bench.groups.check import Placement

Json = dict[str, Any]

NAMESPACE: Final = "team"
BETA: Final = "scheduling.k8s.io/v1beta1"
ALPHA: Final = "scheduling.k8s.io/v1alpha3"
HOST: Final = "kubernetes.io/hostname"
GPU: Final = "nvidia.com/gpu"
DRIVER: Final = "gpu.example.com"
_REQUEST: Final = "gpus"
_SUBGROUP: Final = "example.com/subgroup"


def snapshot(case: Case) -> Snapshot:
    """Return the input of a session, with the groups as a PodGroup of batchsched."""
    pods = [*running_pods(case), *gang_pods(case)]
    return Snapshot(
        nodes=msgspec.convert(nodes(case), tuple[Node, ...]),
        pods=msgspec.convert(pods, tuple[Pod, ...]),
        pod_groups=(PodGroup.model_validate(_pod_group(case.gang)),),
        topologies=(Topology.model_validate(_TOPOLOGY),),
        device_classes=msgspec.convert(device_classes(case), tuple[DeviceClass, ...]),
        resource_slices=msgspec.convert(resource_slices(case), tuple[ResourceSlice, ...]),
        resource_claims=msgspec.convert(
            [*running_claims(case), *gang_claims(case)], tuple[ResourceClaim, ...]
        ),
    )


def placement(decision: Decision) -> Placement:
    """Return where a decision places the pods of the gang."""
    return Placement(
        {assignment.pod: int(assignment.node[1:]) for assignment in decision.assignments},
        {
            assignment.pod: tuple(device for claim in assignment.claims for device in _devices(claim))
            for assignment in decision.assignments
        },
    )


def _devices(claim: ClaimAssignment) -> Iterator[int]:
    if claim.allocation is not None:
        for result in claim.allocation.devices.results:
            yield device_number(result.device)


def device_number(name: str) -> int:
    """Return the number of a device on its node."""
    return int(name.removeprefix("gpu-"))


# ---------------------------------------------------------------------------------------- the cluster


def node_name(number: int) -> str:
    """Return the name of a node."""
    return f"n{number:03d}"


def nodes(case: Case) -> list[Json]:
    """Return the nodes."""
    return [node(number, has_gpus=not case.has_claims) for number in range(len(case.free))]


def node(number: int, *, has_gpus: bool = True) -> Json:
    """Return one node.

    Args:
      number: its number, which determines its rack and block.
      has_gpus: whether its GPUs are an extended resource.
    """
    name = node_name(number)
    labels = {level_label(level): domain_of(number, level) for level in LEVELS} | {HOST: name}
    amounts = {"cpu": str(CPUS), "memory": "1Ti", "pods": "110"} | ({GPU: str(GPUS)} if has_gpus else {})
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def level_label(level: str) -> str:
    """Return the node label of a topology level."""
    return f"example.com/{level}"


def running_pods(case: Case, *, named_claims: bool = False) -> list[Json]:
    """Return one running pod for each node that is in use, with all that is in use there.

    Args:
      case: the case.
      named_claims: the pods name their claims, instead of a template that they were created from.
    """
    return [
        _pod(
            case,
            f"busy-{number}",
            _used(room),
            {"schedulerName": "other", "nodeName": node_name(number)},
            named_claim=named_claims,
        )
        for number, room in enumerate(case.free)
        if any(_used(room))
    ]


def _used(room: NodeRoom) -> tuple[int, int]:
    return GPUS - sum(room.gpus), CPUS - room.cpus


def gang_pods(case: Case, scheduler: str = "batchsched", *, upstream: bool = False) -> list[Json]:
    """Return the pods of the gang.

    Args:
      case: the case.
      scheduler: the name of the scheduler that is to place them.
      upstream: whether they are pods of PodGroups of Kubernetes.
    """
    return [
        _pod(
            case,
            name,
            (gpus, cpus),
            {"schedulerName": scheduler}
            | _affinity(group)
            | ({"schedulingGroup": {"podGroupName": group.name}} if upstream else {}),
            _labels(group, case.gang) if not upstream else {_SUBGROUP: group.name},
        )
        for group in case.gang.iterate()
        for name, gpus, cpus in group.iterate_pods()
    ]


def _labels(group: Group, gang: Group) -> dict[str, str]:
    labels = {_SUBGROUP: group.name, "scheduling.batchsched.dev/pod-group": gang.name}
    return labels | ({"scheduling.batchsched.dev/sub-group": group.name} if group is not gang else {})


def _pod(
    case: Case,
    name: str,
    size: tuple[int, int],
    spec: Json,
    labels: dict[str, str] | None = None,
    *,
    named_claim: bool = False,
) -> Json:
    gpus, cpus = size
    requests, status = {"cpu": str(cpus), "memory": "1Gi"}, {}
    if gpus and case.has_claims:
        named, created = (
            {"resourceClaimName": claim_name(name)},
            {"resourceClaimTemplateName": template_name(gpus)},
        )
        spec = spec | {"resourceClaims": [{"name": _REQUEST, **(named if named_claim else created)}]}
        status = {"resourceClaimStatuses": [{"name": _REQUEST, "resourceClaimName": claim_name(name)}]}
    elif gpus:
        requests[GPU] = str(gpus)
    resources: Json = {"requests": requests, "limits": {GPU: requests[GPU]} if GPU in requests else {}}
    containers = [{"name": "main", "image": "none", "resources": resources}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": name, "labels": labels or {}},
        "spec": {"containers": containers, **spec},
        "status": status,
    }


def _affinity(group: Group) -> Json:
    """Return the affinity of the pods of a group."""
    near = [(group.name, "rack")] if group.together else []
    near += [(group.near, "block")] if group.near else []
    away = [(group.away, "rack")] if group.away else []
    apart = [_term(group.name, HOST)] if group.apart else []
    terms = {
        "podAffinity": [_term(name, level_label(level)) for name, level in near],
        "podAntiAffinity": apart + [_term(name, level_label(level)) for name, level in away],
    }
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = {kind: {required: found} for kind, found in terms.items() if found}
    return {"affinity": affinity} if affinity else {}


def _term(group: str, key: str) -> Json:
    return {"labelSelector": {"matchLabels": {_SUBGROUP: group}}, "topologyKey": key}


# ---------------------------------------------------------------------------------------- devices


def device_classes(case: Case) -> list[Json]:
    """Return the class of the devices; none if GPUs are an extended resource."""
    return [device_class()] if case.has_claims else []


def device_class() -> Json:
    """Return the class of the devices."""
    selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu"},
        "spec": {"selectors": selectors},
    }


def resource_slices(case: Case) -> list[Json]:
    """Return the devices of each node; none if GPUs are an extended resource."""
    return [_slice(number) for number in range(len(case.free))] if case.has_claims else []


def _slice(number: int) -> Json:
    name = node_name(number)
    devices = [
        {"name": f"gpu-{device}", "attributes": {"root": {"int": device // ROOT_SIZE}}}
        for device in range(GPUS)
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices},
    }


def claim_name(pod: str) -> str:
    """Return the name of a pod's claim."""
    return f"{pod}-gpus"


def gang_claims(case: Case) -> list[Json]:
    """Return the claims of the gang's pods; none if GPUs are an extended resource."""
    if not case.has_claims:
        return []
    pods = (pod for group in case.gang.iterate() for pod in group.iterate_pods())
    return [_claim(name, gpus, one_root=gpus <= ROOT_SIZE) for name, gpus, _ in pods if gpus]


def running_claims(case: Case) -> list[Json]:
    """Return the claims of the running pods with their devices, which are the first ones of each root."""
    if not case.has_claims:
        return []
    # A running pod stands for several, so that its devices may be behind several roots.
    return [
        _claim(f"busy-{number}", used, one_root=False) | {"status": _status(number, room)}
        for number, room in enumerate(case.free)
        if (used := GPUS - sum(room.gpus))
    ]


def _claim(pod: str, count: int, *, one_root: bool) -> Json:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": pod, "controller": True}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": claim_name(pod),
            "namespace": NAMESPACE,
            "uid": claim_name(pod),
            "ownerReferences": [owner],
        },
        "spec": _claim_spec(count, one_root=one_root),
    }


def _claim_spec(count: int, *, one_root: bool) -> Json:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    constraints = [{"matchAttribute": f"{DRIVER}/root", "requests": [_REQUEST]}] if one_root else []
    return {"devices": {"requests": [{"name": _REQUEST, "exactly": exactly}], "constraints": constraints}}


def template_name(count: int) -> str:
    """Return the name of the ResourceClaimTemplate for a number of devices."""
    return f"gpus-{count}"


def claim_templates() -> list[Json]:
    """Return the templates from which the claims of pods are created in a cluster."""
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": template_name(count), "namespace": NAMESPACE},
            "spec": {"spec": _claim_spec(count, one_root=count <= ROOT_SIZE)},
        }
        for count in sorted({gpus for gpus, _ in POD_SIZES if gpus})
    ]


def _status(number: int, room: NodeRoom) -> Json:
    name, pod = node_name(number), f"busy-{number}"
    results = [
        {
            "request": _REQUEST,
            "driver": DRIVER,
            "pool": name,
            "device": f"gpu-{root * ROOT_SIZE + device}",
        }
        for root, free in enumerate(room.gpus)
        for device in range(ROOT_SIZE - free)
    ]
    fields = [{"key": "metadata.name", "operator": "In", "values": [name]}]
    return {
        "allocation": {
            "devices": {"results": results},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]},
        },
        "reservedFor": [{"resource": "pods", "name": pod, "uid": pod}],
    }


# ---------------------------------------------------------------------------------------- groups

_TOPOLOGY: Final = {
    "metadata": {"name": "default"},
    "spec": {"levels": [{"name": level, "nodeLabel": level_label(level)} for level in LEVELS]},
}


def _topology(group: Group) -> Json:
    result: Json = {"required": group.required} if group.required else {}
    if group.slice_size:
        result["slices"] = {"level": group.slice_level, "size": group.slice_size}
    return {"topology": result} if result else {}


def _minimum(group: Group) -> Json:
    if not group.children:
        return {"minMember": group.minimum}
    return {"minSubGroups": group.min_children} if group.min_children < len(group.children) else {}


def _pod_group(gang: Group) -> Json:
    """Return the gang as a PodGroup of batchsched."""
    sub_groups = [
        {"name": child.name, **_topology(child), **_minimum(child)}
        | ({"parent": parent.name} if parent is not gang else {})
        for parent in gang.iterate()
        for child in parent.children
    ]
    return {
        "metadata": {"name": gang.name, "namespace": NAMESPACE},
        "spec": {**_topology(gang), **_minimum(gang), "subGroups": sub_groups},
    }


def upstream_groups(case: Case) -> list[Json]:
    """Return the gang as CompositePodGroups and PodGroups of Kubernetes, the outer ones first.

    Raises:
      ValueError: the gang has slices, which these kinds cannot express.
    """
    parents = {child.name: parent.name for parent in case.gang.iterate() for child in parent.children}
    return [_upstream_group(group, parents.get(group.name, "")) for group in case.gang.iterate()]


def has_slices(case: Case) -> bool:
    """Return whether a group of the gang has slices."""
    return any(group.slice_size for group in case.gang.iterate())


def _upstream_group(group: Group, parent: str) -> Json:
    if group.slice_size:
        raise ValueError(f"{group.name} has slices, and the groups of Kubernetes have none")
    minimum = {"minGroupCount": group.min_children} if group.children else {"minCount": group.minimum}
    reference = {"workloadName": "gang", "templateName": group.name}
    spec: Json = {"schedulingPolicy": {"gang": minimum}, "workloadRef": reference}
    if group.required:
        spec["schedulingConstraints"] = {"topology": [{"key": level_label(group.required)}]}
    if parent:
        spec["parentCompositePodGroupName"] = parent
    return {
        "apiVersion": ALPHA if group.children or parent else BETA,
        "kind": "CompositePodGroup" if group.children else "PodGroup",
        "metadata": {"name": group.name, "namespace": NAMESPACE},
        "spec": spec,
    }
