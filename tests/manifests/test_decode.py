"""Equal specs are one value as long as a pod refers to it, and are dropped afterwards."""

import msgspec
import pytest

from batchsched.api.crd.validation import FieldError
from batchsched.api.snapshot import KIND_BY_GROUP_AND_NAME
from batchsched.manifests import decode
from batchsched.manifests.decode import Decoder, ObjectDecodeError
from batchsched.manifests.documents import Document, Envelope

POD = KIND_BY_GROUP_AND_NAME["", "Pod"]


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(decode, "_MAX_CACHED_SPECS", 10)
    monkeypatch.setattr(decode, "_MAX_CACHED_STATUSES", 10)


def pod(decoder, priority, command="", phase="Pending"):
    container = {"name": "main", "command": [command], "resources": {"requests": {"cpu": "1"}}}
    body = {
        "metadata": {"name": "p"},
        "spec": {"priority": priority, "containers": [container]},
        "status": {"phase": phase},
    }
    raw = msgspec.json.encode(body)
    return decoder.decode(Document("", "", raw, msgspec.json.decode(raw, type=Envelope)), POD)


def test_equal_specs_are_one_value_however_many_others_there_were_since():
    decoder = Decoder()
    first = pod(decoder, 1)
    for number in range(100):
        pod(decoder, 2 + number)
    assert pod(decoder, 1).spec is first.spec


def test_specs_that_differ_in_ignored_fields_are_one_value():
    decoder = Decoder()
    first = pod(decoder, 1, command="train")
    assert all(pod(decoder, 1, command=str(number)).spec is first.spec for number in range(100))


def test_specs_that_no_pod_refers_to_are_dropped():
    decoder = Decoder()
    held = [pod(decoder, number) for number in range(5)]
    for number in range(1000):
        pod(decoder, 10 + number, command=str(number), phase=f"{number}")
    assert len(decoder._specs) <= 10
    assert len(decoder._canonical) <= 10 + len(held)
    assert len(decoder._statuses) <= 10


def test_specs_of_deleted_pods_are_dropped_while_equal_pods_are_decoded(monkeypatch):
    monkeypatch.setattr(decode, "_PODS_BETWEEN_DROPS", 20)
    decoder = Decoder()
    held = [pod(decoder, number) for number in range(3)]
    for number in range(5):
        pod(decoder, 10 + number)
    for _ in range(40):
        assert pod(decoder, 0).spec is held[0].spec
    assert len(decoder._specs) == len(decoder._canonical) == len(held)
    assert [pod(decoder, number).spec for number in range(3)] == [one.spec for one in held]


def test_error_of_an_object_as_a_whole_names_no_field():
    error = ObjectDecodeError((FieldError("", "is not JSON"), FieldError("spec", "expected object")))
    assert str(error) == "is not JSON; spec: expected object"


def test_a_spec_that_cannot_be_used_is_refused_every_time():
    decoder = Decoder()
    for _ in range(3):
        with pytest.raises(ObjectDecodeError, match=r"spec\.priority"):
            pod(decoder, "high")
