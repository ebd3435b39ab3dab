"""Two versions of an object are alike when scheduling sees no difference."""

from batchsched.api.crd.podgroup import PodGroupStatus
from batchsched.state.semantic_equality import alike
from tests.session.scenario import group
from tests.state.objects import ended, node, pod


def test_another_resource_version_makes_no_difference():
    assert alike(pod("a", 1), pod("a", 2))
    assert alike(node("n0", 1), node("n0", 2))


def test_spec_status_and_other_metadata_do():
    assert not alike(pod("a"), pod("a", on="n0"))
    assert not alike(pod("a"), ended(pod("a")))
    assert not alike(pod("a"), pod("a", labels={"x": "y"}))
    assert not alike(node("n0"), node("n0", cpu=1))


def test_status_of_a_custom_resource_makes_none_its_spec_does():
    assert alike(group("g"), group("g").model_copy(update={"status": PodGroupStatus(placed=1)}))
    assert not alike(group("g", 1), group("g", 2))
