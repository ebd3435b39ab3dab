"""What a pod asks of other pods: spreading, affinity and anti-affinity, and the workloads that stand for defaults."""

from tests.conformance.draw.cluster import HOSTNAME, NAMESPACES, REGION, ZONE, Draw, Json, configure
from tests.conformance.draw.nodes import node_affinity

_KEYS = (ZONE, ZONE, REGION, HOSTNAME, "disk")


def selector(draw: Draw) -> Json:
    """Draw a label selector: often of the pod's own labels, now and then empty."""
    found: Json = {}
    if draw.maybe(0.6):
        found["matchLabels"] = {"app": draw.choice("abc")}
    if draw.maybe(0.4):
        operator = draw.choice(("In", "NotIn", "Exists", "DoesNotExist"))
        one: Json = {"key": draw.choice(("version", "app")), "operator": operator}
        if operator in ("In", "NotIn"):
            one["values"] = draw.sample(("1", "2", "a", "b"), draw.randint(1, 3))
        found["matchExpressions"] = [one]
    return found


def _constraint(draw: Draw) -> Json:
    found: Json = {
        "topologyKey": draw.choice(_KEYS),
        "maxSkew": draw.choice((1, 1, 2, 3)),
        "whenUnsatisfiable": draw.choice(("DoNotSchedule", "ScheduleAnyway")),
    }
    if draw.maybe(0.9):
        found["labelSelector"] = selector(draw)
    if found["whenUnsatisfiable"] == "DoNotSchedule" and draw.maybe(0.3):
        found["minDomains"] = draw.randint(1, 4)
    for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if draw.maybe(0.4):
            found[policy] = draw.choice(("Honor", "Ignore"))
    if "labelSelector" in found and draw.maybe(0.25):
        keys = {one["key"] for one in found["labelSelector"].get("matchExpressions", ())}
        keys |= set(found["labelSelector"].get("matchLabels", ()))
        free = sorted({"version", "app", "missing"} - keys)
        found["matchLabelKeys"] = free[: draw.randint(1, 2)]
    return found


def spread(draw: Draw, drawn: Json) -> None:
    """Draw constraints, or workloads for the default ones; some bound pods are on their way out."""
    spec = drawn["pod"]["spec"]
    if draw.maybe(0.8):
        found = {}
        for _ in range(draw.randint(1, 3)):
            one = _constraint(draw)
            found[one["topologyKey"], one["whenUnsatisfiable"]] = one
        spec["topologySpreadConstraints"] = list(found.values())
        if draw.maybe(0.3):
            spec.setdefault("affinity", {}).setdefault("nodeAffinity", node_affinity(draw, drawn))
    if draw.maybe(0.5):
        _workloads(draw, drawn)
    if draw.maybe(0.2):
        constraints = [
            {"topologyKey": key, "maxSkew": draw.randint(1, 3), "whenUnsatisfiable": unless}
            for key in draw.sample((ZONE, REGION, HOSTNAME), draw.randint(1, 2))
            for unless in (draw.choice(("DoNotSchedule", "ScheduleAnyway")),)
        ]
        configure(drawn, "PodTopologySpread", {"defaultingType": "List", "defaultConstraints": constraints})
    _gather(draw, drawn)
    for pod in drawn["pods"]:
        if draw.maybe(0.1):
            _end(pod)
    for node in drawn["nodes"]:
        if draw.maybe(0.15):
            taint = {"key": "gpu", "value": "", "effect": draw.choice(("NoSchedule", "NoExecute"))}
            node["spec"].setdefault("taints", [taint])


def _workloads(draw: Draw, drawn: Json) -> None:
    namespace, labels = drawn["pod"]["metadata"]["namespace"], drawn["pod"]["metadata"]["labels"]
    meta = {"name": "w", "namespace": namespace, "uid": "uid-w"}
    for _ in range(draw.randint(1, 2)):
        kind = draw.choice(("services", "replicationControllers", "replicaSets", "statefulSets"))
        chosen = dict(labels) if draw.maybe(0.7) else {"app": "a"}
        if kind == "services":
            drawn["services"] = [{"metadata": meta, "spec": {"selector": chosen}}]
            continue
        group, name = {
            "replicationControllers": ("v1", "ReplicationController"),
            "replicaSets": ("apps/v1", "ReplicaSet"),
            "statefulSets": ("apps/v1", "StatefulSet"),
        }[kind]
        stated = chosen if kind == "replicationControllers" else {"matchLabels": chosen}
        drawn[kind] = [{"metadata": meta, "spec": {"selector": stated}}]
        if draw.maybe(0.8):
            owner = {"apiVersion": group, "kind": name, "name": "w", "uid": "uid-w", "controller": True}
            drawn["pod"]["metadata"]["ownerReferences"] = [owner]


def _gather(draw: Draw, drawn: Json) -> None:
    """Put most pods into the incoming one's namespace, so that something is counted."""
    for pod in drawn["pods"]:
        if draw.maybe(0.7):
            pod["metadata"]["namespace"] = drawn["pod"]["metadata"]["namespace"]


def _end(pod: Json) -> None:
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:10:00Z"
    pod["metadata"]["deletionGracePeriodSeconds"] = 30


def _term(draw: Draw) -> Json:
    found: Json = {"topologyKey": draw.choice(_KEYS)}
    if draw.maybe(0.95):
        found["labelSelector"] = selector(draw)
    if draw.maybe(0.3):
        found["namespaces"] = draw.sample((*NAMESPACES, "nowhere"), draw.randint(1, 2))
    if draw.maybe(0.3):
        found["namespaceSelector"] = draw.choice(
            (
                {},
                {"matchLabels": {"team": "red"}},
                {"matchLabels": {"team": "nobody"}},
                {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["red"]}]},
            )
        )
    return found


def _affinity(draw: Draw) -> Json:
    found: Json = {}
    for kind in ("podAffinity", "podAntiAffinity"):
        one: Json = {}
        if draw.maybe(0.4):
            one["requiredDuringSchedulingIgnoredDuringExecution"] = [
                _term(draw) for _ in range(draw.choice((1, 1, 2)))
            ]
        if draw.maybe(0.4):
            one["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {"weight": draw.randint(1, 100), "podAffinityTerm": _term(draw)}
                for _ in range(draw.randint(1, 2))
            ]
        if one:
            found[kind] = one
    return found


def interpod(draw: Draw, drawn: Json) -> None:
    """Draw terms of the pod and of some that are there."""
    _gather(draw, drawn)
    for pod in drawn["pods"]:
        if draw.maybe(0.2):
            pod["spec"]["affinity"] = _affinity(draw)
    if draw.maybe(0.85):
        drawn["pod"]["spec"].setdefault("affinity", {}).update(_affinity(draw))
    if draw.maybe(0.3):
        configure(
            drawn,
            "InterPodAffinity",
            {
                "hardPodAffinityWeight": draw.choice((0, 1, 10, 100)),
                "ignorePreferredTermsOfExistingPods": draw.maybe(0.3),
            },
        )
