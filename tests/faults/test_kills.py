"""kill -9 at any moment: the next leader completes the binds of the previous one, and no pod is lost or bound twice."""

import pytest

from tests.controlplane.process import Terms
from tests.faults.kills import CPUS, Rounds, table
from tests.faults.replicas import pair, running
from tests.faults.witness import Witness

TERMS = Terms()


@pytest.mark.slow
def test_gangs_are_complete_whenever_leaders_are_killed(plane, namespace, record_property):
    with (
        Witness(plane.admin, CPUS).watching() as witness,
        running(*pair(plane, "killed", TERMS)) as replicas,
    ):
        rounds = Rounds(replicas, namespace, witness, seed=5)
        while sum(one.kills for one in rounds.done) < 10:
            print(rounds.run())
    print("\n".join(table(rounds.done)))
    record_property("recovery_seconds", max(one.whole for one in rounds.done))
