"""What safety needs is waited for; what is given up is a kind that there is."""

import pytest

from batchsched.api.snapshot import OBJECT_KINDS
from batchsched.runner.optional_kinds import WITHOUT


def test_what_can_be_done_without_is_a_part_of_a_snapshot():
    assert WITHOUT.keys() <= {kind.field for kind in OBJECT_KINDS}


@pytest.mark.parametrize(
    "field",
    ["nodes", "pods", "pod_groups", "queues", "namespaces", "pod_disruption_budgets", "csi_nodes"],
)
def test_nothing_is_decided_without_what_limits_a_decision(field):
    assert field not in WITHOUT
