"""The plain cluster that every drawn case begins with, and a pod for it."""

from random import Random
from typing import Any, Final

Json = dict[str, Any]

NAMESPACES: Final = ("default", "blue", "green")
ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
HOSTNAME: Final = "kubernetes.io/hostname"
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
CONFIG: Final = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
}
IMAGES: Final = {
    "img.example/app:1": 300 << 20,
    "img.example/big:latest": 3 << 30,
    "img.example/small:2": 5 << 20,
    "docker.io/library/web:latest": 90 << 20,
    "img.example:5000/m/model:v3": 2 << 30,
    "img.example/app@sha256:" + "ab" * 32: 420 << 20,
}


class Draw(Random):
    """Random with the few turns of phrase that drawing cases needs."""

    def maybe(self, chance: float) -> bool:
        """Return True that often."""
        return self.random() < chance

    def some(self, of: Any, most: int) -> list[Any]:
        """Return up to `most` different ones."""
        every = list(of)
        return self.sample(every, self.randint(0, min(most, len(every))))


def profile_of(drawn: Json) -> Json:
    """Return the case's profile; until something is stated in it, it is kube-scheduler's default."""
    config = drawn.setdefault("config", {**CONFIG, "profiles": [{"schedulerName": "default-scheduler"}]})
    found: Json = config["profiles"][0]
    return found


def configure(drawn: Json, plugin: str, arguments: Json) -> None:
    """State a plugin's arguments in the case's profile, in place of those that another area stated."""
    stated = profile_of(drawn).setdefault("pluginConfig", [])
    stated[:] = [one for one in stated if one["name"] != plugin]
    stated.append({"name": plugin, "args": arguments})


def base(draw: Draw) -> Json:
    """Draw nodes, pods on them and one more pod; one cluster in twenty is of some size."""
    most, fullest = (60, 150) if draw.maybe(0.05) else (9, 24)
    nodes = [_node(draw, f"n{number}") for number in range(draw.randint(2, most))]
    names = [node["metadata"]["name"] for node in nodes]
    pods = [pod_named(draw, f"p{number}") for number in range(draw.randint(0, fullest))]
    for pod in pods:
        pod["spec"]["nodeName"] = draw.choice(names)
        if draw.maybe(0.04):
            pod["status"]["phase"] = draw.choice(("Succeeded", "Failed"))
    return {
        "nodes": nodes,
        "pods": pods,
        "pod": pod_named(draw, "incoming"),
        "namespaces": [
            {"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name, "team": team}}}
            for name, team in zip(NAMESPACES, ("red", "red", "black"), strict=True)
            if draw.maybe(0.97)
        ],
        "preempt": True,
    }


def _node(draw: Draw, name: str) -> Json:
    labels = {HOSTNAME: name, "kubernetes.io/os": "linux"}
    if draw.maybe(0.85):
        labels[ZONE] = draw.choice(("za", "zb", "zc"))
    if draw.maybe(0.7):
        labels[REGION] = draw.choice(("ra", "rb"))
    if draw.maybe(0.5):
        labels["disk"] = draw.choice(("ssd", "hdd", ""))
    if draw.maybe(0.5):
        labels["rank"] = draw.choice(("1", "5", "10", "1.5", "x", "", "010"))
    if draw.maybe(0.05):
        del labels[HOSTNAME]
    room = {
        "cpu": draw.choice(("1", "2", "4", "8000m", "3500m")),
        "memory": draw.choice(("2Gi", "8Gi", "16Gi", "16777179Ki", "5e9")),
        "pods": draw.choice(("110", "110", "20", "5")),
    }
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {"allocatable": room, "capacity": dict(room)},
    }


def pod_named(draw: Draw, name: str) -> Json:
    container: Json = {"name": "c", "image": draw.choice(sorted(IMAGES))}
    wanted: Json = {}
    if draw.maybe(0.75):
        wanted["cpu"] = draw.choice(("100m", "250m", "500m", "1", "0"))
    if draw.maybe(0.7):
        wanted["memory"] = draw.choice(("64Mi", "200M", "1Gi", "123456789", "0"))
    if wanted:
        container["resources"] = {"requests": wanted}
    labels = {"app": draw.choice("abc")}
    if draw.maybe(0.5):
        labels["version"] = draw.choice(("1", "2"))
    return {
        "metadata": {
            "name": name,
            "namespace": draw.choice(NAMESPACES),
            "uid": f"uid-{name}",
            "labels": labels if draw.maybe(0.9) else {},
        },
        "spec": {"containers": [container], "priority": 0, "schedulerName": "default-scheduler"},
        "status": {"phase": "Running" if name != "incoming" else "Pending"},
    }
