import json
from dataclasses import replace

import jsonschema
import pytest
from hypothesis import given

from batchsched.errors import InvalidInput
from batchsched.manifests.reader import read_manifests
from batchsched.manifests.schemas import manifest_schema
from batchsched.manifests.writer import decode_snapshot_from_json, encode_snapshot_as_json
from tests.manifests.snapshots import SNAPSHOTS

VALIDATOR = jsonschema.Draft202012Validator(manifest_schema())


@given(SNAPSHOTS)
def test_snapshot_survives_being_written_and_restored(snapshot):
    assert decode_snapshot_from_json(encode_snapshot_as_json(snapshot)) == snapshot


@given(SNAPSHOTS)
def test_snapshot_survives_being_written_and_read_as_manifests(tmp_path_factory, snapshot):
    file = tmp_path_factory.mktemp("written") / "cluster.json"
    file.write_bytes(encode_snapshot_as_json(snapshot))
    reading = read_manifests([file])
    by_name = tuple(sorted(snapshot.nodes, key=lambda node: node.name))
    assert reading.snapshot == replace(snapshot, nodes=by_name)
    assert reading.set_aside_objects == ()


@given(SNAPSHOTS)
def test_what_is_written_follows_the_published_schema(snapshot):
    VALIDATOR.validate(json.loads(encode_snapshot_as_json(snapshot)))


def test_text_in_another_format_than_that_of_to_json_is_not_restored():
    with pytest.raises(InvalidInput, match="'Deployment' has no place"):
        decode_snapshot_from_json(json.dumps({"apiVersion": "apps/v1", "kind": "Deployment"}).encode())
    with pytest.raises(InvalidInput):
        decode_snapshot_from_json(b"junk: [")
    with pytest.raises(InvalidInput, match="status"):
        decode_snapshot_from_json(
            b'{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": 3}'
        )
