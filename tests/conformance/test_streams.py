"""Thousands of pods, one after the other, end where kube-scheduler 1.36 was recorded to put them."""

import gzip
import hashlib
from typing import Any

import msgspec
import numpy as np
import pytest

from batchsched.framework.nodes import NodeTable
from batchsched.framework.pipeline import Pipeline
from batchsched.framework.podclass import PodClass
from batchsched.framework.registry import standard
from batchsched.model.node import Node
from batchsched.model.pod import Pod
from batchsched.model.policy import Namespace, Service
from batchsched.model.snapshot import Snapshot
from batchsched.settings.schema import Profile
from tests.conformance import runner

NAMED = 8
"""Up to so many best nodes are recorded by name, more of them as a count and a hash."""


class Stream(msgspec.Struct, frozen=True):
    """A cluster, and the pods that arrive."""

    nodes: tuple[Node, ...]
    templates: tuple[Pod, ...]
    arrivals: tuple[int, ...]
    expected: list[Any]
    pods: tuple[Pod, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    services: tuple[Service, ...] = ()


def opened(name: str) -> Stream:
    with gzip.open(runner.CASES / "streams" / f"{name}.json.gz") as file:
        return msgspec.json.decode(file.read(), type=Stream)


def start(stream: Stream) -> NodeTable:
    snapshot = Snapshot(
        nodes=stream.nodes, pods=stream.pods, namespaces=stream.namespaces, services=stream.services
    )
    table = NodeTable(snapshot, runner.resource_names(stream.nodes, (*stream.pods, *stream.templates)))
    for pod in stream.pods:
        table.add(pod, table.index[pod.node], *table.read_requests(pod))
    return table


def answer(pipeline: Pipeline, pod: PodClass, table: NodeTable) -> Any:
    """What a stream records of an arrival."""
    scan = pipeline.scan(pod, table)
    feasible = np.flatnonzero(scan.fits).astype(np.int32)
    if not len(feasible):
        return scan.fit_error()
    total = pipeline.score(pod, feasible, table, scan.state)
    best = sorted(table.names[at] for at in feasible[total == total.max()])
    named = best
    if len(best) > NAMED:
        named = [len(best), hashlib.sha256(",".join(best).encode()).hexdigest()[:12]]
    return [len(feasible), int(total.max()), named, best[0]]


@pytest.mark.parametrize("name", ["plain", "mixed"])
def test_every_arrival_is_answered_as_recorded(name):
    stream = opened(name)
    table, pipeline = start(stream), standard().pipeline(Profile())
    for at, (number, expected) in enumerate(zip(stream.arrivals, stream.expected, strict=True)):
        template = stream.templates[number]
        metadata = msgspec.structs.replace(template.metadata, name=f"p{at:05d}", uid=f"u{at}")
        pod = msgspec.structs.replace(template, metadata=metadata)
        requests, nonzero = table.read_requests(pod)
        found = answer(pipeline, PodClass.of(pod, requests, (int(nonzero[0]), int(nonzero[1]))), table)
        assert found == expected, pod.name
        if isinstance(found, list):
            table.add(pod, table.index[found[-1]], requests, nonzero)
