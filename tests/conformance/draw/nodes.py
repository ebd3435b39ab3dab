"""What a pod asks of a node by itself: taints, node affinity, host ports, images, names and features."""

from tests.conformance.draw.cluster import EFFECTS, HOSTNAME, IMAGES, ZONE, Draw, Json, configure


def taints(draw: Draw, drawn: Json) -> None:
    keys, worths = ("gpu", "dedicated", "spot"), ("", "a", "b", "5")
    for node in drawn["nodes"]:
        taints = {
            (key, effect): {"key": key, "value": draw.choice(worths), "effect": effect}
            for key in draw.some(keys, 2)
            for effect in draw.some(EFFECTS, 2)
        }
        if taints:
            node["spec"]["taints"] = list(taints.values())
        if draw.maybe(0.15):
            node["spec"]["unschedulable"] = True
    drawn["pod"]["spec"]["tolerations"] = [_toleration(draw, keys, worths) for _ in range(draw.randint(0, 4))]


def _toleration(draw: Draw, keys: tuple[str, ...], worths: tuple[str, ...]) -> Json:
    one: Json = {"operator": "Exists"}
    if draw.maybe(0.85):
        one = {"key": draw.choice((*keys, "node.kubernetes.io/unschedulable"))}
        if draw.maybe(0.6):
            one["operator"] = draw.choice(("Equal", "Exists"))
        if one.get("operator") != "Exists" and draw.maybe(0.8):
            one["value"] = draw.choice(worths)
    if draw.maybe(0.7):
        one["effect"] = draw.choice(EFFECTS)
        if one["effect"] == "NoExecute" and draw.maybe(0.5):
            one["tolerationSeconds"] = 30
    return one


def _requirement(draw: Draw, numbers: tuple[str, ...]) -> Json:
    key = draw.choice((ZONE, "disk", "rank", "missing", HOSTNAME))
    operator = draw.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "In"))
    found: Json = {"key": key, "operator": operator}
    if operator in ("Gt", "Lt"):
        found["values"] = [draw.choice(numbers)]
    elif operator in ("In", "NotIn"):
        found["values"] = draw.sample(("za", "zb", "ssd", "", "5", "n0", "n1", "010"), draw.randint(1, 4))
    return found


def node_term(draw: Draw, drawn: Json, numbers: tuple[str, ...] = ("0", "5", "9")) -> Json:
    """Draw a node selector term; now and then an empty one."""
    names = [node["metadata"]["name"] for node in drawn["nodes"]]
    term: Json = {}
    if draw.maybe(0.8):
        term["matchExpressions"] = [_requirement(draw, numbers) for _ in range(draw.choice((1, 1, 2)))]
    if draw.maybe(0.3):
        term["matchFields"] = [
            {
                "key": "metadata.name",
                "operator": draw.choice(("In", "In", "NotIn")),
                "values": [draw.choice((*names, "nowhere"))],
            }
            for _ in range(draw.choice((1, 1, 2)))
        ]
    return term


def node_affinity(draw: Draw, drawn: Json) -> Json:
    """Draw required and preferred terms."""
    found: Json = {}
    if draw.maybe(0.6):
        found["requiredDuringSchedulingIgnoredDuringExecution"] = {
            "nodeSelectorTerms": [node_term(draw, drawn) for _ in range(draw.randint(1, 3))]
        }
    if draw.maybe(0.7):
        found["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": draw.randint(1, 100), "preference": node_term(draw, drawn)}
            for _ in range(draw.randint(1, 3))
        ]
    return found


def nodeaffinity(draw: Draw, drawn: Json) -> None:
    spec = drawn["pod"]["spec"]
    if draw.maybe(0.05):
        # No number to compare with: an API server takes it, and it matches nothing.
        term = node_term(draw, drawn, ("5", "x"))
        required = {"nodeSelectorTerms": [term, node_term(draw, drawn)]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        spec["affinity"] = affinity
        return
    if draw.maybe(0.3):
        spec["nodeSelector"] = {draw.choice((ZONE, "disk", "missing")): draw.choice(("za", "ssd", ""))}
    if draw.maybe(0.85):
        spec.setdefault("affinity", {})["nodeAffinity"] = node_affinity(draw, drawn)
    if draw.maybe(0.3):
        configure(drawn, "NodeAffinity", {"addedAffinity": node_affinity(draw, drawn)})


def ports(draw: Draw, drawn: Json) -> None:
    for pod in (*drawn["pods"], drawn["pod"]):
        if pod is not drawn["pod"] and draw.maybe(0.4):
            continue
        ports = []
        for _ in range(draw.randint(1, 3)):
            number = draw.choice((80, 443, 8080))
            port = {"containerPort": number, "protocol": draw.choice(("TCP", "TCP", "UDP", "SCTP"))}
            if draw.maybe(0.8):
                port["hostPort"] = number
            if draw.maybe(0.5):
                port["hostIP"] = draw.choice(("0.0.0.0", "127.0.0.1", "10.0.0.1", "::"))
            ports.append(port)
        where = draw.choice(("container", "container", "sidecar", "init"))
        if where == "container":
            pod["spec"]["containers"][0]["ports"] = ports
        else:
            one = {"name": "i", "image": "img.example/small:2", "ports": ports}
            if where == "sidecar":
                one["restartPolicy"] = "Always"
            pod["spec"].setdefault("initContainers", []).append(one)
        if draw.maybe(0.1):
            pod["spec"]["hostNetwork"] = True


def images(draw: Draw, drawn: Json) -> None:
    for node in drawn["nodes"]:
        node["status"]["images"] = [
            {"names": [name], "sizeBytes": IMAGES[name]} for name in draw.some(sorted(IMAGES), 5)
        ]
    asked = (
        "img.example/big",
        "img.example/app:1",
        "img.example/nowhere:1",
        "web",
        "img.example:5000/m/model:v3",
    )
    spec = drawn["pod"]["spec"]
    spec["containers"][0]["image"] = draw.choice(asked)
    for number in range(draw.randint(0, 3)):
        one = {"name": f"i{number}", "image": draw.choice(asked)}
        spec.setdefault(draw.choice(("containers", "initContainers")), []).append(one)
    if draw.maybe(0.3):
        volume = {"name": "image", "image": {"reference": draw.choice(asked), "pullPolicy": "IfNotPresent"}}
        spec.setdefault("volumes", []).append(volume)


def nodename(draw: Draw, drawn: Json) -> None:
    features = ("UserNamespacesHostNetworkSupport", "RestartAllContainersOnContainerExits")
    for node in drawn["nodes"]:
        node["status"]["declaredFeatures"] = sorted(draw.some(features, 2))
        if draw.maybe(0.2):
            node["spec"]["unschedulable"] = True
    spec = drawn["pod"]["spec"]
    if draw.maybe(0.5):
        spec["hostNetwork"] = True
        spec["hostUsers"] = draw.maybe(0.4)
    if draw.maybe(0.4):
        spec["containers"][0]["restartPolicy"] = "Never"
        rule = {"action": draw.choice(("Restart", "RestartAllContainers"))}
        spec["containers"][0]["restartPolicyRules"] = [
            {**rule, "exitCodes": {"operator": "In", "values": [1]}}
        ]
    if draw.maybe(0.3):
        spec["tolerations"] = [{"operator": "Exists"}]
