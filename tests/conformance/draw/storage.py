"""What a pod mounts: claims bound, waiting, lost or missing, disks by their own names, limits and capacities."""

from typing import Final

from tests.conformance.draw.cluster import HOSTNAME, REGION, ZONE, Draw, Json

_DRIVER: Final = "csi.example.com"
_BETA: Final = "failure-domain.beta.kubernetes.io/zone"
_DRIVERS: Final = (
    _DRIVER,
    "ebs.csi.aws.com",
    "pd.csi.storage.gke.io",
    "disk.csi.azure.com",
    "cinder.csi.openstack.org",
    "pxd.portworx.com",
)
_ZONES: Final = (
    "topology.ebs.csi.aws.com/zone",
    "topology.gke.io/zone",
    "topology.cinder.csi.openstack.org/zone",
)
_MODES: Final = ("ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany", "ReadWriteOncePod")
_CLASSES: Final = ("fast", "late", "zonal", "local", "ebs", "missing", "")


def volumes(draw: Draw, drawn: Json) -> None:
    """Draw classes, claims with or without volumes, disks, and pods that mount them."""
    drawn["storageClasses"] = _classes(draw)
    for one in ("persistentVolumes", "persistentVolumeClaims", "csiNodes", "volumeAttachments"):
        drawn[one] = []
    home = drawn["pod"]["metadata"]["namespace"]
    claims = [_claim(draw, drawn, f"c{number}", home) for number in range(draw.randint(1, 5))]
    for number in range(draw.randint(0, 3)):
        drawn["persistentVolumes"].append(_volume(draw, drawn, f"free{number}", number + 7))
    for pod in drawn["pods"]:
        if draw.maybe(0.7):
            pod["metadata"]["namespace"] = home
        if draw.maybe(0.4):
            _mount(draw, drawn, pod, claims)
    if draw.maybe(0.95):
        _mount(draw, drawn, drawn["pod"], claims)
    if draw.maybe(0.6):
        _limits(draw, drawn)
    drawn["csiDrivers"] = []
    if draw.maybe(0.4):
        _capacities(draw, drawn)
    if draw.maybe(0.2):
        _required_driver(draw, drawn)


def _classes(draw: Draw) -> list[Json]:
    late = "WaitForFirstConsumer"
    zones = draw.sample(("za", "zb", "zc"), draw.randint(1, 2))
    allowed = [{"matchLabelExpressions": [{"key": ZONE, "values": zones}]}]
    return [
        {"metadata": {"name": "fast"}, "provisioner": _DRIVER, "volumeBindingMode": "Immediate"},
        {"metadata": {"name": "late"}, "provisioner": _DRIVER, "volumeBindingMode": late},
        {
            "metadata": {"name": "zonal"},
            "provisioner": _DRIVER,
            "volumeBindingMode": late,
            "allowedTopologies": allowed,
        },
        {
            "metadata": {"name": "local"},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": late,
        },
        {"metadata": {"name": "ebs"}, "provisioner": "kubernetes.io/aws-ebs", "volumeBindingMode": late},
    ]


def _claim(draw: Draw, drawn: Json, name: str, namespace: str) -> str:
    """Draw a claim, most often with the volume that it is bound to; it may also not be there at all."""
    if draw.maybe(0.08):
        return name
    meta: Json = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "annotations": {}}
    spec: Json = {
        "accessModes": [draw.choice(_MODES)],
        "resources": {"requests": {"storage": draw.choice(("1Gi", "5Gi", "10Gi", "200Gi"))}},
        "storageClassName": draw.choice(_CLASSES),
        "volumeMode": "Filesystem",
    }
    phase = "Pending"
    kind = draw.choice(("bound", "bound", "bound", "free", "free", "halfway", "lost", "gone"))
    if kind in ("bound", "halfway", "lost"):
        spec["volumeName"] = f"pv-{name}"
        volume = _volume(draw, drawn, f"pv-{name}", 3)
        volume["spec"]["claimRef"] = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
        volume["status"]["phase"] = "Bound"
        drawn["persistentVolumes"].append(volume)
        phase = "Lost" if kind == "lost" else "Bound"
    elif kind == "gone":
        spec["volumeName"], phase = "nowhere", draw.choice(("Bound", "Lost"))
    if kind in ("bound", "gone") or (kind == "lost" and draw.maybe(0.5)):
        meta["annotations"]["pv.kubernetes.io/bind-completed"] = "yes"
    if kind == "free":
        if draw.maybe(0.2):
            spec["selector"] = {"matchLabels": {ZONE: draw.choice(("za", "zb"))}}
        if draw.maybe(0.2):
            meta["annotations"]["volume.kubernetes.io/selected-node"] = draw.choice(("n0", "n1", "nowhere"))
    if draw.maybe(0.1):
        meta["annotations"]["volume.beta.kubernetes.io/storage-class"] = draw.choice(_CLASSES[:5])
    if draw.maybe(0.06):
        meta["deletionTimestamp"], meta["finalizers"] = (
            "2026-01-01T00:00:00Z",
            ["kubernetes.io/pvc-protection"],
        )
    drawn["persistentVolumeClaims"].append({"metadata": meta, "spec": spec, "status": {"phase": phase}})
    return name


def _volume(draw: Draw, drawn: Json, name: str, size: int) -> Json:
    labels: Json = {}
    if draw.maybe(0.1):
        labels[ZONE] = "us-east1-b__us-east1-c"
    for key in (ZONE, _BETA, REGION):
        if draw.maybe(0.25):
            labels[key] = draw.choice(("ra", "rb") if key == REGION else ("za", "zb", "za__zb", "zb__zc", ""))
    spec: Json = {
        "accessModes": draw.sample(_MODES[:3], draw.randint(1, 3)) if draw.maybe(0.8) else [_MODES[3]],
        "capacity": {"storage": f"{size}Gi"},
        "storageClassName": draw.choice(_CLASSES[:5]),
        "volumeMode": "Filesystem" if draw.maybe(0.9) else "Block",
        "persistentVolumeReclaimPolicy": "Retain",
    }
    spec.update(
        draw.choice(
            (
                {"csi": {"driver": _DRIVER, "volumeHandle": f"h-{name}"}},
                {"csi": {"driver": _DRIVER, "volumeHandle": "h-same"}},
                {"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": f"vol-{name}"}},
                {"awsElasticBlockStore": {"volumeID": f"aws://za/vol-{name}", "fsType": "ext4"}},
                {"gcePersistentDisk": {"pdName": f"disk-{name}"}},
                {"azureDisk": {"diskName": name, "diskURI": f"/uri/{name}", "kind": "Managed"}},
                {"cinder": {"volumeID": f"c-{name}"}},
                {"portworxVolume": {"volumeID": f"p-{name}"}},
                {"nfs": {"server": "nfs.example", "path": "/"}},
                {"hostPath": {"path": "/data"}},
            )
        )
    )
    if draw.maybe(0.4):
        key = draw.choice((ZONE, ZONE, _BETA, HOSTNAME))
        values = draw.sample(("za", "zb") if key != HOSTNAME else ("n0", "n1", "n2"), draw.randint(1, 2))
        term = {
            "matchExpressions": [
                {"key": key, "operator": draw.choice(("In", "In", "NotIn")), "values": values}
            ]
        }
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    meta: Json = {"name": name, "uid": f"uid-{name}", "labels": labels}
    return {"metadata": meta, "spec": spec, "status": {"phase": "Available"}}


def _mount(draw: Draw, drawn: Json, pod: Json, claims: list[str]) -> None:
    found: list[Json] = pod["spec"].setdefault("volumes", [])
    found.extend(
        {"name": f"v-{name}", "persistentVolumeClaim": {"claimName": name}} for name in draw.some(claims, 3)
    )
    if draw.maybe(0.3):
        found.extend(_disk(draw, f"d{number}") for number in range(draw.randint(1, 2)))
    if draw.maybe(0.12):
        _ephemeral(draw, drawn, pod, found)
    if draw.maybe(0.2):
        found.append({"name": "empty", "emptyDir": {}})


def _disk(draw: Draw, name: str) -> Json:
    number, read_only = draw.choice("01"), draw.maybe(0.5)
    return {
        "name": name,
        **draw.choice(
            (
                {"gcePersistentDisk": {"pdName": f"disk{number}", "readOnly": read_only}},
                {"awsElasticBlockStore": {"volumeID": f"vol-{number}", "readOnly": read_only}},
                {
                    "iscsi": {
                        "iqn": f"iqn.2026-01.example:d{number}",
                        "lun": draw.choice((0, 1)),
                        "targetPortal": draw.choice(("10.0.0.1:3260", "10.0.0.2:3260")),
                        "readOnly": read_only,
                    }
                },
                {
                    "rbd": {
                        "monitors": draw.sample(("m1", "m2", "m3"), 2),
                        "image": f"image{number}",
                        "pool": draw.choice(("rbd", "other")),
                        "readOnly": read_only,
                    }
                },
                {"azureDisk": {"diskName": f"a{number}", "diskURI": f"/uri/a{number}", "kind": "Managed"}},
                {"azureFile": {"secretName": "s", "shareName": f"share{number}"}},
                {"cinder": {"volumeID": f"c{number}"}},
                {"portworxVolume": {"volumeID": f"p{number}"}},
                {"vsphereVolume": {"volumePath": f"[d] {number}"}},
                {"csi": {"driver": _DRIVER}},
            )
        ),
    }


def _ephemeral(draw: Draw, drawn: Json, pod: Json, found: list[Json]) -> None:
    """Mount a claim made for the pod; it may be another's, or not be there."""
    wanted = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": draw.choice(("late", "zonal", "fast")),
        "volumeMode": "Filesystem",
    }
    found.append({"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": wanted}}})
    meta: Json = {
        "name": f"{pod['metadata']['name']}-scratch",
        "namespace": pod["metadata"]["namespace"],
        "uid": f"uid-{pod['metadata']['name']}-scratch",
    }
    if draw.maybe(0.9) or "nodeName" in pod["spec"]:
        owner = {"apiVersion": "v1", "kind": "Pod", "controller": True, "name": pod["metadata"]["name"]}
        meta["ownerReferences"] = [{**owner, "uid": pod["metadata"]["uid"]}]
    if draw.maybe(0.9):
        claim = {"metadata": meta, "spec": wanted, "status": {"phase": "Pending"}}
        drawn["persistentVolumeClaims"].append(claim)


def _limits(draw: Draw, drawn: Json) -> None:
    for node in drawn["nodes"]:
        name, labels = node["metadata"]["name"], node["metadata"]["labels"]
        for key in (_BETA, *_ZONES):
            if ZONE in labels and draw.maybe(0.4):
                labels[key] = labels[ZONE]
        if draw.maybe(0.2):
            continue
        meta: Json = {"name": name}
        if draw.maybe(0.5):
            migrated = draw.choice(
                (
                    "kubernetes.io/aws-ebs",
                    "kubernetes.io/aws-ebs,kubernetes.io/gce-pd,kubernetes.io/azure-disk",
                    "",
                )
            )
            meta["annotations"] = {"storage.alpha.kubernetes.io/migrated-plugins": migrated}
        drivers = []
        for driver in draw.some(
            (_DRIVER, "ebs.csi.aws.com", "pd.csi.storage.gke.io", "disk.csi.azure.com"), 4
        ):
            one: Json = {"name": driver, "nodeID": name, "topologyKeys": draw.choice(([], [ZONE]))}
            if draw.maybe(0.85):
                one["allocatable"] = {"count": draw.choice((0, 1, 2, 3))} if draw.maybe(0.9) else {}
            drivers.append(one)
        drawn["csiNodes"].append({"metadata": meta, "spec": {"drivers": drivers}})
        for volume in drawn["persistentVolumes"]:
            if draw.maybe(0.1):
                drawn["volumeAttachments"].append(
                    {
                        "metadata": {"name": f"va-{name}-{volume['metadata']['name']}"},
                        "spec": {
                            "attacher": draw.choice((_DRIVER, "ebs.csi.aws.com")),
                            "nodeName": name,
                            "source": {"persistentVolumeName": volume["metadata"]["name"]},
                        },
                        "status": {"attached": draw.maybe(0.8)},
                    }
                )


def _capacities(draw: Draw, drawn: Json) -> None:
    drawn["csiDrivers"].append({"metadata": {"name": _DRIVER}, "spec": {"storageCapacity": draw.maybe(0.8)}})
    drawn["csiStorageCapacities"] = []
    for number in range(draw.randint(0, 4)):
        one: Json = {
            "metadata": {"name": f"cap{number}", "namespace": "default"},
            "storageClassName": draw.choice(("late", "zonal", "fast")),
            "capacity": draw.choice(("1Gi", "6Gi", "100Gi", "0")),
        }
        if draw.maybe(0.9):
            one["nodeTopology"] = draw.choice(
                (
                    {},
                    {"matchLabels": {ZONE: draw.choice(("za", "zb"))}},
                    {"matchExpressions": [{"key": ZONE, "operator": "NotIn", "values": ["za"]}]},
                )
            )
        if draw.maybe(0.3):
            one["maximumVolumeSize"] = draw.choice(("2Gi", "50Gi"))
        if draw.maybe(0.1):
            del one["capacity"]
        drawn["csiStorageCapacities"].append(one)


def _required_driver(draw: Draw, drawn: Json) -> None:
    """Let pods need a driver on their node. Of several missing ones, kube-scheduler names any: only one is needed."""
    name = draw.choice(_DRIVERS)
    stated = next((one for one in drawn["csiDrivers"] if one["metadata"]["name"] == name), None)
    if stated is None:
        stated = {"metadata": {"name": name}, "spec": {}}
        drawn["csiDrivers"].append(stated)
    stated["spec"]["preventPodSchedulingIfMissing"] = draw.maybe(0.9)
