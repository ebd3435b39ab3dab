"""Sessions leave no reference cycles: their tables are large, and full garbage collections are rare."""

import gc
from collections import Counter
from collections.abc import Callable

import pytest

from batchsched.api.snapshot import Snapshot
from batchsched.session.explanation.explain import explain_refusals
from batchsched.session.explanation.verification import DecidedInput
from tests.session.scenario import NOW, cluster, gang, group, nodes, pod, priority_class, profile, schedule

EIGHT = {"gpu": 8}


def with_victims() -> Snapshot:
    running = Snapshot(pods=(pod("low-0", group="low", on="n0", gpu=8),), pod_groups=(group("low", 1),))
    high = gang("high", 1, requests=EIGHT, priorityClassName="high")
    return cluster(nodes(1, gpu=8), running, high, priority_classes=(priority_class("high", 1000),))


def with_refusals() -> Snapshot:
    return cluster(nodes(2, gpu=8), *(gang(name, 2, requests=EIGHT) for name in ("first", "second")))


def with_different_requests() -> Snapshot:
    """More gangs of different requests than fit, so that all stages of the solver run."""
    gangs = (
        gang(f"g{number}", 1 + number % 3, requests={"cpu": 1 + number % 7, "gpu": 1 + number % 5})
        for number in range(120)
    )
    return cluster(nodes(40, cpu=32, gpu=8), *gangs)


def explain(snapshot: Snapshot) -> None:
    explain_refusals(DecidedInput(snapshot, profile(), NOW, 0, schedule(snapshot)))


def objects_in_cycles(action: Callable[[], object]) -> Counter[str]:
    """Return the objects of batchsched that only a garbage collection frees after an action, by class."""
    action()  # some caches are filled once
    gc.collect()
    gc.disable()
    try:
        action()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        return Counter(
            type(entry).__name__ for entry in gc.garbage if type(entry).__module__.startswith("batchsched")
        )
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize("make", [with_victims, with_refusals])
@pytest.mark.parametrize("settings", [{}, {"solver": {"enabled": False}}])
def test_session_is_freed_when_its_last_reference_ends(make, settings):
    assert not objects_in_cycles(lambda: schedule(make(), profile(**settings)))


def test_large_session_of_the_solver_is_freed_when_its_last_reference_ends():
    assert not objects_in_cycles(lambda: schedule(with_different_requests()))


def test_sessions_that_verify_refusals_are_freed_when_the_explanation_ends():
    assert not objects_in_cycles(lambda: explain(with_refusals()))
