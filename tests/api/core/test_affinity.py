import pytest

from batchsched.api.core.node import Taint
from batchsched.api.core.pod import PodAffinity, Toleration

TAINT = Taint(key="gpu", value="a100", effect="NoSchedule")


@pytest.mark.parametrize(
    "toleration, tolerates",
    [
        (Toleration(key="gpu", value="a100", effect="NoSchedule"), True),
        (Toleration(key="gpu", operator="Equal", value="a100"), True),
        (Toleration(key="gpu", operator="Equal", value="h100"), False),
        (Toleration(key="gpu", operator="Exists"), True),
        (Toleration(operator="Exists"), True),
        (Toleration(key="cpu", operator="Exists"), False),
        (Toleration(key="gpu", operator="Exists", effect="NoExecute"), False),
        (Toleration(key="gpu", operator="Like", value="a100"), False),
    ],
)
def test_toleration_matches_as_upstream_does(toleration, tolerates):
    assert toleration.tolerates(TAINT) is tolerates


def test_terms_that_are_not_stated_are_none_at_all():
    assert PodAffinity().required == ()
    assert PodAffinity().preferred == ()
