"""The division of topology slices among domains: evenly, and over as few domains as possible."""

from collections.abc import Mapping

import numpy as np

from batchsched.solver.problem import IntArray


def distribute_slices_over_domains(
    slices: int, capacity: IntArray, started: Mapping[int, int]
) -> dict[int, int] | None:
    """Return how many topology slices to add to each domain, or None if the domains have too little capacity.

    The fewest domains are used. No domain that gets a slice has two slices more than another domain in use; without
    running slices the numbers of two domains in use differ by at most one. Of several domains that would do, those
    with the least room are taken.

    Args:
      slices: slices to add.
      capacity: [D] slices that each domain still takes.
      started: slices that each domain has already.
    """
    if slices <= 0:
        return {}
    # A domain that runs slices may have no node any more.
    capacity = np.pad(capacity, (0, max(0, max(started, default=-1) + 1 - len(capacity))))
    unused = sorted((int(capacity[d]), d) for d in capacity.nonzero()[0].tolist() if d not in started)
    for more in range(min(slices, len(unused)) + 1):
        if not started and not more:
            continue
        division = _divide_over(slices, capacity, started, unused, more)
        if division is not None:
            return division
    return None


def _divide_over(
    slices: int, capacity: IntArray, started: Mapping[int, int], unused: list[tuple[int, int]], more: int
) -> dict[int, int] | None:
    """Divide slices over the domains in use and `more` of the unused ones, which are (capacity, domain) ascending."""
    heights = sorted(started.values()) + [0] * more
    low = _water_level(slices, heights)
    added = {d: low - height for d, height in started.items() if height < low}
    if any(int(capacity[d]) < count for d, count in added.items()):
        return None
    remaining = slices - sum(added.values()) - low * more
    # The domains in use that may get one slice more, those with the most room first: they cost no further domain.
    rooms = sorted(
        ((int(capacity[d]) - added.get(d, 0), -d) for d, height in started.items() if height <= low),
        reverse=True,
    )
    raised = [-d for room, d in rooms[:remaining] if room > 0]
    remaining -= len(raised)
    # The tightest domains that take one more than the level; then the tightest ones that take the level.
    tall = [d for room, d in unused if room > low][:remaining]
    if len(tall) < remaining or remaining > more:
        return None
    level_domains = [d for room, d in unused if room >= max(low, 1) and d not in set(tall)][
        : more - remaining
    ]
    if len(level_domains) < more - remaining:
        return None
    if low == 0 and level_domains:  # a domain without a slice is none in use
        return None
    for d in raised:
        added[d] = added.get(d, 0) + 1
    return added | dict.fromkeys(tall, low + 1) | dict.fromkeys(level_domains, low)


def _water_level(amount: int, heights: list[int]) -> int:
    """Return the highest level to which all columns can be raised with an amount.

    Args:
      amount: what may be added to the columns.
      heights: the columns.
    """
    low, high = 0, max(heights, default=0) + amount
    while low < high:
        middle = (low + high + 1) // 2
        if sum(max(0, middle - height) for height in heights) <= amount:
            low = middle
        else:
            high = middle - 1
    return low
