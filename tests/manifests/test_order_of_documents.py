"""The order of the documents in a file, or of the objects in a list, does not change a decision."""

import json
import random
from pathlib import Path

import pytest

from batchsched.api.decision import to_json
from batchsched.config.schema import Profile
from batchsched.manifests.reader import read_manifests
from batchsched.manifests.writer import encode_snapshot_as_json as manifests_of
from tests.session.clusters import random_cluster
from tests.session.scenario import alone, cluster, node, profile, schedule


def read(path: Path, objects: list[object]):
    path.write_text("\n".join(map(json.dumps, objects)))
    return read_manifests([path]).snapshot


@pytest.mark.parametrize(
    "settings", [profile(), profile(selection="ordered"), profile(solver={"enabled": False})]
)
@pytest.mark.parametrize("seed", range(5))
def test_shuffled_documents_get_the_same_decision(tmp_path: Path, seed: int, settings: Profile):
    objects = json.loads(manifests_of(random_cluster(seed)))["items"]
    shuffled = random.Random(seed).sample(objects, len(objects))
    decisions = [
        to_json(schedule(read(tmp_path / "all.jsonl", listed), settings)) for listed in (objects, shuffled)
    ]
    assert decisions[0] == decisions[1]


def test_of_equally_good_nodes_the_first_by_name_is_chosen(tmp_path: Path):
    some = cluster((node("n2", gpu=2), node("n1", gpu=2)), alone(1, gpu=1))
    read_back = read(tmp_path / "all.jsonl", json.loads(manifests_of(some))["items"])
    assert [one.node for one in schedule(read_back).assignments] == ["n1"]
