"""Which resources have a column in the tables of a session."""

from typing import Any

from batchsched.api.core.pod import Pod
from batchsched.api.snapshot import Snapshot
from batchsched.state.resource_names import MAX_UNOFFERED_RESOURCES, ResourceColumnNames
from tests.session.scenario import node, pod


def requesting(*names: str, on: str = "") -> Pod:
    requests: dict[str, Any] = dict.fromkeys(names, 1)
    return pod("p", on=on, **requests)


def unoffered(count):
    return [f"x.com/r{number}" for number in range(count)]


def test_requested_resources_have_columns_although_no_node_offers_them():
    names = ResourceColumnNames(Snapshot(nodes=(node("n"),), pods=(requesting("cpu", "x.com/a"),)))
    assert names.with_column == {"cpu", "memory", "pods", "x.com/a"}
    assert names.has_columns_for_pod(requesting("x.com/a"))
    assert not names.has_columns_for_pod(requesting("x.com/b"))


def test_no_unoffered_resource_has_a_column_above_the_limit_and_further_names_change_nothing():
    for count, many in ((MAX_UNOFFERED_RESOURCES, False), (MAX_UNOFFERED_RESOURCES + 1, True)):
        pods = tuple(requesting(name) for name in unoffered(count))
        names = ResourceColumnNames(Snapshot(nodes=(node("n"),), pods=pods))
        assert names.has_too_many == many
        assert names.with_column == {"cpu", "memory", "pods"} | set(() if many else unoffered(count))
        assert names.has_columns_for_pod(requesting("x.com/new")) == many


def test_node_with_a_new_resource_is_not_covered_even_if_pods_request_it_already():
    pods = tuple(requesting(name) for name in unoffered(MAX_UNOFFERED_RESOURCES + 1))
    names = ResourceColumnNames(Snapshot(nodes=(node("n"),), pods=pods))
    assert names.has_columns_for_node(node("m"))
    offering: dict[str, Any] = {"x.com/r0": 1}
    assert not names.has_columns_for_node(node("m", **offering))


def test_pending_pod_above_a_limit_names_no_resource_and_a_bound_one_does():
    large = unoffered(100)
    assert ResourceColumnNames(Snapshot(pods=(requesting(*large),))).with_column == set()
    assert ResourceColumnNames(Snapshot(pods=(requesting(*large, on="n"),))).with_column == set(large)
