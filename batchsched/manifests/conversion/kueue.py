"""Conversion of the queues of Kueue: ClusterQueue, Cohort, LocalQueue, ResourceFlavor and WorkloadPriorityClass.

A ClusterQueue and a Cohort become Queues. Kueue never lends the quota of a tree of cohorts to another tree, so the root
of each tree has its whole quota as guarantee and as limit. Source: `ClusterQueueSpec` and the other types of
kueue.x-k8s.io/v1beta2; v1beta1 names the cohort of a ClusterQueue `cohort`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Final

from batchsched.api.core.pod import QUEUE_LABEL
from batchsched.api.crd.validation import similar_name_hint
from batchsched.api.queue_access import DEFAULT_QUEUE_LABEL
from batchsched.manifests.conversion.source_object import (
    SourceObject,
    format_amounts,
    mapping_entries_of_list,
    mapping_or_empty,
    queue_manifest,
)

_LARGEST_PRIORITY: Final = 10**9
"""Maximum value of a PriorityClass of users. Source: `HighestUserDefinablePriority` of Kubernetes."""
_NO_NAMESPACE: Final = {
    "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "DoesNotExist"}]
}
"""A selector that selects no namespace, because each has this label."""
_DEFAULT_LOCAL_QUEUE: Final = "default"
"""Name of the LocalQueue of jobs that name none. Source: LocalQueue defaulting of Kueue."""
_CLUSTER_QUEUE_FIELDS: Final = (
    *("resourceGroups", "cohort", "cohortName", "queueingStrategy", "namespaceSelector", "preemption"),
    *("stopPolicy", "fairSharing"),
)
_CLUSTER_QUEUE_REMARKS: Final = {
    "flavorFungibility": "batchsched has no flavors: pods select nodes themselves",
    "admissionChecks": "batchsched has no admission checks; keep Kueue in addition if you need them",
    "admissionChecksStrategy": "batchsched has no admission checks; keep Kueue in addition if you need them",
    "admissionScope": "set usageHalfLifeSeconds of the profile, and a policy that depends on past usage",
    "concurrentAdmissionPolicy": "batchsched has no flavors",
}
_FLAVOR_REMARKS: Final = {
    "nodeLabels": "batchsched adds no node selector; state it in the pods that are to use these nodes",
    "nodeTaints": "batchsched adds no toleration; state it in the pods that are to use these nodes",
    "tolerations": "batchsched adds no toleration; state it in the pods that are to use these nodes",
    "topologyName": "name this Topology in spec.topology.name of PodGroups, or in an annotation of their owners",
}


@dataclass(slots=True)
class _Quota:
    """The quota of a ClusterQueue or Cohort by resource, summed over flavors; None: no limit."""

    nominal: Counter[str] = field(default_factory=Counter)
    borrowing: dict[str, int | None] = field(default_factory=dict)
    lending: dict[str, int] = field(default_factory=dict)
    lends_a_part: set[str] = field(default_factory=set)


def convert_queues_and_priority_classes(objects: Sequence[SourceObject]) -> list[dict[str, Any]]:
    """Convert Kueue's queues and priority classes to batchsched Queues, PriorityClasses and Namespace labels.

    Raises:
      InvalidInput: a quantity is invalid.
    """
    by_kind: dict[str, list[SourceObject]] = {}
    for source in objects:
        by_kind.setdefault(source.kind, []).append(source)
    for flavor in by_kind.get("ResourceFlavor", []):
        flavor.record_unconverted_field_warnings((), _FLAVOR_REMARKS)
    queues = _Tree(by_kind.get("Cohort", []), by_kind.get("ClusterQueue", [])).convert_queue_trees()
    cluster_queues = {queue.name for queue in by_kind.get("ClusterQueue", [])}
    namespaces = [
        entry
        for queue in by_kind.get("LocalQueue", [])
        for entry in _convert_local_queue(queue, cluster_queues)
    ]
    classes = [_convert_priority_class(one) for one in by_kind.get("WorkloadPriorityClass", [])]
    return [*queues, *namespaces, *classes]


@dataclass(slots=True)
class _Tree:
    """The tree of cohorts and their ClusterQueues."""

    cohorts: Sequence[SourceObject]
    cluster_queues: Sequence[SourceObject]

    def convert_queue_trees(self) -> list[dict[str, Any]]:
        """Return the cohorts and ClusterQueues of Kueue as Queues of batchsched, parents before children."""
        parents = {cohort.name: _cohort_of(cohort) for cohort in self.cohorts}
        named = {_cohort_of(queue) for queue in (*self.cluster_queues, *self.cohorts)}
        # A cohort exists as soon as a ClusterQueue names it.
        parents |= dict.fromkeys(sorted(name for name in named if name and name not in parents), "")
        quotas = {queue.name: _read_quota(queue) for queue in self.cohorts}
        own = {queue.name: _read_quota(queue) for queue in self.cluster_queues}
        totals = {name: Counter(quotas[name].nominal if name in quotas else {}) for name in parents}
        for queue in self.cluster_queues:
            _add_to_ancestors(totals, parents, _cohort_of(queue), own[queue.name].nominal)
        for name, quota in quotas.items():
            _add_to_ancestors(totals, parents, parents[name], quota.nominal)
        by_name = {cohort.name: cohort for cohort in self.cohorts}
        converted = [
            self._cohort(name, by_name.get(name), parents[name], totals[name], quotas.get(name))
            for name in sorted(parents, key=lambda name: (_depth(parents, name), name))
        ]
        taken = set(parents)
        for queue in self.cluster_queues:
            if queue.name in taken:
                raise queue.invalid_field_error(
                    "metadata.name", "a Cohort has the same name; rename one of them"
                )
            converted.append(_convert_cluster_queue(queue, own[queue.name]))
        return converted

    def _cohort(
        self,
        name: str,
        cohort: SourceObject | None,
        parent: str,
        total: Mapping[str, int],
        quota: _Quota | None,
    ) -> dict[str, Any]:
        limits: dict[str, Any] = {}
        if not parent:
            limits = {"limit": format_amounts(total), "lendingLimit": format_amounts(dict.fromkeys(total, 0))}
        elif quota is not None:
            limits = _limits(quota)
        if cohort is not None:
            cohort.record_unconverted_field_warnings(
                ("parent", "parentName", "resourceGroups", "fairSharing"), {}
            )
        return queue_manifest(
            name,
            parent=parent or None,
            weight=_weight(cohort) if cohort is not None else 1.0,
            guarantee=format_amounts(total),
            **limits,
        )


def _add_to_ancestors(
    totals: dict[str, Counter[str]], parents: Mapping[str, str], name: str, nominal: Mapping[str, int]
) -> None:
    """Add a quota to the totals of a cohort and of all cohorts above it; stop if the parents form a cycle."""
    seen: set[str] = set()
    while name and name not in seen:
        seen.add(name)
        totals[name].update(nominal)
        name = parents.get(name, "")


def _depth(parents: Mapping[str, str], name: str) -> int:
    depth, seen = 0, {name}
    while (name := parents.get(name, "")) and name not in seen:
        seen.add(name)
        depth += 1
    return depth


def _cohort_of(queue: SourceObject) -> str:
    names = ("parentName", "parent") if queue.kind == "Cohort" else ("cohortName", "cohort")
    return next((str(queue.spec[name]) for name in names if queue.spec.get(name)), "")


def _weight(queue: SourceObject) -> float:
    weight = mapping_or_empty(queue.spec.get("fairSharing")).get("weight")
    # Kueue weights are quantities, such as 0.75 or 750m.
    return queue.parse_amount("spec.fairSharing.weight", "cpu", weight) / 1000 if weight is not None else 1.0


def _quotas(queue: SourceObject) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield (field path, resource, quota) for each resource of each flavor."""
    for group_index, group in enumerate(mapping_entries_of_list(queue.spec.get("resourceGroups"))):
        for flavor_index, flavor in enumerate(mapping_entries_of_list(group.get("flavors"))):
            for index, quota in enumerate(mapping_entries_of_list(flavor.get("resources"))):
                path = f"spec.resourceGroups[{group_index}].flavors[{flavor_index}].resources[{index}]"
                yield path, str(quota.get("name", "")), quota


def _read_quota(queue: SourceObject) -> _Quota:
    """Return the quota of a ClusterQueue or Cohort, summed over its flavors."""
    total = _Quota()
    flavors: Counter[str] = Counter()
    for path, resource, quota in _quotas(queue):
        flavors[resource] += 1
        nominal = queue.parse_amount(f"{path}.nominalQuota", resource, quota.get("nominalQuota", 0))
        borrowing, lending = quota.get("borrowingLimit"), quota.get("lendingLimit")
        total.nominal[resource] += nominal
        before = total.borrowing.get(resource, 0)
        more = (
            queue.parse_amount(f"{path}.borrowingLimit", resource, borrowing)
            if borrowing is not None
            else None
        )
        total.borrowing[resource] = None if before is None or more is None else before + more
        lent = (
            queue.parse_amount(f"{path}.lendingLimit", resource, lending) if lending is not None else nominal
        )
        total.lending[resource] = total.lending.get(resource, 0) + lent
        if lending is not None:
            total.lends_a_part.add(resource)
    for resource, number in flavors.items():
        if number > 1:
            queue.record_warning(
                "spec.resourceGroups",
                f"the quotas of {number} flavors of {resource} are added up: batchsched has no quota per flavor; "
                "a quota for one kind of device is a quota of its resource name",
            )
    return total


def _limits(quota: _Quota) -> dict[str, Any]:
    """Return the fields of a Queue that limit how much it may borrow and lend."""
    borrowing = {resource: amount for resource, amount in quota.borrowing.items() if amount is not None}
    lending = {resource: quota.lending[resource] for resource in quota.lends_a_part}
    return {"borrowingLimit": format_amounts(borrowing), "lendingLimit": format_amounts(lending)}


def _convert_cluster_queue(queue: SourceObject, quota: _Quota) -> dict[str, Any]:
    spec = queue.spec
    queue.record_unconverted_field_warnings(_CLUSTER_QUEUE_FIELDS, _CLUSTER_QUEUE_REMARKS)
    _warn_of_rules(queue)
    parent = _cohort_of(queue)
    if parent:
        limits = _limits(quota)
    else:  # without a cohort, the queue neither borrows nor lends
        none = dict.fromkeys(quota.nominal, 0)
        limits = {"limit": format_amounts(quota.nominal), "lendingLimit": format_amounts(none)}
    selector = spec.get("namespaceSelector")
    if selector is None:
        queue.record_warning(
            "spec.namespaceSelector", "is missing, so that the queue selects no namespace, as in Kueue"
        )
        selector = _NO_NAMESPACE
    return queue_manifest(
        queue.name,
        parent=parent or None,
        weight=_weight(queue),
        guarantee=format_amounts(quota.nominal),
        namespaceSelector=selector,
        maxRunningPodGroups=0 if spec.get("stopPolicy") in ("Hold", "HoldAndDrain") else None,
        **limits,
    )


def _warn_of_rules(queue: SourceObject) -> None:
    """Record a warning for each rule of a ClusterQueue that batchsched applies differently."""
    spec = queue.spec
    if spec.get("queueingStrategy") == "StrictFIFO":
        queue.record_warning(
            "spec.queueingStrategy",
            "set policy: {name: strict-fifo} in the Queue",
        )
    if spec.get("stopPolicy") == "HoldAndDrain":
        queue.record_warning("spec.stopPolicy", "the Queue starts no gang, and does not evict running ones")
    preemption = mapping_or_empty(spec.get("preemption"))
    if preemption.get("withinClusterQueue", "Never") != "LowerPriority":
        queue.record_warning(
            "spec.preemption.withinClusterQueue",
            "gangs preempt gangs of lower priority; to prevent it, set preemptionPolicy: Never in PodGroups",
        )
    if _cohort_of(queue) and preemption.get("reclaimWithinCohort", "Never") != "Any":
        queue.record_warning(
            "spec.preemption.reclaimWithinCohort",
            "a queue reclaims its guarantee from any gang of a queue above its own guarantee",
        )
    if mapping_or_empty(preemption.get("borrowWithinCohort")).get("policy", "Never") != "Never":
        queue.record_warning(
            "spec.preemption.borrowWithinCohort", "a gang that borrows evicts no gang of another queue"
        )


def _convert_local_queue(queue: SourceObject, cluster_queues: Set[str]) -> Iterator[dict[str, Any]]:
    """Yield the Namespace with the label for its default queue, if the LocalQueue is named `default`."""
    namespace, target = (
        str(queue.metadata.get("namespace", "default")),
        str(queue.spec.get("clusterQueue", "")),
    )
    if target not in cluster_queues:
        queue.record_warning(
            "spec.clusterQueue",
            f"there is no ClusterQueue {target!r} in the input{similar_name_hint(target, cluster_queues)}; "
            "batchsched refuses gangs of a queue that does not exist",
        )
    queue.record_unconverted_field_warnings(
        ("clusterQueue",), {"stopPolicy": "hold the Queue, or its PodGroups"}
    )
    if queue.name == _DEFAULT_LOCAL_QUEUE:
        labels = {DEFAULT_QUEUE_LABEL: target}
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}
    else:
        queue.record_warning(
            "metadata.name", f"jobs name the Queue itself, in the label {QUEUE_LABEL}: {target}"
        )


def _convert_priority_class(source: SourceObject) -> dict[str, Any]:
    """Convert a WorkloadPriorityClass of Kueue to a PriorityClass; batchsched reads the priority of pods."""
    value = source.parse_integer("value", source.manifest.get("value"))
    if value > _LARGEST_PRIORITY:
        source.record_warning(
            "value", f"{value} is above {_LARGEST_PRIORITY}, the largest value of a PriorityClass"
        )
    source.record_warning(
        "metadata.name",
        "is converted to a PriorityClass; name it in priorityClassName of the pods instead of the label of Kueue",
    )
    description = source.manifest.get("description")
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": source.name},
        "value": min(value, _LARGEST_PRIORITY),
        **({"description": description} if description else {}),
    }
