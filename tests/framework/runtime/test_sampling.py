"""The number of nodes to find, and the start of the next search, against a model that visits one node at a time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.framework.cycle_state import CycleState
from batchsched.framework.filter_result import FilterResult, no_refusals
from batchsched.framework.runtime.sampling import NodeSampler, feasible_node_count_to_find, visiting_order
from batchsched.framework.status import SUCCESS
from tests.plugins.cluster import node, table


@pytest.mark.parametrize(
    "nodes, percentage, expected",
    [
        (0, 0, 0),
        (99, 0, 99),
        (99, 10, 99),
        (100, 0, 100),
        (300, 0, 144),
        (1000, 0, 420),
        (5000, 0, 500),
        (6000, 0, 300),
        (15000, 0, 750),
        (1000, 5, 100),
        (1000, 40, 400),
        (1000, 100, 1000),
        (120, 1, 100),
    ],
)
def test_number_of_nodes_to_find_equals_that_of_kube_scheduler(nodes, percentage, expected):
    assert feasible_node_count_to_find(nodes, percentage) == expected


def test_nodes_are_visited_in_turn_over_the_zones():
    zones = ["a", "a", "b", "c", "a", "b"]
    made = table(
        [node(f"n{at}", labels={"topology.kubernetes.io/zone": zone}) for at, zone in enumerate(zones)]
    )
    assert visiting_order(made).tolist() == [0, 2, 3, 1, 5, 4]


def test_zones_of_different_regions_differ_and_beta_labels_are_read():
    old, new = "failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"
    made = table(
        [node("n0", labels={new: "x"}), node("n1", labels={old: "x"}), node("n2", labels={new: "y"})]
    )
    assert visiting_order(made).tolist() == [0, 2, 1]


def scan_of(fits, outside=None):
    return FilterResult(CycleState(), SUCCESS, fits, no_refusals(len(fits)), outside=outside)


def model(order, fits, looked_at, start, enough):
    """Visit one node after the other; returns the nodes found and the number of nodes visited."""
    nodes = [at for at in order if looked_at[at]]
    found, seen = [], 0
    for step in range(len(nodes)):
        at = nodes[(start + step) % len(nodes)]
        seen += 1
        if fits[at]:
            found.append(at)
            if len(found) == enough:
                break
    return found, seen


@given(
    zones=st.lists(st.sampled_from(["", "a", "b"]), min_size=1, max_size=160),
    seed=st.integers(0, 2**31),
    percentage=st.integers(0, 100),
    data=st.data(),
    any_will_do=st.booleans(),
)
def test_each_search_continues_where_the_previous_one_ended(zones, seed, percentage, data, any_will_do):
    made = table(
        [node(f"n{at}", labels={"topology.kubernetes.io/zone": zone}) for at, zone in enumerate(zones)]
    )
    sampling = NodeSampler(made, percentage, seed, any_will_do=any_will_do)
    order, count = visiting_order(made).tolist(), len(zones)
    masks = st.integers(0, 2**31).map(lambda drawn: np.random.default_rng(drawn).random(count) < 0.8)
    start = sampling.start
    assert 0 <= start < count
    for _ in range(4):
        fits, outside = data.draw(masks), ~data.draw(masks)
        allowed = data.draw(st.none() | masks)
        looked_at = ~outside if allowed is None else ~outside & allowed
        enough = 1 if any_will_do else feasible_node_count_to_find(int(looked_at.sum()), percentage)
        found, seen = model(order, fits, looked_at, start, enough)
        narrowed = sampling.limit_to_sample(scan_of(fits & ~outside, outside), allowed)
        start = (start + seen) % count
        assert sampling.start == start
        if found:
            assert np.flatnonzero(narrowed.fits).tolist() == sorted(found)
        else:
            assert (narrowed.fits == (fits & ~outside)).all()


def test_the_seed_decides_where_the_first_search_starts():
    made = table([node(f"n{at}") for at in range(97)])
    starts = [NodeSampler(made, 0, seed).start for seed in range(20)]
    assert starts == [NodeSampler(made, 0, seed).start for seed in range(20)]
    assert len(set(starts)) > 10


def test_sampling_of_no_nodes_finds_none():
    scan = scan_of(np.zeros(0, np.bool_))
    assert NodeSampler(table([]), 0, 0).limit_to_sample(scan, None) is scan
