"""Selectors of the Services that select a pod and of the workload that owns the pod.

The default constraints of PodTopologySpread and the plugin SelectorSpread use these selectors.
"""

from typing import Final

from batchsched.api.core.cluster_objects import Service
from batchsched.api.core.metadata import ObjectMeta, OwnerReference
from batchsched.api.core.pod import Pod
from batchsched.api.core.selector import LabelSelector
from batchsched.api.snapshot import Snapshot
from batchsched.framework.nodes.node_table import NodeTable

CONTROLLER: Final = "ReplicationController"
WORKLOADS: Final = frozenset({("v1", CONTROLLER), ("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet")})
"""Kinds of owners with a selector that counts."""


def default_selectors(pod: Pod, table: NodeTable) -> tuple[LabelSelector, ...]:
    """Return the label selectors of the pod's Services and of its controller; () if there are none.

    Source: `DefaultSelector` of kube-scheduler's plugins/helper.
    """
    labels: dict[str, str] = {}
    for service in _services(table).get(pod.namespace, ()):
        selector_labels = service.spec.selector
        if selector_labels is not None and all(
            pod.labels.get(key) == value for key, value in selector_labels.items()
        ):
            labels |= selector_labels
    owner = find_controller_with_pod_selector(pod)
    named = () if owner is None else _workloads(table).get((owner.kind, pod.namespace, owner.name), ())
    if owner is not None and owner.kind == CONTROLLER:
        # The labels of a ReplicationController replace those of a Service; selectors of other owners are added.
        for selector in named:
            labels |= selector.match_labels or {}
        named = ()
    own = (LabelSelector(match_labels=labels),) if labels else ()
    return (*own, *named)


def find_controller_with_pod_selector(pod: Pod) -> OwnerReference | None:
    """Return the pod's controller if it is a ReplicationController, ReplicaSet or StatefulSet, else None."""
    owner = pod.metadata.controller_owner
    return owner if owner is not None and (owner.api_version, owner.kind) in WORKLOADS else None


def default_selector_label_keys(snapshot: Snapshot) -> frozenset[str]:
    """Return the pod label keys that occur in the selectors of all Services and controllers of the snapshot."""
    keys: set[str] = set()
    for service in snapshot.services:
        keys.update(service.spec.selector or ())
    for controller in snapshot.replication_controllers:
        keys.update(controller.spec.selector or ())
    selectors = [one.spec.selector for one in snapshot.replica_sets]
    selectors += [one.spec.selector for one in snapshot.stateful_sets]
    for selector in selectors:
        if selector is not None:
            keys |= selector.label_keys()
    return frozenset(keys)


def _services(table: NodeTable) -> dict[str, list[Service]]:
    def group_services_by_namespace(snapshot: Snapshot) -> dict[str, list[Service]]:
        services: dict[str, list[Service]] = {}
        for service in snapshot.services:
            services.setdefault(_namespace(service.metadata), []).append(service)
        return services

    return table.cached_value_of_cluster_objects("services by namespace", group_services_by_namespace)


def _workloads(table: NodeTable) -> dict[tuple[str, str, str], tuple[LabelSelector, ...]]:
    def selectors_by_controller(snapshot: Snapshot) -> dict[tuple[str, str, str], tuple[LabelSelector, ...]]:
        selectors: dict[tuple[str, str, str], tuple[LabelSelector, ...]] = {}
        for controller in snapshot.replication_controllers:
            if controller.spec.selector:
                selectors[_key(CONTROLLER, controller.metadata)] = (
                    LabelSelector(match_labels=controller.spec.selector),
                )
        sets = [("ReplicaSet", one.metadata, one.spec.selector) for one in snapshot.replica_sets]
        sets += [("StatefulSet", one.metadata, one.spec.selector) for one in snapshot.stateful_sets]
        for kind, metadata, selector in sets:
            if selector is not None and (selector.match_labels or selector.match_expressions):
                selectors[_key(kind, metadata)] = (selector,)
        return selectors

    return table.cached_value_of_cluster_objects("workload selectors", selectors_by_controller)


def _key(kind: str, metadata: ObjectMeta) -> tuple[str, str, str]:
    return kind, _namespace(metadata), metadata.name


def _namespace(metadata: ObjectMeta) -> str:
    return metadata.namespace or "default"
