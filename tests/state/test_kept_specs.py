"""Specs of deleted pods are kept up to a limit in bytes, whatever their number is."""

import gc
import sys

import msgspec
import pytest

from batchsched.api.snapshot import KIND_BY_GROUP_AND_NAME
from batchsched.config.schema import Profile
from batchsched.manifests import decode
from batchsched.manifests.decode import Decoder
from batchsched.manifests.documents import Document, Envelope
from batchsched.session.session import Session
from batchsched.state.cluster_state import ClusterState
from batchsched.state.up_to_date_scheduler import UpToDateScheduler
from tests.state.objects import NOW, node

POD = KIND_BY_GROUP_AND_NAME["", "Pod"]


def document(name: str, round_number: int, terms: int = 8_000) -> Document:
    """A pod of about the largest size that the API server accepts; its spec differs in each round."""
    node_selector_terms = [
        {
            "matchExpressions": [
                {"key": "a", "operator": "In", "values": [f"{name}-{round_number}-{number}-{'x' * 50}"]}
            ]
        }
        for number in range(terms)
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": node_selector_terms}}
    body = {
        "metadata": {"name": name, "namespace": "default", "uid": f"{name}-{round_number}"},
        "spec": {
            "schedulerName": "batchsched",
            "containers": [{"name": "main"}],
            "affinity": {"nodeAffinity": required},
        },
        "status": {"phase": "Pending"},
    }
    raw = msgspec.json.encode(body)
    return Document("", "", raw, msgspec.json.decode(raw, type=Envelope))


def test_rounds_of_different_large_specs_keep_no_more_than_the_first_rounds():
    cache, decoder = ClusterState(), Decoder()
    feed = UpToDateScheduler(cache, lambda snapshot: Session(snapshot, Profile()))
    cache.put(node("n0"))
    kept: list[int] = []
    blocks_before = sys.getallocatedblocks()
    for round_number in range(6):
        for number in range(20):
            cache.put(decoder.decode(document(f"p{number}", round_number), POD))
        decision = feed.updated_scheduler().decide(NOW, 0)
        assert len(decision.refusals) == 20
        for pod in cache.snapshot().pods:
            cache.remove(pod)
        del decision, pod
        feed.updated_scheduler().decide(NOW, 0)
        gc.collect()
        kept.append(sys.getallocatedblocks() - blocks_before)
    # A limit lets specs of two rounds be kept; the decoder and the tables free them at different moments.
    assert max(kept) < 2.5 * kept[0], kept


def test_large_specs_of_deleted_pods_are_freed_while_small_pods_come(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(decode, "_PODS_BETWEEN_DROPS", 10)
    cache, decoder = ClusterState(), Decoder()
    feed = UpToDateScheduler(cache, lambda snapshot: Session(snapshot, Profile()))
    cache.put(node("n0"))
    feed.updated_scheduler().decide(NOW, 0)
    gc.collect()  # what other tests left
    blocks_before = sys.getallocatedblocks()
    for number in range(20):
        cache.put(decoder.decode(document(f"p{number}", 0), POD))
    for _ in range(2):  # the second session has a new scheduler, made from a Snapshot with the large pods
        feed.updated_scheduler().decide(NOW, 0)
    blocks_of_large_pods = sys.getallocatedblocks() - blocks_before
    for pod in cache.snapshot().pods:
        cache.remove(pod)
    del pod
    for number in range(10):
        cache.put(decoder.decode(document(f"small{number}", 0, terms=1), POD))
        feed.updated_scheduler().decide(NOW, 0)
    gc.collect()
    assert sys.getallocatedblocks() - blocks_before < blocks_of_large_pods / 10
