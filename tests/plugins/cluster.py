"""Small clusters for plugin tests: nodes and pods from a few words, and a plugin asked in one line."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import numpy as np
from hypothesis import strategies as st

from batchsched.api.core.device import DeviceClass
from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.api.core.requests import pod_requests
from batchsched.api.core.volume import PersistentVolumeClaim
from batchsched.api.snapshot import Snapshot
from batchsched.config.kubernetes_release import DEFAULT_VERSION, RELEASES, KubernetesVersion
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.nodes.node_table import LEADING, Nodes, NodeTable
from batchsched.framework.pod_class import PodClass
from batchsched.framework.preemption import (
    Nominations,
    PreemptionHandle,
    restrict_by_nominations_and_extenders,
)
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.status import Code, Verdict
from tests.conformance.draw import case
from tests.conformance.runner import Case, cluster_of, snapshot_of

ROOM = {"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"}


def node(
    name: str,
    allocatable: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    images: Iterable[Mapping[str, Any]] = (),
    **spec: Any,
) -> Node:
    """A node with plenty of room unless `allocatable` says otherwise; `spec` as Kubernetes writes it."""
    return msgspec.convert(
        {
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
            "spec": spec,
            "status": {"allocatable": {**ROOM, **(allocatable or {})}, "images": list(images)},
        },
        Node,
    )


def pod(name: str = "x", requests: Mapping[str, str] | None = None, **spec: Any) -> Pod:
    """A pod with one container unless `spec`, as Kubernetes writes it, has its own."""
    container = {"name": "c", "image": "app:1", "resources": {"requests": dict(requests or {})}}
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"containers": [container], **spec},
        },
        Pod,
    )


def with_ports(name: str, *ports: Mapping[str, Any]) -> Pod:
    """A pod with a container that uses host ports."""
    return pod(name, containers=[{"name": "c", "ports": [{"containerPort": 80, **port} for port in ports]}])


def claim(name: str, *modes: str) -> PersistentVolumeClaim:
    """A claim with access modes."""
    return msgspec.convert(
        {"metadata": {"name": name, "namespace": "default"}, "spec": {"accessModes": modes}},
        PersistentVolumeClaim,
    )


def table(
    nodes: Iterable[Node],
    bound: Mapping[str, Iterable[Pod]] | None = None,
    extra: Iterable[str] = (),
    claims: Iterable[PersistentVolumeClaim] = (),
    version: KubernetesVersion = DEFAULT_VERSION,
    device_classes: Iterable[DeviceClass] = (),
) -> NodeTable:
    """A node table with `bound` pods by node name; `extra` names resources that only later pods ask for."""
    nodes = tuple(nodes)
    there = {name: tuple(pods) for name, pods in (bound or {}).items()}
    named = {resource for one in nodes for resource in one.parse_allocatable_in_base_units()} | set(extra)
    named |= {resource for pods in there.values() for one in pods for resource in pod_requests(one)}
    snapshot = Snapshot(
        nodes=nodes, persistent_volume_claims=tuple(claims), device_classes=tuple(device_classes)
    )
    made = NodeTable(snapshot, (*LEADING, *sorted(named - set(LEADING))), RELEASES[version])
    for name, pods in there.items():
        for one in pods:
            land(made, one, name)
    return made


def drawn_cases(*areas: str) -> st.SearchStrategy[Case]:
    """Small clusters and a pod for each, drawn like the cases that kube-scheduler is asked about."""
    return st.integers(0, 2**32 - 1).map(lambda seed: _small_case(seed, areas))


def _small_case(seed: int, areas: tuple[str, ...]) -> Case:
    # Claims are compared in tests/devices, and in whole sessions.
    drawn = msgspec.convert({**case(seed, areas, frozenset({"devices"})), "expected": {}}, Case)
    names = {one.name for one in drawn.nodes[:5]}
    bound = tuple(one for one in drawn.pods if one.node_name in names and not one.finished)
    return msgspec.structs.replace(drawn, nodes=drawn.nodes[:5], pods=bound[:6], nominated_pods=())


def table_of(one: Case) -> NodeTable:
    """A table with the bound pods of a case, and with the resources that these pods request as pending ones.

    A bound pod with a resize in its status may request fewer resources than its spec does.
    """
    return cluster_of(snapshot_of(one), one.pod, visitors_of(one)).table


def visitors_of(case: Case) -> list[Pod]:
    """The bound pods of a case, as pods that are pending."""
    return [
        msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, node_name=""))
        for one in case.pods
    ]


def named(one: Pod, name: str) -> Pod:
    """The same pod under another name."""
    metadata = msgspec.structs.replace(one.metadata, name=name, uid=f"uid-{name}")
    return msgspec.structs.replace(one, metadata=metadata)


def land(made: NodeTable, one: Pod, name: str) -> None:
    """Put a pod on a node."""
    put(made, one, made.index[name])


def put(made: NodeTable, one: Pod, at: int) -> None:
    """Put a pod on a node, given by its index."""
    made.add_pods([(one, at)], *made.request_vectors(one))


def take(made: NodeTable, one: Pod) -> None:
    """Remove a pod from its node."""
    made.remove_pods([one])


def class_of(made: NodeTable, one: Pod) -> PodClass:
    """The class of one pod."""
    vector, nonzero = made.request_vectors(one)
    return PodClass.from_pod(one, vector, (int(nonzero[0]), int(nonzero[1])))


def filtered(plugin: Any, one: Pod, made: NodeTable, view: Nodes | None = None) -> Verdict:
    """PreFilter, where there is one, and Filter; a refusal at PreFilter refuses every node."""
    state = CycleState()
    pod_class = class_of(made, one)
    nodes = made.all_nodes_view() if view is None else view
    if hasattr(plugin, "prefilter"):
        status = plugin.prefilter(pod_class, made.all_nodes_view(), state).status
        if status.code is Code.SKIP:
            return Verdict.accept(len(nodes))
        if not status.ok:
            everywhere, final = np.ones(len(nodes), np.bool_), status.code is Code.UNRESOLVABLE
            return Verdict.refuse(everywhere, "; ".join(status.reasons), unresolvable=final)
    verdict: Verdict = plugin.filter(pod_class, nodes, state)
    return verdict


def refusals(plugin: Any, one: Pod, made: NodeTable) -> dict[str, tuple[str, ...]]:
    """The reasons of every node that refuses."""
    verdict = filtered(plugin, one, made)
    return {
        name: verdict.reasons_at(at) for at, name in enumerate(made.names) if not verdict.feasible_mask[at]
    }


def scores(plugin: Any, one: Pod, made: NodeTable) -> list[int]:
    """PreScore, Score and NormalizeScore over all nodes."""
    state = CycleState()
    pod_class = class_of(made, one)
    if hasattr(plugin, "prescore"):
        assert plugin.prescore(pod_class, made.all_nodes_view(), state).code is Code.SUCCESS
    found = plugin.score(pod_class, made.all_nodes_view(), state)
    if hasattr(plugin, "normalize"):
        found = plugin.normalize(found, pod_class, made.all_nodes_view(), state)
    assert found.dtype == np.int64
    return list(found.tolist())


def judged(pipeline: Pipeline, one: PodClass, made: NodeTable, nominations: Nominations) -> PreemptionHandle:
    """Filter the nodes for a pod as the session does when pods are nominated; what PostFilter is called with."""
    handle = PreemptionHandle(
        pipeline, one, made, pipeline.find_nodes_that_pass_filters(one, made), nominations
    )
    return replace(
        handle,
        scan=restrict_by_nominations_and_extenders(
            handle, partial(pipeline.run_extender_filters, one, table=made)
        ),
    )
