"""Refusals on random clusters of two generators: their changes place the gang, nothing smaller or earlier does."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import settings

from batchsched.api.decision import Refusal
from batchsched.config.schema import Profile
from batchsched.session.explanation.explain import NOT_VERIFIED, explain_refusals
from batchsched.session.explanation.verification import DecidedInput
from batchsched.session.session import decide
from tests.session.explanation.documents import NOW, Document, random_documents, read_documents, snapshot_of
from tests.session.explanation.varied_documents import (
    earlier_changes,
    edited,
    emptied,
    members_of,
    reduced,
    varied_documents,
    with_many_nodes,
)

pytestmark = pytest.mark.properties
SHARDS, SEEDS_PER_SHARD = (4, 125) if settings().max_examples >= 500 else (2, 3)
GENERATORS = {
    "simple": lambda seed: (random_documents(seed), Profile()),
    "varied": varied_documents,
}
NEW_NODE_PREFIXES = ("aa", "zz")
"""Names of new nodes that come before and after those of the other nodes."""
MAX_UNVERIFIED_SHARE = {"simple": 0.0, "varied": 0.01}
"""Of the refusals of one shard: on varied clusters, the budget of a session may end before all are verified."""


class Cluster:
    """One random cluster, decided as often as its refusals are examined."""

    def __init__(self, documents: list[Document], profile: Profile, folder: Path) -> None:
        self.documents, self.profile = documents, profile
        self._folder = folder

    def refusals(self) -> tuple[Refusal, ...]:
        snapshot = snapshot_of(self.documents, self._folder)
        decision = decide(snapshot, self.profile, NOW, 0)
        return explain_refusals(DecidedInput(snapshot, self.profile, NOW, 0, decision)).refusals

    def accepts(self, documents: list[Document]) -> bool:
        """Whether an API server would accept all documents."""
        return not read_documents(documents, self._folder).set_aside

    def places(self, key: str, documents: list[Document]) -> bool:
        members = members_of(self.documents, key)
        decision = decide(snapshot_of(documents, self._folder), self.profile, NOW, 0)
        return any((entry.namespace, entry.pod) in members for entry in decision.assignments)

    def is_enough(self, key: str, changes: list[Document]) -> bool:
        """Whether changes that an API server would accept place the gang, whatever the names of new nodes are."""
        changed = [edited(self.documents, changes, prefix) for prefix in NEW_NODE_PREFIXES]
        return all(self.accepts(documents) and self.places(key, documents) for documents in changed)


@pytest.mark.timeout(3600)  # 125 clusters take up to ten minutes of a core
@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.parametrize("generator", GENERATORS)
def test_changes_of_refusals_are_enough_smallest_and_of_the_first_kind(generator, shard, tmp_path):
    refused = beyond_budget = 0
    for seed in range(shard * SEEDS_PER_SHARD, (shard + 1) * SEEDS_PER_SHARD):
        cluster = Cluster(*GENERATORS[generator](seed), tmp_path)
        documents, refusals = cluster.documents, cluster.refusals()
        unverified = [refusal for refusal in refusals if not refusal.verified]
        assert all(NOT_VERIFIED in refusal.message for refusal in unverified), f"seed {seed}"
        refused += len(refusals)
        beyond_budget += len(unverified)
        for refusal in refusals:
            case, key = f"seed {seed}: {refusal}", refusal.pod_group
            if not refusal.verified:
                continue
            assert cluster.places(key, emptied(documents, key)) == refusal.startable, case
            assert all(members_of(documents, entry.pod_group) for entry in refusal.ahead), case
            changes = json.loads(msgspec.json.encode(refusal.changes))
            if "its nominated node" in refusal.message:
                assert not changes, case
                continue
            # The names of new nodes decide between places of equal value.
            for prefix in NEW_NODE_PREFIXES if changes else ():
                assert cluster.places(key, edited(documents, changes, prefix)), f"{case}: {prefix}"
            for fewer in reduced(documents, changes):
                assert not cluster.is_enough(key, fewer), f"{case}: {fewer} is enough"
            earlier = list(earlier_changes(documents, key, changes))
            for other in earlier if changes else [*earlier, with_many_nodes(documents)]:
                assert not cluster.places(key, edited(documents, other, "zz")), f"{case}: {other} helps"
    assert beyond_budget <= MAX_UNVERIFIED_SHARE[generator] * refused, f"{beyond_budget} of {refused}"
