"""Clocks that are wrong: on one machine or the other, and one that is set while the scheduler runs."""

import random
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.controlplane.fixtures import eventually
from tests.controlplane.process import LEASE_PATH, Terms
from tests.faults.load import Load
from tests.faults.replicas import Replica, running
from tests.faults.witness import Witness

CPUS = 16
PODS = 60
TAKES = 120.0
TERMS = Terms()
HOUR = 3600.0

pytestmark = pytest.mark.slow


def wrong_by(error: Path, seconds: float) -> tuple[str, ...]:
    """Return the command line of a scheduler with its clock shifted by the seconds in a file."""
    error.write_text(str(seconds))
    return (sys.executable, "-m", "tests.faults.skewed", str(error))


def test_lease_is_acquired_only_after_its_holder_ends_with_clocks_two_hours_apart(
    plane, namespace, tmp_path, record_property
):
    namespace.nodes(2 * PODS // CPUS + 1, cpu=CPUS)
    load = Load(namespace, random.Random(12))
    replicas = tuple(
        Replica(plane, name=f"clock-{at}", terms=TERMS, program=wrong_by(tmp_path / str(at), hours * HOUR))
        for at, hours in enumerate((-1, 1))
    )
    with Witness(plane.admin, CPUS).watching() as witness, running(*replicas) as pair:
        lead = pair.ready()
        spec = plane.admin.get(LEASE_PATH)["spec"]
        first, second = load.batch(PODS), load.batch(PODS)
        load.submit(first)
        eventually(lambda: load.whole(first, witness), TAKES)
        time.sleep(1.5 * TERMS.duration)
        later = plane.admin.get(LEASE_PATH)["spec"]
        assert (spec["holderIdentity"], spec["acquireTime"]) == (
            later["holderIdentity"],
            later["acquireTime"],
        )
        with load.submitting(second, 0.5):
            eventually(lambda: witness.bound(namespace.name, second.pods), TAKES)
            lead.end(signal.SIGKILL)
            killed = time.monotonic()
        eventually(lambda: load.whole(second, witness), TAKES)
        record_property("recovery_seconds", time.monotonic() - killed)
        print(f"all bound {time.monotonic() - killed:.2f} s after the kill")
        load.check([first, second], witness)


@pytest.mark.parametrize("jump", [-HOUR, HOUR], ids=["back", "forward"])
def test_scheduling_continues_when_the_clock_is_set(plane, namespace, tmp_path, record_property, jump):
    """What waits for room, and what comes later; and nothing that was bound is taken for overdue."""
    namespace.nodes(1, cpu=CPUS)
    load = Load(namespace, random.Random(13))
    error = tmp_path / "error"
    scheduler = Replica(plane, name="jumps", program=wrong_by(error, 0.0))
    with Witness(plane.admin, CPUS).watching() as witness, running(scheduler):
        first, second = load.batch(PODS), load.batch(PODS)
        load.submit(first)
        eventually(lambda: witness.bound(namespace.name, first.pods), TAKES)
        time.sleep(3)  # some were refused, and rest for longer and longer
        error.write_text(str(jump))
        begun = time.monotonic()
        load.submit(second)
        namespace.nodes(2 * PODS // CPUS, prefix="more", cpu=CPUS)
        eventually(lambda: load.whole(first, witness) and load.whole(second, witness), TAKES)
        record_property("recovery_seconds", time.monotonic() - begun)
        print(f"all bound {time.monotonic() - begun:.2f} s after the clock was set by {jump} s")
        load.check([first, second], witness)
        assert scheduler.starts == 1
        assert scheduler.runs
