from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.core.requests import pod_requests
from batchsched.simulator.generator import (
    DAY,
    FIRST_MONDAY_SECONDS,
    MAX_RUNTIME_SECONDS,
    WEEK,
    GeneratorSettings,
    generate_workload,
)


def gpus(arrival):
    return sum(pod_requests(pod)["nvidia.com/gpu"] for pod in arrival.pods)


def stated(arrival):
    return arrival.group.spec.expected_runtime_seconds


@given(seed=st.integers(0, 2**32))
def test_a_seed_gives_one_workload(seed):
    recipe = GeneratorSettings(gangs=20)
    assert generate_workload(recipe, seed) == generate_workload(recipe, seed)


def test_other_seeds_give_other_workloads():
    assert generate_workload(GeneratorSettings(gangs=20), 1) != generate_workload(
        GeneratorSettings(gangs=20), 2
    )


@given(seed=st.integers(0, 2**32), nodes=st.integers(1, 20), load=st.floats(0.1, 3.0))
def test_arrivals_are_in_order_fit_the_cluster_and_run_for_a_while(seed, nodes, load):
    made = generate_workload(GeneratorSettings(gangs=30, node_count=nodes, load=load), seed)
    times = [one.time for one in made.arrivals]
    assert times == sorted(times)
    assert min(times) >= FIRST_MONDAY_SECONDS
    assert all(1 <= one.runtime <= MAX_RUNTIME_SECONDS for one in made.arrivals)
    assert all(gpus(one) <= 8 * nodes for one in made.arrivals)
    assert all(one.min_member == len(one.pods) for one in made.arrivals)


@pytest.mark.parametrize("load", [0.5, 1.5])
def test_the_load_is_what_arrives_over_what_the_cluster_has(load):
    recipe = GeneratorSettings(gangs=3000, node_count=40, load=load)
    made = generate_workload(recipe, 5)
    work = sum(gpus(one) * one.runtime for one in made.arrivals)
    span = made.arrivals[-1].time - FIRST_MONDAY_SECONDS
    assert work / (span * 320) == pytest.approx(load, rel=0.05)


def test_most_gangs_are_one_device_and_large_ones_hold_most_device_hours():
    made = generate_workload(GeneratorSettings(gangs=4000, node_count=40), 3)
    sizes = Counter(gpus(one) for one in made.arrivals)
    assert sizes[1] / 4000 == pytest.approx(0.62, abs=0.03)
    assert set(sizes) == {1, 2, 4, 8, 16, 32, 64, 128}
    hours = np.array([gpus(one) * one.runtime for one in made.arrivals], np.float64)
    large = np.array([gpus(one) >= 8 for one in made.arrivals])
    assert hours[large].sum() > 0.5 * hours.sum()


def test_arrivals_follow_the_day_and_the_week():
    made = generate_workload(GeneratorSettings(gangs=6000, node_count=8, load=0.9), 3)
    times = np.array([one.time - FIRST_MONDAY_SECONDS for one in made.arrivals])
    whole = times[times < (times.max() // WEEK) * WEEK]
    afternoon = ((whole % DAY) >= DAY // 2) & ((whole % DAY) < DAY * 3 // 4)
    night = (whole % DAY) < DAY // 4
    assert afternoon.sum() > 1.5 * night.sum()
    weekend = (whole % WEEK) >= 5 * DAY
    assert weekend.sum() / 2 < 0.75 * (~weekend).sum() / 5


def test_estimates_are_exact_unless_said_otherwise():
    exact = generate_workload(GeneratorSettings(gangs=50), 1)
    assert all(stated(one) == one.runtime for one in exact.arrivals)
    over = generate_workload(GeneratorSettings(gangs=50, overestimate=1.0), 1)
    assert all(stated(one) >= one.runtime for one in over.arrivals)
    assert any(stated(one) > 2 * one.runtime for one in over.arrivals)
