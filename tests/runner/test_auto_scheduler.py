"""Simulations with the gang order `auto`."""

from batchsched.config.schema import Profile
from batchsched.lab.simulation import simulate_under_profile
from batchsched.simulator.run import RunSettings
from tests.simulator.clusters import gangs_of

CANDIDATES = [{"name": "fcfs"}, {"name": "headroom", "args": {"share": 0.25}}]


def profile(policy, **args):
    settings = {"name": policy, "args": args}
    return Profile.model_validate({"selection": "ordered", "backfill": "easy", "policy": settings})


def mixed_rows():
    """Long gangs of one pod that fill eight nodes, and short gangs of two pods that would wait for hours."""
    long_gangs = [(at * 900, 10_000, 1) for at in range(30)]
    return sorted(long_gangs + [(at * 1200 + 7, 10, 2) for at in range(20)])


def run(chosen_profile):
    return simulate_under_profile(gangs_of(mixed_rows(), slots=8), chosen_profile, RunSettings("auto"))


def test_auto_chooses_headroom_for_short_wide_gangs_among_long_ones():
    result = run(profile("auto", candidates=CANDIDATES))
    assert sum(result.chosen_policies.values()) == result.sessions
    assert result.chosen_policies["headroom:share=0.25"] > result.sessions / 2
    assert result.metrics().mean_slowdown < run(profile("fcfs")).metrics().mean_slowdown


def test_simulation_with_auto_repeats():
    assert run(profile("auto")) == run(profile("auto"))


def test_auto_with_one_candidate_gives_the_results_of_this_candidate():
    assert run(profile("auto", candidates=CANDIDATES[:1])).gangs == run(profile("fcfs")).gangs
