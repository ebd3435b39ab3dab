"""Random clusters as Kubernetes manifests, by seed: running gangs and queues, so that pending gangs need victims.

The manifests are plain dictionaries. A restructured package reads the same clusters as before.
"""

import json
import random
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from batchsched.api.snapshot import Snapshot
from batchsched.manifests.reader import read_manifests

Manifest = dict[str, Any]

NOW: Final = 1_700_000_000.0
GROUP: Final = "scheduling.batchsched.dev"
GPU: Final = "nvidia.com/gpu"
HOST: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
RACK: Final = "example.com/rack"
NAMESPACE: Final = "team"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
PRIORITIES: Final = {"low": -5, "normal": 0, "high": 100, "polite": 50}


def rfc3339(seconds: float) -> str:
    """Return a time as Kubernetes writes it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def snapshot_of(manifests: list[Manifest]) -> Snapshot:
    """Read manifests as `batchsched decide` reads a file."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "cluster.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}))
        return read_manifests([str(path)]).snapshot


def meta(name: str, *, namespace: str = NAMESPACE, created: float = 0.0, **fields: Any) -> Manifest:
    """Return the metadata of an object that was created some seconds ago."""
    stamp = rfc3339(NOW - created)
    return {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{name}",
        "creationTimestamp": stamp,
    } | fields


class ClusterDraw:
    """Draws one cluster.

    Args:
      seed: of everything that is drawn.
      nodes: the maximum number of nodes.
      filled: the share of the GPUs that running gangs use, at most.
      pending: the maximum number of pending gangs.
      equal: all nodes are alike, and so are many gangs: ties.
      rules: ports, volumes, affinity and spreading.
      limits: how likely each limit of a queue is.
      fragmented: small gangs run scattered, and pending pods want whole nodes.
    """

    def __init__(
        self,
        seed: int,
        *,
        nodes: int = 8,
        filled: float = 0.9,
        pending: int = 5,
        equal: bool = False,
        rules: bool = False,
        limits: float = 0.02,
        fragmented: bool = False,
    ) -> None:
        shape = f"{nodes}-{filled}-{pending}-{equal}-{rules}-{limits}-{fragmented}"
        self.rng = random.Random(f"guards-{seed}-{shape}")
        self.fragmented = fragmented
        self.limits = limits
        self.node_limit, self.filled, self.pending_limit = nodes, filled, pending
        self.equal, self.rules = equal, rules
        self.manifests: list[Manifest] = []
        self.queue_names: list[str] = []
        self.free: dict[str, dict[str, int]] = {}
        self.total_gpus = 0
        self.pod_count = 0

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def draw(self) -> list[Manifest]:
        """Return the manifests, in the order in which they are drawn."""
        self.add_policies()
        self.add_queues()
        for index in range(self.rng.randint(max(2, self.node_limit // 2), self.node_limit)):
            self.add_node(f"n{index}", index)
        if self.rules:
            self.add_storage()
        self.add_running()
        for index in range(self.rng.randint(1, self.pending_limit)):
            self.add_pending(f"p{index}")
        return self.manifests

    # ------------------------------------------------------------------------------- cluster objects

    def add_policies(self) -> None:
        for name, value in PRIORITIES.items():
            policy = {"preemptionPolicy": "Never"} if name == "polite" else {}
            self.manifests.append(
                {
                    "apiVersion": "scheduling.k8s.io/v1",
                    "kind": "PriorityClass",
                    "metadata": {"name": name},
                    "value": value,
                }
                | policy
            )
        levels = [{"name": "zone", "nodeLabel": ZONE}, {"name": "rack", "nodeLabel": RACK}]
        self.manifests.append(self.custom("Topology", {"name": "default"}, {"levels": levels}))
        for app in ("blue", "red"):
            if self.chance(0.3):
                self.manifests.append(
                    {
                        "apiVersion": "policy/v1",
                        "kind": "PodDisruptionBudget",
                        "metadata": meta(f"budget-{app}"),
                        "spec": {"selector": {"matchLabels": {"app": app}}, "minAvailable": 1},
                        "status": {"disruptionsAllowed": self.rng.randint(0, 2)},
                    }
                )

    def custom(self, kind: str, metadata: Manifest, spec: Manifest) -> Manifest:
        return {"apiVersion": f"{GROUP}/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}

    def add_queues(self) -> None:
        """Two levels: departments, and below them queues that gangs name."""
        if self.fragmented or self.chance(0.35):
            return
        for department in ("org", "lab")[: self.rng.randint(1, 2)]:
            self.manifests.append(self.custom("Queue", {"name": department}, self.queue_spec(top=True)))
            for team in range(self.rng.randint(1, 3)):
                name = f"{department}-{team}"
                spec = self.queue_spec(top=False) | {"parent": department}
                self.manifests.append(self.custom("Queue", {"name": name}, spec))
                self.queue_names.append(name)

    def queue_spec(self, *, top: bool) -> Manifest:
        gpus = self.rng.randint(4, 12) if top else self.rng.randint(1, 4)
        spec = self.queue_amounts(gpus)
        if self.chance(0.5):
            spec["weight"] = self.rng.choice([0.5, 1.0, 2.0, 4.0])
        if self.chance(0.3):
            spec["priority"] = self.rng.randint(-1, 2)
        if self.chance(self.limits):
            spec["maxRunningPodGroups"] = self.rng.randint(1, 4)
        if self.chance(self.limits):
            spec["userLimits"] = {GPU: str(self.rng.randint(1, 6))}
        if self.chance(0.2):
            spec["reclaimMinRuntimeSeconds"] = self.rng.choice([60, 3600])
        if self.chance(0.25):
            spec["policy"] = {"name": self.rng.choice(["drf", "max-min", "fifo", "priority"])}
        return spec

    def queue_amounts(self, gpus: int) -> Manifest:
        spec: Manifest = {}
        if self.chance(0.7):
            spec["guarantee"] = {GPU: str(gpus)}
            if self.chance(0.3):
                spec["guarantee"]["cpu"] = str(4 * gpus)
            if self.chance(self.limits):
                spec["lendingLimit"] = {GPU: str(self.rng.randint(0, gpus))}
            if self.chance(self.limits):
                spec["borrowingLimit"] = {GPU: str(self.rng.randint(0, 6))}
        if self.chance(self.limits):
            spec["limit"] = {GPU: str(gpus + self.rng.randint(0, 10))}
        return spec

    def add_node(self, name: str, index: int) -> None:
        gpus = 4 if self.equal else self.rng.choice([0, 2, 4, 8])
        amounts = {"cpu": 16 if self.equal else self.rng.choice([8, 16, 32]), GPU: gpus}
        # Racks are filled in order, so that several nodes share a domain.
        labels = {HOST: name, ZONE: f"z{index // 4}", RACK: f"r{index // 2}"}
        if not self.equal and self.chance(0.3):
            labels["disk"] = "ssd"
        spec: Manifest = {}
        if not self.equal and self.chance(0.1):
            spec["taints"] = [{"key": "own", "value": "x", "effect": "NoSchedule"}]
        elif not self.equal and self.chance(0.05):
            spec["unschedulable"] = True
        allocatable = {resource: str(amount) for resource, amount in amounts.items()}
        self.manifests.append(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels},
                "spec": spec,
                "status": {"allocatable": allocatable | {"memory": "256Gi", "pods": "20"}},
            }
        )
        self.free[name] = amounts
        self.total_gpus += gpus

    def add_storage(self) -> None:
        """One late-binding class, volumes in a zone, and claims that are bound to them or not yet."""
        self.manifests.append(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": "late"},
                "provisioner": "kubernetes.io/no-provisioner",
                "volumeBindingMode": "WaitForFirstConsumer",
            }
        )
        for index in range(3):
            zone = self.rng.choice(["z0", "z1"])
            is_bound = self.chance(0.5)
            term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
            volume_spec: Manifest = {
                "capacity": {"storage": "10Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "late",
                "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            }
            if is_bound:
                volume_spec["claimRef"] = {
                    "name": f"claim-{index}",
                    "namespace": NAMESPACE,
                    "uid": f"uid-claim-{index}",
                }
            modes = ["ReadWriteOncePod"] if self.chance(0.3) else ["ReadWriteOnce"]
            claim_spec = {
                "accessModes": modes,
                "storageClassName": "late",
                "resources": {"requests": {"storage": "5Gi"}},
            }
            annotations = {"pv.kubernetes.io/bind-completed": "yes"} if is_bound else {}
            self.manifests += [
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolume",
                    "metadata": {"name": f"volume-{index}"},
                    "spec": volume_spec,
                    "status": {"phase": "Bound" if is_bound else "Available"},
                },
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "metadata": meta(f"claim-{index}", annotations=annotations),
                    "spec": claim_spec | ({"volumeName": f"volume-{index}"} if is_bound else {}),
                },
            ]

    # ------------------------------------------------------------------------------- gangs and pods

    def add_running(self) -> None:
        """Put gangs on nodes until the GPUs are as full as wanted."""
        used, index = 0, 0
        while used < self.filled * self.total_gpus and index < 4 * self.node_limit:
            index += 1
            pods, gpus = self.rng.randint(1, 4), self.rng.choice([0, 1, 1, 2, 4])
            cpu = self.rng.choice([1, 2, 4])
            if self.fragmented:
                pods, gpus, cpu = 1, self.rng.choice([1, 2]), 1
            places = self.places(pods, {"cpu": cpu, GPU: gpus})
            if not places:
                continue
            used += gpus * len(places)
            self.add_running_gang(f"r{index}", places, cpu, gpus)
        for extra in range(self.rng.randint(0, 2)):
            places = self.places(1, {"cpu": 1, GPU: 0})
            for node in places:
                scheduler = self.rng.choice(["default-scheduler", "batchsched"])
                self.add_pod(
                    f"lone-{extra}",
                    {"cpu": 1, GPU: 0},
                    node=node,
                    scheduler=scheduler,
                    priority=self.rng.choice(["low", "normal", "high"]),
                )

    def places(self, pods: int, request: dict[str, int]) -> list[str]:
        """Return nodes for as many pods of a gang as fit, side by side or scattered."""
        names = list(self.free)
        if self.fragmented or self.chance(0.4):
            self.rng.shuffle(names)
        chosen: list[str] = []
        for name in names:
            while len(chosen) < pods and all(
                self.free[name][resource] >= amount for resource, amount in request.items()
            ):
                chosen.append(name)
                for resource, amount in request.items():
                    self.free[name][resource] -= amount
        return chosen

    def add_running_gang(self, name: str, places: list[str], cpu: int, gpus: int) -> None:
        priority = self.rng.choice(["low", "low", "normal", "normal", "high"])
        started = self.rng.choice([30.0, 600.0, 600.0, 7200.0, 90_000.0])
        spec: Manifest = {
            "minMember": self.rng.randint(1, len(places)) if self.chance(0.4) else len(places),
            "priorityClassName": priority,
            "expectedRuntimeSeconds": self.rng.choice([100, 4000, 100_000]),
        }
        if self.chance(0.1):
            spec["preemptible"] = False
        if self.chance(0.3):
            spec["disruptionMode"] = "Elastic"
        if self.chance(0.15):
            spec["minRuntimeSeconds"] = 1800
        if self.queue_names and self.chance(0.9):
            # Most running gangs are in one queue, so that the others have something to reclaim.
            borrower = self.chance(0.7)
            spec["queue"] = self.queue_names[0] if borrower else self.rng.choice(self.queue_names)
        self.manifests.append(self.custom("PodGroup", meta(name, created=started + 60), spec))
        annotations = {}
        if self.chance(0.2):
            annotations[f"{GROUP}/last-checkpoint"] = rfc3339(NOW - started / 4)
        app = self.rng.choice(["blue", "red"])
        for index, node in enumerate(places):
            terminating = self.chance(0.015)
            metadata = {"deletionTimestamp": rfc3339(NOW - 5)} if terminating else {}
            self.add_pod(
                f"{name}-{index}",
                {"cpu": cpu, GPU: gpus},
                group=name,
                node=node,
                priority=priority,
                created=started + 60,
                started=started,
                app=app,
                metadata=metadata | ({"annotations": annotations} if annotations else {}),
            )

    def add_pending(self, name: str) -> None:
        created = self.rng.choice([0.0, 0.0, 300.0, 50_000.0])
        priority = self.rng.choice(["low", "normal", "high", "high", "high", "polite"])
        if self.fragmented:
            priority = self.rng.choice(["low", "low", "normal"])
        if self.chance(0.2):
            request = {"cpu": self.rng.choice([1, 3]), GPU: self.rng.choice([0, 1, 2])}
            self.add_pod(name, request, priority=priority, created=created, extra=self.pod_spec("blue"))
            return
        names = ["master", "worker"] if self.chance(0.25) else [""]
        parts = [(part, self.rng.randint(1, 2 if self.fragmented else 4)) for part in names]
        spec = self.gang_size(parts) | self.gang_rest() | {"priorityClassName": priority}
        self.manifests.append(self.custom("PodGroup", meta(name, created=created), spec))
        app = self.rng.choice(["blue", "red"])
        nominated = self.rng.choice(list(self.free)) if self.chance(0.2) else ""
        shared: dict[str, Any] = {
            "priority": priority,
            "created": created,
            "app": app,
            "nominated": nominated,
        }
        index = 0
        for part, size in parts:
            request = {"cpu": self.rng.choice([1, 2, 4]), GPU: self.pending_gpus()}
            extra = self.pod_spec(app)
            for _ in range(size):
                self.add_pod(f"{name}-{index}", request, group=name, sub_group=part, extra=extra, **shared)
                index += 1

    def pending_gpus(self) -> int:
        """Return the GPUs of a pending pod."""
        if self.fragmented:
            return self.rng.choice([3, 4])
        return self.rng.choice([1, 2] if self.equal else [0, 1, 2, 4])

    def gang_size(self, parts: list[tuple[str, int]]) -> Manifest:
        """Return how many pods of a gang must be placed together."""
        count = sum(size for _, size in parts)
        spec: Manifest = {}
        if len(parts) > 1:
            spec["subGroups"] = [self.sub_group(part, size) for part, size in parts]
        else:
            spec["minMember"] = self.rng.randint(1, count) if self.chance(0.4) else count
        if self.chance(0.03):
            spec["minMember"] = count + 1
        return spec

    def gang_rest(self) -> Manifest:
        """Return where a gang is to be placed, its queue, and how long it runs."""
        spec: Manifest = {}
        if self.chance(0.35):
            spec["topology"] = self.topology()
        if self.queue_names and self.chance(0.95):
            own = self.queue_names[0] if self.chance(0.4) else self.rng.choice(self.queue_names)
            spec["queue"] = "missing" if self.chance(0.02) else own
        if self.chance(0.7):
            spec["expectedRuntimeSeconds"] = self.rng.choice([50, 1000, 20_000])
        if self.chance(0.1):
            spec["preemptionPolicy"] = "Never"
        return spec

    def sub_group(self, name: str, size: int) -> Manifest:
        found: Manifest = {"name": name, "minMember": self.rng.randint(0 if size > 1 else 1, size)}
        if self.chance(0.3):
            found["topology"] = {"required": self.rng.choice(["zone", "rack"])}
        return found

    def topology(self) -> Manifest:
        found = {}
        if self.chance(0.6):
            found["required"] = self.rng.choice(["zone", "rack"])
        if self.chance(0.5) or not found:
            found["preferred"] = self.rng.choice(["zone", "rack"])
        return found

    def pod_spec(self, app: str) -> Manifest:
        """Return the fields of the pods of one template other than their requests."""
        spec: Manifest = {}
        if self.chance(0.3):
            spec["tolerations"] = [{"key": "own", "operator": "Exists"}]
        if not self.equal and self.chance(0.1):
            spec["nodeSelector"] = {"disk": "ssd"}
        if self.chance(0.03):
            spec["schedulingGates"] = [{"name": "example.com/later"}]
        if self.rules and self.chance(0.7):
            spec |= self.rule(app)
        return spec

    def rule(self, app: str) -> Manifest:
        """Return a rule between pods, or one about nodes or volumes."""
        term = {
            "topologyKey": self.rng.choice([HOST, ZONE, RACK]),
            "labelSelector": {"matchLabels": {"app": app}},
        }
        rack = {"key": RACK, "operator": "In", "values": ["r0", "r1"]}
        volume = {"claimName": f"claim-{self.rng.randint(0, 2)}"}
        spread = term | {"maxSkew": self.rng.randint(1, 2)}
        side = self.rng.choice(["podAffinity", "podAntiAffinity"])
        choices: list[Manifest] = [
            {"ports": [{"containerPort": 80, "hostPort": self.rng.choice([8080, 8081])}]},
            {"volumes": [{"name": "data", "persistentVolumeClaim": volume}]},
            {"topologySpreadConstraints": [spread | {"whenUnsatisfiable": "DoNotSchedule"}]},
            {"topologySpreadConstraints": [spread | {"whenUnsatisfiable": "ScheduleAnyway"}]},
            {"affinity": {"podAntiAffinity": {REQUIRED: [term]}}},
            {"affinity": {"podAffinity": {REQUIRED: [term]}}},
            {"affinity": {side: {PREFERRED: [{"weight": 10, "podAffinityTerm": term}]}}},
            {
                "affinity": {
                    "nodeAffinity": {PREFERRED: [{"weight": 5, "preference": {"matchExpressions": [rack]}}]}
                }
            },
        ]
        return self.rng.choice(choices)

    def add_pod(
        self,
        name: str,
        request: dict[str, int],
        *,
        group: str = "",
        sub_group: str = "",
        node: str = "",
        nominated: str = "",
        scheduler: str = "batchsched",
        priority: str = "normal",
        created: float = 0.0,
        started: float = 0.0,
        app: str = "blue",
        metadata: Manifest | None = None,
        extra: Manifest | None = None,
    ) -> None:
        labels = {"app": app, f"{GROUP}/user": self.rng.choice(["ann", "bob"])}
        if group:
            labels[f"{GROUP}/pod-group"] = group
        elif self.queue_names and not node:
            labels[f"{GROUP}/queue"] = self.queue_names[self.pod_count % len(self.queue_names)]
        if sub_group:
            labels[f"{GROUP}/sub-group"] = sub_group
        amounts = {resource: str(amount) for resource, amount in request.items() if amount}
        stated = dict(extra or {})
        container: Manifest = {
            "name": "main",
            "image": "example.com/app:1",
            "resources": {"requests": amounts},
        }
        if "ports" in stated:
            container["ports"] = stated.pop("ports")
        spec: Manifest = {
            "schedulerName": scheduler,
            "priorityClassName": priority,
            "priority": PRIORITIES[priority],
            "containers": [container],
        } | stated
        status: Manifest = {"phase": "Pending"}
        if node:
            spec["nodeName"] = node
            status = {"phase": "Running", "startTime": rfc3339(NOW - started)}
        elif nominated:
            status["nominatedNodeName"] = nominated
        self.pod_count += 1
        self.manifests.append(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": meta(name, created=created, labels=labels) | (metadata or {}),
                "spec": spec,
                "status": status,
            }
        )
