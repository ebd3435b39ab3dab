"""Several pods that wait at once, through `decide` without the solver: each ends as if it had come after the others.

That is where answers that stand for a class, or for a node, have to hear what the pods before it have changed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec

from batchsched.api.core.pod import Pod
from batchsched.config.kubernetes_release import KubernetesVersion
from batchsched.session.session import decide
from tests.conformance import cycle, runner
from tests.conformance.draw import AREAS, case
from tests.conformance.draw.cluster import Draw, Json


@dataclass(frozen=True, slots=True)
class Arrival:
    """One of the pods.

    Args:
      drawn: the cluster as it is when the pod comes, a case without an answer.
      node: where it went, "" for nowhere.
      said: why it went nowhere.
    """

    drawn: Json
    node: str
    said: str

    def difference(self, expected: Json) -> str:
        """Say what the original has to say against it, "" for nothing."""
        name = f"{self.drawn['name']}, {self.drawn['pod']['metadata']['name']}"
        best = expected.get("best", ())
        if expected.get("error"):
            return ""
        if self.node not in best if best else self.node:
            return f"{name}: ours on {self.node!r} ({self.said}), recorded {best or expected['fitErrorFull']}"
        if not best and self.said != expected["fitErrorFull"]:
            return f"{name}: ours says {self.said!r}, recorded {expected['fitErrorFull']!r}"
        return ""


def arrivals(seed: int, areas: tuple[str, ...], version: KubernetesVersion) -> Iterator[Arrival]:
    """Draw a cluster and pods of a few templates that wait for it; decide over all of them at once.

    No preemption, which changes more than the pods that are there, and no volumes, which are bound only later. No
    devices, which change with the claims of the pods.
    """
    draw = Draw(f"{seed}, several")
    settled = sorted(AREAS.keys() - {"devices", "preemption", "volumes"})
    cluster = case(seed, areas or tuple(draw.sample(settled, draw.randint(1, 4))))
    cluster["kubernetesVersion"] = version
    there = cluster.get("pods", [])
    templates = [cluster["pod"], *draw.sample(there, min(len(there), draw.randint(0, 3)))]
    waiting = [_named(draw.choice(templates), at) for at in range(draw.randint(2, 24))]
    places, said = _decided(cluster, [msgspec.convert(one, Pod) for one in waiting])
    for one in waiting:
        key = f"{one['metadata']['namespace']}/{one['metadata']['name']}"
        yield Arrival({**cluster, "pods": there, "pod": one}, places.get(key, ""), said.get(key, ""))
        if key in places:
            there = [*there, {**one, "spec": {**one["spec"], "nodeName": places[key]}}]


def _named(template: Json, at: int) -> Json:
    """Return one more pod of a template; it came after those before it."""
    spec = {name: value for name, value in template["spec"].items() if name != "nodeName"}
    named = {"name": f"a{at:02}", "uid": f"uid-a{at}", "creationTimestamp": f"2026-01-01T00:00:{at:02}Z"}
    staying = {name: value for name, value in template["metadata"].items() if not name.startswith("deletion")}
    return {"metadata": {**staying, **named}, "spec": spec, "status": {"phase": "Pending"}}


def _decided(cluster: Json, waiting: list[Pod]) -> tuple[dict[str, str], dict[str, str]]:
    """Return where pods went, and what those heard that did not."""
    known = msgspec.convert({**cluster, "expected": {}}, runner.Case)
    snapshot = runner.snapshot_of(known)
    bound = tuple(pod for pod in snapshot.pods if pod.node)
    decision = decide(replace(snapshot, pods=(*bound, *waiting)), cycle.without_solver(known), 0.0, 0)
    places = {one.pod_key: one.node for one in decision.assignments}
    return places, {one.pod_group: one.message for one in decision.refusals}
