"""What must hold of every decision, read off the Kubernetes objects alone: it shares no code with the session.

Placements are {pod key: node name} of pods that wait; bound pods count with them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from batchsched.api.core.pod import POD_GROUP_LABEL, QUEUE_LABEL, SUB_GROUP_LABEL, Pod
from batchsched.api.core.requests import pod_requests
from batchsched.api.core.selector import LabelSelector
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.snapshot import Snapshot

Places = Mapping[str, str]


def violations(snapshot: Snapshot, places: Places) -> list[str]:
    """Every rule that the placement breaks; [] for a legal one."""
    return [
        *partial_gangs(snapshot, places),
        *overcommitted(snapshot, places),
        *filtered(snapshot, places),
        *scattered(snapshot, places),
        *over_limit(snapshot, places),
    ]


def group_of(pod: Pod) -> str:
    name = pod.labels.get(POD_GROUP_LABEL)
    return f"{pod.namespace}/{name}" if name else pod.key


def gangs(snapshot: Snapshot) -> dict[str, tuple[PodGroup | None, list[Pod]]]:
    """Gangs by the name under which they appear, with their group and pods."""
    groups = {group.key: group for group in snapshot.pod_groups}
    found: dict[str, tuple[PodGroup | None, list[Pod]]] = {key: (group, []) for key, group in groups.items()}
    for pod in snapshot.pods:
        found.setdefault(group_of(pod), (None, []))[1].append(pod)
    return found


def place(pod: Pod, places: Places) -> str:
    return pod.node_name or places.get(pod.key, "")


def complete(group: PodGroup | None, pods: Iterable[Pod], places: Places) -> bool:
    """Whether the minimum, and every subGroup's, has a place."""
    there = [pod for pod in pods if place(pod, places)]
    if group is None:
        return bool(there)
    subs = Counter(pod.labels.get(SUB_GROUP_LABEL) for pod in there)
    enough = all(subs[sub.name] >= sub.min_member for sub in group.spec.sub_groups)
    return enough and len(there) >= max(
        group.spec.min_member, sum(sub.min_member for sub in group.spec.sub_groups)
    )


def partial_gangs(snapshot: Snapshot, places: Places) -> list[str]:
    return [
        f"{key} is placed below its minimum"
        for key, (group, pods) in gangs(snapshot).items()
        if any(pod.key in places for pod in pods) and not complete(group, pods, places)
    ]


def overcommitted(snapshot: Snapshot, places: Places) -> list[str]:
    found = []
    for node in snapshot.nodes:
        used: Counter[str] = Counter()
        for pod in snapshot.pods:
            if place(pod, places) == node.name:
                used.update(pod_requests(pod) | {"pods": 1})
        offered = node.parse_allocatable_in_base_units()
        found += [f"{node.name} lacks {name}" for name, much in used.items() if much > offered.get(name, 0)]
    return found


def filtered(snapshot: Snapshot, places: Places) -> list[str]:
    """Taints, selectors, cordons, ports, and the rules between pods in their final state."""
    nodes = {node.name: node for node in snapshot.nodes}
    found = []
    for pod in snapshot.pods:
        if pod.key not in places:
            continue
        node = nodes[places[pod.key]]
        hard = [taint for taint in node.taints if taint.effect in ("NoSchedule", "NoExecute")]
        if any(not any(one.tolerates(taint) for one in pod.tolerations) for taint in hard):
            found.append(f"{pod.key} does not tolerate {node.name}")
        if node.spec.unschedulable:
            found.append(f"{node.name} is cordoned")
        wanted = pod.spec.node_selector or {}
        if any(node.labels.get(key) != value for key, value in wanted.items()):
            found.append(f"{pod.key} does not select {node.name}")
        if pod.spec.scheduling_gates:
            found.append(f"{pod.key} is gated")
        found += _between(snapshot, places, pod)
    return found


def _between(snapshot: Snapshot, places: Places, pod: Pod) -> list[str]:
    others = [one for one in snapshot.pods if place(one, places) and one.key != pod.key]
    found = []
    mine = places[pod.key]
    if _ports(pod) & {port for one in others if place(one, places) == mine for port in _ports(one)}:
        found.append(f"{pod.key} shares a port on {mine}")
    for one in others:
        for owner, other in ((pod, one), (one, pod)):
            for key, selector in _terms(owner, "pod_anti_affinity"):
                if _same(snapshot, key, mine, place(one, places)) and _selects(selector, other):
                    found.append(f"{owner.key} does not want {other.key} in its {key}")
    for key, selector in _terms(pod, "pod_affinity"):
        beside = [one for one in (*others, pod) if _selects(selector, one)]
        if not any(_same(snapshot, key, mine, place(one, places)) for one in beside):
            found.append(f"{pod.key} is not in a domain with a pod that its affinity selects")
    return found + _skewed(snapshot, places, pod)


def _skewed(snapshot: Snapshot, places: Places, pod: Pod) -> list[str]:
    """The last pod of a domain saw at least this skew; only its own constraint's pods count as guarded."""
    found = []
    for rule in pod.spec.topology_spread_constraints or ():
        counted = [
            one
            for one in snapshot.pods
            if place(one, places) and not one.terminating and _selects(rule.label_selector, one)
        ]
        if any(one.key in places and not one.spec.topology_spread_constraints for one in counted):
            continue  # a pod without constraints may have been placed last
        wanted = pod.spec.node_selector or {}
        eligible = {
            node.name: node.labels[rule.topology_key]
            for node in snapshot.nodes
            if rule.topology_key in node.labels
            and all(node.labels.get(key) == value for key, value in wanted.items())
        }
        if any(one.spec != pod.spec for one in counted if one.key in places):
            continue  # another constraint with other domains may have let the last one in
        domains = dict.fromkeys(eligible.values(), 0)
        for one in counted:
            if place(one, places) in eligible:
                domains[eligible[place(one, places)]] += 1
        here = eligible.get(places[pod.key])
        if here is None or domains[here] - min(domains.values()) > rule.max_skew:
            found.append(f"{pod.key} is skewed")
    return found


def _ports(pod: Pod) -> set[int]:
    return {port.host_port for one in pod.spec.containers for port in one.ports or () if port.host_port}


def _terms(pod: Pod, kind: str) -> list[tuple[str, LabelSelector | None]]:
    side = getattr(pod.spec.affinity, kind) if pod.spec.affinity else None
    return [(term.topology_key, term.label_selector) for term in side.required_terms] if side else []


def _selects(selector: LabelSelector | None, pod: Pod) -> bool:
    labels = (selector.match_labels or {}) if selector else {}
    return bool(labels) and all(pod.labels.get(key) == value for key, value in labels.items())


def _same(snapshot: Snapshot, key: str, one: str, other: str) -> bool:
    at = {node.name: node.labels.get(key) for node in snapshot.nodes}
    return at.get(one) is not None and at.get(one) == at.get(other)


def scattered(snapshot: Snapshot, places: Places) -> list[str]:
    """Gangs and subGroups outside one domain of their required level, surplus members included."""
    found = []
    for key, (group, pods) in gangs(snapshot).items():
        if group is None or not any(pod.key in places for pod in pods):
            continue
        top = group.spec.topology
        if top is not None and top.required is not None:
            found += _outside(snapshot, places, pods, top.required, key)
        for sub in group.spec.sub_groups:
            if sub.topology is not None and sub.topology.required is not None:
                mine = [pod for pod in pods if pod.labels.get(SUB_GROUP_LABEL) == sub.name]
                found += _outside(snapshot, places, mine, sub.topology.required, f"{key}/{sub.name}")
    return found


def _outside(snapshot: Snapshot, places: Places, pods: list[Pod], level: str, what: str) -> list[str]:
    named = {one.name: one.node_label for one in snapshot.topologies[0].spec.levels}
    at = {node.name: node.labels.get(named[level]) for node in snapshot.nodes}
    new = {at[places[pod.key]] for pod in pods if pod.key in places}
    before = Counter(at[pod.node_name] for pod in pods if pod.node_name and at.get(pod.node_name) is not None)
    most = {domain for domain, much in before.items() if much == max(before.values())}
    if len(new) > 1 or None in new or (new and before and not new <= most):
        return [f"{what} leaves its {level}"]
    return []


def over_limit(snapshot: Snapshot, places: Places) -> list[str]:
    """Queues above a limit, or with too many PodGroups, to which this session added."""
    queues = {queue.name: queue for queue in snapshot.queues}
    used: dict[str, Counter[str]] = {name: Counter() for name in queues}
    running: Counter[str] = Counter()
    touched: dict[str, Counter[str]] = {name: Counter() for name in queues}
    started: set[str] = set()
    for group, pods in gangs(snapshot).values():
        there = [pod for pod in pods if place(pod, places) and _ours(pod)]
        if not there:
            continue
        name = (group.spec.queue or "default") if group else there[0].labels.get(QUEUE_LABEL, "default")
        fresh = not any(pod.node_name for pod in there)
        for above in _ancestry(queues, name):
            running[above] += 1
            if fresh:
                started.add(above)
            for pod in there:
                used[above].update(pod_requests(pod))
                if pod.key in places:
                    touched[above].update(pod_requests(pod))
    over = [
        f"{name} is above its limit of {resource}"
        for name, queue in queues.items()
        for resource, limit in (queue.spec.limit or {}).items()
        if touched[name][resource] and used[name][resource] > int(limit) * (1000 if resource == "cpu" else 1)
    ]
    most = {name: queue.spec.max_running_pod_groups for name, queue in queues.items()}
    return over + [
        f"{name} runs too many PodGroups"
        for name, groups in most.items()
        if groups is not None and name in started and running[name] > groups
    ]


def _ours(pod: Pod) -> bool:
    return (
        pod.spec.scheduler_name == "batchsched" or POD_GROUP_LABEL in pod.labels or QUEUE_LABEL in pod.labels
    )


def _ancestry(queues: Mapping[str, object], name: str) -> list[str]:
    chain = []
    at: str | None = name
    while at is not None and at in queues:
        chain.append(at)
        at = queues[at].spec.parent  # type: ignore[attr-defined]
    return chain


def alone(pods: list[Pod]) -> bool:
    """Whether this is a pod without a PodGroup, and not one with a missing PodGroup."""
    return len(pods) == 1 and POD_GROUP_LABEL not in pods[0].labels
