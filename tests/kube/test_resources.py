"""Paths of the API are formed as the API server has them."""

import pytest

from batchsched.kube.resources import LEASES, PODS, plural, resources


def test_the_path_of_a_collection_an_object_and_a_part_of_it():
    assert PODS.path() == "/api/v1/pods"
    assert PODS.path("batch") == "/api/v1/namespaces/batch/pods"
    assert PODS.path("batch", "one", "binding") == "/api/v1/namespaces/batch/pods/one/binding"
    assert LEASES.path("batch", "one") == "/apis/coordination.k8s.io/v1/namespaces/batch/leases/one"


@pytest.mark.parametrize(
    "kind, many",
    [
        ("Pod", "pods"),
        ("PriorityClass", "priorityclasses"),
        ("Topology", "topologies"),
        ("CSIStorageCapacity", "csistoragecapacities"),
        ("Ingress", "ingresses"),
    ],
)
def test_kinds_have_the_plural_that_the_api_gives_them(kind, many):
    assert plural(kind) == many


def test_every_kind_of_a_snapshot_is_where_the_api_server_has_it(plane):
    for kind, resource in resources():
        if "batchsched" in kind.api_version:
            continue  # a custom resource: it is there when its CRD is
        assert plane.admin.get(resource.path() + "?limit=1")["kind"] == f"{kind.name}List"
