"""Random clusters of several shapes as plain manifests, and changes applied as a reader of the decision format would.

The applier shares no code with the scheduler: it knows JSON pointers and the two forms of a change. The clusters have
few large nodes or many small ones, three levels of topology in uneven domains, three levels of queues, pods that end,
pods of other schedulers, pods with gates and nominations, gangs of different pods, and profiles other than the default.
"""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

from batchsched.config.schema import PolicySettings, Profile
from tests.session.explanation.documents import API, GPU, GROUP_LABEL, NOW_TEXT, SUB_LABEL, USER_LABEL

Document = dict[str, Any]
SCHEDULERS = ("batchsched", "default-scheduler")
LEVELS = ("zone", "block", "rack")
REQUEST_UNITS = {GPU: 1, "cpu": 1000, "memory": 2**20}
QUEUE_UNITS = {GPU: 1, "cpu": 1000, "memory": 2**30}
"""One unit: a device, a core in millicores, a MiB in a pod, a GiB in a queue."""


# Reading and changing manifests


def key_of(pod: Document) -> str:
    """Return `namespace/name` of the gang of a pod."""
    metadata = pod["metadata"]
    return f"{metadata['namespace']}/{metadata.get('labels', {}).get(GROUP_LABEL, metadata['name'])}"


def members_of(documents: list[Document], key: str) -> set[tuple[str, str]]:
    return {
        (pod["metadata"]["namespace"], pod["metadata"]["name"])
        for pod in documents
        if pod["kind"] == "Pod" and key_of(pod) == key
    }


def emptied(documents: list[Document], key: str) -> list[Document]:
    """The documents without all pods and PodGroups but those of one gang."""

    def stays(document: Document) -> bool:
        if document["kind"] == "Pod":
            return key_of(document) == key
        metadata = document["metadata"]
        return document["kind"] != "PodGroup" or f"{metadata['namespace']}/{metadata['name']}" == key

    return [document for document in documents if stays(document)]


def edited(documents: list[Document], changes: list[Document], prefix: str) -> list[Document]:
    """The documents after changes; the names of copied nodes begin with a prefix."""
    documents = copy.deepcopy(documents)
    for number, change in enumerate(changes):
        if "copy" in change:
            name = change["copy"].partition("/")[2]
            like = next(
                node for node in documents if node["kind"] == "Node" and node["metadata"]["name"] == name
            )
            for copied in range(change["count"]):
                node = copy.deepcopy(like)
                node["metadata"]["name"] = new_name = f"{prefix}-{number}-{copied}"
                node["metadata"]["labels"]["kubernetes.io/hostname"] = new_name
                documents.append(node)
            continue
        targets = [document for document in documents if change["set"] in _names(document)]
        assert targets, change
        for target in targets:
            _edit(target, change["path"].split("/")[1:], copy.deepcopy(change["value"]))
    return documents


def _names(document: Document) -> set[str]:
    kind, metadata = document["kind"], document["metadata"]
    if kind == "Pod":
        return set() if document["spec"].get("nodeName") else {f"PodTemplate/{key_of(document)}"}
    if "namespace" in metadata:
        return {f"{kind}/{metadata['namespace']}/{metadata['name']}"}
    return {f"{kind}/{metadata['name']}"}


def _edit(parent: Any, tokens: list[str], value: Any) -> None:
    token, rest = tokens[0].replace("~1", "/").replace("~0", "~"), tokens[1:]
    is_list = isinstance(parent, list)
    if rest:
        if not is_list and parent.get(token) is None:
            parent[token] = [] if rest[0] == "-" else {}
        _edit(parent[int(token)] if is_list else parent[token], rest, value)
    elif is_list and token == "-":
        parent.append(value)
    elif is_list:
        parent[int(token)] = value
    else:
        parent[token] = value


# One unit less


def reduced(documents: list[Document], changes: list[Document]) -> Iterator[list[Document]]:
    """Yield the changes with one of them left out, or one unit smaller in every way that a reader may count units."""
    for parts in _parts(changes):
        others = [change for change in changes if change not in parts]
        yield others
        for amount in range(len(_smaller(documents, parts[0]))):
            yield [*others, *(_smaller(documents, part)[amount] for part in parts)]


def _parts(changes: list[Document]) -> list[list[Document]]:
    """The changes; those of the request and the limit of one resource together, which the API server compares."""
    parts: dict[str, list[Document]] = {}
    for change in changes:
        path = change.get("path", "")
        parts.setdefault(path.rsplit("/", 1)[-1] if "/resources/" in path else json.dumps(change), []).append(
            change
        )
    return list(parts.values())


def _smaller(documents: list[Document], change: Document) -> list[Document]:
    if "copy" in change:
        return [change | {"count": change["count"] - 1}] if change["count"] > 1 else []
    path, value = change["path"], change["value"]
    field, resource = path.split("/")[2], path.rsplit("/", 1)[-1].replace("~1", "/")
    target = next(document for document in documents if change["set"] in _names(document))
    if field == "maxRunningPodGroups":
        return [change | {"value": value - 1}] if value > target["spec"][field] + 1 else []
    if resource == "minMember":
        return [change | {"value": value + 1}]
    if resource == "required" and "topology" in path:
        wider = LEVELS[: LEVELS.index(_stated_level(target, path))]
        narrower = wider if value is None else wider[LEVELS.index(value) + 1 :]
        return [change | {"value": level} for level in narrower]
    if "/resources/" in path:
        return [change | {"value": _text(resource, _amount(resource, value) + REQUEST_UNITS[resource])}]
    if change["set"].startswith("Queue/") and resource in QUEUE_UNITS:
        amount = _amount(resource, value) - QUEUE_UNITS[resource]
        stated = _amount(resource, target["spec"][field][resource])
        return [change | {"value": _text(resource, amount)}] if amount > stated else []
    return []


def _stated_level(document: Any, path: str) -> str:
    for token in path.split("/")[1:]:
        document = document[int(token)] if isinstance(document, list) else document[token]
    return str(document)


SUFFIXES = {"m": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def _amount(resource: str, text: str) -> int:
    """Return a quantity in millicores, bytes or devices."""
    for suffix, factor in SUFFIXES.items():
        if str(text).endswith(suffix):
            return round(float(text[: -len(suffix)]) * factor)
    return round(float(text) * (1000 if resource == "cpu" else 1))


def _text(resource: str, amount: int) -> str:
    return f"{amount}m" if resource == "cpu" else str(amount)


# What would make an answer lazy: a change of an earlier kind that helps too


def earlier_changes(documents: list[Document], key: str, changes: list[Document]) -> Iterator[list[Document]]:
    """Yield single changes that come before those of a refusal: of the job, and of queues if nodes are copied."""
    kinds = {"copy" if "copy" in change else change["set"].partition("/")[0] for change in changes}
    if kinds & {"PodTemplate", "PodGroup"}:
        return
    target = f"PodGroup/{key}"
    if any("required" in one["spec"].get("topology", ()) for one in documents if target in _names(one)):
        yield [{"set": target, "path": "/spec/topology/required", "value": None}]
    nodes = [document["spec"] for document in documents if document["kind"] == "Node"]
    taints = {json.dumps(taint, sort_keys=True) for spec in nodes for taint in spec.get("taints", ())}
    target = f"PodTemplate/{key}"
    for taint in sorted(taints) if any(target in _names(one) for one in documents) else ():
        toleration = {"operator": "Equal", **json.loads(taint)}
        yield [{"set": target, "path": "/spec/tolerations/-", "value": toleration}]
    for queue in documents if "Queue" not in kinds else ():
        for field in ("limit", "borrowingLimit", "userLimits") if queue["kind"] == "Queue" else ():
            for resource in queue["spec"].get(field, {}):
                path = f"/spec/{field}/{resource.replace('/', '~1')}"
                yield [{"set": f"Queue/{queue['metadata']['name']}", "path": path, "value": "10000"}]


def with_many_nodes(documents: list[Document]) -> list[Document]:
    """Return changes that add a dozen copies of every node."""
    nodes = [document["metadata"]["name"] for document in documents if document["kind"] == "Node"]
    return [{"copy": f"Node/{name}", "count": 12} for name in nodes]


# The generator


def varied_documents(seed: int) -> tuple[list[Document], Profile]:
    """A random cluster with at least one pending gang, and a profile."""
    draw = _Draw(random.Random(f"varied {seed}"))
    return draw.documents(), draw.profile()


class _Draw:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.shape = rng.choice(["few", "many", "mixed", "mixed"])
        self.nodes: list[Document] = []
        self.free: dict[str, dict[str, int]] = {}
        self.queues = [""]
        self.taints = rng.sample(["gpu", "team", "spot"], rng.randint(0, 2))

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def profile(self) -> Profile:
        rng = self.rng
        if self.chance(0.6):
            return Profile()
        chosen: dict[str, Any] = {"selection": rng.choice(["weight", "ordered"])}
        if chosen["selection"] == "ordered":
            chosen["policy"] = PolicySettings(name=rng.choice(["fcfs", "sjf", "priority"]))
        if self.chance(0.3):
            chosen["queue_policy"] = PolicySettings(name="drf")
        chosen["placement"] = rng.choice(["pack", "spread"])
        chosen["consolidate"] = self.chance(0.3)
        return Profile(**chosen)

    def documents(self) -> list[Document]:
        rng = self.rng
        levels = [{"name": level, "nodeLabel": f"net/{level}"} for level in LEVELS]
        made: list[Document] = [
            {
                "apiVersion": API,
                "kind": "Topology",
                "metadata": {"name": "default"},
                "spec": {"levels": levels},
            }
        ]
        for name, value in (("low", -5), ("normal", 100), ("high", 5000)):
            made.append(
                {
                    "apiVersion": "scheduling.k8s.io/v1",
                    "kind": "PriorityClass",
                    "metadata": {"name": name},
                    "value": value,
                    "preemptionPolicy": rng.choice(["Never", "PreemptLowerPriority"]),
                }
            )
        if self.chance(0.75):
            made += self.draw_queues()
        self.draw_nodes()
        made += self.nodes
        gangs = {"few": (2, 6), "many": (3, 7), "mixed": (2, 12)}[self.shape]
        for number in range(rng.randint(*gangs)):
            made += self.gang(f"job-{number}", running=self.chance(0.4))
        for number in range(rng.randint(0, 3)):
            made += self.single(f"pod-{number}")
        made += self.gang("last", running=False)
        return made

    def draw_queues(self) -> list[Document]:
        """A tree of three levels: the leaf may be at any of them."""
        rng, made = self.rng, []
        tree = [
            ("corp", ""),
            ("ml", "corp"),
            ("ops", "corp"),
            ("ml-x", "ml"),
            ("ml-y", "ml"),
            ("guest", ""),
        ]
        for name, parent in tree:
            spec: Document = {"parent": parent} if parent else {}
            if self.chance(0.3):
                limit = {
                    GPU: str(rng.randint(1, 24)),
                    "cpu": rng.choice(["6", "9500m", "24"]),
                    "memory": "40Gi",
                }
                spec["limit"] = dict(rng.sample(sorted(limit.items()), rng.randint(1, 2)))
            if self.chance(0.4):
                most = int(spec.get("limit", {}).get(GPU, 8))
                spec["guarantee"] = {GPU: str(rng.randint(0, most))}
                if self.chance(0.3):
                    spec["borrowingLimit"] = {GPU: str(rng.randint(0, 5))}
                if self.chance(0.3):
                    spec["lendingLimit"] = {GPU: str(rng.randint(0, int(spec["guarantee"][GPU])))}
            if self.chance(0.15):
                spec["userLimits"] = {rng.choice([GPU, "cpu"]): str(rng.randint(1, 9))}
            if self.chance(0.15):
                spec["maxRunningPodGroups"] = rng.randint(0, 3)
            if self.chance(0.3):
                spec["weight"] = rng.choice([0.5, 2.0, 3.0])
            made.append({"apiVersion": API, "kind": "Queue", "metadata": {"name": name}, "spec": spec})
        self.queues = ["ml-x", "ml-y", "ops", "guest"]
        return made

    def draw_nodes(self) -> None:
        rng = self.rng
        count = {"few": rng.randint(1, 4), "many": rng.randint(12, 30), "mixed": rng.randint(4, 10)}[
            self.shape
        ]
        racks = [f"z{z}-b{b}-r{r}" for z in range(2) for b in range(2) for r in range(rng.randint(1, 3))]
        # Uneven domains: the first racks have most nodes.
        weights = [1 / (1 + place) for place in range(len(racks))]
        for number in range(count):
            self.nodes.append(self.node(f"node-{number:02}", rng.choices(racks, weights)[0]))

    def node(self, name: str, rack: str) -> Document:
        rng = self.rng
        cpu, memory, gpu = {
            "few": (rng.choice([64, 96]), rng.choice([256, 512]), rng.choice([8, 8, 16])),
            "many": (rng.choice([2, 4]), rng.choice([8, 16]), rng.choice([0, 0, 1, 1, 2])),
            "mixed": (rng.choice([4, 16, 32]), rng.choice([16, 64]), rng.choice([0, 1, 4, 8])),
        }[self.shape]
        zone, block, _ = rack.split("-")
        labels = {"kubernetes.io/hostname": name, "pool": rng.choice(["train", "train", "batch"])}
        labels |= {"net/zone": zone, "net/block": f"{zone}-{block}", "net/rack": rack}
        for level in LEVELS:
            if self.chance(0.06):
                del labels[f"net/{level}"]
        spec: Document = {}
        if self.taints and self.chance(0.35):
            spec["taints"] = [
                {
                    "key": key,
                    "value": rng.choice(["yes", ""]),
                    "effect": rng.choice(["NoSchedule", "NoExecute"]),
                }
                for key in rng.sample(self.taints, rng.randint(1, len(self.taints)))
            ]
        if self.chance(0.05):
            spec["unschedulable"] = True
        self.free[name] = {"cpu": cpu * 1000, "memory": memory, GPU: gpu}
        allocatable = {
            "cpu": str(cpu),
            "memory": f"{memory}Gi",
            "pods": str(rng.choice([3, 10, 110])),
        }
        if gpu:
            allocatable[GPU] = str(gpu)
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
            "status": {"allocatable": allocatable},
        }

    def requests(self) -> dict[str, int]:
        rng = self.rng
        gpu = {"few": [0, 1, 2, 4, 8, 8, 17], "many": [0, 0, 1, 1, 2], "mixed": [0, 1, 1, 2, 4, 8, 9]}
        cpu = {"few": [2000, 8000, 30000], "many": [500, 1500, 3000], "mixed": [250, 1000, 3500, 6000, 40000]}
        memory = {"few": [4, 32, 100], "many": [1, 3, 6], "mixed": [1, 4, 10]}
        return {
            "cpu": rng.choice(cpu[self.shape]),
            "memory": rng.choice(memory[self.shape]),
            GPU: rng.choice(gpu[self.shape]),
        }

    def template(self) -> Document:
        rng = self.rng
        spec: Document = {"schedulerName": "batchsched"}
        if self.chance(0.7):
            spec["priorityClassName"] = rng.choice(["low", "normal", "normal", "high"])
        if self.chance(0.25):
            spec["nodeSelector"] = {"pool": rng.choice(["train", "batch", "debug"])}
        if self.taints and self.chance(0.4):
            spec["tolerations"] = [{"key": rng.choice(self.taints), "operator": "Exists"}]
        if self.chance(0.06):
            term = {"matchExpressions": [{"key": "pool", "operator": "NotIn", "values": ["train"]}]}
            terms = {"nodeSelectorTerms": [term]}
            spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        elif self.chance(0.06):
            rule = {
                "labelSelector": {"matchLabels": {"app": "train"}},
                "topologyKey": rng.choice(["kubernetes.io/hostname", "net/rack"]),
            }
            spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}
        elif self.chance(0.05):
            spec["topologySpreadConstraints"] = [
                {
                    "maxSkew": 1,
                    "topologyKey": "kubernetes.io/hostname",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": "train"}},
                }
            ]
        return spec

    def pod(self, name: str, namespace: str, labels: dict[str, str], spec: Document) -> Document:
        requests = self.requests()
        if self.chance(0.7):
            requests = dict(spec.pop("same", requests))
        spec.pop("same", None)
        texts = {"cpu": f"{requests['cpu']}m", "memory": f"{requests['memory']}Gi"}
        resources: Document = {"requests": texts}
        if requests[GPU]:
            texts[GPU] = str(requests[GPU])
            resources["limits"] = {GPU: str(requests[GPU])}
        if self.chance(0.2):
            resources["limits"] = dict(texts)
        container = {"name": "main", "image": "ex/train:1", "resources": resources}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "labels": {"app": "train"} | labels},
            "spec": spec | {"containers": [container]},
            "requests": requests,
        }

    def run(self, pod: Document) -> bool:
        """Place a pod on a node with room, if there is one; return whether it runs."""
        rng, requests = self.rng, pod["requests"]
        selector = pod["spec"].get("nodeSelector", {})
        names = [
            node["metadata"]["name"]
            for node in self.nodes
            if selector.items() <= node["metadata"]["labels"].items()
            and all(self.free[node["metadata"]["name"]][kind] >= amount for kind, amount in requests.items())
        ]
        if not names:
            return False
        name = rng.choice(names)
        for kind, amount in requests.items():
            self.free[name][kind] -= amount
        pod["spec"]["nodeName"] = name
        pod["status"] = {"phase": "Running", "startTime": NOW_TEXT.format(7, rng.randint(0, 59))}
        if self.chance(0.1):
            pod["metadata"]["deletionTimestamp"] = NOW_TEXT.format(9, 1)
            pod["metadata"]["deletionGracePeriodSeconds"] = 30
        return True

    def gang(self, name: str, *, running: bool) -> list[Document]:
        rng = self.rng
        namespace = rng.choice(["red", "blue"])
        subs = rng.sample(["master", "worker", "reader"], rng.randint(1, 3)) if self.chance(0.3) else []
        template = self.template()
        size = max(len(subs), rng.choice([1, 2, 2, 3, 4, 6, 8] if self.shape == "many" else [1, 2, 3, 4]))
        user = rng.choice(["", "", "ann", "bob"])
        common, alike = self.requests(), self.chance(0.7)
        pods = []
        for number in range(size):
            labels = {GROUP_LABEL: name} | ({USER_LABEL: user} if user else {})
            if subs:
                labels[SUB_LABEL] = subs[number % len(subs)]
            spec = copy.deepcopy(template)
            if alike:
                spec["same"] = common
            pod = self.pod(f"{name}-{number}", namespace, labels, spec)
            if running and not self.run(pod):
                continue
            pods.append(pod)
        if not pods:
            return []
        if not running:
            self.prepare(pods)
        for pod in pods:
            del pod["requests"]
        spec = self.group_spec(pods, subs, running=running)
        metadata = {
            "name": name,
            "namespace": namespace,
            "creationTimestamp": NOW_TEXT.format(8, rng.randint(0, 59)),
        }
        return [{"apiVersion": API, "kind": "PodGroup", "metadata": metadata, "spec": spec}, *pods]

    def prepare(self, pods: list[Document]) -> None:
        """Give pending pods what some have: gates, a nomination, or a part of them that runs."""
        if self.chance(0.05):
            for pod in pods:
                pod["spec"]["schedulingGates"] = [{"name": "ex/wait"}]
        elif self.chance(0.05):
            pods[0]["status"] = {"phase": "Pending", "nominatedNodeName": self.nodes[0]["metadata"]["name"]}
        elif len(pods) > 1 and self.chance(0.08):
            self.run(pods[0])

    def group_spec(self, pods: list[Document], subs: list[str], *, running: bool) -> Document:
        rng = self.rng
        surplus = rng.randint(1, 3) if self.chance(0.35) else 0
        spec: Document = {"minMember": max(1, len(pods) - surplus)}
        queue = rng.choice(self.queues)
        if queue:
            spec["queue"] = queue
        if subs:
            present = [pod["metadata"]["labels"][SUB_LABEL] for pod in pods]
            spec["subGroups"] = [
                {"name": sub, "minMember": max(0, present.count(sub) - (surplus > 0))} for sub in subs
            ]
            total = sum(sub["minMember"] for sub in spec["subGroups"])
            spec["minMember"] = max(1, rng.choice([total, len(pods)]))
        if running:
            spec["preemptible"] = self.chance(0.8)
        else:
            self.require_levels(spec, len(pods))
        spec["preemptionPolicy"] = rng.choice(["Never", "PreemptLowerPriority", "PreemptLowerPriority"])
        spec["disruptionMode"] = rng.choice(["Elastic", "Gang", "Gang"])
        if self.chance(0.3):
            spec["expectedRuntimeSeconds"] = rng.choice([60, 600, 7200])
        return spec

    def require_levels(self, spec: Document, pods: int) -> None:
        rng = self.rng
        for sub in spec.get("subGroups", ()):
            if self.chance(0.4):
                sub["topology"] = {"required": rng.choice(["block", "rack", "rack"])}
        if self.chance(0.05):
            spec["minMember"] = pods + rng.randint(1, 2)
        if self.chance(0.4):
            spec["topology"] = {"required": rng.choice(LEVELS)}
        elif self.chance(0.1):
            spec["topology"] = {"preferred": "rack"}

    def single(self, name: str) -> list[Document]:
        """A pod without a PodGroup: pending, running, or of another scheduler."""
        spec = self.template()
        spec["schedulerName"] = self.rng.choice(SCHEDULERS)
        pod = self.pod(name, "red", {}, spec)
        if self.chance(0.5) and not self.run(pod):
            return []
        del pod["requests"]
        pod["metadata"]["creationTimestamp"] = NOW_TEXT.format(8, self.rng.randint(0, 59))
        return [pod]
