"""Random clusters as plain manifests: few nodes, two levels of topology, and small gangs of equal pods."""

import copy
import json
import random
from typing import Any

from batchsched.api.snapshot import Snapshot
from batchsched.manifests.reader import read_manifests
from batchsched.ports.external import NoTelemetry

NOW = 1_767_603_600.0
NOW_TEXT = "2026-01-05T{:02}:{:02}:00Z"
GPU = "nvidia.com/gpu"
API = "scheduling.batchsched.dev/v1alpha1"
GROUP_LABEL = "scheduling.batchsched.dev/pod-group"
SUB_LABEL = "scheduling.batchsched.dev/sub-group"
USER_LABEL = "scheduling.batchsched.dev/user"
Document = dict[str, Any]


def snapshot_of(documents: list[Document], tmp_path: Any) -> Snapshot:
    """Read documents, all of them valid, as `batchsched decide` reads a file."""
    snapshot = read_documents(documents, tmp_path)
    assert not snapshot.set_aside, snapshot.set_aside
    return snapshot


def read_documents(documents: list[Document], tmp_path: Any) -> Snapshot:
    """Read documents as `batchsched decide` reads a file. Invalid ones are set aside."""
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}))
    return read_manifests([path], NoTelemetry()).snapshot


# The generator


def random_documents(seed: int) -> list[Document]:
    """A random cluster with at least one pending gang."""
    return _Draw(random.Random(seed)).documents()


class _Draw:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.nodes: list[Document] = []
        self.free: dict[str, dict[str, int]] = {}
        self.queues: list[str] = []

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def documents(self) -> list[Document]:
        rng = self.rng
        levels = [{"name": "block", "nodeLabel": "ex/block"}, {"name": "rack", "nodeLabel": "ex/rack"}]
        made: list[Document] = [
            {
                "apiVersion": API,
                "kind": "Topology",
                "metadata": {"name": "default"},
                "spec": {"levels": levels},
            }
        ]
        made += [
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": f"p{value}"},
                "value": value,
            }
            for value in (0, 5, 10)
        ]
        made += self.draw_queues()
        for number in range(rng.randint(2, 7)):
            self.nodes.append(self.node(f"n{number}"))
        made += self.nodes
        for number in range(rng.randint(3, 9)):
            made += self.gang(f"g{number}")
        return made

    def draw_queues(self) -> list[Document]:
        if self.chance(0.3):
            self.queues = ["default"]
            return []
        made = []
        for name, parent in (("org", None), ("a", "org"), ("b", "org"), ("c", None)):
            spec: Document = {"parent": parent} if parent else {}
            if self.chance(0.35):
                spec["limit"] = {self.rng.choice([GPU, "cpu"]): str(self.rng.randint(4, 16))}
            if self.chance(0.25):
                guaranteed = self.rng.randint(1, 4)
                spec["guarantee"] = {GPU: str(min(guaranteed, int(spec.get("limit", {}).get(GPU, 99))))}
                if self.chance(0.3):
                    spec["borrowingLimit"] = {GPU: str(self.rng.randint(0, 3))}
            if self.chance(0.12):
                spec["userLimits"] = {GPU: str(self.rng.randint(2, 8))}
            if self.chance(0.15):
                spec["maxRunningPodGroups"] = self.rng.randint(0, 2)
            made.append({"apiVersion": API, "kind": "Queue", "metadata": {"name": name}, "spec": spec})
        self.queues = ["a", "b", "c"]
        return made

    def node(self, name: str) -> Document:
        rng = self.rng
        rack = rng.choice(["r0", "r1", "r2"])
        labels = {"kubernetes.io/hostname": name, "disk": rng.choice(["ssd", "hdd"])}
        if self.chance(0.9):
            labels |= {"ex/block": {"r0": "b0", "r1": "b0", "r2": "b1"}[rack], "ex/rack": rack}
        offered = {
            "cpu": rng.choice([4, 8, 16]),
            "memory": rng.choice([16, 32]),
            GPU: rng.choice([0, 2, 4, 8]),
        }
        self.free[name] = dict(offered)
        spec: Document = {}
        if self.chance(0.25):
            spec["taints"] = [{"key": "own", "value": rng.choice(["x", "y"]), "effect": "NoSchedule"}]
        allocatable = {
            "cpu": str(offered["cpu"]),
            "memory": f"{offered['memory']}Gi",
            GPU: str(offered[GPU]),
            "pods": "20",
        }
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
            "status": {"allocatable": allocatable},
        }

    def gang(self, name: str) -> list[Document]:
        subs = self.rng.sample(["x", "y"], self.rng.randint(1, 2)) if self.chance(0.25) else []
        running = self.chance(0.35)
        pods = self.members(name, subs, running=running)
        if not pods:
            return []
        minutes = self.rng.randint(0, 59)
        metadata = {"name": name, "namespace": "team", "creationTimestamp": NOW_TEXT.format(8, minutes)}
        spec = self.group_spec(pods, subs, running=running)
        return [{"apiVersion": API, "kind": "PodGroup", "metadata": metadata, "spec": spec}, *pods]

    def members(self, name: str, subs: list[str], *, running: bool) -> list[Document]:
        template = self.template()
        pods = []
        for number in range(self.rng.randint(max(1, len(subs)), 4)):
            labels = {GROUP_LABEL: name} | ({USER_LABEL: template["user"]} if template["user"] else {})
            if subs:
                labels[SUB_LABEL] = subs[number % len(subs)]
            pod = self.pod(f"{name}-{number}", labels, template)
            node = self.place(template["requests"]) if running else ""
            if node:
                pod["spec"]["nodeName"] = node
                start = NOW_TEXT.format(7, self.rng.randint(0, 59))
                pod["status"] = {"phase": "Running", "startTime": start}
            if node or not running:
                pods.append(pod)
        return pods

    def group_spec(self, pods: list[Document], subs: list[str], *, running: bool) -> Document:
        rng = self.rng
        elastic = rng.randint(0, 2) if self.chance(0.3) else 0
        spec: Document = {"minMember": max(1, len(pods) - elastic), "queue": rng.choice(self.queues)}
        if subs:
            counts = [sum(pod["metadata"]["labels"][SUB_LABEL] == sub for pod in pods) for sub in subs]
            spec["subGroups"] = [
                {"name": sub, "minMember": count} for sub, count in zip(subs, counts, strict=True)
            ]
            spec["minMember"] = len(pods)
            if self.chance(0.4):
                spec["subGroups"][0]["topology"] = {"required": rng.choice(["block", "rack"])}
        if not running:
            if self.chance(0.06):
                spec["minMember"] = len(pods) + 1
            if self.chance(0.4):
                spec["topology"] = {"required": rng.choice(["block", "rack"])}
        if self.chance(0.03):
            spec["queue"] = "nowhere"
        if self.chance(0.5):
            spec["disruptionMode"] = "Elastic"
        return spec

    def template(self) -> Document:
        rng = self.rng
        spec: Document = {"priorityClassName": rng.choice(["p0", "p0", "p5", "p10"])}
        if self.chance(0.3):
            spec["nodeSelector"] = {"disk": rng.choice(["ssd", "ssd", "hdd", "hdd", "nvme"])}
        if self.chance(0.3):
            spec["tolerations"] = [{"key": "own", "operator": "Equal", "value": "x", "effect": "NoSchedule"}]
        requests = {
            "cpu": rng.choice([1, 2, 4]),
            "memory": rng.choice([2, 4]),
            GPU: rng.choice([0, 1, 1, 2, 2, 4, 4, 10] if self.chance(0.4) else [1, 2]),
        }
        return {"spec": spec, "requests": requests, "user": rng.choice(["", "u", "v"])}

    def place(self, requests: dict[str, int]) -> str:
        names = [
            name
            for name, free in self.free.items()
            if all(free[one] >= amount for one, amount in requests.items())
        ]
        if not names:
            return ""
        name = self.rng.choice(names)
        for resource, amount in requests.items():
            self.free[name][resource] -= amount
        return name

    def pod(self, name: str, labels: dict[str, str], template: Document) -> Document:
        wanted = template["requests"]
        requests = {"cpu": str(wanted["cpu"]), "memory": f"{wanted['memory']}Gi"}
        resources: Document = {"requests": requests}
        if wanted[GPU]:
            requests[GPU] = str(wanted[GPU])
            resources["limits"] = {GPU: str(wanted[GPU])}
        spec = copy.deepcopy(template["spec"]) | {
            "schedulerName": "batchsched",
            "containers": [{"name": "main", "image": "ex/train:1", "resources": resources}],
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "team", "labels": labels},
            "spec": spec,
        }
