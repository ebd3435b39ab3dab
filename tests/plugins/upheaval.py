"""A cluster in which anything may change at random: objects are added, deleted and updated, each with its event."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

from batchsched.api.core.cluster_objects import Namespace, Service
from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.api.core.volume import CSIDriver, CSIStorageCapacity
from batchsched.framework.events import EventResource
from batchsched.framework.nodes.node_table import NodeTable
from tests.plugins.cluster import node, table
from tests.plugins.neighbours import near, required, spread
from tests.plugins.storage import (
    DRIVER,
    FIELDS,
    ZONE,
    attachment,
    claim,
    csi_node,
    driver,
    storage_class,
    volume,
    with_objects,
)

GPU = "nvidia.com/gpu"
NODES = ("n0", "n1", "n2", "n3")
OWN_CLAIMS = ("c0", "c1")
"""Claims of the pod that waits; `shared` is used by all, and stays as it is."""
NAMESPACES = ("default", "other")
Change = tuple[EventResource, Any, Any]


@dataclass
class Upheaval:
    """The objects by kind and name, pods on nodes by key, and the pod that waits."""

    random: Random
    objects: dict[EventResource, dict[str, Any]] = field(default_factory=dict)
    bound: dict[str, Pod] = field(default_factory=dict)
    target: Pod = field(default_factory=Pod)
    _names: int = 0

    @classmethod
    def begin(cls, seed: int) -> "Upheaval":
        """A cluster to begin with."""
        made = cls(Random(seed))
        for resource, make in MAKERS.items():
            made.objects[resource] = {}
            for name in NAMES[resource]:
                if made.random.random() < 0.7:
                    made.objects[resource][name] = make(made.random, name)
        made.objects[EventResource.CLAIM]["shared"] = claim(
            "shared", "v-shared", accessModes=[made.random.choice(["ReadWriteOncePod", "ReadWriteMany"])]
        )
        made.objects[EventResource.VOLUME]["v-shared"] = _owned("shared", made.random)
        for _ in range(made.random.randint(0, 5)):
            made._land()
        made.target = _pod(made.random, "x", {"namespace": "default"})
        return made

    def table(self) -> NodeTable:
        """The cluster as plugins see it."""
        bound: dict[str, list[Pod]] = {}
        for one in self.bound.values():
            bound.setdefault(one.node_name, []).append(one)
        made = table(self.objects[EventResource.NODE].values(), bound, [GPU])
        fields: dict[str, Any] = {
            name: tuple(self.objects[resource].values())
            for resource, name in ((one, FIELDS[kind]) for kind, one in STORAGE.items())
        }
        fields["namespaces"] = tuple(self.objects[EventResource.NAMESPACE].values())
        fields["services"] = tuple(self.objects[EventResource.SERVICE].values())
        made.cluster_objects = with_objects(made.cluster_objects, fields)
        return made

    def change(self) -> Sequence[Change]:
        """Change one thing, and what follows from it."""
        what = self.random.choice(WEIGHTED)
        if what is EventResource.ASSIGNED_POD:
            return list(self._pods_change())
        if what is EventResource.TARGET_POD:
            old, self.target = self.target, _renewed(self.random, self.target)
            return [(what, old, self.target)]
        return list(self._object_changes(what))

    def _object_changes(self, what: EventResource) -> Iterator[Change]:
        there = self.objects[what]
        name = self.random.choice(NAMES[what])
        old = there.get(name)
        if old is None or self.random.random() < 0.7:
            there[name] = _updated(self.random, what, old, name)
            yield (what, old, there[name])
            return
        if what is EventResource.NODE:
            for one in [one for one in self.bound.values() if one.node_name == name]:
                yield (EventResource.ASSIGNED_POD, self.bound.pop(one.key), None)
        yield (what, there.pop(name), None)

    def _pods_change(self) -> Iterator[Change]:
        key = self.random.choice([*self.bound, ""])
        if not key:
            new = self._land()
            if new is not None:
                yield (EventResource.ASSIGNED_POD, None, new)
        elif self.random.random() < 0.5:
            yield (EventResource.ASSIGNED_POD, self.bound.pop(key), None)
        else:
            old = self.bound[key]
            self.bound[key] = _renewed(self.random, old)
            yield (EventResource.ASSIGNED_POD, old, self.bound[key])

    def _land(self) -> Pod | None:
        if not self.objects[EventResource.NODE]:
            return None
        self._names += 1
        on = self.random.choice(list(self.objects[EventResource.NODE]))
        one = _pod(self.random, f"b{self._names}", {"namespace": self.random.choice(NAMESPACES)}, on)
        self.bound[one.key] = one
        return one


def _pick(random: Random, *choices: Any) -> Any:
    return random.choice(choices)


def _labels(random: Random) -> dict[str, str]:
    return {"app": random.choice("ab")} | ({"rev": "1"} if random.random() < 0.3 else {})


def _node(random: Random, name: str) -> Node:
    labels = {key: random.choice("xy") for key in (ZONE, "rack", "disk") if random.random() < 0.7}
    made = node(
        name,
        {
            "cpu": _pick(random, "1", "4"),
            "pods": _pick(random, "1", "2", "9"),
            GPU: _pick(random, "0", "2"),
        },
        labels,
        taints=[{"key": random.choice("ab"), "effect": "NoSchedule"}] if random.random() < 0.3 else [],
        unschedulable=random.random() < 0.2,
    )
    features = random.choice(((), ("UserNamespacesHostNetworkSupport",)))
    return msgspec.structs.replace(
        made, status=msgspec.structs.replace(made.status, declared_features=features)
    )


def _pod(random: Random, name: str, metadata: dict[str, Any], on: str = "") -> Pod:
    """A pod that asks for a little of everything, on a node or, with none, waiting."""
    spec: dict[str, Any] = {"nodeName": on} if on else {"nodeName": _pick(random, "", "", "n0")}
    requests = {"cpu": _pick(random, "500m", "2"), **({GPU: "1"} if random.random() < 0.3 else {})}
    ports = [{"containerPort": 1, "hostPort": _pick(random, 80, 81)}] if random.random() < 0.4 else []
    spec["containers"] = [{"name": "c", "resources": {"requests": requests}, "ports": ports}]
    if random.random() < 0.3:
        spec["nodeSelector"] = {"disk": "x"}
    if random.random() < 0.2:
        spec |= {"hostNetwork": True, "hostUsers": False}
    if random.random() < 0.6:
        spec["affinity"] = required(
            together=[_term(random)] if random.random() < 0.4 else [],
            apart=[_term(random)] if random.random() < 0.5 else [],
        )
    if random.random() < 0.6:
        spec["topologySpreadConstraints"] = [_spread(random) for _ in range(_pick(random, 1, 2))]
    spec["volumes"] = _volumes(random, ("shared",) if on else (*OWN_CLAIMS, "shared"))
    labels = {"metadata": {"name": name, "uid": name, "labels": _labels(random), **metadata}}
    return msgspec.convert({**labels, "spec": spec}, Pod)


def _term(random: Random) -> dict[str, Any]:
    term = near(_pick(random, ZONE, "rack"), app=random.choice("ab"))
    more = _pick(
        random, {}, {}, {"namespaces": ["other"]}, {"namespaceSelector": {"matchLabels": {"team": "x"}}}
    )
    return {**term, **more}


def _spread(random: Random) -> dict[str, Any]:
    policies = {
        "nodeTaintsPolicy": _pick(random, "Honor", "Ignore"),
        "nodeAffinityPolicy": _pick(random, "Honor", "Ignore"),
    }
    more = _pick(random, {}, {"minDomains": 2}, {"matchLabelKeys": ["rev"]})
    return {**spread(_pick(random, ZONE, "rack"), random.choice("ab")), **policies, **more}


def _volumes(random: Random, claims: Sequence[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if random.random() < 0.3:
        found.append(
            {"name": "disk", "gcePersistentDisk": {"pdName": "d", "readOnly": random.random() < 0.5}}
        )
    found += [
        {"name": name, "persistentVolumeClaim": {"claimName": name}}
        for name in claims
        if random.random() < 0.4
    ]
    return found


def _renewed(random: Random, old: Pod) -> Pod:
    """A new version of a pod: what may be changed of one."""
    metadata, spec = old.metadata, old.spec
    match random.choice(("labels", "tolerations", "requests", "terminating")):
        case "labels":
            metadata = msgspec.structs.replace(metadata, labels=_labels(random))
        case "tolerations":
            more = msgspec.convert([{"key": random.choice("ab"), "operator": "Exists"}], tuple[Any, ...])
            spec = msgspec.convert(
                {**msgspec.to_builtins(spec), "tolerations": msgspec.to_builtins(more)}, type(spec)
            )
        case "requests":
            written = msgspec.to_builtins(spec)
            written["containers"][0]["resources"]["requests"]["cpu"] = _pick(random, "100m", "2")
            spec = msgspec.convert(written, type(spec))
        case "terminating":
            metadata = msgspec.structs.replace(metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    return msgspec.structs.replace(old, metadata=metadata, spec=spec)


def _updated(random: Random, what: EventResource, old: Any, name: str) -> Any:
    """A new version. Some of a node change one thing alone, as most updates of nodes do."""
    new = MAKERS[what](random, name)
    if what is EventResource.NODE and old is not None and random.random() < 0.7:
        part = random.choice(("metadata", "spec", "status"))
        return msgspec.structs.replace(old, **{part: getattr(new, part)})
    return new


def _claim(random: Random, name: str) -> Any:
    bound = random.random() < 0.6
    modes = ["ReadWriteOncePod" if random.random() < 0.3 else "ReadWriteOnce"]
    return claim(
        name,
        f"v-{name}" if bound else "",
        accessModes=modes,
        storageClassName=_pick(random, "late", "late", "now"),
    )


def _owned(name: str, random: Random) -> Any:
    return volume(
        f"v-{name}",
        zones=["x"] if random.random() < 0.3 else [],
        labels={ZONE: random.choice("xy")} if random.random() < 0.5 else {},
        csi={"driver": DRIVER, "volumeHandle": f"h-{name}"},
        claimRef={"namespace": "default", "name": name},
    )


def _volume(random: Random, name: str) -> Any:
    if name != "free":
        return _owned(name.removeprefix("v-"), random)
    return volume(name, zones=_pick(random, [], ["x"]), phase=_pick(random, "Available", "Pending"))


def _class(random: Random, name: str) -> Any:
    terms = [{"matchLabelExpressions": [{"key": ZONE, "values": ["x"]}]}]
    return storage_class(
        name,
        volumeBindingMode="Immediate" if name == "now" else "WaitForFirstConsumer",
        provisioner=_pick(random, DRIVER, DRIVER, "kubernetes.io/no-provisioner"),
        allowedTopologies=_pick(random, [], terms),
    )


def _namespace(random: Random, name: str) -> Namespace:
    labels = _pick(random, {}, {"team": "x"})
    return msgspec.convert({"metadata": {"name": name, "labels": labels}}, Namespace)


def _service(random: Random, name: str) -> Service:
    metadata = {"name": name, "namespace": "default"}
    return msgspec.convert(
        {"metadata": metadata, "spec": {"selector": {"app": random.choice("ab")}}}, Service
    )


def _driver(random: Random, name: str) -> CSIDriver:
    return driver(name, counts=random.random() < 0.7, must_be_installed=random.random() < 0.3)


def _capacity(random: Random, name: str) -> CSIStorageCapacity:
    content = {
        "metadata": {"name": name},
        "nodeTopology": {"matchLabels": {ZONE: random.choice("xy")}},
        "storageClassName": "late",
        "capacity": _pick(random, "1Mi", "1Gi"),
    }
    return msgspec.convert(content, CSIStorageCapacity)


STORAGE = {kind: EventResource(kind.__name__) for kind in FIELDS}
MAKERS: dict[EventResource, Any] = {
    EventResource.NODE: _node,
    EventResource.NAMESPACE: _namespace,
    EventResource.SERVICE: _service,
    EventResource.CLAIM: _claim,
    EventResource.VOLUME: _volume,
    EventResource.STORAGE_CLASS: _class,
    EventResource.CSI_NODE: lambda random, name: csi_node(
        name, _pick(random, None, 0, 1, 2), _pick(random, DRIVER, DRIVER, "other")
    ),
    EventResource.CSI_DRIVER: _driver,
    EventResource.CSI_STORAGE_CAPACITY: _capacity,
    EventResource.VOLUME_ATTACHMENT: lambda _, name: attachment(*name.split("-", 1)),
}
NAMES: dict[EventResource, tuple[str, ...]] = {
    EventResource.NODE: NODES,
    EventResource.NAMESPACE: NAMESPACES,
    EventResource.SERVICE: ("s",),
    EventResource.CLAIM: OWN_CLAIMS,
    EventResource.VOLUME: ("v-c0", "v-c1", "free"),
    EventResource.STORAGE_CLASS: ("late", "now"),
    EventResource.CSI_NODE: NODES,
    EventResource.CSI_DRIVER: (DRIVER,),
    EventResource.CSI_STORAGE_CAPACITY: ("k",),
    EventResource.VOLUME_ATTACHMENT: ("n0-v-shared", "n1-v-c0"),
}
WEIGHTED = [
    *([EventResource.NODE] * 4),
    *([EventResource.ASSIGNED_POD] * 6),
    *([EventResource.TARGET_POD] * 2),
    *MAKERS,
]
