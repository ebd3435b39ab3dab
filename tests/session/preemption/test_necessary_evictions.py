"""Every eviction is necessary, and none is missing: checked by counting pods of one resource on random clusters.

All pods of a gang are equal and request only GPUs, so a gang fits exactly if the nodes take enough of its pods one by
one.
"""

import itertools
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.snapshot import Snapshot
from tests.session.preemption.running import asked_to_leave, draw_places, gone, running, wanting
from tests.session.scenario import cluster, nodes, placed, schedule

GPUS = 8
URGENT = 10


@dataclass(frozen=True)
class Tenant:
    """A running gang.

    Args:
      size: GPUs of one pod.
      places: the node of each pod.
      minimum: pods below which the gang ends.
      priority: of its pods.
      spec: what the PodGroup states.
    """

    size: int
    places: tuple[str, ...]
    minimum: int
    priority: int
    spec: dict[str, Any]

    @property
    def may_leave(self) -> bool:
        return self.priority < URGENT and not {"preemptible", "minRuntimeSeconds"} & self.spec.keys()

    def remains(self, staying: int) -> bool:
        """Whether so many pods may stay after the others were evicted."""
        if staying in (0, len(self.places)):
            return True
        return "disruptionMode" in self.spec and staying >= self.minimum


@dataclass(frozen=True)
class Case:
    """Nodes, running gangs and one pending gang."""

    count: int
    tenants: dict[str, Tenant]
    size: int
    wanted: int

    @property
    def snapshot(self) -> Snapshot:
        parts = [
            running(
                name,
                list(one.places),
                priority=one.priority,
                minimum=one.minimum,
                requests={"gpu": one.size},
                **one.spec,
            )
            for name, one in self.tenants.items()
        ]
        urgent = wanting("urgent", self.wanted, priority=URGENT, requests={"gpu": self.size})
        return cluster(nodes(self.count, gpu=GPUS), *parts, urgent)

    def fits_without(self, evicted: Iterable[str]) -> bool:
        """Whether the pending gang fits after the eviction of these pods."""
        away, used = set(evicted), Counter[str]()
        for name, one in self.tenants.items():
            for number, place in enumerate(one.places):
                if f"{name}-{number}" not in away:
                    used[place] += one.size
        room = sum((GPUS - used[f"n{number}"]) // self.size for number in range(self.count))
        return room >= self.wanted


def random_case(dice: random.Random) -> Case:
    count = dice.randint(1, 4)
    room = {f"n{number}": GPUS for number in range(count)}
    tenants = {}
    for number in range(dice.randint(1, 5)):
        size, pods = dice.choice((2, 4, 8)), dice.randint(1, 3)
        places = draw_places(dice, room, size, pods)
        spec: dict[str, Any] = dice.choice(
            (
                {},
                {},
                {"preemptible": False},
                {"minRuntimeSeconds": 7200},
                {"disruptionMode": "Elastic"},
                {"disruptionMode": "Elastic"},
            )
        )
        if places:
            least = dice.randint(1, len(places)) if "disruptionMode" in spec else len(places)
            tenants[f"r{number}"] = Tenant(size, tuple(places), least, dice.choice((0, 5, URGENT)), spec)
    return Case(count, tenants, dice.choice((2, 4, 8)), dice.randint(1, 4))


@pytest.mark.properties
@given(st.integers(0, 2**32 - 1))
def test_pods_are_evicted_exactly_if_that_is_necessary_and_sufficient(seed: int):
    case = random_case(random.Random(seed))
    decision = schedule(case.snapshot)
    evicted = {one.pod for one in decision.evictions}
    everything = [
        f"{name}-{number}"
        for name, one in case.tenants.items()
        for number in range(len(one.places))
        if one.may_leave
    ]
    if case.fits_without(()):
        assert not evicted
        return
    assert bool(evicted) == case.fits_without(everything)
    assert evicted <= set(everything)
    assert not evicted or case.fits_without(evicted)


@pytest.mark.properties
@given(st.integers(0, 2**32 - 1))
def test_no_evicted_pod_could_have_stayed(seed: int):
    """Of each gang, no larger part could stay while the pods of other gangs leave as decided."""
    case = random_case(random.Random(seed))
    evicted = {one.pod for one in schedule(case.snapshot).evictions}
    for name, one in case.tenants.items():
        own = sorted(pod for pod in evicted if pod.startswith(f"{name}-"))
        assert one.remains(len(one.places) - len(own))
        for fewer in range(len(own)):
            if one.remains(len(one.places) - fewer):
                for leaving in itertools.combinations(own, fewer):
                    assert not case.fits_without(evicted - set(own) | set(leaving)), (own, leaving)


@pytest.mark.properties
@given(st.integers(0, 2**32 - 1))
def test_gang_is_placed_in_the_session_after_its_victims_have_left(seed: int):
    snapshot = random_case(random.Random(seed)).snapshot
    decision = schedule(snapshot)
    if decision.evictions:
        after = schedule(gone(asked_to_leave(snapshot, decision)))
        assert {pod for pod in placed(after) if pod.startswith("urgent-")}
        assert not after.evictions
