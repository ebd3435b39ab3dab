"""Several pods that wait at once, through `decide` without the solver: each ends as if it had come after the others.

That is where answers that stand for a class, or for a node, have to hear what the pods before it have changed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec

from batchsched.api.core.pod import Pod
from batchsched.api.decision import Assignment
from batchsched.config.kubernetes_release import KubernetesVersion
from batchsched.plugins.dynamic_resources.extended_resources import IN_MEMORY_NAME
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

    No preemption, which changes more than the pods that are there, and no volumes, which are bound only later.
    """
    draw = Draw(f"{seed}, several")
    settled = sorted(AREAS.keys() - {"preemption", "volumes"})
    cluster = case(seed, areas or tuple(draw.sample(settled, draw.randint(1, 4))))
    cluster["kubernetesVersion"] = version
    there = cluster.get("pods", [])
    templates = [cluster["pod"], *draw.sample(there, min(len(there), draw.randint(0, 3)))]
    waiting = []
    for at in range(draw.randint(2, 24)):
        template = draw.choice(templates)
        waiting.append(_named(template, at))
        own_claims(cluster, template, waiting[-1])
    assigned, said = _decided(cluster, [msgspec.convert(one, Pod) for one in waiting])
    claims = cluster.get("resourceClaims", [])
    for one in waiting:
        key = f"{one['metadata']['namespace']}/{one['metadata']['name']}"
        assignment = assigned.get(key)
        yield Arrival(
            {**cluster, "pods": there, "pod": one, "resourceClaims": claims},
            assignment.node if assignment is not None else "",
            said.get(key, ""),
        )
        if assignment is not None:
            there = [*there, {**one, "spec": {**one["spec"], "nodeName": assignment.node}}]
            claims = allocate_claims(claims, one, assignment)


def _named(template: Json, at: int) -> Json:
    """Return one more pod of a template; it came after those before it."""
    spec = {name: value for name, value in template["spec"].items() if name != "nodeName"}
    named = {"name": f"a{at:02}", "uid": f"uid-a{at}", "creationTimestamp": f"2026-01-01T00:00:{at:02}Z"}
    staying = {name: value for name, value in template["metadata"].items() if not name.startswith("deletion")}
    return {"metadata": {**staying, **named}, "spec": spec, "status": {"phase": "Pending"}}


def own_claims(cluster: Json, template: Json, pod: Json) -> None:
    """Add the claims that the controller of Kubernetes creates for one more pod of a template."""
    names = {claim["metadata"]["name"]: claim for claim in cluster.get("resourceClaims", ())}
    created = []
    for status in template["status"].get("resourceClaimStatuses", ()):
        claim = names.get(status.get("resourceClaimName"))
        if claim is not None:
            name = f"{claim['metadata']['name']}-{pod['metadata']['name']}"
            status = {**status, "resourceClaimName": name}
            owners = [
                {**owner, "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
                if owner["uid"] == template["metadata"]["uid"]
                else owner
                for owner in claim["metadata"]["ownerReferences"]
            ]
            named = {"name": name, "uid": f"uid-{name}", "ownerReferences": owners}
            cluster["resourceClaims"].append({**claim, "metadata": {**claim["metadata"], **named}})
        created.append(status)
    if created:
        pod["status"]["resourceClaimStatuses"] = created


def allocate_claims(claims: list[Json], pod: Json, assignment: Assignment) -> list[Json]:
    """Return the claims of the cluster as they are after a pod was bound."""
    metadata = pod["metadata"]
    consumer = {"resource": "pods", "name": metadata["name"], "uid": metadata["uid"]}
    of_pod = {one.claim: one for one in assignment.claims}
    changed = []
    for claim in claims:
        given = of_pod.get(claim["metadata"]["name"])
        if given is not None and claim["metadata"]["namespace"] == metadata["namespace"]:
            status = {**claim["status"], "reservedFor": [*claim["status"].get("reservedFor", ()), consumer]}
            if given.allocation is not None:
                status["allocation"] = msgspec.to_builtins(given.allocation)
            claim = {**claim, "status": status}
        changed.append(claim)
    extended = next((one.allocation for one in assignment.claims if one.claim == IN_MEMORY_NAME), None)
    if extended is not None:
        name = f"{metadata['name']}-extended-resources"
        changed.append(
            {
                "metadata": {"name": name, "namespace": metadata["namespace"], "uid": f"uid-{name}"},
                "spec": {"devices": {}},
                "status": {"allocation": msgspec.to_builtins(extended), "reservedFor": [consumer]},
            }
        )
    return changed


def _decided(cluster: Json, waiting: list[Pod]) -> tuple[dict[str, Assignment], dict[str, str]]:
    """Return where pods went, and what those heard that did not."""
    known = msgspec.convert({**cluster, "expected": {}}, runner.Case)
    snapshot = runner.snapshot_of(known)
    bound = tuple(pod for pod in snapshot.pods if pod.node_name)
    profile = cycle.without_solver(known)
    decision = decide(replace(snapshot, pods=(*bound, *waiting)), profile, runner.RECORDED, 0)
    assigned = {one.pod_key: one for one in decision.assignments}
    return assigned, {one.pod_group: one.message for one in decision.refusals}
