"""Checks over several objects: invalid queue trees, and subgroups that a PodGroup does not define."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from batchsched.api.core.pod import POD_GROUP_LABEL, SUB_GROUP_LABEL, Pod
from batchsched.api.crd.podgroup import DEFAULT_QUEUE, PodGroup
from batchsched.api.crd.queue import Queue


def misplaced_queues(queues: Sequence[Queue]) -> dict[str, str]:
    """Return the queues that cannot be part of the tree, with the reason, by name.

    These are the queues of a cycle, queues with a missing parent, and all queues below them.
    """
    parents = {queue.name: queue.spec.parent for queue in queues}
    reasons: dict[str, str] = {}
    settled: set[str] = set()
    for start in parents:
        trail: list[str] = []
        name: str | None = start
        while name in parents and name not in settled and name not in trail:
            trail.append(name)
            name = parents[name]
        if name in trail:
            cycle = trail[trail.index(name) :]
            _refuse_cycle(cycle, reasons)
        for one in reversed(trail):
            if one not in reasons:
                _refuse_child(one, parents, reasons)
            settled.add(one)
    return reasons


def _refuse_cycle(cycle: Sequence[str], reasons: dict[str, str]) -> None:
    way = " → ".join((*cycle, cycle[0]))
    for name in cycle:
        reasons[name] = f"the parents form a cycle ({way}); give one of these queues another parent, or none"


def _refuse_child(name: str, parents: Mapping[str, str | None], reasons: dict[str, str]) -> None:
    parent = parents[name]
    if parent is None:
        return
    if parent not in parents and parent != DEFAULT_QUEUE:
        reasons[name] = f"the parent {parent!r} does not exist; make it, or leave out the parent"
    elif parent in reasons:
        reasons[name] = f"the parent {parent!r} was set aside; set that one right first"


def unknown_sub_groups(pods: Iterable[Pod], groups: Iterable[PodGroup]) -> list[str]:
    """Return one warning for each PodGroup with pods that name a subgroup it does not define."""
    known = {group.key: {sub.name for sub in group.spec.sub_groups} for group in groups}
    strangers: dict[str, Counter[str]] = {}
    for pod in pods:
        label = pod.metadata.label(SUB_GROUP_LABEL)
        if label is None:
            continue
        key = f"{pod.namespace}/{pod.metadata.label(POD_GROUP_LABEL)}"
        if key in known and label not in known[key]:
            strangers.setdefault(key, Counter())[label] += 1
    warnings = []
    for key, labels in strangers.items():
        named = ", ".join(f"{label!r} ({count} pods)" for label, count in sorted(labels.items()))
        have = ", ".join(sorted(known[key])) or "none"
        warnings.append(
            f"PodGroup {key}: the label {SUB_GROUP_LABEL} names sub-groups it does not have: {named}; "
            f"it has {have}. These pods count for minMember only"
        )
    return warnings
