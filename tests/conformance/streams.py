"""The recorded streams: thousands of pods, one after the other, each bound before the next is asked about."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from batchsched.api.core.cluster_objects import Namespace, Service
from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.api.snapshot import Snapshot
from batchsched.config.kubernetes_release import DEFAULT_VERSION, RELEASES, KubernetesVersion
from batchsched.config.schema import Profile
from batchsched.framework.nodes.node_table import NodeTable
from batchsched.framework.pod_class import PodClass
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.runtime.registry import standard_registry
from tests.conformance import runner

NAMED = 8
"""Maximum number of best nodes that are recorded by name; more are recorded as a count and a hash."""


class Stream(msgspec.Struct, frozen=True):
    """A cluster, and the pods that arrive."""

    nodes: tuple[Node, ...]
    templates: tuple[Pod, ...]
    arrivals: tuple[int, ...]
    expected: list[Any]
    pods: tuple[Pod, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    services: tuple[Service, ...] = ()
    kubernetes_version: KubernetesVersion = DEFAULT_VERSION


def read(path: Path, version: KubernetesVersion = DEFAULT_VERSION) -> Stream:
    """Read a stream, plain or gzipped, that was recorded from a release of kube-scheduler."""
    stream = msgspec.json.decode(runner.content(path), type=Stream)
    return msgspec.structs.replace(stream, kubernetes_version=version)


def mismatches(stream: Stream) -> Iterator[str]:
    """Take the arrivals one by one, bound where they were recorded to go; yield what differs."""
    profile = Profile(kubernetes_version=stream.kubernetes_version)
    table, pipeline = start(stream), standard_registry().create_pipeline(profile)
    for at, (number, expected) in enumerate(zip(stream.arrivals, stream.expected, strict=True)):
        template = stream.templates[number]
        metadata = msgspec.structs.replace(template.metadata, name=f"p{at:05d}", uid=f"u{at}")
        pod = msgspec.structs.replace(template, metadata=metadata)
        requests, nonzero = table.request_vectors(pod)
        found = answer(pipeline, PodClass.from_pod(pod, requests, (int(nonzero[0]), int(nonzero[1]))), table)
        if found != expected:
            yield f"{pod.name}: ours {found}, recorded {expected}"
        if isinstance(expected, list):
            table.add_pods([(pod, table.index[expected[-1]])], requests, nonzero)


def start(stream: Stream) -> NodeTable:
    """Return the cluster before the first arrival."""
    snapshot = Snapshot(
        nodes=stream.nodes, pods=stream.pods, namespaces=stream.namespaces, services=stream.services
    )
    resources = runner.resource_names(stream.nodes, (*stream.pods, *stream.templates))
    table = NodeTable(snapshot, resources, RELEASES[stream.kubernetes_version])
    for pod in stream.pods:
        table.add_pods([(pod, table.index[pod.node_name])], *table.request_vectors(pod))
    return table


def answer(pipeline: Pipeline, pod: PodClass, table: NodeTable) -> Any:
    """Return what a stream records of an arrival."""
    scan = pipeline.find_nodes_that_pass_filters(pod, table)
    feasible = np.flatnonzero(scan.fits).astype(np.int32)
    if not len(feasible):
        return scan.fit_error_message()
    total = pipeline.score(pod, feasible, table, scan.state)
    best = sorted(table.names[at] for at in feasible[total == total.max()])
    named = best
    if len(best) > NAMED:
        named = [len(best), hashlib.sha256(",".join(best).encode()).hexdigest()[:12]]
    return [len(feasible), int(total.max()), named, best[0]]
