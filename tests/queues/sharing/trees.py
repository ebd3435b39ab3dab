"""Queue trees in few words, and random ones: the cases of every policy's properties."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from batchsched.api.crd.base import CustomMeta
from batchsched.api.crd.queue import Queue
from batchsched.queues.entitlements import build_sibling_queues, compute_entitlements
from batchsched.queues.queue_table import (
    Entitlements,
    QueueTable,
    QueueUsageAndDemand,
    TotalCapacity,
    build_queue_table,
)
from batchsched.queues.sharing.policy import SharingPolicy, make_sharing_policy
from batchsched.queues.sharing.sibling_queues import UNLIMITED, SiblingQueues
from batchsched.queues.tree import QueueTree

GPU = "nvidia.com/gpu"


def queue(name: str, **spec: Any) -> Queue:
    return Queue.model_validate({"metadata": CustomMeta(name=name), "spec": spec})


def cluster(**amounts: int) -> TotalCapacity:
    """`gpu` is nvidia.com/gpu; amounts in base units."""
    names = tuple(GPU if name == "gpu" else name for name in amounts)
    return TotalCapacity(names, np.array(list(amounts.values()), np.int64), np.ones(len(names), np.bool_))


def shares_of(
    queues: Sequence[Queue],
    capacity: TotalCapacity,
    usage: Mapping[str, Any] | None = None,
    waits: Mapping[str, Any] | None = None,
    history: Mapping[str, Any] | None = None,
) -> QueueTable:
    """The tree as arrays; `waits` comes on top of `usage`."""
    zero = np.zeros(len(capacity.resources), np.int64)
    runs = {name: np.array(amount, np.int64) for name, amount in (usage or {}).items()}
    wants = {name: np.array(amount, np.int64) for name, amount in (waits or {}).items()}
    request = {name: runs.get(name, zero) + wants.get(name, zero) for name in {**runs, **wants}}
    past = {name: np.array(amount, np.float64) for name, amount in (history or {}).items()}
    return build_queue_table(QueueTree(queues), capacity, QueueUsageAndDemand(runs, request, past))


def divided(shares: QueueTable, policy: str | SharingPolicy = "drf", **args: Any) -> dict[str, list[int]]:
    """Fair shares by queue when one policy rules the whole tree."""
    made = make_sharing_policy(policy, args) if isinstance(policy, str) else policy
    fair = compute_entitlements(shares, [made] * len(shares)).fair
    return {name: fair[row].tolist() for row, name in enumerate(shares.names) if name}


@dataclass(frozen=True)
class Case:
    """A random tree with what it entitles to under one policy."""

    shares: QueueTable
    policies: tuple[SharingPolicy, ...]
    entitled: Entitlements

    def siblings(self, parent: int) -> SiblingQueues:
        return build_sibling_queues(self.shares, self.entitled, parent)

    def parents(self) -> list[int]:
        return [
            row for row, (begin, end) in enumerate(self.shares.child_row_ranges().tolist()) if begin < end
        ]


def random_shares(seed: int, count: int, width: int) -> QueueTable:
    """A tree in no particular state: guarantees overcommitted, limits below use, queues without a request."""
    chance = np.random.default_rng(seed)
    rows = np.arange(count)
    parent = np.minimum(np.sort((chance.random(count) * rows).astype(np.int64)), rows - 1)
    scale = chance.choice([1, 1000, 2**30], width)
    leaf = ~np.isin(rows, parent)[:, np.newaxis]

    def table(unset: int, how_often: float) -> np.ndarray:
        amounts = chance.integers(0, 41, (count, width)) * scale
        return np.where(chance.random((count, width)) < how_often, amounts, unset)

    guarantee, limit = table(0, 0.5), table(UNLIMITED, 0.2)
    guarantee[0], limit[0] = 0, UNLIMITED
    usage = np.where(leaf, table(0, 0.6), 0)
    request = usage + np.where(leaf, table(0, 0.6), 0)
    history = np.where(leaf, usage * chance.uniform(0, 2) + table(0, 0.3), 0).astype(np.float64)
    for row in range(count - 1, 0, -1):
        usage[parent[row]] += usage[row]
        history[parent[row]] += history[row]
        request[parent[row]] += np.minimum(request[row], limit[row])
        guarantee[parent[row]] = np.maximum(guarantee[parent[row]], guarantee[row])
    return QueueTable(
        names=tuple(f"q{row}" for row in range(count)),
        parent=parent,
        guarantee=guarantee,
        limit=limit,
        lending=table(UNLIMITED, 0.3),
        borrowing=table(UNLIMITED, 0.3),
        weight=chance.choice([1.0, 1.0, 2.0, 0.5, 7.0, 0.0], count),
        priority=chance.integers(-1, 2, count),
        usage=usage,
        request=request,
        history=history,
        capacity=chance.integers(0, 121, width) * scale,
        weighed=np.where(np.arange(width) == 0, True, chance.random(width) < 0.7),
    )


def trees() -> st.SearchStrategy[QueueTable]:
    """Trees of 2 to 14 rows and 1 to 3 resources."""
    return st.builds(random_shares, st.integers(0, 2**32), st.integers(2, 14), st.integers(1, 3))


def case(shares: QueueTable, policy: SharingPolicy) -> Case:
    policies = (policy,) * len(shares)
    return Case(shares, policies, compute_entitlements(shares, policies))
