from math import isnan

import pytest

from batchsched.errors import InvalidInput
from batchsched.lab.fairness import measure_queue_shares
from batchsched.lab.measures import MEASURES, RunOutcome
from batchsched.lab.pairs import (
    MeanInterval,
    compare_pairs,
    format_comparison_outcome,
    format_difference,
    group_by_policy,
    t_quantile,
)
from batchsched.simulator.result import ClusterSeries, RunResult


def outcome(policy, seed, wait, used=0.5):
    measures = {one.key: 0.0 for one in MEASURES} | {"meanWait": wait, "utilisation": used}
    result = RunResult("w", policy, (), ClusterSeries((), {}, {}, (), ()), 0)
    return RunOutcome(f"{policy}{seed}", seed, result, measure_queue_shares(result, ()), measures, 0.0)


def of(policy, *waits, used=0.5):
    return tuple(outcome(policy, seed, float(wait), used) for seed, wait in enumerate(waits))


def one(found, key):
    return next(part for part in found if part.measure.key == key)


def test_a_mean_has_a_student_t_interval_and_a_single_value_has_none():
    mean = MeanInterval.from_values([1.0, 2.0, 3.0])
    assert (mean.value, mean.sample_count) == (2.0, 3)
    assert mean.half_width == pytest.approx(4.3027 / 3**0.5, rel=1e-4)
    assert isnan(MeanInterval.from_values([1.0]).half_width)


def test_variation_between_seeds_cancels_in_pairs():
    found = one(compare_pairs(of("a", 10, 100, 1000), of("b", 9, 99, 999)), "meanWait")
    assert (found.difference.value, found.difference.half_width, found.outcome) == (-1.0, 0.0, "better")
    assert found.base.value == 370


@pytest.mark.parametrize(
    "other, expected", [((10, 20, 30), "same"), ((11, 21, 31), "worse"), ((0, 40, 20), "unclear")]
)
def test_an_outcome_needs_an_interval_without_zero(other, expected):
    assert one(compare_pairs(of("a", 10, 20, 30), of("b", *other)), "meanWait").outcome == expected


def test_a_higher_value_is_better_for_measures_that_should_rise():
    found = compare_pairs(of("a", 1, 2, used=0.5), of("b", 1, 2, used=0.6))
    assert one(found, "utilisation").outcome == "better"


def test_a_single_pair_decides_nothing():
    assert one(compare_pairs(of("a", 10), of("b", 1)), "meanWait").outcome == "unclear"


def test_only_seeds_of_both_policies_are_compared():
    assert one(compare_pairs(of("a", 10, 20, 30), of("b", 10, 20)), "meanWait").difference.sample_count == 2
    assert compare_pairs(of("a", 1), ()) == ()


def test_policies_keep_their_order():
    assert list(group_by_policy([*of("z", 1), *of("a", 1), *of("z", 2)])) == ["z", "a"]


@pytest.mark.parametrize(
    "other, text",
    [
        ((8, 18), "-2.0 s ± 0.0 s"),
        ((10, 20), "same"),
        ((12, 24), "+3.0 s ± 12.7 s"),
        ((3000, 9000), "+1.7 h ± 10.6 h"),
        ((10, 3600), "+0.5 h ± 6.3 h"),
    ],
    ids=["less", "same", "more", "hours", "one unit"],
)
def test_differences_are_written_with_their_interval(other, text):
    assert format_difference(one(compare_pairs(of("a", 10, 20), of("b", *other)), "meanWait")) == text


def test_differences_of_percentages_are_percentage_points():
    found = one(compare_pairs(of("a", 1, 2, used=0.5), of("b", 1, 2, used=0.6)), "utilisation")
    assert format_difference(found) == "+10.0 pp ± 0.0 pp"


@pytest.mark.parametrize(
    "used, text", [(0.49, "-1.0 pp ± 0.0 pp"), (0.4999, "0.0 pp ± 0.0 pp")], ids=["less", "hardly less"]
)
def test_differences_that_round_to_zero_have_no_sign(used, text):
    found = one(compare_pairs(of("a", 1, 2, used=0.5), of("b", 1, 2, used=used)), "utilisation")
    assert format_difference(found) == text


@pytest.mark.parametrize(
    "other, text",
    [((8, 18), "better: -2.0 s ± 0.0 s"), ((10, 20), "same"), ((12, 24), "unclear: +3.0 s ± 12.7 s")],
    ids=["better", "same", "unclear"],
)
def test_an_outcome_is_written_before_the_difference(other, text):
    assert format_comparison_outcome(one(compare_pairs(of("a", 10, 20), of("b", *other)), "meanWait")) == text


@pytest.mark.parametrize(
    "freedom, expected", [(1, 12.706), (2, 4.303), (4, 2.776), (9, 2.262), (30, 2.042), (2000, 1.960)]
)
def test_quantiles_equal_those_of_the_student_t_table(freedom, expected):
    assert t_quantile(freedom) == pytest.approx(expected, abs=5e-4)


def test_zero_degrees_of_freedom_are_refused():
    with pytest.raises(InvalidInput, match="two values"):
        t_quantile(0)


def test_the_share_of_pairs_with_a_lower_value_is_stated():
    found = one(compare_pairs(of("a", 5, 5, 5, 5), of("b", 6, 4, 6, 5)), "meanWait")
    assert found.lower == 0.25
