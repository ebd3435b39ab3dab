"""Every refusal states whether the gang can ever start, and a smallest set of changes that was verified.

The changes are applied to the manifests by an applier of the tests, and the session is decided again.
"""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import settings

from batchsched.api.decision import Decision
from batchsched.config.schema import Profile
from batchsched.session.explanation.explain import explain_refusals
from batchsched.session.explanation.verification import DecidedInput
from batchsched.session.session import decide
from tests.session.explanation.documents import (
    GROUP_LABEL,
    NOW,
    Document,
    applied,
    one_less,
    random_documents,
    snapshot_of,
)

pytestmark = pytest.mark.properties
FULL = settings().max_examples >= 500
SHARDS, SEEDS_PER_SHARD = (50, 10) if FULL else (2, 4)


def decided(documents: list[Document], tmp_path: Path) -> Decision:
    return decide(snapshot_of(documents, tmp_path), Profile(), NOW, 0)


def is_placed(decision: Decision, key: str, documents: list[Document]) -> bool:
    _, name = key.split("/")
    members = {
        one["metadata"]["name"]
        for one in documents
        if one["kind"] == "Pod" and one["metadata"]["labels"].get(GROUP_LABEL) == name
    }
    return any(entry.pod in members for entry in decision.assignments)


def alone(documents: list[Document], key: str) -> list[Document]:
    """The documents without the pods and PodGroups of other gangs."""
    _, name = key.split("/")
    return [
        one
        for one in documents
        if one["kind"] not in ("Pod", "PodGroup")
        or name in (one["metadata"]["name"], one["metadata"].get("labels", {}).get(GROUP_LABEL))
    ]


@pytest.mark.parametrize("shard", range(SHARDS))
def test_changes_of_every_refusal_place_the_gang_and_one_unit_less_does_not(shard, tmp_path):
    for seed in range(shard * SEEDS_PER_SHARD, (shard + 1) * SEEDS_PER_SHARD):
        documents = random_documents(seed)
        snapshot = snapshot_of(documents, tmp_path)
        session = DecidedInput(snapshot, Profile(), NOW, 0, decide(snapshot, Profile(), NOW, 0))
        for refusal in explain_refusals(session).refusals:
            case, key = f"seed {seed}: {refusal}", refusal.pod_group
            assert refusal.verified, case
            empty = alone(documents, key)
            assert is_placed(decided(empty, tmp_path), key, documents) == refusal.startable, case
            changes = json.loads(msgspec.json.encode(refusal.changes))
            if not changes:
                continue
            assert is_placed(decided(applied(documents, changes), tmp_path), key, documents), case
            for fewer in one_less(changes, documents):
                less = decided(applied(documents, fewer), tmp_path)
                assert not is_placed(less, key, documents), f"{case}: {fewer} is enough"
