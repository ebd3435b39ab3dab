"""Specs of deleted pods are kept up to a limit in bytes, whatever their number is."""

import gc
import sys

import msgspec
import pytest

from batchsched.api.core.pod import Pod
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


def document(name: str, round_number: int, values: int = 8_000) -> Document:
    """A pod with about as many values of node affinity as the limit allows; its spec differs in each round."""
    texts = [f"{name}-{round_number}-{number}-{'x' * 100}" for number in range(values)]
    return document_with_terms(name, round_number, [texts])


def document_with_terms(name: str, round_number: int, values_of_terms: list[list[str]]) -> Document:
    """A pod with one node selector term for each list of values."""
    node_selector_terms = [
        {"matchExpressions": [{"key": "a", "operator": "In", "values": values}]} for values in values_of_terms
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
    gc.collect()  # what other tests left
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
        cache.put(decoder.decode(document(f"small{number}", 0, values=1), POD))
        feed.updated_scheduler().decide(NOW, 0)
    gc.collect()
    assert sys.getallocatedblocks() - blocks_before < blocks_of_large_pods / 10


def test_decoded_constraints_above_a_limit_are_not_kept():
    decoder = Decoder()
    terms = [[f"{number}-{'x' * 50}"] for number in range(10_000)]
    small = decoder.decode(document("small", 0, values=1), POD)
    gc.collect()
    blocks_before = sys.getallocatedblocks()
    pod = decoder.decode(document_with_terms("large", 0, terms), POD)
    gc.collect()
    assert sys.getallocatedblocks() - blocks_before < 1_000 + len(terms), "the texts of the test are counted"
    assert pod.spec.affinity is None
    assert pod.spec.scheduler_name == small.spec.scheduler_name
    assert "has 20000 terms and expressions" in pod.spec.exceeded_limit


def test_decoded_constraints_of_a_bound_pod_are_kept_whatever_their_number_is():
    large = document_with_terms("large", 0, [[f"{number}-{'x' * 50}"] for number in range(1_000)])
    body = msgspec.json.decode(large.raw)
    body["spec"]["nodeName"] = "n0"
    raw = msgspec.json.encode(body)
    pod = Decoder().decode(Document("", "", raw, msgspec.json.decode(raw, type=Envelope)), POD)
    required = pod.spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
    assert len(required.node_selector_terms) == 1_000
    assert not pod.spec.exceeded_limit


def test_constraints_above_a_limit_of_a_recorded_session_are_read_as_they_were_written():
    large = document_with_terms("large", 0, [[f"{number}-{'x' * 50}"] for number in range(1_000)])
    assert Decoder(trusted=True).decode(large, POD) == msgspec.json.decode(large.raw, type=Pod)


def test_pod_above_a_limit_is_refused_with_the_same_message_when_decoded():
    large = document_with_terms("large", 0, [[f"{number}-{'x' * 50}"] for number in range(1_000)])
    decoded = Decoder().decode(large, POD)
    whole = msgspec.json.decode(large.raw, type=Pod)
    messages = []
    for pod in (decoded, whole):
        cache = ClusterState()
        cache.put(node("n0"))
        cache.put(pod)
        feed = UpToDateScheduler(cache, lambda snapshot: Session(snapshot, Profile()))
        (refusal,) = feed.updated_scheduler().decide(NOW, 0).refusals
        messages.append((refusal.reason, refusal.message))
    assert messages[0] == messages[1]
    assert messages[0][0] == "PodSpecLimit"
