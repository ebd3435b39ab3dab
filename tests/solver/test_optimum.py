"""Small sessions end at the optimum that the exact model proves, and no bound is below it.

`python -m bench.solver --optimum 300` compares many more.
"""

import pytest

from bench.solver.optimum import TOLERANCE, compare_with_optimum

SEEDS = (3, 7, 9, 10)
"""Sessions with gangs that nodes refuse, proved in less than a second each."""


@pytest.mark.parametrize("seed", SEEDS)
def test_sessions_and_the_tiered_stage_alone_end_at_the_proved_optimum(seed: int):
    compared = compare_with_optimum(seed, units=2.0)
    assert compared.proved
    for answer in (compared.session, compared.tiered):
        assert answer.below <= TOLERANCE
        assert answer.low_bounds == ()
    assert compared.session.stage == "exact"
    assert compared.tiered.stage == "aggregated"
