"""Capacity prices: what a solve learned about scarce capacity, in a form that stays valid for every other problem.

A slot row states how many requests of one size the nodes of a pool hold: Σ f(request)·x <= Σ_n f(free_n) for a function
f such as floor(GPUs / 4). For any prices μ >= 0 of such rows, with p_c the price of a pod of class c in its cheapest
pool,

    Σ_c p_c·pods_c <= Σ_rows μ_row Σ_n f_row(free_n)

holds for every placement, whichever problem the prices come from: requests and free amounts are those of the problem at
hand. So prices of another problem give a row that is perhaps weak, and never wrong. The duals of the Benders cuts of
`solver.tiered.transport` are such prices.

Shapes: C classes, N nodes, P pools, V variables.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from batchsched.solver.linear_model import HIGHEST
from batchsched.solver.problem import BoolArray, FloatArray
from batchsched.solver.start import CapacityPrices, SlotPrice
from batchsched.solver.tiered.model import TieredModel
from batchsched.solver.tiered.transport import PoolTransport

LEAST_PRICE: Final = 1e-12
"""A lower price is a rounding error."""
ROW_SCALE: Final = 2.0**34
"""Sum to which the coefficients of a row are scaled as integers."""
ROW_SLACK: Final = int(ROW_SCALE * 1e-8)
"""What a row admits in addition: sums of floats are rounded, and no row may cut off what fits."""
PoolKey = tuple[tuple[int, ...], tuple[int, ...], int]


def capacity_prices_of_cuts(transport: PoolTransport) -> tuple[CapacityPrices, ...]:
    """Return the capacity prices of all Benders cuts that `transport` added to its model, the newest last."""
    keys = pool_keys_across_problems(transport.tiered_model)
    return tuple(
        CapacityPrices(
            tuple(
                SlotPrice(*keys[pool], requests, price)
                for (pool, requests), price in zip(transport.slot_functions, duals.tolist(), strict=False)
                if price > LEAST_PRICE
            )
        )
        for duals in transport.cut_duals
    )


def add_price_rows(model: TieredModel, prices: Sequence[CapacityPrices]) -> None:
    """Add a linear constraint to the model for each set of capacity prices; every placement satisfies it."""
    usable = _usable_pools(model)
    keys = pool_keys_across_problems(model)
    for entry in prices:
        price, right = _price_by_pool(model, keys, entry)
        cheapest = np.where(usable, price, np.inf).min(axis=1, initial=np.inf)
        # A class without a pool has no pods that could be placed.
        cheapest[np.isinf(cheapest)] = 0.0
        _add_row(model, cheapest, right)


def pool_keys_across_problems(model: TieredModel) -> list[PoolKey]:
    """Return a key for each node pool [P], which finds the pool of equal nodes in another problem."""
    problem, devices = model.problem, list(model.packing.room.slots.devices)
    seen: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
    keys: list[PoolKey] = []
    for nodes in model.pools.nodes:
        first = int(nodes[0])
        amounts = (
            tuple(problem.nodes.capacity[first].tolist()),
            tuple(problem.nodes.free[first, devices].tolist()),
        )
        keys.append((*amounts, seen.setdefault(amounts, 0)))
        seen[amounts] += 1
    return keys


def _usable_pools(model: TieredModel) -> BoolArray:
    """The pools [C, P] in which some node takes a pod of the class."""
    pools = model.pools
    fits = np.stack([(pools.fit[:, nodes] > 0).any(axis=1) for nodes in pools.nodes], axis=1)
    usable: BoolArray = fits[pools.kinds]
    return usable


def _price_by_pool(
    model: TieredModel, keys: Sequence[PoolKey], prices: CapacityPrices
) -> tuple[FloatArray, float]:
    """The price of a pod of each class in each pool [C, P], and the price of all free amounts."""
    by_pool: dict[PoolKey, list[SlotPrice]] = {}
    for slot in prices.slots:
        by_pool.setdefault((slot.capacity, slot.devices, slot.ordinal), []).append(slot)
    supply = model.supply
    price, right = np.zeros((len(supply.demand), len(keys))), 0.0
    for pool, key in enumerate(keys):
        for slot in by_pool.get(key, ()):
            if all(0 <= r < supply.demand.shape[1] and size > 0 for r, size in slot.requests):
                nodes = model.pools.nodes[pool]
                price[:, pool] += slot.price * supply.count_requested_slots_by_class(slot.requests)
                right += slot.price * float(supply.count_free_slots(slot.requests, nodes))
    return price, right


def _add_row(model: TieredModel, price: FloatArray, right: float) -> None:
    """Add Σ price·pods <= right over the classes [C], in integers."""
    weights = price[model.class_index] * model.factor
    coefficient = np.zeros(model.variable_count)
    np.add.at(coefficient, model.variable, weights)
    scale = ROW_SCALE / max(float(weights.sum()) + right, 1e-9)
    whole = np.floor(coefficient * scale).astype(np.int64)
    used = np.flatnonzero(whole)
    if used.size:
        model.add_row(used, whole[used], -HIGHEST, int(np.floor(right * scale)) + ROW_SLACK)
