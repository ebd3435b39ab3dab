"""An object of each watched kind, with the fields that batchsched reads: the fuzz tests mutate them."""

from typing import Any

from tests.controlplane.objects import Manifest, custom, node, pod, pod_group
from tests.podgrouper.owners import (
    TEMPLATE,
    app_wrapper,
    clique,
    job,
    jobset,
    owner,
    pod_clique_set,
    pytorch,
    ray_spec,
    replicas,
    replicated,
    spark,
    workers,
)

NAME = "evil"
"""The name by which the objects refer to each other."""
SELECTOR = {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
NODE_TERM = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
NODE_SELECTOR = {"nodeSelectorTerms": [NODE_TERM]}
EXPRESSION = {"cel": {"expression": 'device.attributes["gpu.example.com"].model == "h100"'}}
TAINT = {"key": "a", "value": "b", "effect": "NoSchedule"}
TOLERATION = {"key": "a", "operator": "Exists", "effect": "NoSchedule"}
REQUEST: Manifest = {
    "name": "r",
    "exactly": {
        "deviceClassName": NAME,
        "allocationMode": "ExactCount",
        "count": 1,
        "selectors": [EXPRESSION],
        "tolerations": [TOLERATION],
        "capacity": {"requests": {"memory": "1Gi"}},
    },
}
ALTERNATIVES: Manifest = {
    "name": "either",
    "firstAvailable": [
        {"name": "large", "deviceClassName": NAME, "allocationMode": "All"},
        {"name": "small", "deviceClassName": NAME, "allocationMode": "ExactCount", "count": 1},
    ],
}
DEVICE_CLAIM: Manifest = {
    "devices": {
        "requests": [REQUEST, ALTERNATIVES],
        "constraints": [{"requests": ["r"], "matchAttribute": "gpu.example.com/model"}],
        "config": [{"requests": ["r"], "opaque": {"driver": "gpu.example.com", "parameters": {"a": 1}}}],
    }
}
ALLOCATION: Manifest = {
    "devices": {
        "results": [
            {
                "request": "r",
                "driver": "gpu.example.com",
                "pool": "p",
                "device": "gpu-0",
                "shareID": "s",
                "consumedCapacity": {"memory": "1Gi"},
            }
        ]
    },
    "nodeSelector": NODE_SELECTOR,
}
DEVICE: Manifest = {
    "name": "gpu-0",
    "attributes": {"model": {"string": "h100"}, "index": {"int": 1}, "version": {"version": "1.2.3"}},
    "capacity": {
        "memory": {"value": "80Gi", "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi"}}}
    },
    "consumesCounters": [{"counterSet": "set", "counters": {"memory": {"value": "10Gi"}}}],
    "nodeName": NAME,
    "allowMultipleAllocations": True,
    "bindingConditions": ["ready"],
    "bindingFailureConditions": ["failed"],
}


BOUND = {"pv.kubernetes.io/bind-completed": "yes"}


def plain(kind: str, namespaced: bool = True, **fields: Any) -> Manifest:
    """An object with the given top-level fields; its annotation counts for volume claims only."""
    place = {"namespace": "team"} if namespaced else {}
    metadata = {"name": NAME, "uid": "u", "labels": {"a": "b"}, "annotations": BOUND, **place}
    return {"kind": kind, "metadata": metadata, **fields}


CLUSTER_OBJECTS = [
    node(NAME, labels={"zone": "a", "a": "b", "rack": "r"}),
    plain("Namespace", namespaced=False, spec={"finalizers": ["kubernetes"]}),
    plain("PriorityClass", namespaced=False, value=5, globalDefault=False, preemptionPolicy="Never"),
    plain("Service", spec={"selector": {"a": "b"}}),
    plain("ReplicationController", spec={"replicas": 2, "selector": {"a": "b"}, "template": TEMPLATE}),
    plain("ReplicaSet", spec={"replicas": 2, "selector": SELECTOR, "template": TEMPLATE}),
    plain(
        "PodDisruptionBudget",
        spec={"selector": SELECTOR, "minAvailable": "50%"},
        status={"disruptionsAllowed": 1, "disruptedPods": {"p": "2026-01-01T00:00:00Z"}},
    ),
    pod(
        "p",
        spec={
            "tolerations": [{"key": "a", "operator": "Exists"}],
            "nodeSelector": {"a": "b"},
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
            ],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": NAME}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": NAME}}],
        },
    ),
]
NUMA_ZONES = plain(
    "NodeResourceTopology",
    namespaced=False,
    topologyPolicies=["SingleNUMANodeContainerLevel"],
    attributes=[
        {"name": "topologyManagerPolicy", "value": "single-numa-node"},
        {"name": "topologyManagerScope", "value": "pod"},
    ],
    zones=[
        {
            "name": f"node-{number}",
            "type": "Node",
            "costs": [{"name": "node-0", "value": 10}, {"name": "node-1", "value": 20}],
            "resources": [
                {"name": "cpu", "capacity": "16", "allocatable": "16", "available": "16"},
                {"name": "memory", "capacity": "128Gi", "allocatable": "128Gi", "available": "128Gi"},
            ],
        }
        for number in range(2)
    ],
)
STORAGE = [
    plain(
        "StorageClass",
        namespaced=False,
        provisioner="disk.example.com",
        volumeBindingMode="WaitForFirstConsumer",
        allowedTopologies=[{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}],
    ),
    plain(
        "PersistentVolume",
        namespaced=False,
        spec={
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": NAME,
            "claimRef": {"name": NAME, "namespace": "team", "uid": "u"},
            "csi": {"driver": "disk.example.com", "volumeHandle": "h"},
            "nodeAffinity": {"required": NODE_SELECTOR},
        },
        status={"phase": "Bound"},
    ),
    plain(
        "PersistentVolumeClaim",
        spec={
            "accessModes": ["ReadWriteOncePod"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": NAME,
            "volumeName": NAME,
            "selector": SELECTOR,
        },
        status={"phase": "Bound"},
    ),
    plain(
        "CSINode",
        namespaced=False,
        spec={"drivers": [{"name": "d", "nodeID": "n", "allocatable": {"count": 3}}]},
    ),
    plain("CSIDriver", namespaced=False, spec={"storageCapacity": True, "attachRequired": True}),
    plain("CSIStorageCapacity", storageClassName=NAME, capacity="1Gi", nodeTopology=SELECTOR),
    plain(
        "VolumeAttachment",
        namespaced=False,
        spec={"attacher": "d", "nodeName": NAME, "source": {"persistentVolumeName": NAME}},
        status={"attached": True},
    ),
]
DEVICES = [
    plain(
        "DeviceClass",
        namespaced=False,
        spec={"selectors": [EXPRESSION], "extendedResourceName": "nvidia.com/gpu", "config": []},
    ),
    plain(
        "DeviceTaintRule",
        namespaced=False,
        spec={
            "deviceSelector": {"driver": "gpu.example.com", "pool": "p", "device": "gpu-0"},
            "taint": TAINT,
        },
    ),
    plain(
        "ResourceClaim",
        spec=DEVICE_CLAIM,
        status={
            "allocation": ALLOCATION,
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "uid-p"}],
            "devices": [{"driver": "gpu.example.com", "pool": "p", "device": "gpu-0", "conditions": []}],
        },
    ),
    plain("ResourceClaimTemplate", spec={"spec": DEVICE_CLAIM}),
    plain(
        "ResourceSlice",
        namespaced=False,
        spec={
            "driver": "gpu.example.com",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 2},
            "perDeviceNodeSelection": True,
            "devices": [
                {**DEVICE, "taints": [TAINT]},
                {**DEVICE, "name": "gpu-1"},
                {**DEVICE, "name": "gpu-2"},
            ],
        },
    ),
]
COUNTERS = plain(
    "ResourceSlice",
    namespaced=False,
    spec={
        "driver": "gpu.example.com",
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 2},
        "nodeName": NAME,
        "sharedCounters": [{"name": "set", "counters": {"memory": {"value": "40Gi"}}}],
    },
)
"""The counters of the devices: a slice has devices or counters."""
GROUPS = [
    # The fields of all projects that have a kind of this name: each reader ignores those of the others.
    pod_group(
        NAME,
        1,
        queue=NAME,
        topology={"required": "rack", "preferred": "host", "preferredWaitSeconds": 5},
        subGroups=[{"name": "a", "minMember": 1, "topology": {"required": "host"}, "slices": {"size": 1}}],
        schedulingPolicy={"gang": {"minCount": 2}},
        schedulingConstraints={"topology": [{"key": "rack"}]},
        resourceClaims=[{"name": "gpu", "resourceClaimName": NAME}],
        parentCompositePodGroupName=NAME,
        networkTopology={"mode": "hard", "highestTierAllowed": 1},
        minResources={"cpu": "1"},
        priorityClassName=NAME,
    ),
    plain(
        "CompositePodGroup",
        spec={
            "schedulingPolicy": {"gang": {"minGroupCount": 2}},
            "schedulingConstraints": {"topology": [{"key": "rack"}]},
            "disruptionMode": {"all": {}},
            "parentCompositePodGroupName": "y",
            "priority": 5,
            "workloadRef": {"workloadName": "w", "templateName": "t"},
        },
    ),
    custom(
        "Queue",
        "q",
        parent="root",
        weight=2,
        limit={"cpu": "4"},
        namespaceSelector=SELECTOR,
        maxMinRuntimeSeconds=60,
    ),
    # `nodeLabel` is read from our kind, and from the kind of Kueue and KAI.
    custom("Topology", "default", levels=[{"name": "rack", "nodeLabel": "rack"}]),
    plain(
        "HyperNode",
        namespaced=False,
        spec={
            "tier": 2,
            "tierName": "rack",
            "members": [
                {"type": "Node", "selector": {"exactMatch": {"name": NAME}}},
                {"type": "Node", "selector": {"regexMatch": {"pattern": "^n[0-9]+$"}}},
                {"type": "Node", "selector": {"labelMatch": SELECTOR}},
                {"type": "HyperNode", "selector": {"exactMatch": {"name": "y"}}},
            ],
        },
    ),
]
OWNERS = [
    job(4, annotations={"scheduling.batchsched.dev/min-member": "2"}, status={"failedIndexes": "1-3"}),
    jobset(replicated("w", jobs=2, parallelism=2)),
    pytorch(master=1, worker=3),
    owner(
        "TFJob",
        tfReplicaSpecs=replicas(Chief=1, Worker=2),
        runPolicy={"schedulingPolicy": {"minAvailable": 2}},
    ),
    owner("MPIJob", mpiReplicaSpecs=replicas(Launcher=1, Worker=2), slotsPerWorker=1),
    owner("JAXJob", jaxReplicaSpecs=replicas(Worker=2)),
    owner("XGBoostJob", xgbReplicaSpecs=replicas(Master=1, Worker=2)),
    owner("PaddleJob", paddleReplicaSpecs=replicas(Master=1, Worker=2)),
    owner("TrainJob", trainer={"numNodes": 2}, runtimeRef={"name": "torch"}, suspend=False),
    owner("RayCluster", **ray_spec(workers(replicas=2, minReplicas=1, numOfHosts=2))),
    owner("RayJob", rayClusterSpec=ray_spec(workers(replicas=2)), submissionMode="K8sJobMode"),
    owner("RayService", rayClusterConfig=ray_spec(workers(replicas=2)), serveConfigV2="x"),
    owner("StatefulSet", replicas=3, podManagementPolicy="Parallel", template=TEMPLATE),
    owner("Deployment", replicas=3, template=TEMPLATE, selector=SELECTOR),
    owner(
        "LeaderWorkerSet",
        replicas=2,
        leaderWorkerTemplate={"size": 3, "workerTemplate": TEMPLATE, "subGroupPolicy": {"subGroupSize": 1}},
    ),
    spark(instances=3, dynamicAllocation={"enabled": True, "initialExecutors": 2}),
    app_wrapper(job(2), owner("Deployment", replicas=1, template=TEMPLATE)),
    pod_clique_set(
        clique("w", replicas=2, minAvailable=1),
        groups=[{"name": "g", "cliqueNames": ["w"], "replicas": 2, "minAvailable": 1}],
    ),
    owner("Workflow", entrypoint="main", templates=[{"name": "main", "container": {"image": "none"}}]),
]
MANIFESTS: dict[str, Manifest] = {
    manifest["kind"]: manifest
    for manifest in (*CLUSTER_OBJECTS, NUMA_ZONES, *STORAGE, *DEVICES, *GROUPS, *OWNERS)
}
"""Kind → an object of it."""
