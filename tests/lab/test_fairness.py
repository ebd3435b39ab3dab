import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.crd.queue import Queue
from batchsched.lab.fairness import measure_queue_shares, water_fill
from batchsched.queues.entitlements import compute_entitlements
from batchsched.queues.queue_table import (
    QueueUsageAndDemand,
    TotalCapacity,
    build_queue_table,
    resolve_policies,
)
from batchsched.queues.sharing.policy import make_sharing_policy
from batchsched.queues.tree import QueueTree
from batchsched.simulator.result import ClusterSeries, QueueSeries, RunResult

GPU = "nvidia.com/gpu"


def queue(name, **spec):
    return Queue.model_validate({"metadata": {"name": name}, "spec": spec})


def result(rows, total=100):
    """A run of which queues tell (time, queue, held, wanted) in GPUs."""
    times, queues, held, wanted = zip(*rows, strict=True)
    told = QueueSeries((GPU,), times, queues, tuple((one,) for one in held), tuple((one,) for one in wanted))
    series = ClusterSeries((0,), {GPU: (0,)}, {GPU: (total,)}, (0,), (0,))
    return RunResult("w", "p", (), series, sessions=1, queues=told)


def fair(rows, *queues, total=100):
    made = measure_queue_shares(result(rows, total), queues)
    return dict(zip(made.queues, made.fair[-1].round(6).tolist(), strict=True))


def test_queues_without_guarantees_get_max_min_fair_shares():
    """The example of max-min fairness: demands 20, 26, 40 and 50 of 100 get 20, 26, 27 and 27.

    Source: Keshav, An Engineering Approach to Computer Networking, 1997, section 9.2.
    """
    rows = [(0, "a", 0, 20), (0, "b", 0, 26), (0, "c", 0, 40), (0, "d", 0, 50)]
    assert fair(rows) == {"a": 0.2, "b": 0.26, "c": 0.27, "d": 0.27}


def test_surplus_is_divided_by_weight_among_queues_with_unmet_demand():
    rows = [(0, "a", 0, 100), (0, "b", 0, 100), (0, "c", 0, 10)]
    assert fair(rows, queue("a", weight=2.0), queue("b")) == {"a": 0.6, "b": 0.3, "c": 0.1}


def test_guarantees_come_first_and_their_unused_part_is_shared():
    guaranteed = [
        queue("a", guarantee={GPU: 50}),
        queue("b", guarantee={GPU: 30}),
        queue("c", guarantee={GPU: 20}),
    ]
    everyone = [(0, "a", 0, 100), (0, "b", 0, 100), (0, "c", 0, 100)]
    assert fair(everyone, *guaranteed) == {"a": 0.5, "b": 0.3, "c": 0.2}
    idle = [(0, "a", 0, 10), (0, "b", 0, 100), (0, "c", 0, 100)]
    assert fair(idle, *guaranteed) == {"a": 0.1, "b": 0.5, "c": 0.4}


def test_a_guarantee_that_is_not_lent_stays_unused():
    queues = [queue("a", guarantee={GPU: 50}, lendingLimit={GPU: 20}), queue("b")]
    assert fair([(0, "a", 0, 0), (0, "b", 0, 100)], *queues) == {"a": 0.0, "b": 0.7}


def test_limits_and_borrowing_limits_bound_a_share():
    queues = [queue("a", limit={GPU: 30}), queue("b", guarantee={GPU: 10}, borrowingLimit={GPU: 5})]
    rows = [(0, "a", 0, 100), (0, "b", 0, 100), (0, "c", 0, 100)]
    assert fair(rows, *queues) == {"a": 0.3, "b": 0.15, "c": 0.55}


def test_guarantees_beyond_the_cluster_are_met_in_part():
    queues = [queue("a", guarantee={GPU: 150}), queue("b", guarantee={GPU: 50})]
    assert fair([(0, "a", 0, 200), (0, "b", 0, 200)], *queues) == {"a": 0.75, "b": 0.25}


def test_shares_are_divided_level_by_level():
    queues = [queue("left"), queue("right"), queue("a", parent="left"), queue("b", parent="left", weight=3.0)]
    rows = [(0, "a", 0, 100), (0, "b", 0, 100), (0, "right", 0, 100)]
    assert fair(rows, *queues) == {"a": 0.125, "b": 0.375, "right": 0.5}


def test_a_queue_of_weight_zero_gets_what_the_others_leave():
    queues = [queue("a", weight=0.0), queue("b")]
    assert fair([(0, "a", 0, 70), (0, "b", 0, 50)], *queues) == {"a": 0.5, "b": 0.5}
    assert fair([(0, "a", 0, 70), (0, "b", 0, 150)], *queues) == {"a": 0.0, "b": 1.0}


def test_gangs_of_a_parent_queue_share_with_its_children():
    queues = [queue("top"), queue("a", parent="top"), queue("b")]
    rows = [(0, "top", 0, 100), (0, "a", 0, 100), (0, "b", 0, 100)]
    assert fair(rows, *queues) == {"top": 0.25, "a": 0.25, "b": 0.5}


def test_a_queue_without_a_guarantee_has_that_of_its_children():
    queues = [queue("top"), queue("a", parent="top", guarantee={GPU: 80}), queue("b")]
    assert fair([(0, "a", 0, 100), (0, "b", 0, 100)], *queues) == {"a": 0.9, "b": 0.1}


def test_the_error_is_the_sum_of_the_missing_parts_of_fair_shares():
    """Σ max(0, fair share - held): a queue above its fair share does not compensate for another one."""
    rows = [(0, "a", 80, 100), (0, "b", 20, 100), (10, "b", 0, 0), (20, "a", 80, 80)]
    made = measure_queue_shares(result(rows), ())
    assert made.times.tolist() == [0, 10, 20]
    assert made.fairness_error_over_time.tolist() == pytest.approx([0.3, 0.2, 0.0])


def test_jains_index_is_one_for_equal_parts_and_one_nth_for_one_of_n():
    rows = [
        (0, "a", 50, 100),
        (0, "b", 50, 100),
        (1, "a", 100, 100),
        (1, "b", 0, 100),
        (2, "b", 0, 0),
        (3, "a", 0, 0),
    ]
    assert measure_queue_shares(result(rows), ()).jain_index_over_time.tolist() == pytest.approx(
        [1.0, 0.5, 1.0, 1.0]
    )


def test_the_most_requested_gpu_resource_is_measured():
    told = QueueSeries(("amd.com/gpu", "cpu", GPU), (0,), ("a",), ((1, 9000, 2),), ((1, 9000, 8),))
    total = {"amd.com/gpu": (8,), "cpu": (64000,), GPU: (8,)}
    made = RunResult(
        "w", "p", (), ClusterSeries((0,), dict.fromkeys(total, (0,)), total, (0,), (0,)), 1, queues=told
    )
    assert (measure_queue_shares(made, ()).resource, measure_queue_shares(made, ()).held.tolist()) == (
        GPU,
        [[0.25]],
    )
    assert measure_queue_shares(made, (), "cpu").held.tolist() == [[0.140625]]
    assert measure_queue_shares(made, (), "absent").fair.tolist() == [[0.0]]


def test_a_run_without_events_has_empty_series():
    made = measure_queue_shares(RunResult("w", "p", (), ClusterSeries((), {}, {}, (), ()), 0), ())
    assert made.fairness_error_over_time.shape == made.jain_index_over_time.shape == (0,)


@pytest.mark.properties
@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0])), min_size=1, max_size=6
    ),
    st.integers(0, 120),
)
def test_water_filling_uses_the_whole_budget_and_reaches_one_level(drawn, budget):
    caps, weights = np.array([[float(cap) for cap, _ in drawn]]), np.array([weight for _, weight in drawn])
    poured = water_fill(caps, weights, np.array([float(budget)]))[0]
    assert (poured >= 0).all()
    assert (poured <= caps[0] + 1e-9).all()
    wanted = caps[0][weights > 0].sum()
    assert poured.sum() == pytest.approx(min(budget, wanted))
    heavy = weights > 0
    level = (poured[heavy] / weights[heavy]).max(initial=0.0)
    # Every queue with unmet demand has the highest level.
    thirsty = poured[heavy] < caps[0][heavy] - 1e-9
    assert (poured[heavy] / weights[heavy])[thirsty] == pytest.approx(level)


_THOUSANDS = (1000).__mul__


@st.composite
def trees(draw):
    """Queues of a random tree with random settings, and the requests of each."""
    count = draw(st.integers(1, 6))
    amount = st.one_of(st.none(), st.integers(0, 60).map(_THOUSANDS))
    queues, wanted = [], {}
    for at in range(count):
        settings = {
            "weight": draw(st.sampled_from([0.0, 1.0, 2.0, 3.0])),
            "parent": draw(st.sampled_from([None, *(f"q{one}" for one in range(at))])),
        }
        guarantee, limit = draw(amount), draw(amount)
        if limit is not None:
            settings["limit"] = {GPU: limit}
        if guarantee is not None:
            guarantee = guarantee if limit is None else min(guarantee, limit)
            settings["guarantee"] = {GPU: guarantee}
            lending = draw(amount)
            if lending is not None:
                settings["lendingLimit"] = {GPU: min(lending, guarantee)}
        borrowing = draw(amount)
        if borrowing is not None:
            settings["borrowingLimit"] = {GPU: borrowing}
        queues.append(queue(f"q{at}", **settings))
        wanted[f"q{at}"] = _THOUSANDS(draw(st.integers(0, 80)))
    return queues, wanted


@pytest.mark.properties
@given(trees(), st.integers(1, 150).map(_THOUSANDS))
def test_fair_shares_of_the_lab_agree_with_the_entitlements_of_sessions(tree, total):
    """Another implementation of the same definition, which counts in whole devices."""
    queues, wanted = tree
    made = measure_queue_shares(
        result([(0, name, 0, amount) for name, amount in wanted.items()], total), queues
    )
    request = {name: np.array([amount], np.int64) for name, amount in wanted.items()}
    capacity = TotalCapacity((GPU,), np.array([total], np.int64), np.array([True]))
    shares = build_queue_table(QueueTree(queues), capacity, QueueUsageAndDemand({}, request))
    entitled = compute_entitlements(shares, resolve_policies(shares, make_sharing_policy("drf", {}), {}))
    for name, fair in zip(made.queues, made.fair[0] * total, strict=True):
        # A device or two on each level of the tree may go to one queue or another: of thousands.
        assert abs(min(entitled.fair[shares.own_gangs_row(name), 0], wanted[name]) - fair) <= 12.0
